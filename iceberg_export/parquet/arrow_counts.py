"""Counts the values, nulls and NaNs of a file's columns while it is written, nested columns too, by field id.

A null struct has null fields. Nothing is counted below a null list or map, nor outside a slice. The counts of the raw
columns follow from their rows. The typed columns to count are listed once a file, because an archive pass over few
records takes a millisecond.
"""
# Without stubs, pyright does not see functions made at import.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_export.rows.columns import RecordRows
from iceberg_export.rows.schema import COLUMNS, VALUE, FieldId
from iceberg_export.tables.column_counts import NOT_COUNTED, ColumnCount, ColumnCounts

Arrow: TypeAlias = Any
"""An object of pyarrow's."""
_FIELD_ID = b"PARQUET:field_id"
_VALUE_INDEX = COLUMNS.index(VALUE)


class _Kind(Enum):
    PLAIN = 0
    FLOATING = 1
    STRUCT = 2
    LIST = 3
    MAP = 4


class CountedColumn(NamedTuple):
    """A column to count. `number`: its position among those of the file; `inner`: its nested columns, in order."""

    number: int
    field_id: int
    kind: _Kind
    inner: "tuple[CountedColumn, ...]"


def counted_columns(file_schema: Arrow, index_first: int) -> tuple[tuple[int, CountedColumn], ...]:
    """The columns to count, with their indexes: those of the schema from `index_first` on.

    They and their nested fields have field ids.
    """
    numbers = count()
    indexes = range(index_first, len(file_schema))
    return tuple((index, _counted(file_schema.field(index), numbers)) for index in indexes)


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
    """Adds up the counts of a file's columns, row group by row group."""

    def __init__(self, typed: Sequence[tuple[int, CountedColumn]] = ()) -> None:
        """`typed`: the file's typed columns, from `counted_columns`."""
        self._rows = 0
        self._headers = 0
        self._key_nulls = 0
        self._value_nulls = 0
        self._header_value_nulls = 0
        self._typed = typed
        every = [each for _, column in typed for each in _flat(column)]
        self._ids = [each.field_id for each in every]
        self._values = [0] * len(every)
        self._nulls = [0] * len(every)
        self._nans = [0 if each.kind is _Kind.FLOATING else NOT_COUNTED for each in every]

    def add(self, rows: RecordRows, batch: Arrow) -> None:
        """Count a row group. `batch`: its rows as written, where values may be left out."""
        low, high = int(rows.header_ends[0]), int(rows.header_ends[-1])
        self._rows += len(rows)
        self._headers += high - low
        self._key_nulls += rows.key.null_count
        self._value_nulls += batch.column(_VALUE_INDEX).null_count
        self._header_value_nulls += rows.header_value.part(low, high).null_count
        for index, column in self._typed:
            self._add(column, batch.column(index))

    def counts(self) -> ColumnCounts:
        """The counts of all row groups that were added."""
        rows, headers = self._rows, self._headers
        raw = (
            ColumnCount(FieldId.PARTITION, rows, 0),
            ColumnCount(FieldId.OFFSET, rows, 0),
            ColumnCount(FieldId.TIMESTAMP, rows, 0),
            ColumnCount(FieldId.TIMESTAMP_TYPE, rows, 0),
            ColumnCount(FieldId.KEY, rows, self._key_nulls),
            ColumnCount(FieldId.VALUE, rows, self._value_nulls),
            ColumnCount(FieldId.HEADERS, rows, 0),
            ColumnCount(FieldId.HEADERS_ELEMENT, headers, 0),
            ColumnCount(FieldId.HEADER_KEY, headers, 0),
            ColumnCount(FieldId.HEADER_VALUE, headers, self._header_value_nulls),
        )
        return ColumnCounts.of((*raw, *map(ColumnCount, self._ids, self._values, self._nulls, self._nans)))

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
    """The column and its nested columns, in the order of their numbers."""
    yield column
    for each in column.inner:
        yield from _flat(each)


def _pairs(array: Arrow) -> Arrow:
    """The entries of maps as structs, without those below a null map."""
    kind = array.type
    pair = pa.struct([kind.key_field, kind.item_field])
    return array.cast(pa.list_(pair)).flatten()
