"""Converts values of one schema to Arrow arrays of the table's columns.

All values of a column are converted together. For a value that does not fit, Arrow or the format's library raises any
exception, and the caller finds the value (`decode`). An array has the column's type, whatever the schema's type is.
"""
# Without stubs, pyright takes a default value for a parameter's type, and does not see functions made at import.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.json_format import MessageToDict

from iceberg_export.typed.columns import Column, ColumnType, ListType, MapType, ScalarType, StructType
from iceberg_export.typed.shapes import Field, Form, Items, Pairs, PrimitiveKind, Scalar, Shape, Struct, Untyped
from iceberg_export.typed.union import match_fields

Arrow: TypeAlias = Any
"""A pyarrow object."""
COLUMN_MOVED = "a schema of the same pass has renamed a column of this one"
"""The error of records whose fields do not match the columns that their schema made."""
_DECIMAL_BYTES = 16
_NANOSECONDS_PER_MICROSECOND = 1000
_MICROSECONDS_PER_MILLISECOND = 1000
_MICROSECONDS_PER_SECOND = 1_000_000

_ARROW: Mapping[PrimitiveKind, Arrow] = {
    PrimitiveKind.BOOLEAN: pa.bool_(),
    PrimitiveKind.INT: pa.int32(),
    PrimitiveKind.LONG: pa.int64(),
    PrimitiveKind.FLOAT: pa.float32(),
    PrimitiveKind.DOUBLE: pa.float64(),
    PrimitiveKind.DATE: pa.date32(),
    PrimitiveKind.TIMESTAMP: pa.timestamp("us"),
    PrimitiveKind.TIMESTAMP_UTC: pa.timestamp("us", tz="UTC"),
    PrimitiveKind.STRING: pa.string(),
    PrimitiveKind.UUID: pa.uuid(),
    PrimitiveKind.BINARY: pa.binary(),
    PrimitiveKind.JSON: pa.string(),
}
_PYTHON: Mapping[PrimitiveKind, frozenset[type]] = {
    PrimitiveKind.BOOLEAN: frozenset({bool}),
    PrimitiveKind.INT: frozenset({int}),
    PrimitiveKind.LONG: frozenset({int}),
    PrimitiveKind.FLOAT: frozenset({float}),
    PrimitiveKind.DOUBLE: frozenset({float}),
    PrimitiveKind.DECIMAL: frozenset({bytes, int}),
    PrimitiveKind.DATE: frozenset({int}),
    PrimitiveKind.TIMESTAMP: frozenset({int}),
    PrimitiveKind.TIMESTAMP_UTC: frozenset({int}),
    PrimitiveKind.STRING: frozenset({str}),
    PrimitiveKind.UUID: frozenset({bytes, str}),
    PrimitiveKind.BINARY: frozenset({bytes}),
}
"""The Python types of values. Arrow would accept other types, and silently convert the values."""
_NONE = type(None)


def arrow_field(column: Column) -> Arrow:
    """The column as a field of an Arrow schema, with its id."""
    return pa.field(column.name, arrow_type(column.type), nullable=True, metadata=_with_id(column.field_id))


def arrow_type(kind: ColumnType) -> Arrow:
    """The Arrow type of a column, with the ids of nested fields."""
    match kind:
        case ScalarType(kind=PrimitiveKind.DECIMAL):
            return pa.decimal128(kind.precision, kind.scale)
        case ScalarType():
            return _ARROW[kind.kind]
        case ListType():
            return pa.list_(pa.field("element", arrow_type(kind.element), metadata=_with_id(kind.element_id)))
        case MapType():
            return pa.map_(
                pa.field("key", arrow_type(kind.key), nullable=False, metadata=_with_id(kind.key_id)),
                pa.field("value", arrow_type(kind.value), metadata=_with_id(kind.value_id)),
            )
        case StructType():
            return pa.struct([arrow_field(column) for column in kind.columns])


def _with_id(field_id: int) -> dict[bytes, bytes]:
    return {b"PARQUET:field_id": str(field_id).encode()}


def field_arrays(columns: Sequence[Column], fields: Sequence[Field], rows: Sequence[object]) -> list[Arrow]:
    """An array for each of the columns, in their order, with the values that the fields take from the rows.

    A row that is None, and a column without a field, are null. Raises any exception where a value does not fit.
    """
    by_column: dict[int, Field] = {}
    for each, index in zip(fields, match_fields(columns, fields), strict=True):
        if index is None:
            raise ValueError(COLUMN_MOVED)
        by_column[index] = each
    arrays: list[Arrow] = []
    for index, column in enumerate(columns):
        source = by_column.get(index)
        if source is None:
            arrays.append(pa.nulls(len(rows), arrow_type(column.type)))
            continue
        pick = source.pick
        values = [None if row is None else pick(row) for row in rows]
        arrays.append(_array(column.type, source.shape, values))
    return arrays


