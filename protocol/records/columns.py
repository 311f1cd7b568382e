"""Records as columns: what decoding gives, and what encoding takes.

Rule: columns hold numbers only; byte strings stay where they are and are pointed to by first byte and length. Row i is
the same record in every column. Lengths are -1 for null. Columns that were handed out are not written again.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


class RecordFault(IntEnum):
    """The fault of the first bad record of a batch."""

    NONE = 0
    CUT = 1
    """A field does not end before the record does, or the record before the batch."""
    VARINT = 2
    """Longer than its type allows."""
    LENGTH = 3
    """Negative, or beyond what remains."""
    OFFSET = 4
    TIMESTAMP = 5
    HEADERS = 6
    """A count beyond what remains, or a key that is null."""
    TRAILING = 7
    """Bytes remain behind the last field, or the last record."""


class RecordScan(NamedTuple):
    """The result of one pass over a batch's records. After a fault only `fault` and `row` mean anything."""

    fault: int
    row: int
    """The row of the bad record; the number of records without one."""
    min_timestamp: int
    """The least timestamp that is not -1; -1 where there is none."""
    max_timestamp: int
    max_timestamp_offset_delta: int
    """The row of the first record that has it; -1 where `max_timestamp` is -1."""
    keyless_offset_delta: int
    """The row of the first record without a key; -1 where all have one."""


class RunBatches(NamedTuple):
    """Batches whose records lie one behind the other in a payload, one row each. Timestamps in milliseconds."""

    end: Int64s
    """The end of the batch's records in the payload; they begin at the end of the batch before."""
    record_count: Int64s
    base_timestamp: Int64s
    last_offset_delta: Int64s


class RunScan(NamedTuple):
    """The result of one pass over the records of several batches. Without a fault `fault` alone means anything."""

    fault: int
    batch: int
    """The batch with the bad record."""
    row: int
    """The row of the bad record within its batch."""


class RecordColumns(NamedTuple):
    """The records of a batch, or of several in a row: n rows. `*_first` are positions in `payload`.

    A tuple, because every batch has one: a frozen dataclass takes five times as long to make.
    """

    payload: Bytes
    """The records, decompressed."""
    offset_delta: Int32s
    timestamp: Int64s
    """Milliseconds; -1 for none."""
    key_first: Int64s
    key_bytes: Int32s
    value_first: Int64s
    value_bytes: Int32s
    headers_first: Int64s
    """Where the record's headers begin, behind their count."""
    headers_bytes: Int64s
    header_count: Int32s

    @classmethod
    def allocate(cls, payload: Bytes, rows: int) -> "RecordColumns":
        """Columns to be filled."""
        return cls(
            payload=payload,
            offset_delta=np.empty(rows, dtype=np.int32),
            timestamp=np.empty(rows, dtype=np.int64),
            key_first=np.empty(rows, dtype=np.int64),
            key_bytes=np.empty(rows, dtype=np.int32),
            value_first=np.empty(rows, dtype=np.int64),
            value_bytes=np.empty(rows, dtype=np.int32),
            headers_first=np.empty(rows, dtype=np.int64),
            headers_bytes=np.empty(rows, dtype=np.int64),
            header_count=np.empty(rows, dtype=np.int32),
        )


class HeaderColumns(NamedTuple):
    """The headers of all rows of a `RecordColumns`; `*_first` are positions in its payload."""

    ends: Int64s
    """n + 1 numbers: row i's headers are elements `[ends[i], ends[i + 1])` of the other columns."""
    key_first: Int64s
    key_bytes: Int32s
    value_first: Int64s
    value_bytes: Int32s


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesColumn:
    """Byte strings: string i is `data[first[i] : first[i] + length[i]]`, or null where the length is -1."""

    data: Bytes
    first: Int64s
    length: Int32s

    @classmethod
    def from_ends(cls, data: Bytes, ends: Int32s | Int64s, is_null: NDArray[np.bool_] | None = None) -> "BytesColumn":
        """From Arrow's layout: n + 1 `ends`, and which are null."""
        first = ends[:-1].astype(np.int64)
        length = (ends[1:] - ends[:-1]).astype(np.int32)
        if is_null is not None:
            length[is_null] = -1
        return cls(data=data, first=first, length=length)

    @classmethod
    def empty(cls) -> "BytesColumn":
        """No strings."""
        return cls(data=np.empty(0, np.uint8), first=np.empty(0, np.int64), length=np.empty(0, np.int32))

    def is_sound(self, rows: int) -> bool:
        """Whether it has that many strings, and all of them lie within the data."""
        if len(self.first) != rows or len(self.length) != rows:
            return False
        if rows == 0:
            return True
        last = self.first + np.maximum(self.length, 0)
        return bool(((self.first >= 0) & (self.length >= -1) & (last <= len(self.data))).all())

    def total_bytes(self) -> int:
        return 0 if len(self.length) == 0 else int(np.maximum(self.length, 0).sum(dtype=np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeColumns:
    """Records to be encoded, in the order of their offsets.

    `header_ends` are n + 1 numbers as in `HeaderColumns`, for the strings of `header_key` (never null) and
    `header_value`.
    """

    offset: Int64s
    """Absolute, ascending; offsets may be missing."""
    timestamp: Int64s
    """Milliseconds."""
    key: BytesColumn
    value: BytesColumn
    header_ends: Int64s
    header_key: BytesColumn
    header_value: BytesColumn

    @classmethod
    def without_headers(
        cls, *, offset: Int64s, timestamp: Int64s, key: BytesColumn, value: BytesColumn
    ) -> "EncodeColumns":
        """Records none of which has a header."""
        return cls(
            offset=offset,
            timestamp=timestamp,
            key=key,
            value=value,
            header_ends=np.zeros(len(offset) + 1, dtype=np.int64),
            header_key=BytesColumn.empty(),
            header_value=BytesColumn.empty(),
        )


class EncodedRun(NamedTuple):
    """A batch in the making: its records, and the rows they came from."""

    byte_first: int
    """The bytes left for the header; records follow."""
    byte_end: int
    row_first: int
    row_end: int
    max_timestamp: int
