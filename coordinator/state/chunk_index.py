"""A partition's chunks in order of their offsets: their ends in an array, the rest packed, row behind row.

Rule: rows cover `[first, end)` of the log without gap or overlap, so a row's first offset is its predecessor's end and
is not stored. A row costs 72 bytes. Only `coordinator.apply.apply` changes an index. It adds a row to every partition
of a transaction, so that has to be cheap: packed, a row is added by one call and not by ten.

`log_bytes` is what a row's records came to as record batches, as they were produced. Archiving does not change it
(rows of several partitions share a row group's bytes), so what retention.bytes keeps does not depend on it.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, starmap
from struct import Struct
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocol.types import NO_TIMESTAMP, Milliseconds, ObjectId, Offset, ProducerEpoch, ProducerId

OFFSET_FIRST = Offset(0)
NO_ROWS = -1
"""In `row_group`, `row_first` and `row_count`: the chunk is record batches, not rows of a Parquet file."""


MARKER_BYTES: Final = 78
"""The length of a batch that `protocol.records.control_batches.marker_batch` makes."""
NO_CHECKSUM: Final = 0
"""In `checksum`: not known, because the chunk is archived or a marker, or older rules were in force."""
NO_OBJECT: Final = ObjectId(0)
"""The object of a marker's row: markers are made when they are read, and stand nowhere."""


class MarkerRow(NamedTuple):
    """The end of a transaction in a partition, which takes one offset."""

    producer_id: ProducerId
    epoch: ProducerEpoch
    is_commit: bool
    timestamp_ms: Milliseconds


class ChunkRef(NamedTuple):
    """Where `[offset_first, offset_end)` of a partition is: bytes of an object, or rows of one of its row groups.

    `append_time_ms` is -1 unless the broker stamps the chunk's records (safety rule S14). `max_timestamp` is then the
    same.
    """

    offset_first: Offset
    offset_end: Offset
    object_id: ObjectId
    byte_first: int
    byte_count: int
    max_timestamp: Milliseconds
    append_time_ms: Milliseconds
    row_group: int
    row_first: int
    row_count: int
    checksum: int = NO_CHECKSUM
    """The checksum of its record batches, from their CRCs (`protocol.records.crc.crc_of_crcs`). Bytes with another
    checksum are not the chunk's, even if each batch is undamaged (safety rule S20)."""

    @property
    def is_archived(self) -> bool:
        """Whether the chunk is rows of a Parquet file."""
        return self.row_group != NO_ROWS

    @property
    def is_marker(self) -> bool:
        """Whether the chunk is no bytes of an object, but a transaction's end."""
        return self.object_id == NO_OBJECT

    @property
    def marker(self) -> MarkerRow | None:
        """The transaction's end that the chunk is; None for a chunk that is bytes of an object."""
        if self.object_id != NO_OBJECT:
            return None
        return MarkerRow(
            ProducerId(self.byte_first), ProducerEpoch(self.row_first), bool(self.row_count), self.max_timestamp
        )


_CHUNK: Final = Struct("<5q3iI")
"""The fields of `ChunkRef` that a row stores: all but its offsets, in the same order."""
_ROW: Final = Struct("<5q3iIq")
"""The whole row: `log_bytes` too."""
_ROW_GROUP: Final = Struct("<i")
_ROW_GROUP_AT: Final = 40

COLUMN_TYPES: Final = (
    ("offset_end", "q"),
    ("object_id", "q"),
    ("byte_first", "q"),
    ("byte_count", "q"),
    ("max_timestamp", "q"),
    ("append_time_ms", "q"),
    ("row_group", "i"),
    ("row_first", "i"),
    ("row_count", "i"),
    ("log_bytes", "q"),
    ("checksum", "I"),
)
"""The columns with their types in `array`'s words, in the order of snapshots. The last two may be missing there: a
chunk's bytes are its log bytes then, and checksums are not known."""
COLUMNS_UNCHECKED: Final = len(COLUMN_TYPES) - 1
"""How many of them the form of `RULES_FIRST` has."""
_COLUMNS_MIN: Final = len(COLUMN_TYPES) - 2
_NUMPY_TYPES: Final = {"q": "<i8", "i": "<i4", "I": "<u4"}
_ROW_COLUMNS: Final = (*COLUMN_TYPES[1:-2], COLUMN_TYPES[-1], COLUMN_TYPES[-2])
_ROW_TYPE: Final = np.dtype([(name, _NUMPY_TYPES[kind]) for name, kind in _ROW_COLUMNS], align=True)
"""The same as `_ROW`, in numpy's words."""

