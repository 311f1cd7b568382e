"""The typed columns of one file, and their values for each row group.

They come after the raw columns, so a reader of the raw ones still reads one range of a row group. The first one is
`error`. The footer has the columns, too, so a table can be rebuilt from its files. Where the columns reproduce a value,
the file may leave out its bytes (`elision`).
"""
# Without stubs, pyright does not see functions made at import.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_export.rows.columns import BinaryColumn, RecordRows
from iceberg_export.rows.schema import (
    COLUMNS,
    ERROR,
    ERROR_FIELD_ID,
    KEPT_VALUE,
    PLANS_METADATA_KEY,
    SCHEMA_ID,
    SCHEMA_ID_FIELD_ID,
    TYPED_METADATA_KEY,
    VALUE,
)
from iceberg_export.typed.arrays import Arrow, arrow_field
from iceberg_export.typed.columns import NO_COLUMNS, Column, ScalarType, TypedColumns, encode, with_schema_id
from iceberg_export.typed.decode import DecodedColumns, ValueReader, ValueReaders, decode_column
from iceberg_export.typed.framing import WriterSchema
from iceberg_export.typed.scan import Sides, WriterSchemas
from iceberg_export.typed.shapes import SchemaUnusable, Shape
from iceberg_export.typed.union import merge_key, merge_value
from iceberg_export.typed.value_plans import ValuePlans, encode_plans


class ReaderOf(Protocol):
    """Returns the reader of a writer's records. Raises `SchemaUnusable` with the error text of its records."""

    def __call__(self, writer: WriterSchema, /) -> ValueReader: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumns:
    """The typed columns of a file, and the readers of its records."""

    before: TypedColumns | None
    """The table's typed columns from which these were derived; None where it had none."""
    columns: TypedColumns
    sides: Sides
    key: ValueReaders
    value: ValueReaders
    plans: ValuePlans | None = None
    """The plans to decode left-out values; None where the file has the bytes of all values."""

    def schema(self, raw: Arrow) -> Arrow:
        """The file's Arrow schema: the raw columns, then the typed ones."""
        error = _field(ERROR, pa.string(), ERROR_FIELD_ID)
        typed = map(arrow_field, self.columns.columns)
        if self.plans is None:
            return pa.schema([*raw, error, *typed])
        renamed = [each.with_name(KEPT_VALUE) if each.name == VALUE else each for each in raw]
        return pa.schema([*renamed, error, _field(SCHEMA_ID, pa.int32(), SCHEMA_ID_FIELD_ID), *typed])

    def batch(self, raw: Arrow, rows: RecordRows) -> Arrow:
        """The rows with their typed columns. `raw`: the rows as a batch of the raw columns."""
        key = _side(rows.key, self.columns.key, self.key, is_decoded=self.sides.has_key)
        value = _side(rows.value, self.columns.value, self.value, is_decoded=self.sides.has_value)
        errors = [
            None if not (of_key or of_value) else "; ".join(_error_texts(of_key, of_value))
            for of_key, of_value in zip(key.errors, value.errors, strict=True)
        ]
        first = [*raw.columns, pa.array(errors, type=pa.string())]
        if self.plans is not None:
            first = self._without_left_out(first, rows.value, value)
        return pa.RecordBatch.from_arrays([*first, *key.arrays, *value.arrays], schema=self.schema(raw.schema))

    def _without_left_out(self, first: list[Arrow], values: BinaryColumn, decoded: DecodedColumns) -> list[Arrow]:
        """The columns before the typed ones: `value` without left-out values, and as the last one `schema_id`."""
        from iceberg_export.typed.elision.value_elision import KEPT, left_out_by  # imports its kernels

        assert self.plans is not None, "values are left out only where plans decode them"
        arrays = dict(zip((each.name for each in self.columns.value), decoded.arrays, strict=True))
        ids = left_out_by(values, self.plans, arrays, decoded.errors)
        is_kept = ids == KEPT
        index = COLUMNS.index(VALUE)
        kept_values = pc.if_else(pa.array(is_kept), first[index], pa.scalar(None, pa.binary()))
        return [*first[:index], kept_values, *first[index + 1 :], pa.array(ids.astype(np.int32), mask=is_kept)]

    def metadata(self) -> Mapping[str, str]:
        """The entries of the file's footer for them."""
        metadata = {TYPED_METADATA_KEY: encode(self.columns)}
        return metadata if self.plans is None else {**metadata, PLANS_METADATA_KEY: encode_plans(self.plans)}

    def with_statistics(self) -> list[str]:
        """The columns with statistics in each row group: scalars, by which engines skip row groups."""
        return [each.name for each in self.columns.columns if isinstance(each.type, ScalarType)]


def _field(name: str, kind: Arrow, field_id: int) -> Arrow:
    return pa.field(name, kind, nullable=True, metadata={b"PARQUET:field_id": str(field_id).encode()})


def _error_texts(of_key: str | None, of_value: str | None) -> list[str]:
    return [f"{side}: {error}" for side, error in (("key", of_key), ("value", of_value)) if error]


def _side(
    column: BinaryColumn, columns: tuple[Column, ...], readers: ValueReaders, *, is_decoded: bool
) -> DecodedColumns:
    if is_decoded:
        return decode_column(column, columns, readers)
    # The topic's config does not select this side any more: its existing columns stay, and are null.
    nulls = [pa.nulls(len(column), arrow_field(each).type) for each in columns]
    return DecodedColumns(arrays=nulls, errors=[None] * len(column))


def plan_columns(
    before: TypedColumns | None,
    schemas: WriterSchemas,
    sides: Sides,
    reader_of: ReaderOf,
    with_indexes: frozenset[int],
    *,
    leaves_out: bool = False,
) -> FileColumns:
    """The columns of a file: those of the table, and those that the schemas of its records add. CPU work.

    `before`: the table's columns. `schemas`: those of the file's records. `leaves_out`: the file leaves out the
    bytes of values that its columns reproduce.
    """
    columns, key = _merged(before or NO_COLUMNS, schemas.key, reader_of, merge_key)
    columns, value = _merged(columns, schemas.value, reader_of, merge_value)
    plans = None
    if leaves_out:
        from iceberg_export.typed.elision.value_elision import plan_values  # imports its kernels

        plans = plan_values(columns.value, value)
        columns = columns if plans is None else with_schema_id(columns)
    return FileColumns(
        before=before,
        columns=columns,
        sides=sides,
        key=ValueReaders(by_writer=key, with_indexes=with_indexes),
        value=ValueReaders(by_writer=value, with_indexes=with_indexes),
        plans=plans,
    )


def _merged(
    columns: TypedColumns,
    writers: frozenset[WriterSchema],
    reader_of: ReaderOf,
    merge: Callable[[TypedColumns, Shape], TypedColumns],
) -> tuple[TypedColumns, dict[WriterSchema, ValueReader | str]]:
    readers: dict[WriterSchema, ValueReader | str] = {}
    # In the order of ids, so that equal sets of schemas give equal columns.
    for writer in sorted(writers, key=lambda each: (each.schema_id, each.indexes)):
        try:
            reader = reader_of(writer)
            columns = merge(columns, reader.shape)
            readers[writer] = reader
        except SchemaUnusable as error:
            readers[writer] = f"schema {writer.schema_id}: {error}"
        except Exception as error:  # a library may raise anything, and a schema must not stop an archive pass
            readers[writer] = f"schema {writer.schema_id}: {type(error).__name__}: {error}"
    return columns, readers
