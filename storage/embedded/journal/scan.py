"""The contents of a journal's files, found by reading them, and the judgement on what cannot be read.

Rule: stored bytes are checked before they are believed (safety rule S20). Where a record cannot be read, the scan goes
on at the next one of the same file: damage costs what it hit. A write is synced before the next one begins. So what is
unreadable among the writes before the newest one that says so is damage. What is unreadable behind them may be torn by
a crash: there the journal ends, before the first write that is not whole. Pure: bytes come from `read`. Format:
`storage.embedded.journal.format`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

from storage.embedded.journal.format import (
    FILE_HEADER_BYTES,
    FILE_HEADER_POSITIONS,
    NO_SUCCESSOR,
    RECORD_BYTES_READ,
    RECORDS_FIRST,
    FileHeader,
    JournalRecord,
    RecordKind,
    next_record,
    read_file_header,
    read_record,
    resembles_record,
)

Read = Callable[[int, int], bytes]
"""Up to so many bytes, from a position of the file; fewer at its end."""

NO_WRITE: Final = -1
WRITES_SKIPPED: Final = 1 << 32
"""A journal whose newest writes may be missing goes on so many above those that are known. Should they come back, no
write has the number of another one."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FileScan:
    """The result of a scan of a file whose header is readable."""

    header: FileHeader
    header_damage: str
    """The damage of one of its two copies, for people, as both were synced before the file got its name; or empty."""
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
    def is_empty(self) -> bool:
        """Whether nothing of any record is there."""
        return not (self.records or self.holes or self.ending or self.has_tail)

    @property
    def synced_end(self) -> int:
        """Every write before this one was synced, in this file or an earlier one, as far as this file says."""
        if not self.header.is_synced:
            return 0
        newest = self.records[-1].record.write if self.records else self.header.write_first
        return newest if self.ending is None else max(newest, self.ending.write)

    @property
    def durable_write(self) -> int:
        """Every write before this one was synced, in whichever file, as far as this file says."""
        if self.ending is None or not self.header.is_synced:
            return self.synced_end
        return max(self.synced_end, self.ending.write + (self.successor != NO_SUCCESSOR))

    @property
    def is_end_synced(self) -> bool:
        """Whether the first write of the file behind was synced before the end of this one named that file."""
        return self.ending is not None and (self.header.is_synced or self.ending.index > 0)

    @property
    def successor(self) -> int:
        """The number of the file that was begun behind this one, as its end says; NO_SUCCESSOR where it names none."""
        return NO_SUCCESSOR if self.ending is None else self.ending.stamp


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


def file_header(read: Read, number: int) -> FileHeader | None:
    """The header of the file that is called by `number`; None where it has none, or both copies are unreadable.

    Where they differ, the file was begun again: of the new header, whose number is higher, a crash may have kept one
    copy from being written, and the file had its old name then. Or it has its new name, and the disk has lost a copy.
    """
    copies = filter(None, _header_copies(read))
    return max(copies, key=lambda copy: (copy.number == number, copy.number), default=None)


