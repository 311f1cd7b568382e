"""Counts of the columns of Arrow data, those inside columns too, by the field ids in its schema.

Rule: a null struct has null fields, and what lies below a null list or map is not counted, nor what a slice leaves out.
"""
# Without stubs, pyright does not see functions made at import.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_export import schema
from iceberg_export.tables.column_counts import NOT_COUNTED, ColumnCount, ColumnCounts

Arrow: TypeAlias = Any
"""An object of pyarrow's."""
_FIELD_ID = b"PARQUET:field_id"


def counts_of(batch: Arrow) -> ColumnCounts:
    """The counts of a record batch; its fields and those inside carry field ids. What no table has is left out."""
    return ColumnCounts.of(
        each
        for field, column in zip(batch.schema, batch.columns, strict=True)
        if field.name != schema.HEADER_KEYS
        for each in _counts(field, column)
    )


def no_counts(file_schema: Arrow) -> ColumnCounts:
    """The counts of a file without rows."""
    return counts_of(pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in file_schema], schema=file_schema))


def _counts(field: Arrow, array: Arrow) -> Iterator[ColumnCount]:
    kind = field.type
    nans = NOT_COUNTED
    if pa.types.is_floating(kind):
        nans = int(pc.sum(pc.is_nan(array)).as_py() or 0)
    yield ColumnCount(int(field.metadata[_FIELD_ID]), len(array), int(array.null_count), nans)
    if pa.types.is_map(kind):
        pairs = _pairs(array)
        yield from _counts(kind.key_field, pairs.field(0))
        yield from _counts(kind.item_field, pairs.field(1))
    elif pa.types.is_list(kind):
        yield from _counts(kind.value_field, array.flatten())
    elif pa.types.is_struct(kind):
        for inner, child in zip(kind, array.flatten(), strict=True):
            yield from _counts(inner, child)


def _pairs(array: Arrow) -> Arrow:
    """The entries of maps as structs; those below a null map are not among them."""
    kind = array.type
    pair = pa.struct([kind.key_field, kind.item_field])
    return array.cast(pa.list_(pair)).flatten()
