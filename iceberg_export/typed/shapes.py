"""Shapes: the structure of a schema's records, common to Avro, JSON Schema and Protobuf.

A shape is a plain value. It has the columns that a schema needs, and how values of the format's library become values
of the columns. It does not know the table.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

from protocol.limits import TYPED_DEPTH_MAX, TYPED_SHAPES_MAX

Untyped: TypeAlias = Any
"""A value whose type is known only at run time: parsed JSON, a record, a result of a library without types."""


class SchemaUnusable(Exception):
    """No columns can be derived from a schema; the message becomes the error of its records."""


UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""The errors of a text that is no schema of its format, or is nested too deep."""


class PrimitiveKind(StrEnum):
    """Iceberg's primitive types, by their names; `JSON` is a string in the table.

    `time` is missing, because Spark rejects a table with such a column.
    """

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_UTC = "timestamptz"
    STRING = "string"
    UUID = "uuid"
    BINARY = "binary"
    JSON = "json"


class Form(StrEnum):
    """The form of a value in the format's library."""

    PLAIN = "plain"
    MILLISECONDS = "milliseconds"
    """A timestamp in milliseconds; other timestamps are in microseconds."""
    JSON_NUMBER = "json number"
    """JSON has no integers: 1 may be written as 1.0, and a float as 1."""
    NUMBER = "number"
    """An integer that becomes a decimal of scale 0."""
    BIG_ENDIAN = "big endian"
    """The unscaled value of a decimal, in two's complement."""
    TEXT = "text"
    """A UUID as text; other UUIDs are 16 bytes."""
    PROTOBUF_TIMESTAMP = "protobuf timestamp"
    PROTOBUF_JSON = "protobuf json"
    """A message that becomes JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A value without nested values. `precision`, `scale`: those of a decimal."""

    kind: PrimitiveKind
    form: Form = Form.PLAIN
    precision: int = 0
    scale: int = 0


Picker: TypeAlias = Callable[[object], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a struct.

    `identity`: survives a rename: `<message>#<number>` for Protobuf; "" for formats that have names only. `pick`: takes
    the field's value from the struct's value; None where it is absent.
    """

    name: str
    shape: "Shape"
    pick: Picker = field(compare=False, repr=False)
    aliases: tuple[str, ...] = ()
    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Struct:
    """A record with at least one field; the names of fields are distinct."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A list."""

    element: "Shape"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """A map."""

    key: Scalar
    value: "Shape"


Shape: TypeAlias = Scalar | Struct | Items | Pairs

JSON_TEXT = Scalar(kind=PrimitiveKind.JSON)
"""The shape of values without a type in the table, which become JSON."""


class ShapeBudget:
    """A limit of the parts of a schema: types that refer to each other may expand exponentially."""

    def __init__(self) -> None:
        self._parts_free = TYPED_SHAPES_MAX

    def take(self) -> None:
        """Count one part. Raises `SchemaUnusable` above the limit."""
        self._parts_free -= 1
        if self._parts_free < 0:
            raise SchemaUnusable(f"the schema has more than {TYPED_SHAPES_MAX} parts")


def flattened(shape: Shape, depth: int = 0) -> Shape:
    """The shape with JSON for all values deeper than `TYPED_DEPTH_MAX`, which engines may not support."""
    if isinstance(shape, Scalar):
        return shape
    if depth >= TYPED_DEPTH_MAX:
        return JSON_TEXT
    match shape:
        case Struct():
            inner = (replace(each, shape=flattened(each.shape, depth + 1)) for each in shape.fields)
            return Struct(fields=tuple(inner))
        case Items():
            return Items(element=flattened(shape.element, depth + 1))
        case Pairs():
            return Pairs(key=shape.key, value=flattened(shape.value, depth + 1))


def key_picker(name: str) -> Picker:
    """A function that returns the value of a key in a dict; None where the key is absent."""

    def pick(value: object) -> object:
        if type(value) is not dict:
            raise TypeError(f"an object was expected, not {type(value).__name__}")
        return value.get(name)

    return pick
