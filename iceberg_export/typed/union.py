"""The union of the columns of all schemas of a topic's records: how a table's typed columns grow. Pure.

Equal columns and an equal shape give equal columns, and a shape that was merged before changes nothing. The id of a
column never changes and is never reused. No column is removed: it is null for later schemas without it. A type that
Iceberg can promote is widened in its column; any other type gets a new column `<name>_<n>`. All columns are optional,
because a record that cannot be decoded is null in all of them.

Specification: Iceberg's table specification, version 2, "Schema Evolution".
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from iceberg_export.typed.columns import (
    Column,
    ColumnType,
    ListType,
    MapType,
    ScalarType,
    StructType,
    TypedColumns,
    every_column,
)
from iceberg_export.typed.shapes import Field, Items, Pairs, PrimitiveKind, Scalar, SchemaUnusable, Shape, Struct
from protocol.limits import TYPED_COLUMNS_MAX

WHOLE_VALUE_NAME = "content"
"""The name of the column of a value that is no struct, and so has no field names."""


@dataclass(slots=True, kw_only=True)
class _Ids:
    """Assigns field ids."""

    field_id_next: int

    def take(self) -> int:
        self.field_id_next += 1
        return self.field_id_next - 1


def merge_key(columns: TypedColumns, shape: Shape) -> TypedColumns:
    """The columns with those that keys of a shape need. Raises `SchemaUnusable` where they are too many."""
    ids = _Ids(field_id_next=columns.field_id_next)
    key = _merge_fields(columns.key, top_fields(shape), ids, prefix="key_")
    return _next_version(columns, ids, key=key, value=columns.value)


def merge_value(columns: TypedColumns, shape: Shape) -> TypedColumns:
    """The columns with those that values of a shape need. Raises `SchemaUnusable` where they are too many."""
    ids = _Ids(field_id_next=columns.field_id_next)
    value = _merge_fields(columns.value, top_fields(shape), ids, prefix="value_")
    return _next_version(columns, ids, key=columns.key, value=value)


def _next_version(
    before: TypedColumns, ids: _Ids, *, key: tuple[Column, ...], value: tuple[Column, ...]
) -> TypedColumns:
    """The columns with a new key or value, as the next version; `before` itself where neither has changed."""
    if (key, value) == (before.key, before.value):
        return before
    if sum(1 for _ in every_column((*key, *value))) > TYPED_COLUMNS_MAX:
        raise SchemaUnusable(f"the table would have more than {TYPED_COLUMNS_MAX} typed columns")
    return replace(before, version=before.version + 1, field_id_next=ids.field_id_next, key=key, value=value)


def top_fields(shape: Shape) -> tuple[Field, ...]:
    """The fields that become top-level columns: those of a struct, or one for the whole value."""
    if isinstance(shape, Struct):
        return shape.fields
    return (Field(name=WHOLE_VALUE_NAME, shape=shape, pick=_whole),)


def _whole(value: object) -> object:
    return value


def match_fields(columns: Sequence[Column], fields: Sequence[Field]) -> list[int | None]:
    """The index of the column of each field; None where a field needs a new column.

    Fields are matched in four steps: by identity, by a column's latest name, by an earlier name, by an alias of the
    field. In each step a field gets the first unmatched column that has its type, or can be promoted to it.
    """
    lookup = _ColumnLookup(columns, fields)
    matches: list[int | None] = [None] * len(fields)
    is_free = [True] * len(columns)
    for candidates in (lookup.by_identity, lookup.by_latest_name, lookup.by_any_name, lookup.by_alias):
        # A step is over for all fields before the next begins: a weaker match never takes a column from a stronger one.
        for field_index, field in enumerate(fields):
            if matches[field_index] is not None:
                continue
            for index in candidates(field):
                if is_free[index] and _merge_type(columns[index].type, field.shape, None) is not None:
                    matches[field_index], is_free[index] = index, False
                    break
    return matches


class _ColumnLookup:
    """Finds the columns that a field may belong to, as ascending indexes, whatever their types."""

    def __init__(self, columns: Sequence[Column], fields: Sequence[Field]) -> None:
        self._columns = columns
        self._field_names = {field.name for field in fields}
        self._by_identity: defaultdict[str, list[int]] = defaultdict(list)
        self._by_latest_name: defaultdict[str, list[int]] = defaultdict(list)
        self._by_any_name: defaultdict[str, list[int]] = defaultdict(list)
        for index, column in enumerate(columns):
            self._by_latest_name[column.sources[-1]].append(index)
            for source in column.sources:
                self._by_any_name[source].append(index)
            for identity in column.identities:
                self._by_identity[identity].append(index)

    def by_identity(self, field: Field) -> Sequence[int]:
        return self._by_identity.get(field.identity, ()) if field.identity else ()

    def by_latest_name(self, field: Field) -> Sequence[int]:
        return self._of_field(self._by_latest_name.get(field.name, ()), field)

    def by_any_name(self, field: Field) -> Sequence[int]:
        return self._of_field(self._by_any_name.get(field.name, ()), field)

    def by_alias(self, field: Field) -> Sequence[int]:
        # Where a column has the field's own name, with another type, the field is new and not a renamed one.
        if field.name in self._by_any_name:
            return ()
        # An alias that is the name of another field of this schema means that field's column.
        aliases = (alias for alias in field.aliases if alias not in self._field_names)
        return sorted(index for alias in aliases for index in self._by_any_name.get(alias, ()))

    def _of_field(self, indexes: Sequence[int], field: Field) -> Sequence[int]:
        """The columns without those of other fields of the same Protobuf message, which only share a name."""
        if not field.identity:
            return indexes
        message = f"{field.identity.rpartition('#')[0]}#"
        return [
            index
            for index in indexes
            if not any(identity.startswith(message) for identity in self._columns[index].identities)
        ]


def _merge_fields(
    columns: tuple[Column, ...], fields: Sequence[Field], ids: _Ids, *, prefix: str = ""
) -> tuple[Column, ...]:
    """The columns, each with the field that matched it, and a new column behind them for each other field."""
    merged = list(columns)
    for field, index in zip(fields, match_fields(columns, fields), strict=True):
        identities = (field.identity,) if field.identity else ()
        if index is None:
            # Before the type, which takes the ids of its nested columns: a column's id is lower than theirs.
            field_id = ids.take()
            merged.append(
                Column(
                    field_id=field_id,
                    name=_free_name(f"{prefix}{field.name}", (column.name for column in merged)),
                    type=_new_type(field.shape, ids),
                    sources=(field.name,),
                    identities=identities,
                )
            )
            continue
        column = merged[index]
        kind = _merge_type(column.type, field.shape, ids)
        assert kind is not None, "the field was matched by its type"
        name, sources = column.name, column.sources
        if field.name not in sources:
            # The field was renamed: its column gets the new name, and is still found by the old one.
            sources = (*sources, field.name)
            others = [other.name for other in merged if other is not column]
            name = _free_name(f"{prefix}{field.name}", others)
        merged[index] = replace(
            column,
            name=name,
            type=kind,
            sources=sources,
            identities=(*column.identities, *(new for new in identities if new not in column.identities)),
        )
    return tuple(merged)


def _free_name(preferred: str, used: Iterable[str]) -> str:
    """The preferred name, or the first of `<name>_2`, `<name>_3`... that is not used."""
    name = "".join(char if char == "_" or char.isalnum() else "_" for char in preferred) or "_"
    # Engines may ignore case: to Spark `Id` and `id` are one column.
    used_lower = {other.lower() for other in used}
    number, free = 1, name
    while free.lower() in used_lower:
        number += 1
        free = f"{name}_{number}"
    return free


def _new_type(shape: Shape, ids: _Ids) -> ColumnType:
    match shape:
        case Scalar():
            return _scalar_type(shape)
        case Items():
            element_id = ids.take()
            return ListType(element_id=element_id, element=_new_type(shape.element, ids))
        case Pairs():
            key_id, value_id = ids.take(), ids.take()
            value = _new_type(shape.value, ids)
            return MapType(key_id=key_id, key=_scalar_type(shape.key), value_id=value_id, value=value)
        case Struct():
            return StructType(columns=_merge_fields((), shape.fields, ids))


def _merge_type(kind: ColumnType, shape: Shape, ids: _Ids | None) -> ColumnType | None:
    """The type of a column that has values of a shape, too; None where there is no such type.

    `ids`: None where only the result's existence matters; structs get no new columns then.
    """
    match kind, shape:
        case ScalarType(), Scalar():
            return _widened(kind, _scalar_type(shape))
        case ListType(), Items():
            element = _merge_type(kind.element, shape.element, ids)
            return None if element is None else replace(kind, element=element)
        case MapType(), Pairs():
            # Only the values of a map are widened: a map with keys of another type gets a new column.
            is_same_key = _scalar_type(shape.key) == kind.key
            value = _merge_type(kind.value, shape.value, ids) if is_same_key else None
            return None if value is None else replace(kind, value=value)
        case StructType(), Struct():
            return kind if ids is None else StructType(columns=_merge_fields(kind.columns, shape.fields, ids))
        case _:
            return None


def _scalar_type(scalar: Scalar) -> ScalarType:
    return ScalarType(kind=scalar.kind, precision=scalar.precision, scale=scalar.scale)


_WIDER = {
    (PrimitiveKind.INT, PrimitiveKind.LONG): PrimitiveKind.LONG,
    (PrimitiveKind.FLOAT, PrimitiveKind.DOUBLE): PrimitiveKind.DOUBLE,
}
"""Iceberg's promotions from the narrower kind and the wider one. A schema may be older than the column, so either may
come first.
"""


def _widened(before: ScalarType, added: ScalarType) -> ScalarType | None:
    """The type for values of both, by Iceberg's type promotion; None where there is none."""
    if before == added:
        return before
    if before.kind is added.kind is PrimitiveKind.DECIMAL:
        # Iceberg widens the precision of a decimal, never its scale.
        return max(before, added, key=lambda decimal: decimal.precision) if before.scale == added.scale else None
    wider = _WIDER.get((before.kind, added.kind)) or _WIDER.get((added.kind, before.kind))
    return None if wider is None else ScalarType(kind=wider)
