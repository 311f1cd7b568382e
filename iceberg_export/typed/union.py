"""The columns of one table: the union of what all schemas of a topic's records asked for.

Rule: pure and deterministic; the same columns and the same shape give the same columns, and a shape that was merged
before changes nothing. A column keeps its id for ever, an id is never given twice, and none is taken away: what later
schemas lack is null. What Iceberg can promote is widened in its place; any other type gets a column of its own,
`<name>_<n>`. All are optional, since a record that cannot be decoded has none of them.

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
"""The name of a value that is no struct, and so has no names of its own."""


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
    """`name` is what the table calls it; `sources` are the names that schemas called it, the latest last, and
    `identities` what stays the same when it is renamed (`shapes.Field`)."""

    field_id: int
    name: str
    type: ColumnType
    sources: tuple[str, ...]
    identities: tuple[str, ...] = ()


class TypedColumns(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The columns of a table beside the raw ones. `version` counts the changes; of two of one table the one with the
    higher version holds all that the other does. `has_schema_id`: a file of the table has left values out."""

    version: int
    field_id_next: int
    key: tuple[Column, ...] = ()
    value: tuple[Column, ...] = ()
    has_schema_id: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        """In the order in which they stand in a file."""
        return (*self.key, *self.value)


@dataclass(slots=True, kw_only=True)
class _Ids:
    """Gives ids."""

    field_id_next: int

    def take(self) -> int:
        self.field_id_next += 1
        return self.field_id_next - 1


NO_COLUMNS = TypedColumns(version=1, field_id_next=FIELD_ID_NEXT)
"""Those of a table whose records are to be decoded, before there was a schema."""
_decoder = JsonDecoder(TypedColumns)


def encode(columns: TypedColumns) -> str:
    """The columns as JSON, the same each time."""
    return msgspec.json.encode(columns).decode()


def decode(text: str) -> TypedColumns:
    """The columns out of their JSON. Raises `Undecodable` (a `ValueError`) where it is none of ours."""
    return _decoder.decode(text)


def merge_key(columns: TypedColumns, shape: Shape) -> TypedColumns:
    """The columns with those that keys of a shape need. Raises `SchemaUnusable` where these are too many."""
    ids = _Ids(field_id_next=columns.field_id_next)
    key = _merge_fields(columns.key, top_fields(shape), ids, prefix="key_")
    return _next(columns, ids, key=key, value=columns.value)


def merge_value(columns: TypedColumns, shape: Shape) -> TypedColumns:
    """The columns with those that values of a shape need. Raises `SchemaUnusable` where these are too many."""
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
    """The columns of a table that has files which leave values out."""
    return columns if columns.has_schema_id else replace(columns, version=columns.version + 1, has_schema_id=True)


def every_column(columns: Iterable[Column]) -> Iterator[Column]:
    """The columns, and those inside them."""
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
    """What becomes a column of its own: the fields of a struct, or the value as a whole."""
    if isinstance(shape, Struct):
        return shape.fields
    return (Field(name=WHOLE, shape=shape, pick=_whole),)


def _whole(value: object) -> object:
    return value


def matched(columns: Sequence[Column], fields: Sequence[Field]) -> list[int | None]:
    """For each field which column takes it, as an index; None where none can.

    First go those that are known by identity; then those whose name a column has now; then those whose name one had;
    then those of which an alias says how they were called. Each takes the first column that is left and has its type.
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
        # A name that a column has, of another type, is no new name of something else.
        names = () if each.name in by_source else (alias for alias in each.aliases if alias not in known)
        return sorted(index for name in names for index in by_source.get(name, ()))

    found: list[int | None] = [None] * len(fields)
    free = [True] * len(columns)
    steps: tuple[Callable[[Field], Sequence[int]], ...] = (
        lambda each: by_identity.get(each.identity, ()) if each.identity else (),
        lambda each: [index for index in by_name.get(each.name, ()) if not _is_another(columns[index], each)],
        lambda each: [index for index in by_source.get(each.name, ()) if not _is_another(columns[index], each)],
        by_alias,
    )
    for candidates in steps:
        for place, each in enumerate(fields):
            if found[place] is None:
                fitting = (
                    index
                    for index in candidates(each)
                    if free[index] and _merge_type(columns[index].type, each.shape, None) is not None
                )
                taken = next(fitting, None)
                if taken is not None:
                    found[place], free[taken] = taken, False
    return found


def _is_another(column: Column, each: Field) -> bool:
    """Whether the column is known as another field of the same message."""
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
            identities=(*column.identities, *(one for one in identities if one not in column.identities)),
        )
    return tuple(merged)


def _free_name(wanted: str, taken: Iterable[str]) -> str:
    """The wanted name, or the first of `<name>_2`, `<name>_3`... that no other column has; engines may ignore case."""
    name = "".join(each if each == "_" or each.isalnum() else "_" for each in wanted) or "_"
    lowered = {each.lower() for each in taken}
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
    """The type of a column that takes a shape too; None where there is none.

    Without `ids` only whether there is one counts: structs get no new columns.
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
    """What holds values of both, by Iceberg's promotions."""
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
