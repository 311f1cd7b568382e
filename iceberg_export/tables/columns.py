"""The typed columns of a table: their property in its metadata, and the table's schema with them.

The schema of a table has the raw columns, and after them the typed ones. It changes with the commit of the first file
that needs the change. Schemas that no snapshot uses any more are removed.

Specification: Iceberg's table specification, version 2, "Schemas", "Schema Evolution".
"""

from dataclasses import dataclass

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from iceberg_export.rows.schema import ERROR, ERROR_FIELD_ID, SCHEMA_ID, SCHEMA_ID_FIELD_ID, TYPED_METADATA_KEY
from iceberg_export.tables.metadata import RAW_FIELDS, TableMetadata, TableUnreadable
from iceberg_export.typed.columns import TypedColumns, decode, encode, iceberg_fields
from protocol.decoding import JsonDecoder, Undecodable
from storage.object_store import StoreError


class ColumnsMovedOn(StoreError):
    """The table's typed columns have changed since a file was made for them: plan again from the current table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsChange:
    """A change of a table's typed columns. `before`: None where it has none."""

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
            f"this version of Penstock cannot read the table's property {TYPED_METADATA_KEY} ({error}): "
            f"restore the metadata, or run the version that wrote it"
        ) from error


def newest(one: TypedColumns | None, other: TypedColumns | None) -> TypedColumns | None:
    """The newer of two versions of one table's typed columns: it includes all columns of the other."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda each: each.version)


def with_columns(metadata: TableMetadata, change: ColumnsChange) -> TableMetadata:
    """The metadata with the typed columns `change.after`.

    Raises `ColumnsMovedOn` where the table has neither `change.before` nor `change.after`, and `TableUnreadable`.
    """
    before = columns_of(metadata)
    # Several files may be made for the same change: the first one's commit applies it for all.
    if before == change.after:
        return metadata
    if before != change.before:
        versions = ["none" if each is None else f"version {each.version}" for each in (before, change.before)]
        raise ColumnsMovedOn(f"the typed columns of the table: {versions[0]}, but the file was made for {versions[1]}")
    used_ids = {snapshot.schema_id for snapshot in metadata.snapshots} | {metadata.current_schema_id}
    schema_id = metadata.current_schema_id + 1
    used_schemas = (schema for schema in metadata.schemas if _schema_id(schema) in used_ids)
    return replace(
        metadata,
        last_column_id=max(metadata.last_column_id, change.after.field_id_next - 1),
        current_schema_id=schema_id,
        schemas=(*used_schemas, Raw(_schema_json(schema_id, change.after))),
        properties={**metadata.properties, TYPED_METADATA_KEY: encode(change.after)},
    )


def _schema_id(schema: Raw) -> int:
    try:
        return _head_decoder.decode(schema).schema_id
    except Undecodable as error:
        raise TableUnreadable(f"a schema of the table has no id ({error}): restore the metadata") from error


def _schema_json(schema_id: int, columns: TypedColumns) -> bytes:
    error = {"id": ERROR_FIELD_ID, "name": ERROR, "required": False, "type": "string"}
    schema_column = {"id": SCHEMA_ID_FIELD_ID, "name": SCHEMA_ID, "required": False, "type": "int"}
    schema_columns = [schema_column] if columns.has_schema_id else []
    fields = [*RAW_FIELDS, error, *schema_columns, *iceberg_fields(columns.columns)]
    return msgspec.json.encode({"type": "struct", "schema-id": schema_id, "fields": fields})
