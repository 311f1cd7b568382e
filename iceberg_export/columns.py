"""Records as columns in memory, between Kafka's batches on one side and a Parquet row group on the other.

Rule: plain arrays of numpy in Arrow's layout, so that either side takes them without a copy. Nothing here knows Kafka's
bytes or Parquet's.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryColumn:
    """Byte strings back to back: row i is `data[ends[i]:ends[i + 1]]`, empty where it is null."""

    ends: NDArray[np.int32]
    """One more element than rows; the first need not be 0."""
    data: NDArray[np.uint8]
    is_null: NDArray[np.bool_] | None
    """None where no row is null."""

    def __len__(self) -> int:
        return len(self.ends) - 1

    @property
    def null_count(self) -> int:
        """How many rows are null."""
        return 0 if self.is_null is None else int(np.count_nonzero(self.is_null))

    def part(self, first: int, end: int) -> "BinaryColumn":
        """Rows `[first, end)`, sharing the bytes."""
        return BinaryColumn(
            ends=self.ends[first : end + 1],
            data=self.data,
            is_null=None if self.is_null is None else self.is_null[first:end],
        )

    def byte_count(self) -> int:
        """What it takes in memory, the bytes of other parts included."""
        return self.data.nbytes + self.ends.nbytes + (0 if self.is_null is None else self.is_null.nbytes)

    def row(self, index: int) -> bytes | None:
        """One row's bytes, None for null. For tests and tools; slow."""
        if self.is_null is not None and self.is_null[index]:
            return None
        return self.data[self.ends[index] : self.ends[index + 1]].tobytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRows:
    """Records, one row each, sorted by (partition, offset). Timestamps in milliseconds, -1 for none."""

    partition: NDArray[np.int32]
    offset: NDArray[np.int64]
    timestamp_ms: NDArray[np.int64]
    timestamp_type: NDArray[np.int32]
    key: BinaryColumn
    value: BinaryColumn
    header_ends: NDArray[np.int32]
    """Row i's headers are elements `[header_ends[i], header_ends[i + 1])` of the two header columns."""
    header_key: BinaryColumn
    header_value: BinaryColumn

    def __len__(self) -> int:
        return len(self.offset)

    def byte_count(self) -> int:
        """What the rows take in memory."""
        numbers = (self.partition, self.offset, self.timestamp_ms, self.timestamp_type, self.header_ends)
        strings = (self.key, self.value, self.header_key, self.header_value)
        return sum(array.nbytes for array in numbers) + sum(column.byte_count() for column in strings)

    def part(self, first: int, end: int) -> "RecordRows":
        """Rows `[first, end)`, sharing all arrays."""
        return RecordRows(
            partition=self.partition[first:end],
            offset=self.offset[first:end],
            timestamp_ms=self.timestamp_ms[first:end],
            timestamp_type=self.timestamp_type[first:end],
            key=self.key.part(first, end),
            value=self.value.part(first, end),
            header_ends=self.header_ends[first : end + 1],
            header_key=self.header_key,
            header_value=self.header_value,
        )
