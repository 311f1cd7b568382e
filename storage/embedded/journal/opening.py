"""Looks through the files of a journal at a start, and finds out what of them counts.

Rule: blocking. Nothing is changed here. What is unreadable is reported (safety rule S20). A file that somebody has
renamed is read by its own header. Judgement: `storage.embedded.journal.scan`.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from crc32c import crc32c

from storage.embedded.journal.format import (
    FILE_HEADER_BYTES,
    FORMAT,
    NUMBERS_END,
    RecordKind,
    read_file_header,
)
from storage.embedded.journal.records import JournalContent, JournalFile, RecordLocation, location_of
from storage.embedded.journal.scan import FileScan, JudgedFile, LocatedRecord, judge, scan_file, successor_of
from storage.embedded.local_files import Files
from storage.embedded.readable_bytes import ReadableBytes, Stretch
from storage.object_store import StoreMisconfigured
from storage.store_damage import OnDamage, StoreDamage, ignore_damage

JOURNAL_FOLDER: Final = "journal"
"""The folder of the journal, beside the folder of the bucket."""
SUFFIX: Final = ".journal"
EVERY_WRITE: Final = 1 << 63
"""Above the number of any write: nothing shows what is missing."""
_FILE_NAME = re.compile(rf"([0-9a-f]{{16}}){re.escape(SUFFIX)}")
_AHEAD_BYTES: Final = 1 << 14
"""How much is read at once of headers: some tens of small records, and little beside one large record."""


class _NamedScan(NamedTuple):
    """The number that a file is called by, its contents, and what of it the disk did not give back."""

    number: int
    scan: FileScan
    stretches: Sequence[Stretch]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedFile:
    """A file as a start found it."""

    file: JournalFile
    scan: FileScan
    judged: JudgedFile
    is_renamed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedFiles:
    """All files of a folder."""

    begun: Sequence[OpenedFile]
    """The files that were begun, in the order of their own numbers."""
    unused: Sequence[int]
    """The names of files in which nothing was begun."""
    content: JournalContent
    number_highest: int
    """Every number that is in use is at most this; -1 without files."""


class JournalFiles:
    """The files of `folder`."""

    def __init__(self, folder: str, files: Files, *, on_damage: OnDamage = ignore_damage) -> None:
        self._folder = folder
        self._files = files
        self._on_damage = on_damage
        self._copies: list[int] = []
        self._unreadable: list[int] = []

    def path(self, number: int) -> str:
        return f"{self._folder}/{number:016x}{SUFFIX}"

    def numbers(self) -> list[int]:
        """The numbers of the files. An entry that has the name of one and is none is left out: a pipe would keep its
        reader waiting."""
        return sorted(int(entry.name[:16], 16) for entry in self._entries() if entry.is_file())

    def strays(self) -> Sequence[StoreDamage]:
        """The entries that have the name of a file of the journal and are none."""
        strays = [entry for entry in self._entries() if not entry.is_file() and os.path.lexists(entry.path)]
        return [
            StoreDamage(
                file=self.path(int(entry.name[:16], 16)), detail="it is no regular file, and has the name of one"
            )
            for entry in sorted(strays, key=lambda entry: entry.name)
        ]

    def read_all(self) -> OpenedFiles:
        """Everything that counts. Raises `StoreMisconfigured` for files of a newer format, and `OSError`."""
        strays = self.strays()
        for stray in strays:
            self._on_damage(stray)
        scans, unused = self._scan_all()
        durable_write = max((named.scan.durable_write for named in scans), default=0)
        begun: list[OpenedFile] = []
        is_cut = False
        for row, named in enumerate(scans):
            write_end = min((later.scan.header.write_first for later in scans[row + 1 :]), default=None)
            begun.append(self._judge(named, durable_write=durable_write, write_end=write_end, is_void=is_cut))
            is_cut |= begun[-1].judged.is_torn
        has_damage = bool(strays or self._unreadable) or any(opened.file.is_set_aside for opened in begun)
        content = JournalContent(has_gaps=has_damage)
        self._fill(content, begun, durable_write)
        own_numbers = [opened.file.own_number for opened in begun]
        numbers = [*own_numbers, *self.numbers()]
        highest = max((number for number in numbers if number < NUMBERS_END), default=-1)
        return OpenedFiles(begun=begun, unused=unused, content=content, number_highest=highest)

    def _scan_all(self) -> tuple[list[_NamedScan], list[int]]:
        """The files that were begun, in the order of their own numbers, and the names of the others.

        Of two files with one nonce, one is a copy: the rightly named one counts, and the other one is reported.
        """
        scans: list[_NamedScan] = []
        unused: list[int] = []
        for number in self.numbers():
            with self._opened(number) as held:
                self._check_format(number, held)
                scan = scan_file(HeaderReads(held.read), number)
                if scan is not None:
                    scans.append(_NamedScan(number, scan, held.stretches))
                elif held.stretches or _is_damaged(held.read(FILE_HEADER_BYTES, 0)):
                    self._unreadable.append(number)
                    self._report(number, "nothing of it is readable")
                else:
                    unused.append(number)
        scans.sort(key=lambda named: (named.scan.header.number, named.scan.is_renamed))
        originals: dict[bytes, int] = {}
        for named in scans:
            original = originals.setdefault(named.scan.header.nonce, named.number)
            if original != named.number:
                self._copies.append(named.number)
                self._report(named.number, f"it is a copy of {self.path(original)}, and nothing in it counts")
        return [named for named in scans if named.number not in self._copies], unused

    def _judge(self, named: _NamedScan, *, durable_write: int, write_end: int | None, is_void: bool) -> OpenedFile:
        path, scan = self.path(named.number), named.scan
        with self._opened(named.number) as held:

            def is_whole(scanned: LocatedRecord) -> bool:
                return _is_whole(held, scanned)

            judged = judge(scan, durable_write=durable_write, write_end=write_end, is_whole=is_whole)
            if is_void:
                judged = replace(
                    judged, records=(), end=FILE_HEADER_BYTES, write_end=scan.header.write_first, is_torn=True
                )
            stretches = (*named.stretches, *held.stretches)
            size_bytes = os.stat(path).st_size
        if stretches and judged.is_torn:
            judged = replace(judged, damaged_write=EVERY_WRITE)  # a crash leaves no sector that cannot be read
        unreadable = [f"bytes {first} to {end} cannot be read: {reason}" for first, end, reason in stretches]
        for detail in (*judged.damages, *unreadable):
            self._report(named.number, detail)
        if judged.is_torn:
            detail = f"its last write is not whole: it ends at byte {judged.end}"
            self._on_damage(StoreDamage(file=path, detail=detail, is_certain=False))
        is_set_aside = bool(judged.damages or unreadable)
        file = JournalFile(
            number=named.number,
            own_number=scan.header.number,
            nonce=scan.header.nonce,
            write_first=scan.header.write_first,
            end=judged.end,
            write_end=judged.write_end,
            allocated_bytes=size_bytes,
            is_damaged=is_set_aside,
            is_set_aside=is_set_aside,
            is_headless=scan.is_header_torn and judged.is_torn,
            is_open_ended=scan.ending is None or judged.is_torn or not scan.ending.is_synced_before,
        )
        return OpenedFile(file=file, judged=judged, scan=scan, is_renamed=scan.is_renamed)

    def _fill(self, content: JournalContent, begun: Sequence[OpenedFile], durable_write: int) -> None:
        """Sort the records that count by their kinds."""
        for opened in begun:
            content.damaged_write = max(content.damaged_write, opened.judged.damaged_write)
            for scanned in opened.judged.records:
                location = location_of(scanned, opened.file)
                content.write_next = max(content.write_next, location.write + 1)
                match scanned.record.kind:
                    case RecordKind.OBJECT if scanned.record.is_live:
                        _add_object(content, scanned.record.name, location)
                    case RecordKind.ENTRY:
                        content.entries.append(location)
                        opened.file.entry_write_last = location.write
                    case RecordKind.STATE:
                        content.states.append(location)
                    case _:
                        pass
        content.write_next = max(content.write_next, durable_write)
        newest = max((opened.file.number for opened in begun), default=-1)
        if any(number > newest for number in self._unreadable):
            content.damaged_write = EVERY_WRITE
        successor = successor_of(begun[-1].scan) if begun else None
        if successor is not None:
            content.damaged_write = EVERY_WRITE
            self._report(successor, f"it is missing: it was begun behind {self.path(begun[-1].file.number)}")

    def _check_format(self, number: int, held: ReadableBytes) -> None:
        header = read_file_header(held.read(FILE_HEADER_BYTES, 0))
        if header is not None and header.format != FORMAT:
            raise StoreMisconfigured(
                f"{self.path(number)} has format {header.format}, this program knows {FORMAT}: use the version that "
                "wrote it"
            )

    def _report(self, number: int, detail: str) -> None:
        self._on_damage(StoreDamage(file=self.path(number), detail=detail))

    def _entries(self) -> list[os.DirEntry[str]]:
        with os.scandir(self._folder) as entries:
            return [entry for entry in entries if _FILE_NAME.fullmatch(entry.name)]

    def _opened(self, number: int) -> "_Opened":
        return _Opened(self._files, self.path(number))


class HeaderReads:
    """Reads of headers that lie close together, with one call of the system for some of them."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        self._first = 0
        self._block = b""

    def __call__(self, byte_count: int, position: int) -> bytes:
        """Up to so many bytes, from a position of the file; fewer at its end."""
        start = position - self._first
        if start < 0 or start + byte_count > len(self._block):
            self._first, self._block, start = position, self._read(max(byte_count, _AHEAD_BYTES), position), 0
        return self._block[start : start + byte_count]


class _Opened:
    """A file that is open for reading, for a block."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> ReadableBytes:
        self._descriptor = self._files.open_existing(self._path)
        return self._files.readable(self._descriptor)

    def __exit__(self, *_: object) -> None:
        self._files.close(self._descriptor)


def _add_object(content: JournalContent, key: str, location: RecordLocation) -> None:
    earlier = content.objects.get(key)
    if earlier is not None:
        content.replaced.append(earlier)
    location.file.objects_live += 1
    content.objects[key] = location


def _is_damaged(header: bytes) -> bool:
    """Whether a file that was never begun, by its records, has other bytes than one that was not: zeros, or the header
    of an earlier use."""
    return len(header) == FILE_HEADER_BYTES and any(header) and read_file_header(header) is None


def _is_whole(held: ReadableBytes, scanned: LocatedRecord) -> bool:
    """Whether the payload is as it was written."""
    first = scanned.position + scanned.record.payload_first
    payload = held.read(scanned.record.payload_bytes, first)
    if held.unreadable(first, first + scanned.record.payload_bytes) is not None:
        return False
    return len(payload) == scanned.record.payload_bytes and crc32c(payload) == scanned.record.payload_crc
