"""The typed columns of a table: where its metadata keeps them, and the schema that they make.

Rule: the schema of a table is that of its raw columns, and behind these of its typed ones; it changes with the commit
of the first file that needs it. Schemas that no snapshot has any more are let go of.

Specification: Iceberg's table specification, version 2, "Schemas", "Schema Evolution".
"""

from dataclasses import dataclass

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from iceberg_export.rows.schema import ERROR, ERROR_FIELD_ID, SCHEMA_ID, SCHEMA_ID_FIELD_ID, TYPED_METADATA_KEY
from iceberg_export.tables.metadata import RAW_FIELDS, TableMetadata, TableUnreadable
from iceberg_export.typed.union import TypedColumns, decode, encode, iceberg_fields
from protocol.decoding import JsonDecoder, Undecodable
from storage.object_store import StoreError


class ColumnsMovedOn(StoreError):
    """The table's typed columns are no longer those that a file was made for: plan again from the table as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsChange:
    """What becomes of a table's typed columns; `before` is None where it had none."""

    before: TypedColumns | None
    after: TypedColumns


class _SchemaHead(msgspec.Struct, frozen=True):
    schema_id: int = msgspec.field(name="schema-id")


_head_decoder = JsonDecoder(_SchemaHead)


def columns_of(metadata: TableMetadata) -> TypedColumns | None:
    """The typed columns; None where there are none. Raises `TableUnreadable`."""
    text = metadata.properties.get(TYPED_METADATA_KEY)
    if text is None:
        return None
    try:
        return decode(text)
    except Undecodable as error:
        raise TableUnreadable(
            f"the table's property {TYPED_METADATA_KEY} is none that this version of Penstock writes ({error}): "
            f"restore the metadata, or run the version that wrote it"
        ) from error


def newest(one: TypedColumns | None, other: TypedColumns | None) -> TypedColumns | None:
    """Of two that one table had, that which holds all that the other does."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda each: each.version)


def with_columns(metadata: TableMetadata, change: ColumnsChange) -> TableMetadata:
    """The metadata with these typed columns. Raises `ColumnsMovedOn` where it has others than `change.before`, and than
    `change.after`: of files that were made at a time the first one brings what all of them need."""
    before = columns_of(metadata)
    if before == change.after:
        return metadata
    if before != change.before:
        versions = ["none" if each is None else f"version {each.version}" for each in (before, change.before)]
        raise ColumnsMovedOn(f"the table has typed columns of {versions[0]}, and the file was made for {versions[1]}")
    used = {snapshot.schema_id for snapshot in metadata.snapshots} | {metadata.current_schema_id}
    schema_id = metadata.current_schema_id + 1
    kept = (schema for schema in metadata.schemas if _schema_id(schema) in used)
    return replace(
        metadata,
        last_column_id=max(metadata.last_column_id, change.after.field_id_next - 1),
        current_schema_id=schema_id,
        schemas=(*kept, Raw(_schema_json(schema_id, change.after))),
        properties={**metadata.properties, TYPED_METADATA_KEY: encode(change.after)},
    )


def _schema_id(schema: Raw) -> int:
    try:
        return _head_decoder.decode(schema).schema_id
    except Undecodable as error:
        raise TableUnreadable(f"a schema of the table has no id ({error}): restore the metadata") from error


def _schema_json(schema_id: int, columns: TypedColumns) -> bytes:
    error = {"id": ERROR_FIELD_ID, "name": ERROR, "required": False, "type": "string"}
    schema_of_left_out = {"id": SCHEMA_ID_FIELD_ID, "name": SCHEMA_ID, "required": False, "type": "int"}
    more = [schema_of_left_out] if columns.has_schema_id else []
    fields = [*RAW_FIELDS, error, *more, *iceberg_fields(columns.columns)]
    return msgspec.json.encode({"type": "struct", "schema-id": schema_id, "fields": fields})
