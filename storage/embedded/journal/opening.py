"""Looks through the files of a journal at a start, and finds out what of them counts.

Rule: blocking. Nothing is changed here. What is unreadable is reported (safety rule S20). A file that somebody has
renamed is read by its own header. Judgement: `storage.embedded.journal.scan`.
"""

import errno
import os
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Final

from crc32c import crc32c

from storage.embedded.journal.format import (
    FORMAT,
    NO_SUCCESSOR,
    NUMBERS_END,
    RECORD_BYTES_READ,
    RECORD_HEADER_BYTES,
    RECORDS_FIRST,
    FileHeader,
    RecordKind,
    read_record,
)
from storage.embedded.journal.records import (
    FileFate,
    JournalContent,
    JournalFile,
    LocationColumns,
    RecordLocation,
    location_of,
)
from storage.embedded.journal.scan import (
    WRITES_SKIPPED,
    FileScan,
    LocatedRecord,
    Read,
    file_header,
    judge,
    scan_file,
)
from storage.embedded.local_files import Files
from storage.embedded.readable_bytes import ReadableBytes
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


@dataclass(slots=True, kw_only=True)
class OpenedFile:
    """A file as a start found it, and the records of it that count."""

    file: JournalFile
    write_first: int
    unsynced_first: int
    """From here to the file's end lie writes of which no record says that they were synced."""
    ending: range
    """Where the record lies that ends the file, of which none says that it was synced; empty if none counts."""
    is_torn: bool
    """Whether the journal ends in it, or where it ends: a crash has lost what was behind."""
    damaged_write: int
    durable_write: int
    """The file was judged by this: every write before it was synced."""
    damages: list[tuple[str, bool]]
    """The unreadable parts of it, for people, and whether each is damage for certain."""
    is_cut_off: bool = False
    """Whether a crash has lost the file behind it, which was written without syncs."""
    objects: list[tuple[str, RecordLocation]] = field(default_factory=list[tuple[str, RecordLocation]])
    """The objects that are not deleted, with their keys."""
    entries: LocationColumns = field(default_factory=LocationColumns)
    states: list[RecordLocation] = field(default_factory=list[RecordLocation])

    def leave_out(self) -> None:
        """Let nothing in it count."""
        self.objects, self.entries, self.states = [], LocationColumns(), []
        self.file.end = self.unsynced_first = RECORDS_FIRST
        self.ending = range(0)
        self.file.write_end = self.write_first
        self.file.is_open_ended = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedFiles:
    """All files of a folder."""

    begun: Sequence[OpenedFile]
    """The files that have something of a record, in the order of their own numbers."""
    unused: Sequence[int]
    """The names of the others."""
    content: JournalContent
    number_highest: int
    """Every number that is in use is at most this, also those of files that are missing; -1 without files."""


