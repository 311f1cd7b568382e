"""A partition's chunks in order of their offsets, one array per column.

Rule: rows cover `[first, end)` of the log without gap or overlap, so a row's first offset is its predecessor's end
and is not stored. A row costs 64 bytes. Only `coordinator.apply` changes an index.

`log_bytes` is what a row's records came to as record batches, as they were produced. Archiving does not change it
(rows of several partitions share a row group's bytes), so what retention.bytes keeps does not depend on it.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocol.types import NO_TIMESTAMP, Milliseconds, ObjectId, Offset, ProducerEpoch, ProducerId

OFFSET_FIRST = Offset(0)
NO_ROWS = -1
"""In `row_group`, `row_first` and `row_count`: the chunk is record batches, not rows of a Parquet file."""


MARKER_BYTES: Final = 78
"""What `protocol.control_records.marker_batch` makes."""
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
        """What the chunk is where it is no bytes of an object: a transaction's end."""
        if self.object_id != NO_OBJECT:
            return None
        return MarkerRow(
            ProducerId(self.byte_first), ProducerEpoch(self.row_first), bool(self.row_count), self.max_timestamp
        )


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
)
"""The stored columns with their types in `array`'s words, in the order of snapshots."""
COLUMNS_OF_CHUNK: Final = COLUMN_TYPES[:-1]
"""Those that are `ChunkRef`'s fields. An index without the rest is read: a chunk's bytes are its log bytes then."""


