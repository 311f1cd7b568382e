"""How many values a data file has in each column, how many of them are null, and how many are no numbers.

Rule: imports nothing heavy. Every column of the table is counted, those inside structs, lists and maps too, and those
that came after the file: engines take a column that is not counted for one without nulls and without values, and pass
over the file (DuckDB's extension 1.4). Counts are exact. In a list or a map elements are counted, not the rows
without any.

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
    """One column's. `nans`: `NOT_COUNTED` where its type has none."""

    field_id: int
    values: int
    nulls: int
    nans: int = NOT_COUNTED


@dataclass(frozen=True, slots=True)
class ColumnCounts:
    """All columns of a file, by field id, ascending. Packed, for a table's metadata in memory has many."""

    packed: bytes

    @classmethod
    def of(cls, counts: Iterable[ColumnCount]) -> Self:
        """Counts of columns, each given once. Raises `ValueError` where they are not possible."""
        ordered = sorted(counts)
        if len({each.field_id for each in ordered}) < len(ordered):
            raise ValueError("a column is counted twice")
        for each in ordered:
            if not 0 <= each.nulls <= each.values or not NOT_COUNTED <= each.nans <= each.values - each.nulls:
                raise ValueError(f"{each} is not possible")
        try:
            return cls(b"".join(_ROW.pack(*each) for each in ordered))
        except struct.error as error:
            raise ValueError(f"counts are out of bounds: {error}") from error

    def __iter__(self) -> Iterator[ColumnCount]:
        return map(ColumnCount._make, _ROW.iter_unpack(self.packed))

    def nulls_of(self, field_id: int) -> int | None:
        """How many values of a column are null; None where the file does not have the column."""
        return next((each.nulls for each in self if each.field_id == field_id), None)


def encode(counts: ColumnCounts) -> str:
    """The counts as JSON, for a file's footer."""
    return msgspec.json.encode(list(counts)).decode()


def decode(text: str) -> ColumnCounts:
    """The counts out of their JSON. Raises `ValueError` where it is none of ours."""
    return ColumnCounts.of(itertools.starmap(ColumnCount, _decoder.decode(text)))
