"""What records of one schema look like, whatever its format: the common ground of Avro, JSON Schema and Protobuf.

Rule: plain values. A shape says which columns a schema asks for, and how the values that the format's library gives
become theirs; it does not know the table.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

from protocol.limits import TYPED_DEPTH_MAX, TYPED_SHAPES_MAX

Untyped: TypeAlias = Any
"""A value whose type is known only when it is read: parsed JSON, a record, what a library without types gives."""


class SchemaUnusable(Exception):
    """No columns can be made of a schema; its records get this as their error."""


UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What a text raises that is none of its format's schemas, or goes too deep."""


class PrimitiveKind(StrEnum):
    """Iceberg's primitive types, by their names there; `JSON` is a string in the table.

    `time` is none of them: Spark refuses a table that has such a column anywhere.
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
    """How a value comes out of the format's library."""

    PLAIN = "plain"
    MILLISECONDS = "milliseconds"
    """A number of them: of a timestamp, else they are microseconds."""
    JSON_NUMBER = "json number"
    """JSON has no integers: 1 may be written as 1.0, and a float as 1."""
    NUMBER = "number"
    """A whole number that is to be a decimal of scale 0."""
    BIG_ENDIAN = "big endian"
    """The unscaled value of a decimal, two's complement."""
    TEXT = "text"
    """A UUID as people write it; else it is 16 bytes."""
    PROTOBUF_TIMESTAMP = "protobuf timestamp"
    PROTOBUF_JSON = "protobuf json"
    """A message that is to be JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A value without parts. `precision` and `scale` are a decimal's."""

    kind: PrimitiveKind
    form: Form = Form.PLAIN
    precision: int = 0
    scale: int = 0


Picker: TypeAlias = Callable[[object], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A part of a struct.

    `identity`: what stays the same when it is renamed, `<message>#<number>` of Protobuf; "" where names are all there
    is. `pick` takes its value out of the struct's, None where it has none.
    """

    name: str
    shape: "Shape"
    pick: Picker = field(compare=False, repr=False)
    aliases: tuple[str, ...] = ()
    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Struct:
    """At least one field; names are all different."""

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
"""Whatever has no type of its own in a table: as JSON."""


class ShapeBudget:
    """How many parts of a schema may still be looked at: types that hold each other often become more and more."""

    def __init__(self) -> None:
        self._left = TYPED_SHAPES_MAX

    def take(self) -> None:
        """Raises `SchemaUnusable` when there is none left."""
        self._left -= 1
        if self._left < 0:
            raise SchemaUnusable(f"the schema has more than {TYPED_SHAPES_MAX} parts")


def flattened(shape: Shape, depth: int = 0) -> Shape:
    """The shape with JSON in the place of whatever lies deeper than engines can be expected to follow."""
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
    """Takes a key out of a dictionary."""

    def pick(value: object) -> object:
        if type(value) is not dict:
            raise TypeError(f"an object was expected, not {type(value).__name__}")
        return value.get(name)

    return pick