class ChunkIndex:
    __slots__ = (
        "_append_time_ms",
        "_byte_count",
        "_byte_first",
        "_log_bytes",
        "_max_timestamp",
        "_object_id",
        "_offset_end",
        "_row_count",
        "_row_first",
        "_row_group",
        "first",
    )

    def __init__(self, first: Offset = OFFSET_FIRST) -> None:
        self.first = first
        """The first offset that the index covers."""
        self._offset_end = array("q")
        self._object_id = array("q")
        self._byte_first = array("q")
        self._byte_count = array("q")
        self._max_timestamp = array("q")
        self._append_time_ms = array("q")
        self._row_group = array("i")
        self._row_first = array("i")
        self._row_count = array("i")
        self._log_bytes = array("q")

    @classmethod
    def from_columns(cls, first: Offset, columns: Sequence[bytes | memoryview]) -> "ChunkIndex":
        """The index of these columns, as `columns` gave them. Raises ValueError where they do not fit each other."""
        index = cls(first)
        arrays = index._arrays()
        if len(columns) == len(COLUMNS_OF_CHUNK):
            columns = [*columns, columns[3]]
        if len(columns) != len(arrays):
            raise ValueError(f"an index has {len(arrays)} columns, not {len(columns)}")
        for column, data in zip(arrays, columns, strict=True):
            column.frombytes(data)
        if len({len(column) for column in arrays}) != 1:
            raise ValueError("the columns of an index differ in length")
        ends = np.frombuffer(index._offset_end, np.int64)
        if len(ends) and (ends[0] <= first or bool(np.any(ends[1:] <= ends[:-1]))):
            raise ValueError("the offsets of an index do not rise")
        return index

    def columns(self) -> list[bytes]:
        """Every column's values, little-endian, in the order of `COLUMN_TYPES`."""
        return [column.tobytes() for column in self._arrays()]

    def _arrays(self) -> tuple["array[int]", ...]:
        return (
            self._offset_end,
            self._object_id,
            self._byte_first,
            self._byte_count,
            self._max_timestamp,
            self._append_time_ms,
            self._row_group,
            self._row_first,
            self._row_count,
            self._log_bytes,
        )

    def __len__(self) -> int:
        return len(self._offset_end)

    @property
    def end(self) -> Offset:
        """The offset after the last row's."""
        return Offset(self._offset_end[-1]) if self._offset_end else self.first

    @property
    def object_ids(self) -> "array[int]":
        """The object of each row. Read only."""
        return self._object_id

    @property
    def stored_bytes(self) -> int:
        """Bytes of all chunks, as far as they are known by their objects. Markers stand nowhere."""
        return sum(self._byte_count) - MARKER_BYTES * self._object_id.count(NO_OBJECT)

    @property
    def intake_row(self) -> int:
        """The first row that is not archived, `len` where all are: passes take chunks from the front."""
        return bisect_left(self._row_group, 1, key=lambda row_group: int(row_group == NO_ROWS))

    @property
    def intake_bytes(self) -> int:
        """Bytes of the chunks that are not archived."""
        return self.intake_bytes_before(len(self))

    def intake_bytes_before(self, row_end: int) -> int:
        """The same of the rows before `row_end`."""
        return int(np.frombuffer(self._byte_count, np.int64)[self.intake_row : row_end].sum())

    def log_bytes_from(self, offset: Offset) -> int:
        """What the records from the row of `offset` on came to as they were produced: what retention.bytes keeps."""
        return int(np.frombuffer(self._log_bytes, np.int64)[bisect_right(self._offset_end, offset) :].sum())

    def append(
        self, offset_end: int, object_id: int, byte_first: int, byte_count: int, max_timestamp: int, append_time_ms: int
    ) -> None:
        """Add a chunk of record batches `[end, offset_end)`, which must not be empty."""
        self._offset_end.append(offset_end)
        self._object_id.append(object_id)
        self._byte_first.append(byte_first)
        self._byte_count.append(byte_count)
        self._max_timestamp.append(max_timestamp)
        self._append_time_ms.append(append_time_ms)
        self._row_group.append(NO_ROWS)
        self._row_first.append(NO_ROWS)
        self._row_count.append(NO_ROWS)
        self._log_bytes.append(byte_count)

    def append_marker(self, marker: MarkerRow) -> Offset:
        """Add a transaction's end and return its offset. The columns of places hold what it says."""
        offset = self.end
        self._offset_end.append(offset + 1)
        self._object_id.append(NO_OBJECT)
        self._byte_first.append(marker.producer_id)
        self._byte_count.append(MARKER_BYTES)
        self._max_timestamp.append(marker.timestamp_ms)
        self._append_time_ms.append(NO_TIMESTAMP)
        self._row_group.append(NO_ROWS)
        self._row_first.append(marker.epoch)
        self._row_count.append(int(marker.is_commit))
        self._log_bytes.append(MARKER_BYTES)
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
            offset_first=self.offset_first(row),
            offset_end=Offset(self._offset_end[row]),
            object_id=ObjectId(self._object_id[row]),
            byte_first=self._byte_first[row],
            byte_count=self._byte_count[row],
            max_timestamp=Milliseconds(self._max_timestamp[row]),
            append_time_ms=Milliseconds(self._append_time_ms[row]),
            row_group=self._row_group[row],
            row_first=self._row_first[row],
            row_count=self._row_count[row],
        )

    def rows_from(self, offset: int) -> Iterator[ChunkRef]:
        """The chunks from the one that covers `offset` to the end; from the first one for an offset below it."""
        first = bisect_right(self._offset_end, offset)
        for row in range(first, len(self._offset_end)):
            yield self.row(row)

    def find_timestamp(self, timestamp_ms: int, row_first: int = 0) -> int | None:
        """The first row from `row_first` on with a record at or after `timestamp_ms`: ListOffsets reads it."""
        is_late = np.frombuffer(self._max_timestamp, np.int64)[row_first:] >= timestamp_ms
        row = int(np.argmax(is_late)) if len(is_late) else 0
        return row_first + row if len(is_late) and is_late[row] else None

    def max_timestamp_row(self, row_first: int = 0) -> int | None:
        """The first row from `row_first` on with the greatest timestamp there, None if none there has a timestamp."""
        timestamps = np.frombuffer(self._max_timestamp, np.int64)[row_first:]
        if not len(timestamps):
            return None
        row = int(np.argmax(timestamps))
        return row_first + row if timestamps[row] > NO_TIMESTAMP else None

    def end_of_older(self, offset: Offset, timestamp_ms: int) -> Offset:
        """The end of the rows from that of `offset` on without a record at or after `timestamp_ms`, else `offset`.

        A row none of whose records has a timestamp is as old as the next one that has; the last rows may have none.
        """
        row_first = bisect_right(self._offset_end, offset)
        if row_first == len(self._offset_end) or self._max_timestamp[row_first] >= timestamp_ms:
            return offset
        timestamps = np.frombuffer(self._max_timestamp, np.int64)[row_first:]
        is_late = timestamps >= timestamp_ms
        count = int(np.argmax(is_late)) if np.any(is_late) else len(timestamps)
        with_timestamp = np.flatnonzero(timestamps[:count] > NO_TIMESTAMP)
        return Offset(self._offset_end[row_first + int(with_timestamp[-1])]) if len(with_timestamp) else offset

    def end_of_surplus(self, offset: Offset, bytes_max: int) -> Offset:
        """The end of the rows from the one of `offset` on that can go while `bytes_max` stay, else `offset`."""
        row_first = bisect_right(self._offset_end, offset)
        ends_bytes: NDArray[np.int64] = np.cumsum(np.frombuffer(self._log_bytes, np.int64)[row_first:])
        surplus = int(ends_bytes[-1]) - bytes_max if len(ends_bytes) else 0
        if surplus <= 0:
            return offset
        count = int(np.searchsorted(ends_bytes, surplus, side="right"))
        return Offset(self._offset_end[row_first + count - 1]) if count else offset

    def replace(self, row_first: int, row_end: int, chunks: Sequence[ChunkRef]) -> None:
        """Put `chunks`, which must cover exactly the same offsets, in the place of rows `[row_first, row_end)`.

        The log bytes of what they replace are shared out by offsets.
        """
        offset_first, offset_end = self.offset_first(row_first), self._offset_end[row_end - 1]
        log_bytes = sum(self._log_bytes[row_first:row_end])
        ends_bytes = [log_bytes * (chunk.offset_end - offset_first) // (offset_end - offset_first) for chunk in chunks]
        self._log_bytes[row_first:row_end] = array("q", [end - first for first, end in pairwise([0, *ends_bytes])])
        for (name, _), column in zip(COLUMNS_OF_CHUNK, self._arrays(), strict=False):
            column[row_first:row_end] = array(column.typecode, [getattr(chunk, name) for chunk in chunks])

    def count_before(self, offset: int) -> int:
        """How many rows end at or before `offset`."""
        return bisect_right(self._offset_end, offset)

    def truncate_before(self, offset: Offset) -> list[ObjectId]:
        """Drop the rows that end at or before `offset` and return their objects, one for each row."""
        count = bisect_right(self._offset_end, offset)
        dropped = [ObjectId(object_id) for object_id in self._object_id[:count]]
        if count:
            self.first = Offset(self._offset_end[count - 1])
            for column in self._arrays():
                del column[:count]
        return dropped