assert _ROW_TYPE.itemsize == _ROW.size, "numpy and struct lay a row out alike"
assert _ROW_TYPE.fields is not None
assert _ROW_TYPE.fields["row_group"][1] == _ROW_GROUP_AT


def marker_row(marker: MarkerRow) -> bytes:
    """The row that an index stores for a transaction's end: the same in each of its partitions. The columns for a
    place in an object hold the marker's fields."""
    return _ROW.pack(
        NO_OBJECT,
        marker.producer_id,
        MARKER_BYTES,
        marker.timestamp_ms,
        NO_TIMESTAMP,
        NO_ROWS,
        marker.epoch,
        marker.is_commit,
        NO_CHECKSUM,
        MARKER_BYTES,
    )


class Places(NamedTuple):
    """Consecutive rows as columns; of markers too, as `ChunkRef` has them."""

    offset_end: NDArray[np.int64]
    object_id: NDArray[np.int64]
    byte_first: NDArray[np.int64]
    byte_count: NDArray[np.int64]
    append_time_ms: NDArray[np.int64]
    checksum: NDArray[np.int64]


class FileRuns(NamedTuple):
    """The archived rows of an index, one element for each run of them that lies in one file; in their order."""

    object_id: list[int]
    row_first: list[int]
    row_end: list[int]
    max_timestamp: list[int]


