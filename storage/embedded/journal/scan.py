"""The contents of a journal's files, found by reading them, and the judgement on what cannot be read.

Rule: stored bytes are checked before they are believed (safety rule S20). Where a record cannot be read, the scan goes
on at the next one of the same file: damage costs what it hit. A write is synced before the next one begins. So what is
unreadable among the writes before the newest one that says so is damage. What is unreadable behind them may be torn by
a crash: there the journal ends, before the first write that is not whole. Pure: bytes come from `read`. Format:
`storage.embedded.journal.format`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from storage.embedded.journal.format import (
    FILE_HEADER_BYTES,
    NO_SUCCESSOR,
    RECORD_BYTES_READ,
    FileHeader,
    JournalRecord,
    RecordKind,
    is_named_after,
    next_record,
    nonces_in,
    read_file_header,
    read_record,
    resembles_needed_record,
    resembles_record,
)

Read = Callable[[int, int], bytes]
"""Up to so many bytes, from a position of the file; fewer at its end."""

NO_WRITE: Final = -1
SEARCH_BYTES: Final = 1 << 20
"""How much is read at once to find the next record; a multiple of a record's alignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedRecord:
    """A record whose header is readable, and where it is in its file. Its payload was not looked at."""

    position: int
    record: JournalRecord

    @property
    def end(self) -> int:
        return self.position + self.record.record_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """Bytes `[first, end)` of a file that belong to no readable record, with one behind them."""

    first: int
    end: int
    write_before: int
    """The newest write that ends before it; one less than the file's first where there is none."""
    write_behind: int
    """The write of the record behind it."""
    is_needed_perhaps: bool
    """Whether it begins like a record that is not deleted, a few bits of which have changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileScan:
    """The result of a scan of a file that was begun."""

    header: FileHeader
    """Where it is unreadable: as the file's name and its first record say."""
    is_renamed: bool
    """Whether the file is called by another number: somebody has renamed it, or it is to be used again."""
    is_header_damaged: bool
    """Whether the file's own header is unreadable, and no crash explains it: it lies in one sector, which is as a whole
    the new one, or what was there before."""
    is_header_torn: bool
    """Whether there are zeros instead of a header: a crash may leave them of a file's first write."""
    records: Sequence[LocatedRecord]
    """All records before the end of the file, in their order."""
    holes: Sequence[Hole]
    end: int
    """Where the last record ends."""
    ending: JournalRecord | None
    """The record that ends the file, if there is one: nothing was written behind it."""
    has_tail: bool
    """Whether what follows may have been a record."""

    @property
    def durable_write(self) -> int:
        """Every write before this one was synced, as far as this file says."""
        ending = () if self.ending is None else (self.ending,)
        records = (*(scanned.record for scanned in self.records), *ending)
        return max((record.write for record in records if record.is_synced_before), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedFile:
    """The part of a file that counts."""

    records: Sequence[LocatedRecord]
    """The records that count, in their order, without the one that ends the file."""
    end: int
    """Where the last one ends."""
    write_end: int
    """The number of the write that would follow there."""
    is_torn: bool
    """Whether something behind that end is left out that a crash may have torn, or damage."""
    damages: Sequence[str]
    """Certain damage, for people: writes that were synced and cannot be read."""
    damaged_write: int = NO_WRITE
    """Records before this write, or of it, may be missing because of damage; NO_WRITE without any."""


def scan_file(read: Read, number: int) -> FileScan | None:
    """All records of the file that is called by `number`; None where the file was never begun.

    A file that waits to be used again gets its next name before its next header. Where a crash has torn the first write
    of that use, the old header may still be there, and nothing of the old use is needed.
    """
    content = read(FILE_HEADER_BYTES, 0)
    own_header = read_file_header(content)
    header = _header_by_records(read, number, content) if own_header is None else own_header
    if header is None:
        return None
    records: list[LocatedRecord] = []
    holes: list[Hole] = []
    position, ending = FILE_HEADER_BYTES, None
    write_before = header.write_first - 1
    for scanned in records_from(read, header.nonce, FILE_HEADER_BYTES):
        if scanned.position > position:
            holes.append(
                Hole(
                    first=position,
                    end=scanned.position,
                    write_before=write_before,
                    write_behind=scanned.record.write,
                    is_needed_perhaps=resembles_needed_record(read(RECORD_BYTES_READ, position), header.nonce),
                )
            )
        position = scanned.end
        if scanned.record.kind is RecordKind.END:
            ending = scanned.record
            break
        records.append(scanned)
        if scanned.record.is_last_of_write:
            write_before = scanned.record.write
    is_renamed = header.number != number
    resembles = resembles_needed_record if is_renamed else resembles_record
    has_tail = ending is None and resembles(read(RECORD_BYTES_READ, position), header.nonce)
    if is_renamed and (holes or has_tail) and _is_next_use_begun(read, number):
        return None
    return FileScan(
        header=header,
        is_renamed=is_renamed,
        is_header_damaged=own_header is None and any(content),
        is_header_torn=own_header is None and not any(content),
        records=records,
        holes=holes,
        end=position,
        ending=ending,
        has_tail=has_tail,
    )


def judge(
    scan: FileScan,
    *,
    durable_write: int,
    write_end: int | None,
    is_whole: Callable[[LocatedRecord], bool],
) -> JudgedFile:
    """Decide how much of a file counts.

    Args:
        scan: the file's.
        durable_write: every write before this one was synced, as the whole journal says.
        write_end: the first write of the file behind it, from which on nothing here counts; None for the newest file.
        is_whole: whether the payload of a record is as it was written; asked only where a crash may have torn it.
    """
    records: list[LocatedRecord] = []
    end, write_next = FILE_HEADER_BYTES, scan.header.write_first
    is_cut = scan.is_header_torn and write_next >= durable_write
    for write in () if is_cut else _writes_before(scan.records, write_end):
        number = write[0].record.write
        is_complete = _is_complete(write)
        if number >= durable_write:
            # Damage before the first write that may be torn costs nothing of it.
            is_next = number == durable_write or (number == write_next and write[0].position == end)
            is_cut = not (is_next and is_complete and all(map(is_whole, write)))
            if is_cut:
                break
        records += write
        end, write_next = write[-1].end, number + is_complete
    lost_end = durable_write if write_end is None else min(durable_write, write_end)
    if scan.ending is None and write_next >= lost_end:
        is_cut |= scan.has_tail if write_end is None else write_next < write_end
    damages, damaged_write = _damages(scan, write_next=write_next, lost_end=lost_end, is_cut=is_cut)
    return JudgedFile(
        records=records,
        end=end,
        write_end=write_next,
        is_torn=is_cut,
        damages=damages,
        damaged_write=damaged_write,
    )


def successor_of(scan: FileScan) -> int | None:
    """The number of the file that was begun behind this one, as its end says; None where it says nothing of one.

    It is written once that file is durable. Without syncs a crash may have lost the file all the same.
    """
    ending = scan.ending
    is_certain = ending is not None and ending.is_synced_before and ending.stamp != NO_SUCCESSOR
    return ending.stamp if ending is not None and is_certain else None


def records_from(read: Read, nonce: bytes, position: int) -> Iterator[LocatedRecord]:
    """The readable records from `position` on. Where there is none, the next one."""
    while True:
        record = read_record(read(RECORD_BYTES_READ, position), nonce)
        if record is None:
            following = _search(read, nonce, position)
            if following is None:
                return
            position = following
            continue
        scanned = LocatedRecord(position=position, record=record)
        yield scanned
        position = scanned.end


def _damages(scan: FileScan, *, write_next: int, lost_end: int, is_cut: bool) -> tuple[Sequence[str], int]:
    """The unreadable parts of writes before `lost_end`, for people, and the newest write that they may concern."""
    holes = [hole for hole in scan.holes if hole.write_before + 1 < lost_end]
    # Over a file that was to be used again, a crash may have torn a write of which no record can be recognised.
    damages = [
        f"bytes {hole.first} to {hole.end} hold no readable record"
        for hole in holes
        if hole.is_needed_perhaps or not scan.is_renamed
    ]
    damaged_write = max((hole.write_behind for hole in holes), default=NO_WRITE)
    if scan.is_header_damaged or (scan.is_header_torn and not is_cut):
        damages.append("its header is unreadable")
    if scan.has_tail and write_next < lost_end:
        damages.append(f"from byte {scan.end} on it holds no readable record")
        damaged_write = lost_end
    return damages, damaged_write


def _writes_before(records: Sequence[LocatedRecord], write_end: int | None) -> Iterator[list[LocatedRecord]]:
    """The records of each write together, up to the write `write_end`."""
    for write in _writes(records):
        if write_end is not None and write[0].record.write >= write_end:
            return
        yield write


def _writes(records: Sequence[LocatedRecord]) -> Iterator[list[LocatedRecord]]:
    """The records of each write together."""
    write: list[LocatedRecord] = []
    for scanned in records:
        if write and scanned.record.write != write[0].record.write:
            yield write
            write = []
        write.append(scanned)
    if write:
        yield write


def _is_complete(write: Sequence[LocatedRecord]) -> bool:
    """Whether all records of a write are there, one directly behind the other."""
    if len(write) != write[0].record.count:
        return False
    return all(
        behind.position == before.end and behind.record.index == before.record.index + 1
        for before, behind in pairwise(write)
    )


def _header_by_records(read: Read, number: int, content: bytes) -> FileHeader | None:
    """The header of a file whose own is unreadable; None for a file that was never begun.

    A file is written from its beginning: what an earlier use of the file has left lies behind its own records.
    """
    if len(content) < FILE_HEADER_BYTES:
        return None
    for position, block in _blocks(read, FILE_HEADER_BYTES):
        for nonce in nonces_in(block):
            first = next_record(block, nonce)
            assert first is not None, "the record that gave the nonce"
            record = read_record(block[first : first + RECORD_BYTES_READ], nonce)
            assert record is not None, position
            return FileHeader(number=number, nonce=nonce, write_first=record.write)
    return None


def _is_next_use_begun(read: Read, number: int) -> bool:
    """Whether there is a record of the file that `number` belongs to."""
    return any(
        is_named_after(number, nonce) for _, block in _blocks(read, FILE_HEADER_BYTES) for nonce in nonces_in(block)
    )


def _search(read: Read, nonce: bytes, first: int) -> int | None:
    for position, block in _blocks(read, first):
        distance = next_record(block, nonce)
        if distance is not None:
            return position + distance
    return None


def _blocks(read: Read, first: int) -> Iterator[tuple[int, bytes]]:
    """The bytes from `first` on, in blocks that overlap, so that each header is in one block as a whole."""
    while block := read(SEARCH_BYTES + RECORD_BYTES_READ, first):
        yield first, block
        first += SEARCH_BYTES
