"""Apache Thrift's compact protocol, as far as Parquet's footers and page headers have it. Pure.

Reading checks every length (safety rule S20), and decodes only the fields that are asked for: a wide file has a hundred
values for each column of each row group. Writing makes what Parquet's readers take.

Specification: Apache Thrift's compact protocol, thrift-compact-protocol.md.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from protocol.limits import THRIFT_DEPTH_MAX, THRIFT_VARINT_BYTES_MAX

Value: TypeAlias = "int | bytes | Sequence[Value] | Mapping[int, Value]"
Struct: TypeAlias = Mapping[int, Value]

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_LONG_LIST: Final = 15
"""A list of as many values or more has its count behind its head."""


class ThriftWrong(ValueError):
    """The bytes are no value of the protocol; the message says where."""


class Fields(NamedTuple):
    """The fields of a struct to decode, by their Thrift ids. The decoder skips all others."""

    values: frozenset[int]
    structs: "Mapping[int, Fields]"
    """The nested structs to decode, alone or in lists."""


def select(*values: int, structs: Mapping[int, Fields] = MappingProxyType({})) -> Fields:
    return Fields(frozenset(values), structs)


_NOTHING: Final = select()


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for number in range(THRIFT_VARINT_BYTES_MAX):
        byte = data[at + number]
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return value, at + number + 1
    raise ThriftWrong("a number does not end")


def _value(data: bytes, at: int, kind: int, fields: Fields, depth: int) -> tuple[Value, int]:
    """A value of the compact protocol, with the selected `fields` of structs, and the position after it.

    Raises `ThriftWrong` and `IndexError`.
    """
    if _I16 <= kind <= _I64:
        number, at = _varint(data, at)
        return (number >> 1) ^ -(number & 1), at
    if kind == _BINARY:
        count, at = _varint(data, at)
        return _slice(data, at, count), at + count
    if kind in {_LIST, _SET}:
        kind, count = data[at] & 0x0F, data[at] >> 4
        count, at = _varint(data, at + 1) if count == 0x0F else (count, at + 1)
        if count > len(data) - at:
            raise ThriftWrong(f"a list of {count} values does not fit into it")
        _check_depth(depth)
        values: list[Value] = []
        for _ in range(count):
            value, at = _value(data, at, kind, fields, depth + 1)
            values.append(value)
        return values, at
    if kind == _STRUCT:
        return read_struct(data, at, fields, depth + 1)
    if kind == _DOUBLE:
        return _slice(data, at, 8), at + 8
    if kind in {_BYTE, _TRUE, _FALSE}:
        return data[at], at + 1
    raise ThriftWrong(f"a value of type {kind}")  # no footer has a map


def _slice(data: bytes, at: int, count: int) -> bytes:
    if count > len(data) - at:
        raise ThriftWrong(f"{count} bytes do not fit into it")
    return data[at : at + count]


def _check_depth(depth: int) -> None:
    if depth > THRIFT_DEPTH_MAX:
        raise ThriftWrong("it is nested too deep")


def read_struct(data: bytes, at: int, fields: Fields, depth: int = 0) -> tuple[Struct, int]:
    """The selected fields of a struct by their ids, and the position after it. Errors: see `_value`."""
    _check_depth(depth)
    values, structs = fields
    decoded: dict[int, Value] = {}
    field_id = 0
    while (head := data[at]) != 0:
        at += 1
        kind = head & 0x0F
        if head >> 4:
            field_id += head >> 4
        else:
            number, at = _varint(data, at)
            field_id = (number >> 1) ^ -(number & 1)
        if _I16 <= kind <= _I64 and data[at] < 0x80:  # most fields are small numbers: decoded without a call
            value: Value = (data[at] >> 1) ^ -(data[at] & 1)
            at += 1
        elif kind in {_TRUE, _FALSE}:
            value = int(kind == _TRUE)
        else:
            value, at = _value(data, at, kind, structs.get(field_id, _NOTHING), depth)
        if field_id in values or field_id in structs:
            decoded[field_id] = value
    return decoded, at + 1


def raw_field(data: bytes, field_id: int) -> bytes:
    """The bytes of one field of the struct that `data` begins with, as they are, without their type.

    Raises `ThriftWrong`, also where the struct has no such field, and `IndexError`.
    """
    at = found_id = 0
    # Heads of fields are read here once more: `read_struct` makes no call for each field, since wide footers have many.
    while (head := data[at]) != 0:
        at += 1
        kind = head & 0x0F
        if head >> 4:
            found_id += head >> 4
        else:
            number, at = _varint(data, at)
            found_id = (number >> 1) ^ -(number & 1)
        first = at
        if kind not in {_TRUE, _FALSE}:
            _, at = _value(data, at, kind, _NOTHING, 0)
        if found_id == field_id:
            return data[first:at]
    raise ThriftWrong(f"it has no field {field_id}")


class Encoded(NamedTuple):
    """A value to write: its type, and its bytes."""

    kind: int
    content: bytes


def int32(number: int) -> Encoded:
    return Encoded(_I32, _zigzag(number))


def int64(number: int) -> Encoded:
    return Encoded(_I64, _zigzag(number))


def binary(content: bytes) -> Encoded:
    return Encoded(_BINARY, _encoded_varint(len(content)) + content)


def encoded_list(content: bytes) -> Encoded:
    """A list that was encoded before (`raw_field`)."""
    return Encoded(_LIST, content)


def list_of(elements: Sequence[Encoded]) -> Encoded:
    """A list of at least one value, all of one type."""
    kind, count = elements[0].kind, len(elements)
    assert all(element.kind == kind for element in elements), "a list has values of one type"
    head = bytes((count << 4 | kind,)) if count < _LONG_LIST else bytes((0xF0 | kind,)) + _encoded_varint(count)
    return Encoded(_LIST, head + b"".join(element.content for element in elements))


def structure(fields: Mapping[int, Encoded]) -> Encoded:
    """A struct by the ids of its fields, which ascend and lie at most 15 apart."""
    parts: list[bytes] = []
    last_id = 0
    for field_id, value in fields.items():
        assert 0 < field_id - last_id <= 0x0F, "ids ascend"
        parts += [bytes(((field_id - last_id) << 4 | value.kind,)), value.content]
        last_id = field_id
    return Encoded(_STRUCT, b"".join((*parts, b"\0")))


def _encoded_varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _zigzag(number: int) -> bytes:
    return _encoded_varint(number << 1 if number >= 0 else (-number << 1) - 1)
