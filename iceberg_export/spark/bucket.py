"""A blocking client of the bucket, one for each process. Its requests run in a thread of their own.

It only reads. A client lives as long as its process. Spark uses a worker's process for many tasks, so they share its
connections. A bucket in a directory may be read beside a running broker, which has the locks.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import TypeVar

from iceberg_export.spark.options import OptionError
from iceberg_export.spark.tenant.access import AgentAccess
from iceberg_export.spark.tenant.agent_store import AgentStore
from iceberg_export.spark.tenant.client import AgentClient
from iceberg_export.spark.tenant.signed_reads import SignedReads
from iceberg_export.spark.tenant.vended_folders import VendedFolders
from protocol.limits import READ_GAP_BYTES_MAX
from storage.decorators.retrying import RetryingStore, RetryPolicy, RetryPorts
from storage.decorators.routed import RoutedStore
from storage.embedded.journal.opening import JOURNAL_FOLDER
from storage.embedded.journal.reader import JournalReader
from storage.embedded.local_store import PACKS_FOLDER, LocalStore
from storage.embedded.pack_reader import PackReader
from storage.object_store import ObjectDamaged, ObjectMissing, ObjectStore
from storage.refs import INTAKE_PREFIX
from storage.s3.settings import S3Settings
from storage.s3.store import S3Store

T = TypeVar("T")


class Bucket:
    """A blocking client of an `ObjectStore`. Its methods raise `StoreError`s, and any thread may call them.

    `read_gap_bytes`: bytes between two chunks of an intake object that are read along where that saves a request.
    """

    def __init__(self, store: ObjectStore, *, read_gap_bytes: int = READ_GAP_BYTES_MAX) -> None:
        self._store = store
        self.read_gap_bytes = read_gap_bytes
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="penstock-bucket", daemon=True)
        self._thread.start()

    def get(self, key: str) -> bytes:
        """The whole object."""
        return self.begin(key).result()

    def begin(self, key: str) -> "Future[bytes]":
        """The future of `get`, which does not block."""
        return self._run(self._store.get(key))

    def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        """Exactly `byte_count` bytes of the object, from `byte_first`."""
        return self.begin_range(key, byte_first, byte_count).result()

    def begin_range(self, key: str, byte_first: int, byte_count: int) -> "Future[bytes]":
        """The future of `get_range`, which does not block."""
        return self._run(self._store.get_range(key, byte_first, byte_count))

    def monotonic_s(self) -> float:
        """The time in seconds by the clock of `pause`."""
        return self._loop.time()

    def pause(self, seconds: float) -> None:
        """Block for that time; not at all where it is 0 or less."""
        if seconds > 0:
            self._run(_pause(seconds)).result()

    def run(self, work: Coroutine[object, object, T]) -> T:
        """The result of `work`, which may use `store`."""
        return self._run(work).result()

    @property
    def store(self) -> ObjectStore:
        """The store, for coroutines passed to `run`."""
        return self._store

    def close(self) -> None:
        """Close the store and end the thread. No method may be called afterwards."""
        self._run(self._store.close()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[object, object, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)


class AgentBucket(Bucket):
    """A blocking client of the objects that a tenant may read through an agent (`spark.tenant.agent_store`)."""

    def __init__(self, agent: AgentClient, store: AgentStore) -> None:
        """`agent`: the one that `store` reads through."""
        super().__init__(store, read_gap_bytes=0)
        self.agent = agent


_open: dict[tuple[int, str, tuple[tuple[str, str], ...]], Bucket] = {}
_open_agents: dict[tuple[int, AgentAccess], AgentBucket] = {}
_opening = Lock()


def open_bucket(url: str, variables: Mapping[str, str]) -> Bucket:
    """This process's client of the bucket at `url`. `variables`: AWS variables, which override the environment's.

    Raises `OptionError` or `StoreMisconfigured` where it cannot be a bucket.
    """
    # A forked process inherits the dictionary without the clients' threads, so the process id is part of the name.
    name = (os.getpid(), url, tuple(sorted(variables.items())))
    with _opening:
        if name not in _open:
            _open[name] = Bucket(open_store(url, {**os.environ, **variables}))
        return _open[name]


def open_agent(access: AgentAccess) -> AgentBucket:
    """This process's client of an agent for a tenant. Raises `StoreMisconfigured`."""
    name = (os.getpid(), access)
    with _opening:
        if name not in _open_agents:
            client = AgentClient(access, _PORTS)
            folders = VendedFolders(client, open_store, _monotonic_s, access.store_ca_file)
            signed = SignedReads(client, _PORTS, access.store_ca_file)
            _open_agents[name] = AgentBucket(client, AgentStore(client, folders, signed))
        return _open_agents[name]


