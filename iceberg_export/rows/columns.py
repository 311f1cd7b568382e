"""Records as columns in memory, between Kafka's batches and a Parquet row group.

The columns are numpy arrays in Arrow's layout, so neither side has to copy them. Nothing here knows Kafka's or
Parquet's bytes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryColumn:
    """Contiguous byte strings: row i is `data[ends[i]:ends[i + 1]]`, empty where it is null."""

    ends: NDArray[np.int32]
    """One element more than rows; the first one may be above 0."""
    data: NDArray[np.uint8]
    is_null: NDArray[np.bool_] | None
    """None where no row is null."""

    def __len__(self) -> int:
        return len(self.ends) - 1

    @property
    def null_count(self) -> int:
        """The count of rows that are null."""
        return 0 if self.is_null is None else int(np.count_nonzero(self.is_null))

    def part(self, first: int, end: int) -> "BinaryColumn":
        """Rows `[first, end)`, sharing the bytes."""
        return BinaryColumn(
            ends=self.ends[first : end + 1],
            data=self.data,
            is_null=None if self.is_null is None else self.is_null[first:end],
        )

    def check_lengths(self, count: int) -> None:
        """Raises `ValueError` where these are not `count` rows inside `data`. Compiled kernels do not check bounds."""
        is_null_count = count if self.is_null is None else len(self.is_null)
        if len(self) != count or is_null_count != count:
            raise ValueError(f"a column has {len(self)} rows, not {count}")
        _check_ends(self.ends, len(self.data))

    def byte_count(self) -> int:
        """The bytes of memory, including those of rows outside this part."""
        return self.data.nbytes + self.ends.nbytes + (0 if self.is_null is None else self.is_null.nbytes)

    def row(self, index: int) -> bytes | None:
        """One row's bytes, None for null. For tests and tools; slow."""
        if self.is_null is not None and self.is_null[index]:
            return None
        return self.data[self.ends[index] : self.ends[index + 1]].tobytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRows:
    """Records, one row each, in the order of (partition, offset). Timestamps are in milliseconds, -1 for none."""

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

    def check_lengths(self, count: int) -> None:
        """Raises `ValueError` where these are not `count` rows, or an end is outside its array."""
        numbers = (self.partition, self.offset, self.timestamp_ms, self.timestamp_type, self.header_ends[1:])
        if any(len(array) != count for array in numbers):
            raise ValueError(f"columns have {[len(array) for array in numbers]} rows, not {count}")
        for column in (self.key, self.value):
            column.check_lengths(count)
        headers = len(self.header_key)
        _check_ends(self.header_ends, headers)
        for column in (self.header_key, self.header_value):
            column.check_lengths(headers)

    def byte_count(self) -> int:
        """The bytes of memory, including those of rows outside this part."""
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

    def byte_ends(self) -> NDArray[np.int64]:
        """The cumulated bytes of keys, values and headers up to the end of each row."""
        headers = self.header_ends
        ends: NDArray[np.int64] = self.key.ends[1:].astype(np.int64) - self.key.ends[0]
        ends += self.value.ends[1:] - self.value.ends[0]
        for column in (self.header_key, self.header_value):
            ends += column.ends[headers[1:]] - column.ends[headers[0]]
        return ends


def _check_ends(ends: NDArray[np.int32], end_max: int) -> None:
    if ends[0] < 0 or ends[-1] > end_max or bool((ends[1:] < ends[:-1]).any()):
        raise ValueError(f"the ends from {ends[0]} to {ends[-1]} are not ascending within [0, {end_max}]")


def concat_rows(parts: Sequence[RecordRows]) -> RecordRows:
    """The rows of at least one part, in the order of `parts`. A single part is returned as it is."""
    if len(parts) == 1:
        return parts[0]

    def joined(column: Callable[[RecordRows], BinaryColumn]) -> BinaryColumn:
        return _concat_binary([column(part) for part in parts])

    return RecordRows(
        partition=np.concatenate([part.partition for part in parts]),
        offset=np.concatenate([part.offset for part in parts]),
        timestamp_ms=np.concatenate([part.timestamp_ms for part in parts]),
        timestamp_type=np.concatenate([part.timestamp_type for part in parts]),
        key=joined(lambda part: part.key),
        value=joined(lambda part: part.value),
        header_ends=_concat_ends([part.header_ends for part in parts]),
        header_key=joined(lambda part: part.header_key.part(int(part.header_ends[0]), int(part.header_ends[-1]))),
        header_value=joined(lambda part: part.header_value.part(int(part.header_ends[0]), int(part.header_ends[-1]))),
    )


def _concat_binary(columns: Sequence[BinaryColumn]) -> BinaryColumn:
    is_null = None
    if any(column.is_null is not None for column in columns):
        is_null = np.concatenate(
            [np.zeros(len(column), dtype=np.bool_) if column.is_null is None else column.is_null for column in columns]
        )
    return BinaryColumn(
        ends=_concat_ends([column.ends for column in columns]),
        data=np.concatenate([column.data[column.ends[0] : column.ends[-1]] for column in columns]),
        is_null=is_null,
    )


def _concat_ends(ends: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    """Ends of what each names, laid back to back from 0 on."""
    joined = np.zeros(sum(len(each) - 1 for each in ends) + 1, dtype=np.int32)
    place = 1
    for each in ends:
        count = len(each) - 1
        np.add(each[1:], joined[place - 1] - each[0], out=joined[place : place + count])
        place += count
    return joined
