"""The typed columns of one file: which there are, and their values for each of its row groups.

Rule: they stand behind the raw ones, so that who wants those alone reads one stretch of a row group, as before; the
first of them is `error`. The columns are in the file's footer too, so that a table can be made of files alone.
"""
# Without stubs, pyright does not see functions made at import.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from iceberg_export.columns import BinaryColumn, RecordRows
from iceberg_export.schema import ERROR, ERROR_FIELD_ID, TYPED_METADATA_KEY
from iceberg_export.typed.arrays import Arrow, arrow_field
from iceberg_export.typed.decode import Decoded, Reader, Readers, decode_column
from iceberg_export.typed.framing import Writer
from iceberg_export.typed.scan import Seen, Sides
from iceberg_export.typed.shapes import SchemaUnusable, Shape
from iceberg_export.typed.union import (
    NO_COLUMNS,
    Column,
    ScalarType,
    TypedColumns,
    encode,
    merge_key,
    merge_value,
)


class ReaderOf(Protocol):
    """Finds the reader of a writer. Raises `SchemaUnusable` with what its records get as their error."""

    def __call__(self, writer: Writer, /) -> Reader: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumns:
    """What a file needs. `before`: the table's columns, of which these were made; None where it had none."""

    before: TypedColumns | None
    columns: TypedColumns
    sides: Sides
    key: Readers
    value: Readers

    def schema(self, raw: Arrow) -> Arrow:
        """The file's schema: that of the raw columns, and the typed ones."""
        error = pa.field(
            ERROR, pa.string(), nullable=True, metadata={b"PARQUET:field_id": str(ERROR_FIELD_ID).encode()}
        )
        return pa.schema([*raw, error, *map(arrow_field, self.columns.columns)])

    def batch(self, raw: Arrow, rows: RecordRows) -> Arrow:
        """The rows with their typed columns; `raw` are the rows without."""
        key = _side(rows.key, self.columns.key, self.key, is_wanted=self.sides.has_key)
        value = _side(rows.value, self.columns.value, self.value, is_wanted=self.sides.has_value)
        errors = [
            None if not (of_key or of_value) else "; ".join(_told(of_key, of_value))
            for of_key, of_value in zip(key.errors, value.errors, strict=True)
        ]
        return pa.RecordBatch.from_arrays(
            [*raw.columns, pa.array(errors, type=pa.string()), *key.arrays, *value.arrays],
            schema=self.schema(raw.schema),
        )

    def metadata(self) -> Mapping[str, str]:
        """What the file's footer says of them."""
        return {TYPED_METADATA_KEY: encode(self.columns)}

    def with_statistics(self) -> list[str]:
        """Columns whose lowest and highest value each row group tells: those that engines choose by."""
        return [each.name for each in self.columns.columns if isinstance(each.type, ScalarType)]


def _told(of_key: str | None, of_value: str | None) -> list[str]:
    return [f"{side}: {error}" for side, error in (("key", of_key), ("value", of_value)) if error]


def _side(column: BinaryColumn, columns: tuple[Column, ...], readers: Readers, *, is_wanted: bool) -> Decoded:
    if is_wanted:
        return decode_column(column, columns, readers)
    # What was decoded once and is no more: the columns stay, and are null.
    nulls = [pa.nulls(len(column), arrow_field(each).type) for each in columns]
    return Decoded(arrays=nulls, errors=[None] * len(column))


def plan_columns(
    before: TypedColumns | None, seen: Seen, sides: Sides, reader_of: ReaderOf, with_indexes: frozenset[int]
) -> FileColumns:
    """The columns of a file whose records were written with what was seen: the table's, and what new schemas ask for.

    Schemas are taken in the order of their ids. CPU work.
    """
    columns, key = _merged(before or NO_COLUMNS, seen.key, reader_of, merge_key)
    columns, value = _merged(columns, seen.value, reader_of, merge_value)
    return FileColumns(
        before=before,
        columns=columns,
        sides=sides,
        key=Readers(by_writer=key, with_indexes=with_indexes),
        value=Readers(by_writer=value, with_indexes=with_indexes),
    )


def _merged(
    columns: TypedColumns,
    writers: frozenset[Writer],
    reader_of: ReaderOf,
    merge: Callable[[TypedColumns, Shape], TypedColumns],
) -> tuple[TypedColumns, dict[Writer, Reader | str]]:
    readers: dict[Writer, Reader | str] = {}
    for writer in sorted(writers, key=lambda each: (each.schema_id, each.indexes)):
        try:
            reader = reader_of(writer)
            columns = merge(columns, reader.shape)
            readers[writer] = reader
        except SchemaUnusable as error:
            readers[writer] = f"schema {writer.schema_id}: {error}"
        except Exception as error:  # whatever it is: a schema must stop no pass
            readers[writer] = f"schema {writer.schema_id}: {type(error).__name__}: {error}"
    return columns, readers
