"""The typed columns of one table: the union of the columns of all schemas of a topic's records. Pure.

Equal columns and an equal shape give equal columns, and a shape that was merged before changes nothing. The id of a
column never changes and is never reused. No column is removed: it is null for later schemas without it. A type that
Iceberg can promote is widened in its column; any other type gets a new column `<name>_<n>`. All columns are optional,
because a record that cannot be decoded is null in all of them.

Specification: Iceberg's table specification, version 2, "Schema Evolution".
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from iceberg_export.rows.schema import FIELD_ID_NEXT
from iceberg_export.typed.shapes import Field, Items, Pairs, PrimitiveKind, Scalar, SchemaUnusable, Shape, Struct
from protocol.decoding import JsonDecoder
from protocol.limits import TYPED_COLUMNS_MAX

WHOLE = "content"
"""The name of the column of a value that is no struct, and so has no field names."""


class ScalarType(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag="scalar"
):
    kind: PrimitiveKind
    precision: int = 0
    scale: int = 0


class ListType(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag="list"):
    element_id: int
    element: "ScalarType | ListType | MapType | StructType"


class MapType(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag="map"):
    key_id: int
    key: ScalarType
    value_id: int
    value: "ScalarType | ListType | MapType | StructType"


class StructType(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag="struct"
):
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


@dataclass(slots=True, kw_only=True)
class _Ids:
    """Assigns field ids."""

    field_id_next: int

    def take(self) -> int:
        self.field_id_next += 1
        return self.field_id_next - 1


NO_COLUMNS = TypedColumns(version=1, field_id_next=FIELD_ID_NEXT)
"""The typed columns of a table before its first schema."""
_decoder = JsonDecoder(TypedColumns)


def encode(columns: TypedColumns) -> str:
    """The columns as JSON; equal columns give equal text."""
    return msgspec.json.encode(columns).decode()


def decode(text: str) -> TypedColumns:
    """The columns of their JSON. Raises `Undecodable` (a `ValueError`) where it is not that of `encode`."""
    return _decoder.decode(text)


def merge_key(columns: TypedColumns, shape: Shape) -> TypedColumns:
    """The columns with those that keys of a shape need. Raises `SchemaUnusable` where they are too many."""
    ids = _Ids(field_id_next=columns.field_id_next)
    key = _merge_fields(columns.key, top_fields(shape), ids, prefix="key_")
    return _next(columns, ids, key=key, value=columns.value)


def merge_value(columns: TypedColumns, shape: Shape) -> TypedColumns:
    """The columns with those that values of a shape need. Raises `SchemaUnusable` where they are too many."""
    ids = _Ids(field_id_next=columns.field_id_next)
    value = _merge_fields(columns.value, top_fields(shape), ids, prefix="value_")
    return _next(columns, ids, key=columns.key, value=value)


def _next(before: TypedColumns, ids: _Ids, *, key: tuple[Column, ...], value: tuple[Column, ...]) -> TypedColumns:
    if (key, value) == (before.key, before.value):
        return before
    if sum(1 for _ in every_column((*key, *value))) > TYPED_COLUMNS_MAX:
        raise SchemaUnusable(f"the table would have more than {TYPED_COLUMNS_MAX} typed columns")
    return replace(before, version=before.version + 1, field_id_next=ids.field_id_next, key=key, value=value)


def with_schema_id(columns: TypedColumns) -> TypedColumns:
    """The columns with `has_schema_id`, for a table with files that leave values out."""
    return columns if columns.has_schema_id else replace(columns, version=columns.version + 1, has_schema_id=True)


def every_column(columns: Iterable[Column]) -> Iterator[Column]:
    """The columns and their nested columns."""
    for column in columns:
        yield column
        yield from every_column(_inside(column.type))


def _inside(kind: ColumnType) -> tuple[Column, ...]:
    match kind:
        case ScalarType():
            return ()
        case ListType():
            return _inside(kind.element)
        case MapType():
            return _inside(kind.value)
        case StructType():
            return kind.columns


def top_fields(shape: Shape) -> tuple[Field, ...]:
    """The fields that become top-level columns: those of a struct, or one for the whole value."""
    if isinstance(shape, Struct):
        return shape.fields
    return (Field(name=WHOLE, shape=shape, pick=_whole),)


def _whole(value: object) -> object:
    return value


def matched(columns: Sequence[Column], fields: Sequence[Field]) -> list[int | None]:
    """The index of the column of each field; None where a field needs a new column.

    Fields are matched in four steps: by identity, by a column's latest name, by an earlier name, by an alias of the
    field. In each step a field gets the first unmatched column that has its type, or can be promoted to it.
    """
    by_identity: dict[str, list[int]] = {}
    by_name: dict[str, list[int]] = {}
    by_source: dict[str, list[int]] = {}
    for index, column in enumerate(columns):
        by_name.setdefault(column.sources[-1], []).append(index)
        for source in column.sources:
            by_source.setdefault(source, []).append(index)
        for identity in column.identities:
            by_identity.setdefault(identity, []).append(index)
    known = {each.name for each in fields}

    def by_alias(each: Field) -> list[int]:
        # Where a column has the field's own name, with another type, the field is new and not a renamed one.
        names = () if each.name in by_source else (alias for alias in each.aliases if alias not in known)
        return sorted(index for name in names for index in by_source.get(name, ()))

    matches: list[int | None] = [None] * len(fields)
    free = [True] * len(columns)
    steps: tuple[Callable[[Field], Sequence[int]], ...] = (
        lambda each: by_identity.get(each.identity, ()) if each.identity else (),
        lambda each: [index for index in by_name.get(each.name, ()) if not _is_another(columns[index], each)],
        lambda each: [index for index in by_source.get(each.name, ()) if not _is_another(columns[index], each)],
        by_alias,
    )
    for candidates in steps:
        for place, each in enumerate(fields):
            if matches[place] is None:
                fitting = (
                    index
                    for index in candidates(each)
                    if free[index] and _merge_type(columns[index].type, each.shape, None) is not None
                )
                match = next(fitting, None)
                if match is not None:
                    matches[place], free[match] = match, False
    return matches


def _is_another(column: Column, each: Field) -> bool:
    """True where the column belongs to another field of the same Protobuf message."""
    message = f"{each.identity.rpartition('#')[0]}#"
    return bool(each.identity) and any(known.startswith(message) for known in column.identities)


def _merge_fields(
    columns: tuple[Column, ...], fields: Sequence[Field], ids: _Ids, *, prefix: str = ""
) -> tuple[Column, ...]:
    merged = list(columns)
    for each, index in zip(fields, matched(columns, fields), strict=True):
        identities = (each.identity,) if each.identity else ()
        if index is None:
            field_id = ids.take()
            merged.append(
                Column(
                    field_id=field_id,
                    name=_free_name(f"{prefix}{each.name}", (column.name for column in merged)),
                    type=_new_type(each.shape, ids),
                    sources=(each.name,),
                    identities=identities,
                )
            )
            continue
        column = merged[index]
        kind = _merge_type(column.type, each.shape, ids)
        assert kind is not None, "the field was matched by its type"
        name, sources = column.name, column.sources
        if each.name not in sources:
            sources = (*sources, each.name)
            others = [other.name for place, other in enumerate(merged) if place != index]
            name = _free_name(f"{prefix}{each.name}", others)
        merged[index] = replace(
            column,
            name=name,
            type=kind,
            sources=sources,
            identities=(*column.identities, *(each for each in identities if each not in column.identities)),
        )
    return tuple(merged)


def _free_name(preferred: str, used: Iterable[str]) -> str:
    """The preferred name, or the first of `<name>_2`, `<name>_3`... that is not used. Engines may ignore case."""
    name = "".join(each if each == "_" or each.isalnum() else "_" for each in preferred) or "_"
    lowered = {each.lower() for each in used}
    number, free = 1, name
    while free.lower() in lowered:
        number += 1
        free = f"{name}_{number}"
    return free


def _new_type(shape: Shape, ids: _Ids) -> ColumnType:
    match shape:
        case Scalar():
            return ScalarType(kind=shape.kind, precision=shape.precision, scale=shape.scale)
        case Items():
            element_id = ids.take()
            return ListType(element_id=element_id, element=_new_type(shape.element, ids))
        case Pairs():
            key_id, value_id = ids.take(), ids.take()
            key = ScalarType(kind=shape.key.kind, precision=shape.key.precision, scale=shape.key.scale)
            return MapType(key_id=key_id, key=key, value_id=value_id, value=_new_type(shape.value, ids))
        case Struct():
            return StructType(columns=_merge_fields((), shape.fields, ids))


def _merge_type(kind: ColumnType, shape: Shape, ids: _Ids | None) -> ColumnType | None:
    """The type of a column that has values of a shape, too; None where there is no such type.

    `ids`: None where only the result's existence matters; structs get no new columns then.
    """
    match kind, shape:
        case ScalarType(), Scalar():
            return _widened(kind, ScalarType(kind=shape.kind, precision=shape.precision, scale=shape.scale))
        case ListType(), Items():
            element = _merge_type(kind.element, shape.element, ids)
            return None if element is None else replace(kind, element=element)
        case MapType(), Pairs():
            key = ScalarType(kind=shape.key.kind, precision=shape.key.precision, scale=shape.key.scale)
            value = _merge_type(kind.value, shape.value, ids) if key == kind.key else None
            return None if value is None else replace(kind, value=value)
        case StructType(), Struct():
            return kind if ids is None else StructType(columns=_merge_fields(kind.columns, shape.fields, ids))
        case _:
            return None


_WIDER = {
    (PrimitiveKind.INT, PrimitiveKind.LONG): PrimitiveKind.LONG,
    (PrimitiveKind.FLOAT, PrimitiveKind.DOUBLE): PrimitiveKind.DOUBLE,
}


def _widened(one: ScalarType, other: ScalarType) -> ScalarType | None:
    """The type for values of both, by Iceberg's type promotion; None where there is none."""
    if one == other:
        return one
    if one.kind is other.kind is PrimitiveKind.DECIMAL:
        return max(one, other, key=lambda each: each.precision) if one.scale == other.scale else None
    wider = _WIDER.get((one.kind, other.kind)) or _WIDER.get((other.kind, one.kind))
    return None if wider is None else ScalarType(kind=wider)


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
