"""The bucket as a job without a broker reads it: blocking, and nothing but reads.

Rule: one thread at a time uses a reader. Errors are those of `storage.object_store`; nothing is tried again here, a job
has its own ways to do that.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from pathlib import Path
from threading import Thread
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from storage.embedded.local_files import Files, errors_of
from storage.embedded.local_store import PACKS_FOLDER
from storage.embedded.pack_reader import PackReader
from storage.keys import check_key
from storage.object_store import ObjectStore, StoreMisconfigured, cut_short
from storage.refs import INTAKE_PREFIX

T = TypeVar("T")


class BucketReader(Protocol):
    """Keys as in `storage.object_store.ObjectStore`."""

    def get(self, key: str) -> bytes:
        """The whole object. Raises `ObjectMissing`."""
        ...

    def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        """Exactly `byte_count` bytes from `byte_first`. Raises `ObjectMissing`, and `ObjectDamaged` where the object
        ends before them."""
        ...

    def close(self) -> None: ...


def open_bucket(url: str, environment: Mapping[str, str]) -> BucketReader:
    """The bucket at `url`: `s3://BUCKET/PREFIX` with the usual AWS_ variables of `environment`, or `file:///PATH` of a
    broker on this machine, which may run. Raises `StoreMisconfigured`."""
    parts = urlsplit(url)
    match parts.scheme:
        case "s3":
            from storage.s3.settings import S3Settings
            from storage.s3.store import S3Store

            return StoreReader(S3Store(S3Settings.from_environment(url, environment)))
        case "file" if not parts.netloc and parts.path:
            return LocalReader(Path(url.partition("://")[2]))  # as it stands: agents and engines decode no %20 either
        case _:
            raise StoreMisconfigured(f"{url!r} is no bucket: give s3://BUCKET/PREFIX or file:///PATH")


class LocalReader:
    """The bucket in the directory `root`, as `storage.embedded.local_store` and `storage.embedded.pack_store` keep
    it."""

    def __init__(self, root: Path) -> None:
        """Raises `StoreMisconfigured` where there is no such directory."""
        if not root.is_dir():
            raise StoreMisconfigured(f"{root} is no directory: give the folder of the broker's store, DATA_DIR/store")
        self._root = root
        self._files = Files()
        self._packs = PackReader(str(root / PACKS_FOLDER))

    def get(self, key: str) -> bytes:
        check_key(key)
        if key.startswith(INTAKE_PREFIX):
            return self._packs.get(key)
        with errors_of(key, is_read=True):
            return self._files.read(str(self._root / key))

    def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        check_key(key)
        if key.startswith(INTAKE_PREFIX):
            return self._packs.get_range(key, byte_first, byte_count)
        with errors_of(key, is_read=True):
            found = self._files.read_range(str(self._root / key), byte_first, byte_count)
        if len(found) != byte_count:
            raise cut_short(key, len(found), byte_first, byte_count)
        return found

    def close(self) -> None:
        """Nothing is held open."""


class StoreReader:
    """Any store, driven by a loop in a thread of its own: whoever reads may have a loop that runs, as notebooks do."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="bucket-reader", daemon=True)
        self._thread.start()

    def get(self, key: str) -> bytes:
        return self._run(self._store.get(key))

    def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        return self._run(self._store.get_range(key, byte_first, byte_count))

    def close(self) -> None:
        """Once; nothing can be read then."""
        self._run(self._store.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