def scan_file(read: Read, number: int) -> FileScan | None:
    """All records of the file that is called by `number`; None where it has no readable header."""
    header = file_header(read, number)
    if header is None:
        return None
    copies = _header_copies(read)
    header_damage = "a copy of its header is unreadable" if None in copies else ""
    if any(copy is not None and copy != header and copy.number <= header.number for copy in copies):
        header_damage = "a copy of its header is that of an earlier file"
    records: list[LocatedRecord] = []
    holes: list[Hole] = []
    position, ending = RECORDS_FIRST, None
    write_before = header.write_first - 1
    for scanned in _records(read, header.nonce):
        if scanned.position > position:
            behind = scanned.record.write
            holes.append(Hole(first=position, end=scanned.position, write_before=write_before, write_behind=behind))
        position = scanned.end
        if scanned.record.kind is RecordKind.END:
            ending = scanned.record
            break
        records.append(scanned)
        if scanned.record.is_last_of_write:
            write_before = scanned.record.write
    return FileScan(
        header=header,
        header_damage=header_damage,
        records=records,
        holes=holes,
        end=position,
        ending=ending,
        has_tail=ending is None and resembles_record(read(RECORD_BYTES_READ, position), header.nonce),
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
    end, write_next = RECORDS_FIRST, scan.header.write_first
    is_cut = False
    for write in _writes(scan.records, write_end):
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
    if write_next >= lost_end:
        ends = [end for end in (write_end, scan.ending.write if scan.ending else None) if end is not None]
        # Where the journal has skipped writes, none is missing that counts.
        is_cut |= write_next < min(ends) < write_next + WRITES_SKIPPED // 2 if ends else scan.has_tail
    damages, damaged_write = _damages(scan, write_next=write_next, lost_end=lost_end)
    if write_end is not None and scan.synced_end > write_end:
        # Only a write that failed gets its number again, and nothing follows it in its file.
        damages.append(f"its writes from {write_end} on are in a file behind it, too, which does not follow it")
        damaged_write = scan.synced_end + WRITES_SKIPPED
    return JudgedFile(
        records=records, end=end, write_end=write_next, is_torn=is_cut, damages=damages, damaged_write=damaged_write
    )


def _header_copies(read: Read) -> list[FileHeader | None]:
    return [read_file_header(read(FILE_HEADER_BYTES, position)) for position in FILE_HEADER_POSITIONS]


def _damages(scan: FileScan, *, write_next: int, lost_end: int) -> tuple[list[str], int]:
    """The unreadable parts of writes before `lost_end`, for people, and the newest write that they may concern."""
    holes = [hole for hole in scan.holes if hole.write_before + 1 < lost_end]
    damages = [f"bytes {hole.first} to {hole.end} hold no readable record" for hole in holes]
    damaged_write = max((hole.write_behind for hole in holes), default=NO_WRITE)
    if scan.header_damage:
        damages.append(scan.header_damage)
    # A write whose last record is there lacks nothing behind it.
    is_tail_there = bool(scan.records) and scan.records[-1].record.is_last_of_write
    tail_write = scan.records[-1].record.write + 1 if is_tail_there else write_next
    if scan.ending is None and tail_write < lost_end:
        damages.append(f"from byte {scan.end} on it holds no readable record")
        damaged_write = lost_end
    return damages, damaged_write


def _writes(records: Sequence[LocatedRecord], write_end: int | None) -> Iterator[list[LocatedRecord]]:
    """The records of each write together, up to the write `write_end`."""
    for number, write in groupby(records, key=lambda scanned: scanned.record.write):
        if write_end is not None and number >= write_end:
            return
        yield list(write)


def _is_complete(write: Sequence[LocatedRecord]) -> bool:
    """Whether all records of a write are there, one directly behind the other."""
    if len(write) != write[0].record.count:
        return False
    return all(
        behind.position == before.end and behind.record.index == before.record.index + 1
        for before, behind in pairwise(write)
    )


def _records(read: Read, nonce: bytes) -> Iterator[LocatedRecord]:
    """The readable records. Where there is none, the next one."""
    position: int | None = RECORDS_FIRST
    while position is not None:
        record = read_record(read(RECORD_BYTES_READ, position), nonce)
        if record is None:
            position = _search(read, nonce, position)
        else:
            scanned = LocatedRecord(position=position, record=record)
            yield scanned
            position = scanned.end


def _search(read: Read, nonce: bytes, first: int) -> int | None:
    """Where the next record begins. Blocks overlap, so that each header is in one block as a whole."""
    while block := read(SEARCH_BYTES + RECORD_BYTES_READ, first):
        distance = next_record(block, nonce)
        if distance is not None:
            return first + distance
        first += SEARCH_BYTES
    return None