def open_store(url: str, environment: Mapping[str, str]) -> ObjectStore:
    """The store of the bucket at `url`: `s3://BUCKET/PREFIX` or `file:///PATH`. Raises as `open_bucket` does."""
    scheme, _, rest = url.partition("://")
    store: ObjectStore
    match scheme.lower():
        case "s3" | "s3a":
            store = S3Store(S3Settings.from_environment(f"s3://{rest}", environment))
        case "file" if rest.startswith("/") and Path(rest).is_dir():
            files = LocalStore(Path(rest), is_writer=False)
            store = RoutedStore(INTAKE_PREFIX, EmbeddedIntake(Path(rest)), files)
        case "file":
            raise OptionError(f"{url}: the directory does not exist; a broker's bucket is DATA-DIR/store")
        case _:
            raise OptionError(f"{url!r} is no URL of a bucket: give s3://BUCKET/PREFIX or file:///PATH")
    return RetryingStore(store, policy=RetryPolicy(), ports=_PORTS)


class EmbeddedIntake(LocalStore):
    """The intake objects of a bucket in a directory, read-only, whose broker may be running.

    They are in packs in the directory, or in the journal beside it.
    """

    def __init__(self, bucket: Path) -> None:
        super().__init__(bucket / PACKS_FOLDER, is_writer=False)
        self._packs = PackReader(str(bucket / PACKS_FOLDER))
        self._journal = JournalReader(str(bucket.parent / JOURNAL_FOLDER))
        self._reading = Lock()  # a reader is for one thread at a time

    async def get(self, key: str) -> bytes:
        return await asyncio.to_thread(self._one_by_one, key, lambda reader: reader.get(key))

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        return await asyncio.to_thread(
            self._one_by_one, key, lambda reader: reader.get_range(key, byte_first, byte_count)
        )

    def _one_by_one(self, key: str, read: Callable[[JournalReader | PackReader], bytes]) -> bytes:
        """Packs are asked before the journal is looked through again: it is larger than what is left of them."""
        with self._reading:
            if self._journal.knows(key):
                return read(self._journal)
            try:
                return read(self._packs)
            except ObjectMissing:
                return read(self._journal)
            except ObjectDamaged:  # of what cannot be read in packs, it may be none
                with suppress(ObjectMissing):
                    return read(self._journal)
                raise


def _monotonic_s() -> float:
    return asyncio.get_running_loop().time()


async def _pause(seconds: float) -> None:
    """Sleep by the loop's own timer. The simulated clock of the agent's tests is not needed inside Spark."""
    elapsed = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(seconds, partial(_settle, elapsed))
    await elapsed


def _settle(elapsed: "asyncio.Future[None]") -> None:
    if not elapsed.done():
        elapsed.set_result(None)


def _chance() -> float:
    """A jitter in `[0, 1)` between readers that failed together: the fraction of a millisecond of the clock."""
    return _monotonic_s() * 1000 % 1


_PORTS = RetryPorts(monotonic_s=_monotonic_s, sleep=_pause, chance=_chance)
