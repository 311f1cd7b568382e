"""The contents of a pack, found by reading it: records, and the bytes between them that no record accounts for.

Rule: stored bytes are checked before they are believed (safety rule S20). Where a header cannot be read, the scan goes
on at the next record of the same pack: damage costs what it hit. Only a pack's last write can be torn by a crash, so
what is unreadable before it is damage, and what is unreadable in it may never have been acknowledged. A file whose
header names another pack was renamed: by the store, to be used again, once all of its objects were deleted; or by
somebody, where it holds objects. Pure: bytes come from `read`. Format: `storage.embedded.pack_format`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from storage.embedded.pack_format import (
    PACK_HEADER_BYTES,
    RECORD_BYTES_READ,
    PackHeader,
    PackRecord,
    is_marked_dead,
    is_named_after,
    next_record,
    nonces_in,
    read_pack_header,
    read_record,
    resembles_record,
)
from storage.store_damage import StoreDamage

Read = Callable[[int, int], bytes]
"""Up to so many bytes, from a position of the file; fewer at its end."""

SEARCH_BYTES = 1 << 20
"""How much is read at once to find the next record; a multiple of a record's alignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedRecord:
    """A record whose header is readable. Its payload was not looked at."""

    position: int
    record: PackRecord

    @property
    def end(self) -> int:
        return self.position + self.record.record_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Bytes `[first, end)` of the file that belong to no record, with a record behind them."""

    first: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PackScan:
    """The result of a scan. Without a nonce nothing was found."""

    nonce: bytes | None
    is_header_damaged: bool
    """The pack's own header is unreadable; the nonce is that of its first record."""
    own_number: int
    """The number in the file's name; for a renamed file the one in its header."""
    is_renamed: bool
    records: Sequence[ScannedRecord]
    """In their order, deleted objects included, the one that ends the pack left out."""
    gaps: Sequence[Gap]
    end: int
    """Where the last record ends."""
    has_tail: bool
    """Whether what follows may have been a record: a write that a crash has torn, or damage."""
    is_ended: bool
    """Whether the pack says that it ends here. Nothing in it can be torn."""

    @property
    def durable_end(self) -> int:
        """Everything before this was synced, once: what is unreadable there is damage.

        In a pack of before there were marks it is all of it. Where there are marks, and no record is the first of a
        write, that of the only write may be what a crash has torn.
        """
        firsts = [scanned.position for scanned in self.records if scanned.record.is_group_first]
        if not self.is_ended and firsts:
            return firsts[-1]
        is_torn = not self.is_ended and any(scanned.record.is_marked for scanned in self.records)
        return PACK_HEADER_BYTES if is_torn else self.end

    @property
    def damaged_gaps(self) -> Sequence[Gap]:
        """Gaps in what was synced."""
        durable_end = self.durable_end
        return [gap for gap in self.gaps if gap.end <= durable_end]

    def whole_end(self, is_whole: Callable[[ScannedRecord], bool]) -> int:
        """Where to cut what a crash has torn: behind the last whole record, and behind all that was synced."""
        has_groups = any(scanned.record.is_group_first for scanned in self.records)
        if self.is_ended:
            return self.end
        for scanned in reversed(self.records):
            if (has_groups and scanned.position < self.durable_end) or is_whole(scanned):
                return scanned.end
        return PACK_HEADER_BYTES if self.nonce is not None else 0


def scan_pack(read: Read, number: int) -> PackScan:
    """All records of the pack `number`."""
    header = read(PACK_HEADER_BYTES, 0)
    pack = pack_of(read, number)
    own_number, nonce = (number, None) if pack is None else pack
    records: list[ScannedRecord] = []
    gaps: list[Gap] = []
    position, is_ended = PACK_HEADER_BYTES, False
    for scanned in () if nonce is None else records_from(read, nonce, PACK_HEADER_BYTES):
        if scanned.position > position:
            gaps.append(Gap(first=position, end=scanned.position))
        position, is_ended = scanned.end, scanned.record.is_end
        if not is_ended:
            records.append(scanned)
    scan = PackScan(
        nonce=nonce,
        is_header_damaged=False,
        own_number=own_number,
        is_renamed=own_number != number,
        records=records,
        gaps=gaps,
        end=0 if nonce is None else position,
        has_tail=nonce is not None and not is_ended and resembles_record(read(RECORD_BYTES_READ, position), nonce),
        is_ended=is_ended,
    )
    return replace(scan, is_header_damaged=_is_damaged(header, scan))


