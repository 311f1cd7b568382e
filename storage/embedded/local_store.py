"""A bucket in a directory, for embedded use: a put that returned survives the loss of power.

Rule: an object appears under its key whole or not at all. It is written under `.incomplete/`, synced, renamed (linked,
where the key must be absent), and the directory that got the name is synced; a new directory is synced into its parent,
up to the root. Decision, alternatives and measured cost: docs/adr/0004-embedded-durability.md.

One process writes at a time: it holds a lock on `.incomplete/`. What a crashed one left there goes at start. Blocking
calls run in two bounded pools, so that reads of cold files do not keep puts waiting.
"""

import asyncio
import errno
import os
import stat
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeVar

from storage.embedded.local_files import Files, errors_of
from storage.keys import check_key, check_prefix, is_key, printable
from storage.object_store import (
    Buffer,
    ObjectMeta,
    ObjectRejected,
    ObjectsNotDeleted,
    StoreError,
    StoreMisconfigured,
    cut_short,
)

INCOMPLETE_FOLDER = ".incomplete"
PACKS_FOLDER = ".packs"
"""The folder of the `PackStore` that has the intake."""
OWN_FOLDERS = frozenset({INCOMPLETE_FOLDER, PACKS_FOLDER})
WRITE_THREADS = 8
READ_THREADS = 8
EMPTY_FOLDER_DEPTH = 3
"""How deep empty folders are looked for: `intake/SESSION` and `lake/TOPIC/data`."""

LOOKED_AT_TOGETHER = 1_000
"""Files of a listing that one call of a thread looks at."""

_Result = TypeVar("_Result")