class JournalFiles:
    """The files of `folder`."""

    def __init__(self, folder: str, files: Files, *, on_damage: OnDamage = ignore_damage) -> None:
        self._folder = folder
        self._files = files
        self._on_damage = on_damage
        self._unreadable: list[int] = []
        """The numbers of files that had records, and of which nothing can be read."""
        self._headless: list[int] = []

    def path(self, number: int) -> str:
        return f"{self._folder}/{number:016x}{SUFFIX}"

    def numbers(self) -> list[int]:
        """The numbers of the files. An entry that has the name of one and is none is left out: a pipe would keep its
        reader waiting."""
        return [_number(entry) for entry in self._entries() if entry.is_file()]

    def is_empty(self) -> bool:
        """Whether no file has anything of a record. False where that is not known: something has the name of a file and
        is none, or the disk does not give it back. Raises `OSError`."""
        for entry in self._entries():
            if not entry.is_file():
                return False
            number = _number(entry)
            with self._opened(number) as held:
                header = file_header(held.read, number)
                if header is None:
                    is_empty = not _has_content(held)
                elif header.format != FORMAT or read_record(held.read(RECORD_BYTES_READ, RECORDS_FIRST), header.nonce):
                    is_empty = False
                else:
                    scan = scan_file(_reading_ahead(held.read), number)
                    is_empty = scan is not None and scan.is_empty and not held.stretches
            if not is_empty:
                return False
        return True

    def read_all(self) -> OpenedFiles:
        """Everything that counts. Raises `StoreMisconfigured` for files of a newer format, and `OSError`:
        `FileNotFoundError` where a file was removed, or used again, meanwhile."""
        strays = [entry for entry in self._entries() if not entry.is_file() and os.path.lexists(entry.path)]
        for entry in strays:
            self._report(_number(entry), "it is no regular file, and has the name of one")
        headers = self._headers()
        numbers = {*map(_number, strays), *self.numbers(), *(header.number for header in headers.values())}
        begun: list[OpenedFile] = []
        empty: dict[int, int] = {}
        durable_write, write_end = 0, None
        # The newest first: what earlier files have from its first write on does not count.
        for number, header in reversed(headers.items()):
            with self._opened(number) as held:
                scan = self._scan(held, number, header)
                durable_write = max(durable_write, scan.durable_write)
                numbers.add(scan.successor)
                if scan.is_empty and not _is_unreadable(held, RECORDS_FIRST):
                    empty[header.number] = number
                    continue
                opened = self._judge(held, number, scan, durable_write=durable_write, write_end=write_end)
            is_empty = scan.successor in empty
            is_lost = is_empty or (scan.successor != NO_SUCCESSOR and not begun)
            is_synced = scan.is_end_synced or (is_empty and headers[empty[scan.successor]].is_synced)
            opened.is_cut_off = is_lost and not is_synced
            if is_lost:
                lost = empty.pop(scan.successor, scan.successor) if is_synced else scan.successor
                self._report(lost, "its records are missing", is_certain=is_synced)
            if is_lost and is_synced:
                self._unreadable.append(scan.successor)
            write_end = header.write_first if write_end is None else min(write_end, header.write_first)
            begun.append(opened)
        self._judge_torn_again(begun, durable_write)
        begun.reverse()
        content = JournalContent(write_next=durable_write)
        content.has_gaps = bool(strays or self._unreadable) or any(one.file.fate is FileFate.KEEP for one in begun)
        newest = begun[-1].file.own_number if begun else -1
        # No file of this journal has a number that no other one could follow: it would seem to be missing indefinitely.
        if any(newest < number < NUMBERS_END for number in self._unreadable):
            content.damaged_write = EVERY_WRITE
        self._fill(content, begun)
        if content.damaged_write >= content.write_next:
            # What is missing may have had more writes, and may be put back: none of them is taken for one of these.
            content.write_next += WRITES_SKIPPED
        return OpenedFiles(
            begun=begun,
            unused=[*self._headless, *empty.values()],
            content=content,
            number_highest=max((number for number in numbers if number < NUMBERS_END), default=-1),
        )

    def _judge_torn_again(self, begun: list[OpenedFile], durable_write: int) -> None:
        """Judge again what seemed to be torn, where an older file says that it was synced: the end of a file does so of
        the first write behind it. `begun`: the newest first."""
        for row, torn in enumerate(begun):
            if torn.is_torn and torn.durable_write < durable_write:
                number = torn.file.number
                write_end = min((newer.write_first for newer in begun[:row]), default=None)
                with self._opened(number) as held:
                    scan = self._scan(held, number, file_header(held.read, number))
                    opened = self._judge(held, number, scan, durable_write=durable_write, write_end=write_end)
                opened.is_cut_off = torn.is_cut_off
                begun[row] = opened

    def _headers(self) -> dict[int, FileHeader]:
        """The headers by the numbers that the files are called by, in the order of their own numbers.

        Of two files with one nonce, one is a copy: the rightly named one counts, and the other one is reported.
        """
        headers: dict[int, FileHeader] = {}
        for number in self.numbers():
            with self._opened(number) as held:
                header = file_header(held.read, number)
                if header is not None and header.format != FORMAT:
                    reason = f"has format {header.format}, this program knows {FORMAT}: use the version that wrote it"
                    raise StoreMisconfigured(f"{self.path(number)} {reason}")
                if header is not None:
                    headers[number] = header
                elif _has_content(held):
                    self._unreadable.append(number)
                    self._report(number, "nothing of it is readable")
                else:  # a crash has kept it from getting its header, which is synced before there is more
                    self._headless.append(number)
        originals: dict[bytes, int] = {}
        for number in sorted(headers, key=lambda number: (headers[number].number, headers[number].number != number)):
            original = originals.setdefault(headers[number].nonce, number)
            if original != number:
                self._report(number, f"it is a copy of {self.path(original)}, and nothing in it counts")
        return {number: headers[number] for number in originals.values()}

    def _scan(self, held: ReadableBytes, number: int, header: FileHeader | None) -> FileScan:
        scan = scan_file(_reading_ahead(held.read), number)
        # For a reader beside the broker: its next use would look like damage.
        if scan is None or not header == scan.header == file_header(held.read, number):
            raise FileNotFoundError(errno.ENOENT, "it was used again meanwhile", self.path(number))
        return scan

    def _judge(
        self, held: ReadableBytes, number: int, scan: FileScan, *, durable_write: int, write_end: int | None
    ) -> OpenedFile:
        judged = judge(scan, durable_write=durable_write, write_end=write_end, is_whole=partial(_is_whole, held))
        damaged_write = judged.damaged_write
        is_end_unreadable = scan.ending is None and write_end is None and _is_unreadable(held, judged.end)
        if is_end_unreadable or (held.stretches and judged.is_torn):
            damaged_write = EVERY_WRITE  # a crash leaves no sector that cannot be read
        unreadable = [f"bytes {first} to {end} cannot be read: {reason}" for first, end, reason in held.stretches]
        damages = [(detail, True) for detail in (*judged.damages, *unreadable)]
        if judged.is_torn:
            damages.append((f"its last write is not whole: it ends at byte {judged.end}", False))
        is_open_ended = scan.ending is None or judged.is_torn
        fate = FileFate.REMOVE if is_open_ended else FileFate.REUSE
        file = JournalFile(
            number=number,
            own_number=scan.header.number,
            nonce=scan.header.nonce,
            is_synced=scan.header.is_synced,
            end=judged.end,
            write_end=judged.write_end,
            successor=scan.successor,
            is_open_ended=is_open_ended,
            fate=FileFate.KEEP if judged.damages or unreadable else fate,
        )
        unsynced = (each.position for each in judged.records if each.record.write >= durable_write)
        opened = OpenedFile(
            file=file,
            write_first=scan.header.write_first,
            unsynced_first=next(unsynced, judged.end),
            ending=range(0) if is_open_ended else range(scan.end - RECORD_HEADER_BYTES, scan.end),
            is_torn=judged.is_torn,
            damaged_write=damaged_write,
            durable_write=durable_write,
            damages=damages,
        )
        for scanned in judged.records:
            match scanned.record.kind:
                case RecordKind.OBJECT if scanned.record.is_live:
                    opened.objects.append((scanned.record.name, location_of(scanned, file)))
                case RecordKind.ENTRY:
                    opened.entries.append(location_of(scanned, file))
                case RecordKind.STATE:
                    opened.states.append(location_of(scanned, file))
                case _:
                    pass
        return opened

    def _fill(self, content: JournalContent, begun: Sequence[OpenedFile]) -> None:
        """Add what counts."""
        is_torn = False
        for opened in begun:
            for detail, is_certain in opened.damages:
                self._report(opened.file.number, detail, is_certain=is_certain)
            if opened.is_cut_off:
                opened.is_torn = opened.file.is_open_ended = True
            if is_torn:
                opened.leave_out()
                self._report(opened.file.number, "it is left out, as an earlier file is not whole", is_certain=False)
            is_torn |= opened.is_torn
            for key, location in opened.objects:
                if key in content.objects:
                    content.replaced.setdefault(key, []).append(content.objects[key])
                content.objects[key] = location
            content.entries.extend(opened.entries)
            content.states += opened.states
            content.damaged_write = max(content.damaged_write, opened.damaged_write)
            if opened.file.has_writes:
                content.write_next = max(content.write_next, opened.file.write_end)
            opened.file.objects_live = len(opened.objects)
            opened.file.entry_write_last = opened.entries[-1].write if opened.entries else -1

    def _report(self, number: int, detail: str, *, is_certain: bool = True) -> None:
        self._on_damage(StoreDamage(file=self.path(number), detail=detail, is_certain=is_certain))

    def _entries(self) -> list[os.DirEntry[str]]:
        with os.scandir(self._folder) as entries:
            return sorted(filter(lambda entry: _FILE_NAME.fullmatch(entry.name), entries), key=attrgetter("name"))

    @contextmanager
    def _opened(self, number: int) -> Generator[ReadableBytes]:
        descriptor = self._files.open_existing(self.path(number))
        try:
            yield self._files.readable(descriptor)
        finally:
            self._files.close(descriptor)


