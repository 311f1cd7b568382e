"""Disk space that is reserved for ledger and snapshots, so that records can be deleted on a full disk.

The folder of an embedded ledger has a file of DISK_RESERVE_BYTES, and so does that of an embedded store on another file
system. When the disk is full the file is removed: then the ledger can write the entries, and the store the snapshots,
that free space. Records are rejected until there is space to make the file again. No acknowledged record depends on it.
"""

import asyncio
import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agent.runtime.clock import Clock
from agent.runtime.outages import Outage, OutageWords
from protocol.limits import DISK_CHECK_INTERVAL_S, DISK_INODES_WANTED, DISK_RESERVE_BYTES, DISK_RESERVE_DIVISOR

RESERVE_FILE = "reserve"
FULL_CODES = frozenset({errno.ENOSPC, errno.EDQUOT})
REMEDY = 'docs/operations/disk.md, "The disk is full"'
_ZEROS = bytes(1 << 20)
NO_INODES = "no inode is left, though bytes are free (df -i): no file can be made"
WORDS = OutageWords(
    fails=(
        "the disk is full: no records are accepted until there is room. Clients get retriable errors, reads and "
        "deletions go on, and no acknowledged record is lost. Free room on the disk, or delete records: "
        f"{REMEDY}"
    ),
    answers="there is room on the disk again: records are accepted",
)
UNSEEN_WORDS = OutageWords(
    fails="the free space of a data folder cannot be read, so only failed writes show a full disk: check the disk",
    answers="the free space of the data folder can be read again",
)


class Disk:
    """The operating system's calls. They raise `OSError`."""

    def file_system(self, folder: Path) -> int:
        """The number of the file system that `folder` lies on, or will lie on where it is not there yet."""
        while not folder.exists():
            folder = folder.parent
        return os.stat(folder).st_dev

    def free_bytes(self, folder: Path) -> int:
        stats = os.statvfs(folder)
        return stats.f_bavail * stats.f_frsize

    def free_inodes(self, folder: Path) -> int | None:
        """The number of files that can be made; None on a file system that has no such limit."""
        stats = os.statvfs(folder)
        return stats.f_favail if stats.f_files else None

    def size_bytes(self, folder: Path) -> int:
        stats = os.statvfs(folder)
        return stats.f_blocks * stats.f_frsize

    def make_file(self, path: Path, byte_count: int, room_bytes: int) -> None:
        """Make a file of `byte_count` bytes that has its blocks, where there is room for `room_bytes`."""
        # O_NONBLOCK: to open a FIFO of that name would wait indefinitely.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
        try:
            _allocate(descriptor, room_bytes)
            os.ftruncate(descriptor, byte_count)
        finally:
            os.close(descriptor)

    def remove_file(self, path: Path) -> None:
        path.unlink(missing_ok=True)


