"""Files of a journal, and records in them, as the rest of a process knows them."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from storage.embedded.journal.format import RECORD_HEADER_BYTES, aligned
from storage.embedded.journal.scan import NO_WRITE, LocatedRecord
from storage.object_store import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """The entry to append. `stamp` is the owner's number for it: at least 0, below 2**63."""

    parts: Sequence[Buffer]
    stamp: int


@dataclass(slots=True, kw_only=True, eq=False)
class JournalFile:
    """A file of the folder. What of it is needed is known to its owner: `objects_live` and `entry_write_last`."""

    number: int
    """The number that it is called by."""
    own_number: int
    """The number in its header, which is another one where it was renamed: files are in the order of these."""
    nonce: bytes
    write_first: int
    end: int
    """Where the next record goes, or would go; 0 before the first write."""
    write_end: int
    """The number of the write that goes there, or would go."""
    allocated_bytes: int = 0
    """Up to here the file has blocks."""
    objects_live: int = 0
    entry_write_last: int = -1
    """The newest write that has an entry; -1 without one."""
    is_headless: bool = False
    """A crash has torn its first write, and its header with it: nothing in it counts."""
    is_open_ended: bool = False
    """It could not be marked where it ends: only the next file says it, which must not be removed before this one."""
    is_damaged: bool = False
    """Something in it cannot be read, or marked as deleted. It is not used again."""
    is_set_aside: bool = False
    """Nor is it removed: what it held is not known for certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLocation:
    """Where a record lies; positions are the file's."""

    file: JournalFile
    record_first: int
    payload_first: int
    payload_bytes: int
    payload_crc: int
    stamp: int
    write: int

    @property
    def end(self) -> int:
        """Where the next record begins."""
        return aligned(self.payload_first + self.payload_bytes)


class LocationColumns:
    """Locations of records without a name, in the order of their stamps: columns, as there may be many."""

    def __init__(self) -> None:
        self.stamps = array("q")
        self._files: list[JournalFile] = []
        self._record_firsts = array("q")
        self._payload_bytes = array("q")
        self._payload_crcs = array("q")
        self._writes = array("q")

    def __len__(self) -> int:
        return len(self.stamps)

    def __getitem__(self, row: int) -> RecordLocation:
        return RecordLocation(
            file=self._files[row],
            record_first=self._record_firsts[row],
            payload_first=self._record_firsts[row] + RECORD_HEADER_BYTES,
            payload_bytes=self._payload_bytes[row],
            payload_crc=self._payload_crcs[row],
            stamp=self.stamps[row],
            write=self._writes[row],
        )

    def append(self, location: RecordLocation) -> None:
        self.stamps.append(location.stamp)
        self._files.append(location.file)
        self._record_firsts.append(location.record_first)
        self._payload_bytes.append(location.payload_bytes)
        self._payload_crcs.append(location.payload_crc)
        self._writes.append(location.write)

    def drop(self, count: int) -> None:
        """Forget the first `count` locations."""
        del self._files[:count]
        columns = (self.stamps, self._record_firsts, self._payload_bytes, self._payload_crcs, self._writes)
        for column in columns:
            del column[:count]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Where the records of one write are."""

    write: int
    objects: Sequence[RecordLocation] = ()
    entries: Sequence[RecordLocation] = ()


@dataclass(slots=True, kw_only=True)
class JournalContent:
    """The result of a start: everything that counts, in the order of the writes."""

    objects: dict[str, RecordLocation] = field(default_factory=dict[str, RecordLocation])
    """The objects that are not deleted. Of two with one key the later counts."""
    replaced: list[RecordLocation] = field(default_factory=list[RecordLocation])
    """The earlier ones of those that come twice."""
    entries: list[RecordLocation] = field(default_factory=list[RecordLocation])
    states: list[RecordLocation] = field(default_factory=list[RecordLocation])
    write_next: int = 0
    """The number of the next write."""
    damaged_write: int = NO_WRITE
    """Records before this write, or of it, may be missing because of damage: whether an entry or a state is among them
    can be seen from those of this write or of a later one alone. NO_WRITE without damage."""
    has_gaps: bool = False
    """Whether an object that was not found may be there, unreadable."""


def location_of(scanned: LocatedRecord, file: JournalFile) -> RecordLocation:
    record = scanned.record
    return RecordLocation(
        file=file,
        record_first=scanned.position,
        payload_first=scanned.position + record.payload_first,
        payload_bytes=record.payload_bytes,
        payload_crc=record.payload_crc,
        stamp=record.stamp,
        write=record.write,
    )