def _reading_ahead(read: Read) -> Read:
    """Reads of headers that lie close together, with one call of the system for some of them."""
    first, block = 0, b""

    def read_headers(byte_count: int, position: int) -> bytes:
        nonlocal first, block
        if position < first or position + byte_count > first + len(block):
            first, block = position, read(max(byte_count, _AHEAD_BYTES), position)
        return block[position - first : position - first + byte_count]

    return read_headers


def _has_content(held: ReadableBytes) -> bool:
    """Whether a file without a readable header may have had one."""
    content = held.read(RECORDS_FIRST + 1, 0)
    return len(content) > RECORDS_FIRST or any(content) or bool(held.stretches)


def _number(entry: os.DirEntry[str]) -> int:
    return int(entry.name.removesuffix(SUFFIX), 16)


def _is_unreadable(held: ReadableBytes, position: int) -> bool:
    """Whether the disk does not say whether a record begins there."""
    return held.unreadable(position, position + RECORD_HEADER_BYTES) is not None


def _is_whole(held: ReadableBytes, scanned: LocatedRecord) -> bool:
    """Whether the payload is as it was written."""
    first = scanned.position + scanned.record.payload_first
    payload = held.read(scanned.record.payload_bytes, first)
    if held.unreadable(first, first + scanned.record.payload_bytes) is not None:
        return False
    return len(payload) == scanned.record.payload_bytes and crc32c(payload) == scanned.record.payload_crc
