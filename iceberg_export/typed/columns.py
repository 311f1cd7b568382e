"""The typed columns of one table: their types, their JSON, and their form in an Iceberg schema. Pure.

The JSON is a property of the table and an entry in the footer of its files, so the names of the fields here are a
format. `iceberg_export.typed.union` says how columns change with the schemas of records.

Specification: Iceberg's table specification, version 2, "Schemas and Data Types".
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from iceberg_export.rows.schema import FIELD_ID_NEXT
from iceberg_export.typed.shapes import PrimitiveKind
from protocol.decoding import JsonDecoder


class ScalarType(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag="scalar"
):
    """A primitive type. `precision`, `scale`: those of a decimal."""

    kind: PrimitiveKind
    precision: int = 0
    scale: int = 0


class ListType(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag="list"):
    """A list. Iceberg gives its element a field id."""

    element_id: int
    element: "ScalarType | ListType | MapType | StructType"


class MapType(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag="map"):
    """A map. Iceberg gives its keys and its values a field id each."""

    key_id: int
    key: ScalarType
    value_id: int
    value: "ScalarType | ListType | MapType | StructType"


class StructType(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag="struct"
):
    """A record. Its fields are columns, with ids and former names of their own."""

    columns: tuple["Column", ...]


ColumnType: TypeAlias = ScalarType | ListType | MapType | StructType


class Column(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A typed column.

    `name`: its name in the table. `sources`: its names in schemas, the latest last. `identities`: see `shapes.Field`.
    """

    field_id: int
    name: str
    type: ColumnType
    sources: tuple[str, ...]
    identities: tuple[str, ...] = ()


class TypedColumns(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The typed columns of a table.

    `version`: the count of changes; a higher version of the same table includes all columns of a lower one.
    `has_schema_id`: a file of the table leaves values out.
    """

    version: int
    field_id_next: int
    key: tuple[Column, ...] = ()
    value: tuple[Column, ...] = ()
    has_schema_id: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns in the order of a file."""
        return (*self.key, *self.value)


NO_COLUMNS = TypedColumns(version=1, field_id_next=FIELD_ID_NEXT)
"""The typed columns of a table before its first schema."""
_decoder = JsonDecoder(TypedColumns)


def encode(columns: TypedColumns) -> str:
    """The columns as JSON; equal columns give equal text."""
    return msgspec.json.encode(columns).decode()


def decode(text: str) -> TypedColumns:
    """The columns of their JSON. Raises `Undecodable` (a `ValueError`) where it is not that of `encode`."""
    return _decoder.decode(text)


def with_schema_id(columns: TypedColumns) -> TypedColumns:
    """The columns with `has_schema_id`, for a table with files that leave values out."""
    return columns if columns.has_schema_id else replace(columns, version=columns.version + 1, has_schema_id=True)


def every_column(columns: Iterable[Column]) -> Iterator[Column]:
    """The columns and their nested columns."""
    for column in columns:
        yield column
        yield from every_column(_nested_columns(column.type))


def _nested_columns(kind: ColumnType) -> tuple[Column, ...]:
    """The columns of the structs directly inside a type; their own nested columns are not among them."""
    match kind:
        case ScalarType():
            return ()
        case ListType():
            return _nested_columns(kind.element)
        case MapType():
            return _nested_columns(kind.value)
        case StructType():
            return kind.columns


def iceberg_fields(columns: Iterable[Column]) -> list[dict[str, object]]:
    """The columns as fields of an Iceberg schema."""
    return [
        {"id": column.field_id, "name": column.name, "required": False, "type": _iceberg_type(column.type)}
        for column in columns
    ]


def _iceberg_type(kind: ColumnType) -> object:
    match kind:
        case ScalarType(kind=PrimitiveKind.DECIMAL):
            return f"decimal({kind.precision}, {kind.scale})"
        case ScalarType(kind=PrimitiveKind.JSON):
            return str(PrimitiveKind.STRING)
        case ScalarType():
            return str(kind.kind)
        case ListType():
            element = _iceberg_type(kind.element)
            return {"type": "list", "element-id": kind.element_id, "element": element, "element-required": False}
        case MapType():
            return {
                "type": "map",
                "key-id": kind.key_id,
                "key": _iceberg_type(kind.key),
                "value-id": kind.value_id,
                "value": _iceberg_type(kind.value),
                "value-required": False,
            }
        case StructType():
            return {"type": "struct", "fields": iceberg_fields(kind.columns)}
