"""A disk under packs and journals: it loses what was not synced, fails as told, keeps a caller waiting, and counts.

Rule: `restore` is what a start finds after the loss of power by the strict reading of POSIX: contents as of the file's
last sync, names as of the folder's.
"""

import errno
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from storage.embedded.local_files import Files
from storage.embedded.readable_bytes import SECTOR_BYTES
from storage.object_store import Buffer


class PackDisk(Files):
    """`left_out`: names of syncs that are only pretended."""

    def __init__(self, *, left_out: str = "") -> None:
        self.left_out = left_out
        self.calls: Counter[str] = Counter()
        self.open: set[int] = set()
        """Descriptors that somebody has."""
        self.failures: list[tuple[str, int]] = []
        """Operations that fail, each once, in any order; with which error."""
        self.before: dict[str, Callable[[], None]] = {}
        """Called before the operation, by the thread that carries it out."""
        self.bad: set[tuple[int, int, int]] = set()
        """Sectors that cannot be read: the file's inode, the position, and with which error."""
        self._lock = threading.Lock()
        """Held while contents or names are read and noted: an older reading must not be noted after a newer one."""
        self._synced: dict[int, bytes] = {}
        self._names: dict[str, dict[str, int]] = {}

    def fail(self, operation: str, code: int, *, times: int = 1) -> None:
        self.failures += [(operation, code)] * times

    def spoil(self, path: Path, position: int, code: int = errno.EIO) -> None:
        """Let the sector at a position of a file fail every read from now on."""
        self.bad.add((path.stat().st_ino, position // SECTOR_BYTES * SECTOR_BYTES, code))

    def restore(self, folder: Path, target: Path) -> Path:
        """Lay out in `target` what is left of `folder`."""
        target.mkdir(parents=True)
        if folder.name in self._names.get(str(folder.parent), {}):
            for name, inode in self._names.get(str(folder), {}).items():
                (target / name).write_bytes(self._synced.get(inode, b""))
        return target

    def adopt(self, folder: Path) -> None:
        """Take what is in `folder` as durable."""
        self._names[str(folder)] = {entry.name: entry.inode() for entry in os.scandir(folder)}
        self._synced = {path.stat().st_ino: path.read_bytes() for path in folder.iterdir()}

    def create(self, path: str) -> int:
        self._begin("create")
        descriptor = super().create(path)
        self._synced.pop(os.fstat(descriptor).st_ino, None)  # of a file that had this inode before
        self.open.add(descriptor)
        return descriptor

    def open_existing(self, path: str, *, is_writing: bool = False) -> int:
        self._begin("open_existing")
        descriptor = super().open_existing(path, is_writing=is_writing)
        self.open.add(descriptor)
        return descriptor

    def lock_directory(self, path: str) -> int:
        descriptor = super().lock_directory(path)
        self.open.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        self.open.remove(descriptor)
        super().close(descriptor)

    def write_at(self, descriptor: int, parts: Sequence[Buffer], position: int) -> None:
        """A write that fails has written half."""
        content = b"".join(parts)
        try:
            self._begin("write_at")
        except OSError:
            super().write_at(descriptor, [content[: len(content) // 2]], position)
            raise
        super().write_at(descriptor, parts, position)

    def read_at(self, descriptor: int, byte_count: int, position: int) -> bytes:
        self._begin("read_at")
        inode = os.fstat(descriptor).st_ino if self.bad else 0
        for spoilt, first, code in self.bad:
            if spoilt == inode and first < position + byte_count and position < first + SECTOR_BYTES:
                raise OSError(code, os.strerror(code))
        return super().read_at(descriptor, byte_count, position)

    def allocate(self, descriptor: int, first: int, end: int) -> None:
        self._begin("allocate")
        super().allocate(descriptor, first, end)

    def truncate(self, descriptor: int, file_bytes: int) -> None:
        self._begin("truncate")
        super().truncate(descriptor, file_bytes)

    def sync_file(self, descriptor: int) -> None:
        self._begin("sync_file")
        self._record(descriptor, "sync_file")

    def sync_data(self, descriptor: int) -> None:
        """A sync that fails has made everything durable, for all that anybody can know."""
        try:
            self._begin("sync_data")
        except OSError:
            self._record(descriptor, "sync_data")
            raise
        self._record(descriptor, "sync_data")

    def sync_directory(self, path: str) -> None:
        self._begin("sync_directory")
        if self.left_out != "sync_directory" or not path.endswith(("packs", "journal")):
            with self._lock:
                self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}

    def rename(self, source: str, target: str) -> None:
        self._begin("rename")
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._begin("unlink")
        super().unlink(path)

    def _begin(self, operation: str) -> None:
        self.calls[operation] += 1
        if operation in self.before:
            self.before[operation]()
        with self._lock:
            failure = next((failure for failure in self.failures if failure[0] == operation), None)
            if failure is not None:
                self.failures.remove(failure)
        if failure is not None:
            raise OSError(failure[1], os.strerror(failure[1]))

    def _record(self, descriptor: int, operation: str) -> None:
        if self.left_out != operation:
            with self._lock:
                self._synced[os.fstat(descriptor).st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()