class DiskReserve:
    """Keeps room on the disk of `folder`. `begin` first, then `run`; `find_full` may be called by any thread."""

    def __init__(self, folder: Path, *, clock: Clock, disk: Disk | None = None) -> None:
        self._path = folder / RESERVE_FILE
        self._folder = folder
        self._clock = clock
        self._disk = Disk() if disk is None else disk
        self._bytes = DISK_RESERVE_BYTES
        self._outage = Outage(WORDS, monotonic_s=clock.monotonic_s)
        self._unseen = Outage(UNSEEN_WORDS, monotonic_s=clock.monotonic_s)
        self._unseen_reason: str | None = None
        self._has_blocks = False
        """Whether this process has seen that the file has its blocks, and not only its name."""
        self._when_full: list[Callable[[], None]] = []
        self.is_full = False
        """Whether records are rejected because the disk is full."""
        self.lacks_inodes = False
        """Whether the disk is full for want of inodes, with bytes free: `df -i` shows it, `df -h` does not."""

    def begin(self) -> None:
        """Make the reserve, or find that the disk is full. The folder is made where it is missing."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._bytes = min(DISK_RESERVE_BYTES, self._disk.size_bytes(self._folder) // DISK_RESERVE_DIVISOR)
        self.check()

    def when_full(self, release: Callable[[], None]) -> None:
        """Register `release`, called at each check while the disk is full: it frees space that is not needed."""
        self._when_full.append(release)

    def find_full(self) -> None:
        """Note that a write failed for want of space, and remove the reserve for the ledger."""
        with suppress(OSError):  # then the cause is taken to be bytes
            if not self.lacks_inodes and self._disk.free_bytes(self._folder) >= self._bytes // 4:
                self.lacks_inodes = self._are_inodes_few()
        self.is_full, self._has_blocks = True, False
        with suppress(OSError):  # the next check tries again
            self._disk.remove_file(self._path)

    def check(self) -> None:
        """Remove the reserve where the disk is nearly full; make it where there is room."""
        self._check_space()
        self._report()

    async def run(self) -> None:
        """Check the disk every DISK_CHECK_INTERVAL_S. Runs until it is cancelled."""
        while True:
            await self._clock.sleep(DISK_CHECK_INTERVAL_S)
            await asyncio.to_thread(self._check_space)
            self._report()

    def _check_space(self) -> None:
        self._unseen_reason = None
        try:
            free_bytes = self._disk.free_bytes(self._folder)
            if not self.is_full and self._path.exists() and free_bytes >= self._bytes // 4:
                # The file may lack its blocks: a kill while it was made leaves an empty one, a copied folder holes.
                is_room = self._has_blocks or self._make(self._bytes)
            else:
                # Twice the reserve, so that records are not accepted and rejected in turns as a little space comes and
                # goes. Inodes count only where a write failed for want of them: some file systems report none.
                are_inodes_missing = self.lacks_inodes and self._are_inodes_few()
                is_room = free_bytes >= 2 * self._bytes and not are_inodes_missing and self._make(2 * self._bytes)
        except OSError as error:
            self._unseen_reason = str(error)
            return
        if is_room:
            self.is_full = self.lacks_inodes = False
        else:
            self.find_full()

    def _are_inodes_few(self) -> bool:
        free = self._disk.free_inodes(self._folder)
        return free is not None and free < DISK_INODES_WANTED

    def _make(self, room_bytes: int) -> bool:
        """Give the file its blocks. False where the disk has no room for `room_bytes`, the file's own included."""
        try:
            self._disk.make_file(self._path, self._bytes, room_bytes)
        except OSError as error:
            with suppress(OSError):
                self._disk.remove_file(self._path)
            if error.errno not in FULL_CODES:
                raise
            return False
        self._has_blocks = True
        return True

    def _report(self) -> None:
        if self._unseen_reason is None:
            self._unseen.answered("look")
        else:
            self._unseen.failed("look", self._unseen_reason, key=str(self._folder))
        if not self.is_full:
            self._outage.answered("write")
            return
        self._outage.failed("write", NO_INODES if self.lacks_inodes else "no room is left", key=str(self._folder))
        for release in self._when_full:
            release()


class DiskReserves:
    """One reserve for each file system that the ledger or the store lies on."""

    def __init__(self, *, clock: Clock, disk: Disk | None = None) -> None:
        self._clock = clock
        self._disk = Disk() if disk is None else disk
        self._by_file_system: dict[int, DiskReserve] = {}

    def of(self, folder: Path) -> DiskReserve:
        """The reserve of the file system of `folder`; a new one is in `folder`, and not begun. Raises `OSError`.

        The caller begins it, after a folder that has to be durable was made by its owner.
        """
        file_system = self._disk.file_system(folder)
        if file_system not in self._by_file_system:
            self._by_file_system[file_system] = DiskReserve(folder, clock=self._clock, disk=self._disk)
        return self._by_file_system[file_system]

    def __len__(self) -> int:
        return len(self._by_file_system)

    @property
    def is_full(self) -> bool:
        """Whether records are rejected because any of the disks is full."""
        return any(reserve.is_full for reserve in self._by_file_system.values())

    @property
    def full_text(self) -> str:
        """The message for operators while a disk is full; empty otherwise."""
        full = [reserve for reserve in self._by_file_system.values() if reserve.is_full]
        if not full:
            return ""
        return f"the disk is full: {NO_INODES}" if any(each.lacks_inodes for each in full) else "the disk is full"

    async def run(self) -> None:
        """Check all disks. Runs until it is cancelled. A disk that hangs delays no check of another one."""
        async with asyncio.TaskGroup() as tasks:
            for reserve in self._by_file_system.values():
                tasks.create_task(reserve.run())


def _allocate(descriptor: int, byte_count: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, byte_count)
    else:  # macOS has none
        for first in range(0, byte_count, len(_ZEROS)):
            os.pwrite(descriptor, _ZEROS, first)
