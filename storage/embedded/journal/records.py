"""Files of a journal, and records in them, as the rest of a process knows them."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import overload

from storage.embedded.journal.format import NO_SUCCESSOR, RECORD_HEADER_BYTES, RECORDS_FIRST, aligned
from storage.embedded.journal.scan import NO_WRITE, LocatedRecord
from storage.object_store import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """The entry to append. `stamp` is the owner's number for it: at least 0, below 2**63."""

    parts: Sequence[Buffer]
    stamp: int


class FileFate(IntEnum):
    """The end that a file meets once nothing in it is needed any more."""

    REUSE = 0
    REMOVE = 1
    """The file was not marked where it ends: left, or used again, it might bring back what does not count."""
    KEEP = 2
    """The file has damage: it is not known for certain what it held."""


@dataclass(slots=True, kw_only=True, eq=False)
class JournalFile:
    """A file of the folder. What of it is needed is known to its owner: `objects_live` and `entry_write_last`."""

    number: int
    """The number that it is called by."""
    own_number: int
    """The number in its header, which is another one where it was renamed: files are in the order of these."""
    nonce: bytes
    is_synced: bool
    """Whether each of its writes is synced before the next one, as its header says."""
    end: int
    """Where the next record goes, or would go."""
    write_end: int
    """The number of the write that goes there, or would go."""
    descriptor: int = -1
    """The one for appends, while the file is open for them."""
    allocated_bytes: int = 0
    """Up to here the file has blocks."""
    objects_live: int = 0
    entry_write_last: int = -1
    """The newest write that has an entry; -1 without one."""
    successor: int = NO_SUCCESSOR
    """The number of the file behind, as its end says."""
    is_open_ended: bool = False
    """It could not be marked where it ends: only the next file says it, which must not be removed before this one."""
    fate: FileFate = FileFate.REUSE

    @property
    def has_writes(self) -> bool:
        return self.end > RECORDS_FIRST

    def raise_fate(self, fate: FileFate) -> None:
        self.fate = max(self.fate, fate)


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


class LocationColumns(Sequence[RecordLocation]):
    """Locations of records without a name, in the order of their stamps: columns, as there may be many."""

    def __init__(self) -> None:
        self.stamps = array("q")
        self.files: list[JournalFile] = []
        self._record_firsts = array("q")
        self._payload_bytes = array("q")
        self._payload_crcs = array("q")
        self._writes = array("q")

    def __len__(self) -> int:
        return len(self.stamps)

    @overload
    def __getitem__(self, row: int) -> RecordLocation: ...

    @overload
    def __getitem__(self, row: slice) -> list[RecordLocation]: ...

    def __getitem__(self, row: int | slice) -> RecordLocation | list[RecordLocation]:
        if isinstance(row, slice):
            return [self[each] for each in range(*row.indices(len(self)))]
        return RecordLocation(
            file=self.files[row],
            record_first=self._record_firsts[row],
            payload_first=self._record_firsts[row] + RECORD_HEADER_BYTES,
            payload_bytes=self._payload_bytes[row],
            payload_crc=self._payload_crcs[row],
            stamp=self.stamps[row],
            write=self._writes[row],
        )

    def append(self, location: RecordLocation) -> None:
        self.stamps.append(location.stamp)
        self.files.append(location.file)
        self._record_firsts.append(location.record_first)
        self._payload_bytes.append(location.payload_bytes)
        self._payload_crcs.append(location.payload_crc)
        self._writes.append(location.write)

    def extend(self, other: "LocationColumns") -> None:
        """Add the locations of `other` behind these."""
        self.files += other.files
        for column, added in zip(self.columns(), other.columns(), strict=True):
            column.extend(added)

    def drop(self, count: int) -> None:
        """Forget the first `count` locations."""
        del self.files[:count]
        for column in self.columns():
            del column[:count]

    def columns(self) -> "tuple[array[int], ...]":
        """Everything but the files."""
        return self.stamps, self._record_firsts, self._payload_bytes, self._payload_crcs, self._writes


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
    replaced: dict[str, list[RecordLocation]] = field(default_factory=dict[str, list[RecordLocation]])
    """The earlier ones of those that come twice, in their order."""
    entries: LocationColumns = field(default_factory=LocationColumns)
    states: list[RecordLocation] = field(default_factory=list[RecordLocation])
    write_next: int = 0
    """The number of the next write."""
    damaged_write: int = NO_WRITE
    """Records before this write, or of it, may be missing because of damage: whether an entry or a state is among them
    can be seen from those of this write or of a later one alone. NO_WRITE without damage."""
    has_gaps: bool = False
    """Whether an object that was not found may be there, unreadable."""

    @property
    def has_records(self) -> bool:
        """Whether there is a record, or was one."""
        return bool(self.states or self.entries or self.objects) or self.damaged_write > NO_WRITE


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
