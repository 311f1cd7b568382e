"""A disk under packs and journals: it loses what was not synced, fails as told, keeps a caller waiting, and counts.

Rule: `restore` is what a start finds after the loss of power by the strict reading of POSIX: contents as of the file's
last sync, names as of the folder's. Of what was not synced, any sectors of any file may be there too, and the first
changes of names.
"""

import errno
import os
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from storage.embedded.local_files import Files
from storage.embedded.readable_bytes import SECTOR_BYTES
from storage.object_store import Buffer

SMALL_SECTOR_BYTES = 512
"""What a disk writes as a whole."""


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
        self.drops_pages = False
        """Whether a sync that fails makes nothing durable, and the next one believes that there is nothing to do (as
        Linux does); otherwise it has made everything durable, for all that anybody can know."""
        self._dirty: defaultdict[int, set[int]] = defaultdict(set)
        """The pages of each inode that were written since its last sync."""
        self._dropped: defaultdict[int, set[int]] = defaultdict(set)
        """The pages whose new content no sync will write."""
        self._changes: defaultdict[str, list[dict[str, int]]] = defaultdict(list)
        """The changes of names in each folder since its last sync: names, and their inodes; 0 where it is none."""
        self._lock = threading.Lock()
        """Held while contents or names are read and noted: an older reading must not be noted after a newer one."""
        self._synced: dict[int, bytes] = {}
        self._names: dict[str, dict[str, int]] = {}

    def fail(self, operation: str, code: int, *, times: int = 1) -> None:
        self.failures += [(operation, code)] * times

    def spoil(self, path: Path, position: int, code: int = errno.EIO) -> None:
        """Let the sector at a position of a file fail every read from now on."""
        self.bad.add((path.stat().st_ino, position // SECTOR_BYTES * SECTOR_BYTES, code))

    def kill(self) -> None:
        """End the process: its descriptors and locks are gone, and what it has written stays in the page cache."""
        for descriptor in self.open:
            os.close(descriptor)
        self.open.clear()
        self.before.clear()
        self.failures.clear()

    def restore(self, folder: Path, target: Path, chance: random.Random | None = None) -> Path:
        """Lay out in `target` what is left of `folder`; with `chance`, some of what was not synced too."""
        target.mkdir(parents=True)
        if folder.name not in self._names.get(str(folder.parent), {}):
            return target
        names, changes = dict(self._names.get(str(folder), {})), self._changes[str(folder)]
        contents = {path.stat().st_ino: self._durable(path) for path in folder.iterdir()}
        for change in changes[: chance.randint(0, len(changes))] if chance is not None else ():
            names |= change
        for name, inode in names.items():
            if inode:
                synced = self._synced.get(inode, b"")
                written = contents.get(inode, synced)
                left = synced if chance is None else torn(synced, written, lambda _: chance.random() < 0.5)
                (target / name).write_bytes(left)
        return target

    def adopt(self, folder: Path) -> None:
        """Take what is in `folder` as durable."""
        self._names[str(folder)] = {entry.name: entry.inode() for entry in os.scandir(folder)}
        self._synced = {path.stat().st_ino: path.read_bytes() for path in folder.iterdir()}

    def create(self, path: str) -> int:
        self._begin("create")
        descriptor = super().create(path)
        inode = os.fstat(descriptor).st_ino
        for known in (self._synced, self._dirty, self._dropped):
            known.pop(inode, None)  # of a file that had this inode before
        self._change(os.path.dirname(path), {os.path.basename(path): inode})
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
        """One that fails has closed it, as with Linux."""
        self.open.remove(descriptor)
        super().close(descriptor)
        self._begin("close")

    def write_at(self, descriptor: int, parts: Sequence[Buffer], position: int) -> None:
        """A write that fails has written half."""
        content = b"".join(parts)
        try:
            self._begin("write_at")
        except OSError:
            content = content[: len(content) // 2]
            self._write(descriptor, content, position)
            raise
        self._write(descriptor, content, position)

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
        try:
            self._begin("sync_data")
        except OSError:
            if self.drops_pages:
                inode = os.fstat(descriptor).st_ino
                self._dropped[inode] |= self._dirty.pop(inode, set())
            else:
                self._record(descriptor, "sync_data")
            raise
        self._record(descriptor, "sync_data")

    def sync_directory(self, path: str) -> None:
        self._begin("sync_directory")
        if self.left_out != "sync_directory" or not path.endswith(("packs", "journal")):
            with self._lock:
                self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}
                self._changes.pop(path, None)

    def rename(self, source: str, target: str) -> None:
        self._begin("rename")
        super().rename(source, target)
        inode = os.stat(target).st_ino
        self._change(os.path.dirname(target), {os.path.basename(source): 0, os.path.basename(target): inode})

    def unlink(self, path: str) -> None:
        self._begin("unlink")
        super().unlink(path)
        self._change(os.path.dirname(path), {os.path.basename(path): 0})

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

    def _write(self, descriptor: int, content: bytes, position: int) -> None:
        pages = set(range(position // SECTOR_BYTES, -(-(position + len(content)) // SECTOR_BYTES)))
        inode = os.fstat(descriptor).st_ino
        with self._lock:
            self._dirty[inode] |= pages
            self._dropped[inode] -= pages
        super().write_at(descriptor, [content], position)

    def _record(self, descriptor: int, operation: str) -> None:
        if self.left_out != operation:
            with self._lock:
                inode = os.fstat(descriptor).st_ino
                self._synced[inode] = self._durable(Path(f"/proc/self/fd/{descriptor}"))
                self._dirty.pop(inode, None)

    def _durable(self, path: Path) -> bytes:
        """What a sync makes durable: the content, but for pages that were dropped."""
        content, inode = path.read_bytes(), path.stat().st_ino
        synced = self._synced.get(inode, b"")
        for page in sorted(self._dropped.get(inode, ())):
            first, end = page * SECTOR_BYTES, min((page + 1) * SECTOR_BYTES, len(content))
            content = content[:first] + synced[first:end].ljust(max(end - first, 0), b"\0") + content[end:]
        return content

    def _change(self, folder: str, names: dict[str, int]) -> None:
        with self._lock:
            self._changes[folder].append(names)


def torn(before: bytes, after: bytes, is_new: Callable[[int], bool]) -> bytes:
    """What a loss of power leaves of a file that was written from `before` to `after` without a sync: each sector is
    either old or new, as `is_new` says of its number. A sector behind the old end is zeros where it is old."""
    old = before.ljust(len(after), b"\0")
    new = after.ljust(len(old), b"\0")
    sectors = range(0, len(old), SMALL_SECTOR_BYTES)
    return b"".join(
        (new if is_new(row) else old)[first : first + SMALL_SECTOR_BYTES] for row, first in enumerate(sectors)
    )