def damages_of(scan: PackScan, file: str, *, is_newest: bool) -> Iterator[StoreDamage]:
    """The unreadable parts of a pack. The end of the newest may be what a crash has torn: that is not damage."""
    if scan.is_header_damaged:
        yield StoreDamage(file=file, detail="its header is unreadable")
    if scan.is_renamed:
        detail = f"it is {scan.own_number:016x}.pack by its header, or a copy of it, under another name"
        yield StoreDamage(file=file, detail=detail)
    damaged = scan.damaged_gaps
    for gap in scan.gaps:
        detail = f"bytes {gap.first} to {gap.end} hold no readable object"
        yield StoreDamage(file=file, detail=detail, is_certain=gap in damaged)
    if scan.has_tail and not is_newest:
        yield StoreDamage(file=file, detail=f"from byte {scan.end} on it holds no readable object")


def records_from(read: Read, nonce: bytes, position: int) -> Iterator[ScannedRecord]:
    """The readable records from `position` on, up to one that ends the pack. Where there is none, the next one."""
    while True:
        record = read_record(read(RECORD_BYTES_READ, position), nonce)
        if record is None:
            following = _search(read, nonce, position)
            if following is None:
                return
            position = following
            continue
        scanned = ScannedRecord(position=position, record=record)
        yield scanned
        if record.is_end:
            return
        position = scanned.end


def pack_of(read: Read, number: int) -> PackHeader | None:
    """The pack of the file `number` by its header; where that is unreadable, by its first record.

    None for a pack that was never begun: the file is empty, or an older pack's under a new name, all of it deleted.
    """
    header = read(PACK_HEADER_BYTES, 0)
    named = read_pack_header(header)
    if named is not None:
        return named if named.number == number or _has_objects(read, named.nonce, number) else None
    if len(header) < PACK_HEADER_BYTES:
        return None
    for _, block in _blocks(read, PACK_HEADER_BYTES):
        # A pack is written from its beginning: what an earlier use of the file has left lies behind its own records.
        for nonce in nonces_in(block, number):
            return PackHeader(number, nonce)
    return None


def own_number_of(read: Read, number: int) -> int:
    """The number of the pack in the file `number`: another one if the file was renamed."""
    named = read_pack_header(read(PACK_HEADER_BYTES, 0))
    if named is None or named.number == number or not _has_objects(read, named.nonce, number):
        return number
    return named.number


def _is_damaged(header: bytes, scan: PackScan) -> bool:
    """Whether `header` is that of a pack, and unreadable. Zeros are what a crash may leave of the first write."""
    if len(header) < PACK_HEADER_BYTES or read_pack_header(header) is not None:
        return False
    return any(header) or scan.durable_end > PACK_HEADER_BYTES


def _has_objects(read: Read, nonce: bytes, number: int) -> bool:
    """Whether something in the pack is not deleted, or may be something that cannot be read.

    What was written over it by its next use, under the name `number`, is neither: that repeats another nonce. Where a
    crash has torn the first write of that use, it may begin within a record's header.
    """
    position, has_damaged = PACK_HEADER_BYTES, False
    for scanned in records_from(read, nonce, PACK_HEADER_BYTES):
        if scanned.record.is_live:
            return True
        has_damaged |= scanned.position > position and _may_be_live(read, nonce, position)
        position = scanned.end
        if scanned.record.is_end:
            break
    else:
        has_damaged |= _may_be_live(read, nonce, position)
    return has_damaged and not _is_next_use_begun(read, nonce, number)


def _may_be_live(read: Read, nonce: bytes, position: int) -> bool:
    """Whether what is unreadable there may have been an object that is not deleted."""
    header = read(RECORD_BYTES_READ, position)
    return resembles_record(header, nonce) and not is_marked_dead(header)


def _is_next_use_begun(read: Read, nonce: bytes, number: int) -> bool:
    """Whether the pack that the file's name belongs to has a record in it."""
    for _, block in _blocks(read, PACK_HEADER_BYTES):
        if any(other != nonce and is_named_after(number, other) for other in nonces_in(block, number)):
            return True
    return False


def _search(read: Read, nonce: bytes, first: int) -> int | None:
    for position, block in _blocks(read, first):
        distance = next_record(block, nonce)
        if distance is not None:
            return position + distance
    return None


def _blocks(read: Read, first: int) -> Iterator[tuple[int, bytes]]:
    """The rest of the file, so that each header is in one block as a whole."""
    while block := read(SEARCH_BYTES + RECORD_BYTES_READ, first):
        yield first, block
        first += SEARCH_BYTES
