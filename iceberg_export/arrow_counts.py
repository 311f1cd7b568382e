"""Counts of the columns of Arrow data, those inside columns too, by the field ids in its schema.

Rule: a null struct has null fields, and what lies below a null list or map is not counted, nor what a slice leaves out.
What can be known of a schema is found once: a small row group is written in a millisecond.
"""
# Without stubs, pyright does not see functions made at import.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_export import schema
from iceberg_export.tables.column_counts import NOT_COUNTED, ColumnCount, ColumnCounts

Arrow: TypeAlias = Any
"""An object of pyarrow's."""
_FIELD_ID = b"PARQUET:field_id"


class _Kind(Enum):
    PLAIN = 0
    FLOATING = 1
    STRUCT = 2
    LIST = 3
    MAP = 4


class CountedColumn(NamedTuple):
    """What is counted of a column. `number`: among those of its file; `inner`: the columns inside, in order."""

    number: int
    field_id: int
    kind: _Kind
    inner: "tuple[CountedColumn, ...]"


def counted_columns(file_schema: Arrow) -> tuple[tuple[int, CountedColumn], ...]:
    """What is to be counted of the record batches of a schema, whose fields and those inside carry field ids; each with
    its column's index in a batch. What no table has is left out."""
    found: list[tuple[int, CountedColumn]] = []
    numbers = count()
    for index, field in enumerate(file_schema):
        if field.name != schema.HEADER_KEYS:
            found.append((index, _counted(field, numbers)))
    return tuple(found)


def _counted(field: Arrow, numbers: Iterator[int]) -> CountedColumn:
    number, kind = next(numbers), field.type
    what, inner = _Kind.PLAIN, list[Arrow]()
    if pa.types.is_floating(kind):
        what = _Kind.FLOATING
    elif pa.types.is_map(kind):
        what, inner = _Kind.MAP, [kind.key_field, kind.item_field]
    elif pa.types.is_list(kind):
        what, inner = _Kind.LIST, [kind.value_field]
    elif pa.types.is_struct(kind):
        what, inner = _Kind.STRUCT, list(kind)
    inside = tuple(_counted(each, numbers) for each in inner)
    return CountedColumn(number, int(field.metadata[_FIELD_ID]), what, inside)


class ColumnCounter:
    """Adds up what is in the columns of a file, record batch by record batch."""

    def __init__(self, columns: Sequence[tuple[int, CountedColumn]]) -> None:
        """`columns`: of the file's schema, as `counted_columns` gives them."""
        self._columns = columns
        every = [each for _, column in columns for each in _flat(column)]
        self._ids = [each.field_id for each in every]
        self._values = [0] * len(every)
        self._nulls = [0] * len(every)
        self._nans = [0 if each.kind is _Kind.FLOATING else NOT_COUNTED for each in every]

    def add(self, batch: Arrow) -> None:
        """Count a record batch of the schema."""
        for index, column in self._columns:
            self._add(column, batch.column(index))

    def counts(self) -> ColumnCounts:
        """The counts of all that was added."""
        return ColumnCounts.of(map(ColumnCount, self._ids, self._values, self._nulls, self._nans))

    def _add(self, column: CountedColumn, array: Arrow) -> None:
        self._values[column.number] += len(array)
        self._nulls[column.number] += array.null_count
        match column.kind:
            case _Kind.PLAIN:
                return
            case _Kind.FLOATING:
                self._nans[column.number] += int(pc.sum(pc.is_nan(array)).as_py() or 0)
                return
            case _Kind.MAP:
                inner: Iterable[Arrow] = _pairs(array).flatten()
            case _Kind.LIST:
                inner = (array.flatten(),)
            case _Kind.STRUCT:
                inner = array.flatten()
        for each, child in zip(column.inner, inner, strict=True):
            self._add(each, child)


def _flat(column: CountedColumn) -> Iterator[CountedColumn]:
    """The column and those inside, in the order of their numbers."""
    yield column
    for each in column.inner:
        yield from _flat(each)


def _pairs(array: Arrow) -> Arrow:
    """The entries of maps as structs; those below a null map are not among them."""
    kind = array.type
    pair = pa.struct([kind.key_field, kind.item_field])
    return array.cast(pa.list_(pair)).flatten()