class LocalStore:
    """An `ObjectStore` below the directory `root`.

    `is_durable=False` leaves out every sync: faster, and a crash of the machine (not of the process) may lose objects
    that the ledger names. `is_writer=False` neither creates nor removes anything, for tools beside a running broker;
    puts and deletes are rejected. `is_guest=True` lets such a tool put, under other names while they are not whole.
    Raises `StoreMisconfigured` where `root` cannot be used.
    """

    def __init__(
        self,
        root: Path,
        *,
        is_durable: bool = True,
        is_writer: bool = True,
        is_guest: bool = False,
        files: Files | None = None,
    ) -> None:
        self._root = os.path.abspath(root)
        self._is_durable = is_durable
        self._is_writer = is_writer
        self._may_put = is_writer or is_guest
        self._files = Files() if files is None else files
        self._serial = count(os.getpid() << 32 if is_guest else 0)
        self._taken: set[str] = set()
        """Names below `.incomplete/` that the start could not remove."""
        self._durable_folders: set[str] = set() if is_writer else {self._root}
        self._held = -1
        self._writers = ThreadPoolExecutor(WRITE_THREADS, "store-write")
        self._readers = ThreadPoolExecutor(READ_THREADS, "store-read")
        if is_writer:
            with errors_of(str(root)):
                self._prepare()

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        """A cancelled put goes on in its thread: `parts` must not change until the store is closed."""
        self._check_writer(may=self._may_put)
        check_key(key)
        await self._in_thread(self._writers, lambda: self._put(key, parts, if_absent=if_absent))

    async def get(self, key: str) -> bytes:
        check_key(key)
        return await self._in_thread(self._readers, lambda: self._get(key))

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        check_key(key)
        return await self._in_thread(self._readers, lambda: self._get_range(key, byte_first, byte_count))

    async def head(self, key: str) -> ObjectMeta:
        check_key(key)
        return await self._in_thread(self._readers, lambda: self._head(key))

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        """A directory is read when the list arrives there, so what is put meanwhile may be missing.

        Links to directories are not followed: one that leads up would never come to an end.
        """
        check_prefix(prefix)
        pending = [*await self._in_thread(self._readers, partial(self._scan, prefix))]
        while pending:
            step = pending.pop()
            if isinstance(step, ObjectMeta):
                if step.key > after:
                    yield step
            elif not step.endswith("/"):
                together = [step]
                while pending and len(together) < LOOKED_AT_TOGETHER and _is_file_name(pending[-1]):
                    together.append(str(pending.pop()))
                keys = [key for key in together if key > after]
                for meta in await self._in_thread(self._readers, partial(self._look_at, keys)):
                    yield meta
            elif step > after or after.startswith(step):
                pending.extend(await self._in_thread(self._readers, partial(self._scan_below, step)))

    async def delete(self, keys: Sequence[str]) -> None:
        self._check_writer(may=self._is_writer)
        for key in keys:
            check_key(key)
        await self._in_thread(self._writers, lambda: self._delete(keys))

    async def server_time_ms(self) -> int | None:
        """None: a directory has no clock but this machine's."""
        return None

    async def close(self) -> None:
        """Wait for what runs, cancelled puts included, and give the threads back."""
        await asyncio.to_thread(self._shut_down)

    def _shut_down(self) -> None:
        self._writers.shutdown()
        self._readers.shutdown()
        if self._held >= 0:
            self._files.close(self._held)
            self._held = -1

    async def _in_thread(self, pool: ThreadPoolExecutor, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    def _check_writer(self, *, may: bool) -> None:
        if not may:
            raise StoreMisconfigured(f"{self._root} was opened for reading only")

    def _path(self, key: str) -> str:
        if key.split("/", 1)[0] in OWN_FOLDERS:
            raise ObjectRejected(f"{key!r} lies in a folder that this store keeps for itself")
        return f"{self._root}/{key}"

    # From here on: blocking, in a thread.

    def _prepare(self) -> None:
        missing: list[str] = []
        folder = self._root
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for path in reversed(missing):
            self._files.make_directory(path)
            self._sync_folder(os.path.dirname(path))
        self._durable_folders.add(self._root)
        self._make_folder(f"{self._root}/{INCOMPLETE_FOLDER}")
        self._held = self._files.lock_directory(f"{self._root}/{INCOMPLETE_FOLDER}")
        for leftover in os.listdir(f"{self._root}/{INCOMPLETE_FOLDER}"):
            try:
                self._files.unlink(f"{self._root}/{INCOMPLETE_FOLDER}/{leftover}")
            except OSError:  # a directory, say, that no put made: it costs a name
                self._taken.add(leftover)
        _remove_empty_folders(self._root, depth=0)

    def _make_folder(self, folder: str) -> None:
        """Make `folder` durable, and those above it. One that exists may be the work of a crash: it is synced too."""
        if folder in self._durable_folders:
            return
        parent = os.path.dirname(folder)
        self._make_folder(parent)
        self._files.make_directory(folder)
        self._sync_folder(parent)
        self._durable_folders.add(folder)

    def _sync_folder(self, folder: str) -> None:
        if self._is_durable:
            self._files.sync_directory(folder)

    def _put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool) -> None:
        files = self._files
        target = self._path(key)
        folder = os.path.dirname(target)
        name = next(name for name in map("{:x}".format, self._serial) if name not in self._taken)
        incomplete = f"{self._root}/{INCOMPLETE_FOLDER}/{name}"
        with errors_of(key):
            self._make_folder(folder)
            is_moved = False
            try:
                self._write(incomplete, parts)
                if if_absent:
                    files.link(incomplete, target)
                else:
                    files.rename(incomplete, target)
                    is_moved = True
            finally:
                if not is_moved:
                    with suppress(OSError):
                        files.unlink(incomplete)
            self._sync_folder(folder)

    def _write(self, path: str, parts: Sequence[Buffer]) -> None:
        """A failed sync may have dropped the dirty pages: a repeated put writes a new file, never syncs this again."""
        descriptor = self._files.create(path)
        try:
            self._files.write(descriptor, parts)
            if self._is_durable:
                self._files.sync_file(descriptor)
        finally:
            self._files.close(descriptor)

    def _get(self, key: str) -> bytes:
        with errors_of(key, is_read=True):
            return self._files.read(self._path(key))

    def _get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        with errors_of(key, is_read=True):
            content = self._files.read_range(self._path(key), byte_first, byte_count)
        if len(content) != byte_count:
            raise cut_short(key, len(content), byte_first, byte_count)
        return content

    def _head(self, key: str) -> ObjectMeta:
        with errors_of(key, is_read=True):
            status = os.stat(self._path(key))
            if not os.path.isfile(self._path(key)):
                raise FileNotFoundError(errno.ENOENT, "a directory is no object", key)
        return ObjectMeta(key=key, size_bytes=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000)

    def _look_at(self, keys: Sequence[str]) -> Sequence[ObjectMeta]:
        """Files of a listing; those that went away meanwhile are left out, and no other."""
        return [meta for key in keys if (meta := self._listed(key)) is not None]

    def _listed(self, key: str) -> ObjectMeta | None:
        path = self._path(key)
        try:
            status = os.stat(path)
        except OSError as error:
            is_gone = isinstance(error, FileNotFoundError | NotADirectoryError)
            if is_gone and not os.path.lexists(path):
                return None
            return _unlisted(key, "a link that leads nowhere" if is_gone else f"{error.strerror}")
        if stat.S_ISREG(status.st_mode):
            return ObjectMeta(key=key, size_bytes=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000)
        if stat.S_ISDIR(status.st_mode):
            return _unlisted(key, "a link to a folder, which is not followed") if os.path.islink(path) else None
        return _unlisted(key, "no file, but a pipe, a socket or a device")

    def _scan(self, prefix: str) -> Sequence[str | ObjectMeta]:
        """The entries of one directory, last first by whole keys: the name of a directory ends with `/`, and what is no
        key comes with its fault."""
        names: deque[str | ObjectMeta] = deque()
        with (
            errors_of(prefix),
            suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(f"{self._root}/{prefix}") as entries,
        ):
            for entry in entries:
                key = prefix + entry.name
                if not is_key(key):
                    names.append(_unlisted(printable(key), "its name is no key of an object"))
                elif key not in OWN_FOLDERS:
                    names.append(f"{key}/" if _is_folder(entry) else key)
        return sorted(names, key=_name, reverse=True)

    def _scan_below(self, prefix: str) -> Sequence[str | ObjectMeta]:
        """The same of a directory that the list came upon: one that cannot be read is named, and holds up no other.
        The one that was asked for is an error, as nothing would be known."""
        try:
            return self._scan(prefix)
        except StoreError as error:
            return [_unlisted(prefix, f"the folder cannot be listed: {error}")]

    def _delete(self, keys: Sequence[str]) -> None:
        """Synced: the garbage collector forgets what it has deleted, and does not look for what a loss of power brings
        back."""
        folders: dict[str, list[str]] = {}
        reasons: dict[str, StoreError] = {}
        for key in keys:
            try:
                with errors_of(key), suppress(FileNotFoundError, NotADirectoryError):
                    self._files.unlink(self._path(key))
                    folders.setdefault(os.path.dirname(self._path(key)), []).append(key)
            except StoreError as error:
                reasons[key] = error
        for folder, unlinked in folders.items():
            try:
                with errors_of(folder), suppress(FileNotFoundError):
                    self._sync_folder(folder)
            except StoreError as error:  # a loss of power may bring any of them back
                reasons |= dict.fromkeys(unlinked, error)
        if reasons:
            raise ObjectsNotDeleted(reasons)


def _unlisted(key: str, fault: str) -> ObjectMeta:
    return ObjectMeta(key=key, size_bytes=0, modified_ms=0, fault=fault)


def _name(step: str | ObjectMeta) -> str:
    return step if isinstance(step, str) else step.key


def _is_file_name(step: str | ObjectMeta) -> bool:
    return isinstance(step, str) and not step.endswith("/")


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:  # what it is shows when it is looked at by its name
        return False


def _remove_empty_folders(folder: str, *, depth: int) -> None:
    """Drop the folders that sessions and topics left empty. Lists no deeper than those, so that a start stays quick. A
    folder that cannot be read stays: only tidiness is lost."""
    if depth < EMPTY_FOLDER_DEPTH:
        below: list[str] = []
        with suppress(OSError), os.scandir(folder) as entries:
            below += [entry.path for entry in entries if _is_folder(entry) and entry.name not in OWN_FOLDERS]
        for path in below:
            _remove_empty_folders(path, depth=depth + 1)
    if depth:
        with suppress(OSError):
            os.rmdir(folder)