def _array(kind: ColumnType, shape: Shape, values: Sequence[Untyped]) -> Arrow:
    match kind, shape:
        case ScalarType(), Scalar():
            return _scalars(kind, shape, values)
        case ListType(), Items():
            _check(values, frozenset({list}))
            inner = _array(kind.element, shape.element, list(chain.from_iterable(each or () for each in values)))
            return _nested(arrow_type(kind), values, [inner])
        case MapType(), Pairs():
            _check(values, frozenset({dict}))
            present = [each or {} for each in values]
            keys = _array(kind.key, shape.key, list(chain.from_iterable(present)))
            inner = _array(kind.value, shape.value, list(chain.from_iterable(each.values() for each in present)))
            whole = arrow_type(kind)
            pairs = pa.StructArray.from_arrays([keys, inner], fields=[whole.key_field, whole.item_field])
            return _nested(whole, values, [pairs])
        case StructType(), Struct():
            arrays = field_arrays(kind.columns, shape.fields, values)
            is_null = pa.array([each is None for each in values], type=pa.bool_())
            return pa.StructArray.from_arrays(arrays, fields=list(arrow_type(kind)), mask=is_null)
        case _:
            raise ValueError(COLUMN_MOVED)


def _nested(whole: Arrow, values: Sequence[Untyped], children: list[Arrow]) -> Arrow:
    """A list or map array with the elements in `children`; a value that is None is null."""
    ends = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum([0 if each is None else len(each) for each in values], out=ends[1:])
    validity = None
    if None in map(_is_none, values):
        validity = pa.py_buffer(np.packbits([each is not None for each in values], bitorder="little"))
    return pa.Array.from_buffers(whole, len(values), [validity, pa.py_buffer(ends)], children=children)


def _is_none(value: object) -> bool | None:
    return None if value is None else False


def _scalars(kind: ScalarType, shape: Scalar, values: Sequence[Untyped]) -> Arrow:
    if shape.kind is PrimitiveKind.JSON:
        return pa.array([None if each is None else _json_text(each) for each in values], type=pa.string())
    if shape.form is Form.PROTOBUF_TIMESTAMP:
        values = [None if each is None else _microseconds(each) for each in values]
    elif shape.form is Form.JSON_NUMBER:
        values = _json_numbers(shape.kind, values)
    _check(values, _PYTHON[shape.kind])
    match shape.kind:
        case PrimitiveKind.DECIMAL:
            return _decimals(kind, values)
        case PrimitiveKind.UUID:
            storage = [None if each is None else _uuid_bytes(each) for each in values]
            return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(storage, type=pa.binary(16)))
        case PrimitiveKind.DATE:
            return pa.array(values, type=pa.int32()).view(pa.date32())
        case PrimitiveKind.TIMESTAMP | PrimitiveKind.TIMESTAMP_UTC:
            numbers = pa.array(values, type=pa.int64())
            if shape.form is Form.MILLISECONDS:
                numbers = pc.multiply_checked(numbers, pa.scalar(_MICROSECONDS_PER_MILLISECOND, pa.int64()))
            return numbers.view(arrow_type(kind))
        case _:
            return pa.array(values, type=_ARROW[shape.kind]).cast(arrow_type(kind))


def _check(values: Iterable[object], allowed: frozenset[type]) -> None:
    """Raises `TypeError` where a value is neither one of these types nor None."""
    others = set(map(type, values)) - allowed - {_NONE}
    if others:
        names = ", ".join(sorted(each.__name__ for each in others))
        raise TypeError(f"{' or '.join(sorted(each.__name__ for each in allowed))} was expected, not {names}")


def _json_numbers(kind: PrimitiveKind, values: Sequence[Untyped]) -> Sequence[Untyped]:
    target, other = (int, float) if kind is PrimitiveKind.LONG else (float, int)
    if other not in set(map(type, values)):
        return values
    return [_json_number(target, each) if type(each) is other else each for each in values]


def _json_number(target: Callable[[Untyped], Untyped], value: Untyped) -> Untyped:
    """The number as the type `target`. Raises `ValueError` where an integer would be another number."""
    number = target(value)
    if target is int and number != value:
        raise ValueError(f"{value} is no integer")
    return number


def _microseconds(value: Untyped) -> int:
    return int(value.seconds) * _MICROSECONDS_PER_SECOND + int(value.nanos) // _NANOSECONDS_PER_MICROSECOND


def _uuid_bytes(value: bytes | str) -> bytes:
    return UUID(value).bytes if isinstance(value, str) else value


def _decimals(kind: ScalarType, values: Sequence[bytes | int | None]) -> Arrow:
    """An array of unscaled values. `kind` may have more digits than the schema, but never another scale."""
    end = 10**kind.precision
    data = bytearray()
    for each in values:
        number = 0 if each is None else each if isinstance(each, int) else int.from_bytes(each, "big", signed=True)
        if not -end < number < end:
            raise ValueError(f"a decimal has more than {kind.precision} digits")
        data += number.to_bytes(_DECIMAL_BYTES, "little", signed=True)
    is_valid = np.fromiter((each is not None for each in values), dtype=np.bool_, count=len(values))
    validity = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    return pa.Array.from_buffers(arrow_type(kind), len(values), [validity, pa.py_buffer(bytes(data))])


def _json_text(value: Untyped) -> str:
    """A value as JSON; bytes are base64, NaN is null."""
    return _json_encoder.encode(value).decode()


def _message_dict(value: Untyped) -> Untyped:
    return MessageToDict(value, preserving_proto_field_name=True)


_json_encoder = msgspec.json.Encoder(enc_hook=_message_dict)