class ChunkIndex:
    __slots__ = ("_offset_end", "_rows", "first")

    def __init__(self, first: Offset = OFFSET_FIRST) -> None:
        self.first = first
        """The first offset that the index covers."""
        self._offset_end = array("q")
        self._rows = bytearray()

    @classmethod
    def from_columns(cls, first: Offset, columns: Sequence[bytes | memoryview]) -> "ChunkIndex":
        """The index of these columns, as `columns` gave them. Raises ValueError where they do not fit each other."""
        if len(columns) == _COLUMNS_MIN:
            columns = [*columns, columns[3]]
        if len(columns) == COLUMNS_UNCHECKED:
            columns = [*columns, bytes(len(columns[0]) // 2)]
        if len(columns) != len(COLUMN_TYPES):
            raise ValueError(f"an index has {len(COLUMN_TYPES)} columns, not {len(columns)}")
        index = cls(first)
        index._offset_end.frombytes(columns[0])
        rows = np.zeros(len(index._offset_end), _ROW_TYPE)
        for (name, _), data in zip(COLUMN_TYPES[1:], columns[1:], strict=True):
            column = np.frombuffer(data, _ROW_TYPE[name])
            if len(column) != len(rows):
                raise ValueError("the columns of an index differ in length")
            rows[name] = column
        index._rows += rows.tobytes()
        ends = np.frombuffer(index._offset_end, np.int64)
        if len(ends) and (ends[0] <= first or bool(np.any(ends[1:] <= ends[:-1]))):
            raise ValueError("the offsets of an index do not rise")
        return index

    def columns(self) -> list[bytes]:
        """Every column's values, little-endian, in the order of `COLUMN_TYPES`."""
        rows = np.frombuffer(self._rows, _ROW_TYPE)
        return [self._offset_end.tobytes(), *(rows[name].tobytes() for name, _ in COLUMN_TYPES[1:])]

    def _column(self, name: str) -> NDArray[np.int64]:
        """A view of one of the stored columns: the index must not change while it is used."""
        column: NDArray[np.int64] = np.frombuffer(self._rows, _ROW_TYPE)[name]
        return column

    def __len__(self) -> int:
        return len(self._offset_end)

    @property
    def end(self) -> Offset:
        """The offset after the last row's."""
        return Offset(self._offset_end[-1]) if self._offset_end else self.first

    def object_ids(self, row_first: int = 0, row_end: int | None = None) -> list[int]:
        """The object of each row of `[row_first, row_end)`, else to the end."""
        object_ids: list[int] = self._column("object_id")[row_first:row_end].tolist()
        return object_ids

    def rows_of_object(self, object_id: int, row_first: int = 0) -> list[int]:
        """The numbers of the rows from `row_first` on that lie in an object, ascending."""
        rows: list[int] = (np.flatnonzero(self._column("object_id")[row_first:] == object_id) + row_first).tolist()
        return rows

    def archived_objects(self) -> list[int]:
        """The Parquet files that hold rows of this log, each once, ascending."""
        rows = np.frombuffer(self._rows, _ROW_TYPE)
        object_ids: list[int] = np.unique(
            rows["object_id"][(rows["row_group"] != NO_ROWS) & (rows["row_count"] > 0)]
        ).tolist()
        return object_ids

    def archived_without_rows(self) -> list[tuple[int, int]]:
        """Archived offsets [first, end) of which no file has a row, ascending; neighbours are one."""
        count = self.intake_row
        rows = np.frombuffer(self._rows, _ROW_TYPE)[:count]
        is_empty = np.flatnonzero(rows["row_count"] == 0)
        ranges: list[tuple[int, int]] = []
        for row in is_empty.tolist():
            first = self.offset_first(row)
            begun = ranges.pop()[0] if ranges and ranges[-1][1] == first else first
            ranges.append((begun, self._offset_end[row]))
        return ranges

    def archived(self) -> "ChunkIndex":
        """A copy of the archived rows, which are the first ones."""
        count = self.intake_row
        copy = ChunkIndex(self.first)
        copy._offset_end = self._offset_end[:count]
        copy._rows = self._rows[: count * _ROW.size]
        return copy

    def file_runs(self) -> FileRuns:
        """Which of the archived rows lie in which Parquet file."""
        archived = np.frombuffer(self._rows, _ROW_TYPE)[: self.intake_row]
        firsts = np.flatnonzero(np.diff(archived["object_id"], prepend=-1))
        if not len(firsts):
            return FileRuns([], [], [], [])
        return FileRuns(
            archived["object_id"][firsts].tolist(),
            firsts.tolist(),
            [*firsts[1:].tolist(), len(archived)],
            np.maximum.reduceat(archived["max_timestamp"], firsts).tolist(),
        )

    def places(self, row_first: int, row_end: int) -> Places:
        """A copy of the rows `[row_first, row_end)`: for many rows at once, and for callers that outlive a change."""
        return joined_places([(self, row_first, row_end)])

    def packed(self, row_first: int, row_end: int) -> "tuple[array[int], bytearray]":
        """A copy of the rows `[row_first, row_end)` as they are stored: the ends, and the rest."""
        return self._offset_end[row_first:row_end], self._rows[row_first * _ROW.size : row_end * _ROW.size]

    @property
    def stored_bytes(self) -> int:
        """Bytes of all chunks, as far as they are known by their objects. Markers stand nowhere."""
        return int(self._column("byte_count")[self._column("object_id") != NO_OBJECT].sum())

    @property
    def intake_row(self) -> int:
        """The first row that is not archived, `len` where all are: passes take chunks from the front."""
        return bisect_left(range(len(self)), 1, key=self._is_intake)

    def _is_intake(self, row: int) -> bool:
        row_group: int = _ROW_GROUP.unpack_from(self._rows, row * _ROW.size + _ROW_GROUP_AT)[0]
        return row_group == NO_ROWS

    @property
    def intake_bytes(self) -> int:
        """Bytes of the chunks that are not archived: all or some of the last ones."""
        rows = len(self)
        return self.intake_bytes_before(rows) if rows and self._is_intake(rows - 1) else 0

    def intake_bytes_before(self, row_end: int) -> int:
        """The same of the rows before `row_end`."""
        return int(self._column("byte_count")[self.intake_row : row_end].sum())

    def log_bytes_from(self, offset: Offset) -> int:
        """The bytes, as they were produced, of the records from the row of `offset` on: retention.bytes limits them."""
        return int(self._column("log_bytes")[bisect_right(self._offset_end, offset) :].sum())

    def append(
        self,
        offset_end: int,
        object_id: int,
        byte_first: int,
        byte_count: int,
        max_timestamp: int,
        append_time_ms: int,
        checksum: int = NO_CHECKSUM,
    ) -> None:
        """Add a chunk of record batches `[end, offset_end)`, which must not be empty."""
        self._offset_end.append(offset_end)
        self._rows += _ROW.pack(
            object_id,
            byte_first,
            byte_count,
            max_timestamp,
            append_time_ms,
            NO_ROWS,
            NO_ROWS,
            NO_ROWS,
            checksum,
            byte_count,
        )

    def append_marker(self, row: bytes) -> Offset:
        """Add a transaction's end, which `marker_row` made, and return its offset."""
        ends = self._offset_end
        offset = Offset(ends[-1]) if ends else self.first
        ends.append(offset + 1)
        self._rows += row
        return offset

    def locate(self, offset: int) -> int | None:
        """The row that covers `offset`, or None where there is none."""
        if offset < self.first:
            return None
        row = bisect_right(self._offset_end, offset)
        return row if row < len(self._offset_end) else None

    def offset_first(self, row: int) -> Offset:
        """The first offset of a row."""
        return Offset(self._offset_end[row - 1]) if row else self.first

    def row(self, row: int) -> ChunkRef:
        """The chunk of a row, 0 to `len - 1`."""
        return ChunkRef(
            self.offset_first(row),
            Offset(self._offset_end[row]),
            *_CHUNK.unpack_from(self._rows, row * _ROW.size),
        )

    def rows_from(self, offset: int) -> Iterator[ChunkRef]:
        """The chunks from the one that covers `offset` to the end; from the first one for an offset below it."""
        first = bisect_right(self._offset_end, offset)
        for row in range(first, len(self._offset_end)):
            yield self.row(row)

    def find_timestamp(self, timestamp_ms: int, row_first: int = 0) -> int | None:
        """The first row from `row_first` on with a record at or after `timestamp_ms`: ListOffsets reads it."""
        is_late = self._column("max_timestamp")[row_first:] >= timestamp_ms
        row = int(np.argmax(is_late)) if len(is_late) else 0
        return row_first + row if len(is_late) and is_late[row] else None

    def max_timestamp_row(self, row_first: int = 0) -> int | None:
        """The first row from `row_first` on with the greatest timestamp there, None if none there has a timestamp."""
        timestamps = self._column("max_timestamp")[row_first:]
        if not len(timestamps):
            return None
        row = int(np.argmax(timestamps))
        return row_first + row if timestamps[row] > NO_TIMESTAMP else None

    def end_of_older(self, offset: Offset, timestamp_ms: int) -> Offset:
        """The end of the rows from that of `offset` on without a record at or after `timestamp_ms`, else `offset`.

        A row none of whose records has a timestamp is as old as the next one that has; the last rows may have none.
        """
        row_first = bisect_right(self._offset_end, offset)
        timestamps = self._column("max_timestamp")[row_first:]
        if not len(timestamps) or timestamps[0] >= timestamp_ms:
            return offset
        is_late = timestamps >= timestamp_ms
        count = int(np.argmax(is_late)) if np.any(is_late) else len(timestamps)
        with_timestamp = np.flatnonzero(timestamps[:count] > NO_TIMESTAMP)
        return Offset(self._offset_end[row_first + int(with_timestamp[-1])]) if len(with_timestamp) else offset

    def end_of_surplus(self, offset: Offset, bytes_max: int) -> Offset:
        """The end of the rows from the one of `offset` on that can go while `bytes_max` stay, else `offset`."""
        row_first = bisect_right(self._offset_end, offset)
        ends_bytes: NDArray[np.int64] = np.cumsum(self._column("log_bytes")[row_first:])
        surplus = int(ends_bytes[-1]) - bytes_max if len(ends_bytes) else 0
        if surplus <= 0:
            return offset
        count = int(np.searchsorted(ends_bytes, surplus, side="right"))
        return Offset(self._offset_end[row_first + count - 1]) if count else offset

    def replace(self, row_first: int, row_end: int, chunks: Sequence[ChunkRef]) -> None:
        """Replace rows `[row_first, row_end)` by `chunks`, which must cover exactly the same offsets.

        The log bytes of what they replace are shared out by offsets.
        """
        offset_first, offset_end = self.offset_first(row_first), self._offset_end[row_end - 1]
        log_bytes = int(self._column("log_bytes")[row_first:row_end].sum())
        ends_bytes = [log_bytes * (chunk.offset_end - offset_first) // (offset_end - offset_first) for chunk in chunks]
        each_bytes = [end - first for first, end in pairwise([0, *ends_bytes])]
        _, _, *places = zip(*chunks, strict=True)
        rows = b"".join(starmap(_ROW.pack, zip(*places, each_bytes, strict=True)))
        self._offset_end[row_first:row_end] = array("q", [chunk.offset_end for chunk in chunks])
        self._rows[row_first * _ROW.size : row_end * _ROW.size] = rows

    def count_before(self, offset: int) -> int:
        """How many rows end at or before `offset`."""
        return bisect_right(self._offset_end, offset)

    def truncate_before(self, offset: Offset) -> list[ObjectId]:
        """Drop the rows that end at or before `offset` and return their objects, one for each row."""
        count = bisect_right(self._offset_end, offset)
        dropped = [ObjectId(object_id) for object_id in self.object_ids(0, count)]
        if count:
            self.first = Offset(self._offset_end[count - 1])
            del self._offset_end[:count]
            del self._rows[: count * _ROW.size]
        return dropped


def joined_places(ranges: Iterable[tuple[ChunkIndex, int, int]]) -> Places:
    """A copy of the rows `[row_first, row_end)` of each of several indexes, one behind the other.

    An index with a single row costs little more than that row.
    """
    ends, rows = array("q"), bytearray()
    for index, row_first, row_end in ranges:
        more_ends, more_rows = index.packed(row_first, row_end)
        ends += more_ends
        rows += more_rows
    columns = np.frombuffer(rows, _ROW_TYPE)
    return Places(np.frombuffer(ends, np.int64), *(columns[name].copy() for name in Places._fields[1:]))
