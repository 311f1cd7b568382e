"""Reads a file of which the disk does not give back every byte: those count as zeros, and are remembered.

Rule: a disk reports a bad sector by an error of the read, and file systems with checksums report wrong bytes the same
way. That is damage of that stretch and of nothing else (safety rule S20): a scan finds no records in zeros, and goes on
behind them. `stretches` distinguishes these zeros from written ones. Every other error passes. Pure: bytes come from
`read`.
"""

import errno
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

UNREADABLE_ERRORS: Final = frozenset(
    {errno.EIO, errno.EBADMSG, getattr(errno, "EUCLEAN", errno.EIO)}  # macOS has no EUCLEAN
)
"""Errors of file systems for bytes that the disk lost, or whose checksum is wrong."""
SECTOR_BYTES: Final = 4096
"""The granularity of unreadable stretches: a page, and a sector of today's disks."""


class Stretch(NamedTuple):
    """Bytes `[first, end)` of a file that cannot be read, and why."""

    first: int
    end: int
    reason: str


class ReadableBytes:
    """One file. `read` gives up to so many bytes from a position, fewer at the end; `file_bytes` is asked where it
    fails."""

    def __init__(self, read: Callable[[int, int], bytes], file_bytes: Callable[[], int]) -> None:
        self._read = read
        self._file_bytes = file_bytes
        self._bad: dict[int, Stretch] = {}
        """By the number of the sector: no disk is asked twice, as each time may take it seconds."""

    def read(self, byte_count: int, position: int) -> bytes:
        """Up to `byte_count` bytes from `position`, fewer at the end of the file; zeros for what cannot be read."""
        if not self._has_bad(position, position + byte_count):
            try:
                return self._read(byte_count, position)
            except OSError as error:
                if error.errno not in UNREADABLE_ERRORS:
                    raise
        return self._read_by_sectors(position, min(position + byte_count, self._file_bytes()))

    @property
    def stretches(self) -> Sequence[Stretch]:
        """The ranges that could not be read so far, in the file's order, neighbours as one."""
        merged: list[Stretch] = []
        for _, bad in sorted(self._bad.items()):
            if merged and merged[-1].end == bad.first:
                merged[-1] = merged[-1]._replace(end=bad.end)
            else:
                merged.append(bad)
        return merged

    def unreadable(self, first: int, end: int) -> Stretch | None:
        """The first range of `[first, end)` that could not be read."""
        return next((bad for bad in self.stretches if bad.first < end and bad.end > first), None)

    def _has_bad(self, first: int, end: int) -> bool:
        return any(bad.first < end and bad.end > first for bad in self._bad.values())

    def _read_by_sectors(self, first: int, end: int) -> bytes:
        content = bytearray()
        position = first
        while position < end:
            sector_end = min(position - position % SECTOR_BYTES + SECTOR_BYTES, end)
            part = self._read_sector(position, sector_end)
            content += part
            if len(part) < sector_end - position:
                break  # the file became shorter meanwhile
            position = sector_end
        return bytes(content)

    def _read_sector(self, first: int, end: int) -> bytes:
        number = first // SECTOR_BYTES
        if number not in self._bad:
            try:
                return self._read(end - first, first)
            except OSError as error:
                if error.errno not in UNREADABLE_ERRORS:
                    raise
                sector = number * SECTOR_BYTES
                sector_end = min(sector + SECTOR_BYTES, self._file_bytes())
                self._bad[number] = Stretch(sector, sector_end, error.strerror or str(error))
        return bytes(end - first)
