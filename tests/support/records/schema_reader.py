"""Reads a request as its schema says, field by field: the oracle of the generated readers, on any bytes.

kio's own reader is none for bytes that were changed: it believes an array's length, and 2**31 - 1 elements abort the
process. On bytes that kio wrote both agree.
"""

import struct
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Final, get_args, get_origin
from uuid import UUID

from kio.static.protocol import Entity

from protocol.errors import MalformedRequest
from protocol.limits import ARRAY_LENGTH_MAX
from protocol.wire import (
    INT32,
    INT64,
    NO_UUID,
    UNREADABLE,
    read_bytes,
    read_length,
    read_nullable_string,
    read_string,
    read_tagged_fields,
    read_uuid,
)
from tests.support.records.kio_messages import KioEntity


class _Budget:
    """How many more elements one message may hold, in all its arrays together."""

    __slots__ = ("elements_left",)

    def __init__(self) -> None:
        self.elements_left = ARRAY_LENGTH_MAX


_MILLISECOND: Final = timedelta(milliseconds=1)
_TIMEDELTA_FIRST_MS: Final = timedelta.min // _MILLISECOND
_TIMEDELTA_LAST_MS: Final = timedelta.max // _MILLISECOND
_Reader = Callable[[memoryview, int, _Budget], tuple[object, int]]


def read_by_schema(schema: type[Entity], body: bytes) -> KioEntity:
    """The request in `body`, as kio's entity. Raises `MalformedRequest`."""
    try:
        entity, _ = _structure_reader(schema)(memoryview(body), 0, _Budget())
    except UNREADABLE as error:
        raise MalformedRequest(str(error)) from error
    return entity


@cache
def _structure_reader(schema: type[Entity]) -> _Reader:
    """Reads one structure: its fields in order, then its tagged fields where the version has them."""
    is_flexible = schema.__flexible__
    plain: list[tuple[str, _Reader]] = []
    tagged: dict[int, tuple[str, _Reader]] = {}
    for field in fields(schema):
        tag = field.metadata.get("tag")
        reader = _field_reader(field, is_flexible=is_flexible)
        if tag is None:
            plain.append((field.name, reader))
        else:
            assert field.default is not MISSING, f"{schema.__name__}.{field.name} has a tag and no default"
            tagged[tag] = field.name, reader
    tags_end = max(tagged, default=-1) + 1

    def read_structure(view: memoryview, position: int, budget: _Budget) -> tuple[object, int]:
        values: dict[str, object] = {}
        for name, reader in plain:
            values[name], position = reader(view, position, budget)
        if is_flexible:
            tagged_fields, position = read_tagged_fields(view, position, tags_end=tags_end)
            for tag, value in tagged_fields.items():
                name, reader = tagged[tag]
                values[name], _ = reader(value, 0, budget)
        return schema(**values), position

    return read_structure


def _field_reader(field: Field[object], *, is_flexible: bool) -> _Reader:
    annotation: object = field.type
    is_nullable = False
    if get_origin(annotation) is UnionType:
        (annotation,) = (argument for argument in get_args(annotation) if argument is not NoneType)
        is_nullable = True
    if get_origin(annotation) is tuple:
        element = get_args(annotation)[0]
        return _array_reader(
            _value_reader(element, field, is_flexible=is_flexible, is_nullable=False),
            is_flexible=is_flexible,
            is_nullable=is_nullable,
        )
    return _value_reader(annotation, field, is_flexible=is_flexible, is_nullable=is_nullable)


def _array_reader(read_element: _Reader, *, is_flexible: bool, is_nullable: bool) -> _Reader:
    def read_array(view: memoryview, position: int, budget: _Budget) -> tuple[object, int]:
        count, position = read_length(view, position, is_flexible=is_flexible)
        if count < 0:
            if not is_nullable:
                raise MalformedRequest("an array is null that must not be")
            return None, position
        budget.elements_left -= count
        if budget.elements_left < 0:
            raise MalformedRequest(f"more than {ARRAY_LENGTH_MAX} elements in one request")
        elements: list[object] = []
        for _ in range(count):
            element, position = read_element(view, position, budget)
            elements.append(element)
        return tuple(elements), position

    return read_array


def _value_reader(annotation: object, field: Field[object], *, is_flexible: bool, is_nullable: bool) -> _Reader:
    if is_dataclass(annotation):
        assert isinstance(annotation, type)
        read_structure = _structure_reader(annotation)
        return _nullable_structure_reader(read_structure) if is_nullable else read_structure
    match field.metadata["kafka_type"]:
        case "string":
            return _string_reader(is_flexible=is_flexible, is_nullable=is_nullable)
        case "bytes" | "records":
            return _bytes_reader(is_flexible=is_flexible, is_nullable=is_nullable)
        case "uuid":
            return _read_uuid
        case "bool":
            return _read_bool
        case "timedelta_i32":
            return _read_timedelta
        case "timedelta_i64":
            return _read_long_timedelta
        case kafka_type:
            return _number_reader(_NUMBERS[kafka_type])


_NUMBERS: Final = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "uint16": struct.Struct(">H"),
    "float64": struct.Struct(">d"),
}


def _number_reader(number: struct.Struct) -> _Reader:
    def read_number(view: memoryview, position: int, _: _Budget) -> tuple[object, int]:
        (value,) = number.unpack_from(view, position)
        return value, position + number.size

    return read_number


def _read_bool(view: memoryview, position: int, _: _Budget) -> tuple[object, int]:
    return view[position] != 0, position + 1


def _read_timedelta(view: memoryview, position: int, _: _Budget) -> tuple[object, int]:
    (value_ms,) = INT32.unpack_from(view, position)
    return timedelta(milliseconds=value_ms), position + 4


def _read_long_timedelta(view: memoryview, position: int, _: _Budget) -> tuple[object, int]:
    """At most what a timedelta holds, 2.7 million years either way."""
    (value_ms,) = INT64.unpack_from(view, position)
    return timedelta(milliseconds=min(max(value_ms, _TIMEDELTA_FIRST_MS), _TIMEDELTA_LAST_MS)), position + 8


def _read_uuid(view: memoryview, position: int, _: _Budget) -> tuple[object, int]:
    uuid_bytes, position = read_uuid(view, position)
    return (UUID(bytes=uuid_bytes) if uuid_bytes != NO_UUID else None), position


def _string_reader(*, is_flexible: bool, is_nullable: bool) -> _Reader:
    read_text = read_nullable_string if is_nullable else read_string
    return lambda view, position, _: read_text(view, position, is_flexible=is_flexible)


def _bytes_reader(*, is_flexible: bool, is_nullable: bool) -> _Reader:
    def read_copy(view: memoryview, position: int, _: _Budget) -> tuple[object, int]:
        value, position = read_bytes(view, position, is_flexible=is_flexible)
        if value is None and not is_nullable:
            raise MalformedRequest("bytes are null that must not be")
        return (None if value is None else bytes(value)), position

    return read_copy


def _nullable_structure_reader(read_structure: _Reader) -> _Reader:
    """A marker byte, negative for null, comes first (KIP-893)."""

    def read_nullable_structure(view: memoryview, position: int, budget: _Budget) -> tuple[object, int]:
        (marker,) = struct.unpack_from(">b", view, position)
        return (None, position + 1) if marker < 0 else read_structure(view, position + 1, budget)

    return read_nullable_structure
