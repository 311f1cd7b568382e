"""The counts of values, nulls and NaNs in each column of a data file. No heavy imports.

Every column of the table is counted, nested ones and those added after the file too. An engine may take an uncounted
column for one without values, and skip the file (DuckDB's extension 1.4). Counts are exact. In a list or a map,
elements are counted, and an empty one adds nothing.

Specification: Iceberg's table specification, version 2, "Data File Fields": value_counts (109), null_value_counts
(110), nan_value_counts (137).
"""

import itertools
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import msgspec

from protocol.decoding import JsonDecoder

NOT_COUNTED = -1
_ROW = struct.Struct("<iqqq")
_decoder = JsonDecoder(tuple[tuple[int, int, int, int], ...])


class ColumnCount(NamedTuple):
    """The counts of one column. `nans`: `NOT_COUNTED` where its type has no NaN."""

    field_id: int
    values: int
    nulls: int
    nans: int = NOT_COUNTED


@dataclass(frozen=True, slots=True)
class ColumnCounts:
    """The counts of all columns of a file, ascending by field id. Packed, because cached metadata has very many."""

    packed: bytes

    @classmethod
    def of(cls, counts: Iterable[ColumnCount]) -> Self:
        """The counts of distinct columns. Raises `ValueError` for a repeated column or impossible counts."""
        ordered = sorted(counts)
        if len({each.field_id for each in ordered}) < len(ordered):
            raise ValueError("a column is counted twice")
        for each in ordered:
            if not 0 <= each.nulls <= each.values or not NOT_COUNTED <= each.nans <= each.values - each.nulls:
                raise ValueError(f"{each}: such counts are impossible")
        try:
            return cls(b"".join(_ROW.pack(*each) for each in ordered))
        except struct.error as error:
            raise ValueError(f"counts are out of bounds: {error}") from error

    def __iter__(self) -> Iterator[ColumnCount]:
        return map(ColumnCount._make, _ROW.iter_unpack(self.packed))

    def nulls_of(self, field_id: int) -> int | None:
        """The count of nulls in a column; None where the file does not have the column."""
        return next((each.nulls for each in self if each.field_id == field_id), None)


def encode(counts: ColumnCounts) -> str:
    """The counts as JSON, for a file's footer."""
    return msgspec.json.encode(list(counts)).decode()


def decode(text: str) -> ColumnCounts:
    """The counts of their JSON. Raises `ValueError` where it is not that of `encode`."""
    return ColumnCounts.of(itertools.starmap(ColumnCount, _decoder.decode(text)))
