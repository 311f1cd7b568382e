"""Converts Avro schemas to shapes, and decodes their records to Python values.

Logical types are removed before fastavro reads, so that it returns numbers and bytes, which are converted to columns
many at a time. A union of null and one type is that type. Any other union, and a type that contains itself, is JSON.
Specification: Apache Avro 1.12, "Complex Types", "Logical Types", "Binary Encoding".
"""

import io
from collections.abc import Mapping, Sequence
from typing import cast

from fastavro import _read_py, parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException, UnknownType

from iceberg_export.typed.flat_avro import flat_program
from iceberg_export.typed.nested_avro import nested_program
from iceberg_export.typed.shapes import (
    JSON_TEXT,
    UNREADABLE,
    Field,
    Form,
    Items,
    Pairs,
    PrimitiveKind,
    Scalar,
    SchemaUnusable,
    Shape,
    ShapeBudget,
    Struct,
    Untyped,
    flattened,
    key_picker,
)
from protocol.decoding import decode_json
from protocol.limits import TYPED_DECIMAL_DIGITS_MAX, TYPED_NULL_FIELDS_MAX

_PRIMITIVES = {
    "boolean": PrimitiveKind.BOOLEAN,
    "int": PrimitiveKind.INT,
    "long": PrimitiveKind.LONG,
    "float": PrimitiveKind.FLOAT,
    "double": PrimitiveKind.DOUBLE,
    "bytes": PrimitiveKind.BINARY,
    "string": PrimitiveKind.STRING,
}
_LOGICAL: Mapping[tuple[str, str], Scalar] = {
    ("int", "date"): Scalar(kind=PrimitiveKind.DATE),
    ("long", "timestamp-millis"): Scalar(kind=PrimitiveKind.TIMESTAMP_UTC, form=Form.MILLISECONDS),
    ("long", "timestamp-micros"): Scalar(kind=PrimitiveKind.TIMESTAMP_UTC),
    ("long", "local-timestamp-millis"): Scalar(kind=PrimitiveKind.TIMESTAMP, form=Form.MILLISECONDS),
    ("long", "local-timestamp-micros"): Scalar(kind=PrimitiveKind.TIMESTAMP),
    ("string", "uuid"): Scalar(kind=PrimitiveKind.UUID, form=Form.TEXT),
}
"""The supported logical types. Others keep the type that they are written with: nanoseconds, which tables of version 2
do not have, and times of day (`PrimitiveKind`)."""
_UUID_BYTES = 16
_INT32_MAX = 2**31 - 1

Named = dict[str, Untyped]


class AvroReader:
    """Reads records of one Avro schema. Implements `decode.ValueReader`."""

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        """`references`: the referenced schemas, each after those that it refers to. Raises `SchemaUnusable`."""
        try:
            whole, self._schema, named, bare_named = _parse(text, references)
            shapes = _AvroShapes(named)
            self.shape = flattened(shapes.of(whole, ()))
            # The compiled reader recurses once a level, and a record of a recursive type may have a level for each of
            # its bytes: the stack overflow would end the process. The reader in Python raises an exception instead.
            self._read = _read_py.schemaless_reader if shapes.is_recursive else schemaless_reader
            self.flat = flat_program(self._schema, self.shape)
            self.fast = self.flat or nested_program(self._schema, bare_named, self.shape)
        except (SchemaParseException, UnknownType, *UNREADABLE) as error:
            raise SchemaUnusable(f"the Avro schema cannot be used: {type(error).__name__}: {error}") from error

    def read(self, data: bytes) -> object:
        """The value of a record. Raises any exception of fastavro where the bytes are not of the schema."""
        source = io.BytesIO(data)
        try:
            value = self._read(source, self._schema, None)
        except EOFError as error:
            raise ValueError("the record ends too early") from error  # fastavro's message has a memory address
        excess_bytes = len(data) - source.tell()
        if excess_bytes:
            raise ValueError(f"there are {excess_bytes} bytes after the record")
        return value


def _parse(text: str, references: Sequence[str]) -> tuple[Untyped, Untyped, Named, Named]:
    """The schema with its logical types, the schema without them, and the named types of each."""
    named: Named = {}
    bare_named: Named = {}
    whole: Untyped = None
    bare: Untyped = None
    for each in (*references, text):
        schema: Untyped = decode_json(each)
        whole = parse_schema(schema, named_schemas=named)
        bare = parse_schema(_without_logical_types(schema), named_schemas=bare_named)
    return whole, bare, named, bare_named


def _without_logical_types(schema: Untyped) -> Untyped:
    match schema:
        case list():
            return [_without_logical_types(each) for each in schema]
        case dict():
            return {
                key: _without_logical_types(value) if key in ("type", "items", "values", "fields") else value
                for key, value in schema.items()
                if key != "logicalType"
            }
        case _:
            return schema


class _AvroShapes:
    """Converts parsed schemas to shapes. `outer`: the names of the enclosing records."""

    def __init__(self, named: Named) -> None:
        self._named = named
        self._budget = ShapeBudget()
        self.is_recursive = False
        """True where a record contains itself; final once the whole schema is converted."""

    def of(self, schema: Untyped, outer: tuple[str, ...]) -> Shape:
        self._budget.take()
        if isinstance(schema, list):
            shapes = [self.of(each, outer) for each in schema if each != "null"]
            return shapes[0] if len(shapes) == 1 else JSON_TEXT
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return Scalar(kind=_PRIMITIVES[schema])
            return JSON_TEXT if schema == "null" else self.of(self._named[schema], outer)
        kind = schema["type"]
        match kind:
            case "record" | "error":
                return self._record(schema, outer)
            case "enum":
                return Scalar(kind=PrimitiveKind.STRING)
            case "fixed":
                return _fixed(schema)
            case "array":
                # A few bytes may announce a list of any length, whose items need no bytes.
                if not self._takes_bytes(schema["items"], frozenset()):
                    raise SchemaUnusable("the items of a list have no bytes, so its length has no limit")
                self._check_nulls(schema["items"])
                return Items(element=self.of(schema["items"], outer))
            case "map":
                self._check_nulls(schema["values"])
                return Pairs(key=Scalar(kind=PrimitiveKind.STRING), value=self.of(schema["values"], outer))
            case str():
                return _logical(schema) or self.of(kind, outer)
            case _:
                return self.of(kind, outer)

    def _record(self, schema: Untyped, outer: tuple[str, ...]) -> Shape:
        name = schema["name"]
        self.is_recursive |= name in outer
        if name in outer or not schema["fields"]:
            return JSON_TEXT
        return Struct(
            fields=tuple(
                Field(
                    name=each["name"],
                    shape=self.of(each["type"], (*outer, name)),
                    pick=key_picker(each["name"]),
                    aliases=tuple(each.get("aliases", ())),
                )
                for each in schema["fields"]
            )
        )

    def _check_nulls(self, items: Untyped) -> None:
        """Raises `SchemaUnusable` where few bytes of a list could become very many values."""
        if self._null_fields(items, frozenset()) > TYPED_NULL_FIELDS_MAX:
            raise SchemaUnusable(f"items of a list have more than {TYPED_NULL_FIELDS_MAX} fields without bytes")

    def _null_fields(self, schema: Untyped, outer: frozenset[str]) -> int:
        """The count of a value's fields that have no bytes in a record."""
        self._budget.take()
        if isinstance(schema, list):
            return max((self._null_fields(each, outer) for each in schema if each != "null"), default=0)
        if isinstance(schema, str):
            return (
                int(schema == "null")
                if schema in (*_PRIMITIVES, "null")
                else self._null_fields(self._named[schema], outer)
            )
        if schema["type"] in ("record", "error"):
            if schema["name"] in outer:
                return 0
            inside = outer | {schema["name"]}
            return sum(self._null_fields(each["type"], inside) for each in schema["fields"])
        if schema["type"] == "fixed":
            return int(schema["size"] == 0)
        return 0 if schema["type"] in ("enum", "array", "map") else self._null_fields(schema["type"], outer)

    def _takes_bytes(self, schema: Untyped, outer: frozenset[str]) -> bool:
        """True where every value has at least one byte in a record."""
        self._budget.take()
        if schema == "null":
            return False
        if isinstance(schema, list):
            return True
        if isinstance(schema, str):
            return schema in _PRIMITIVES or self._takes_bytes(self._named[schema], outer)
        match schema["type"]:
            case "record" | "error":
                if schema["name"] in outer:
                    return False
                inside = outer | {schema["name"]}
                return any(self._takes_bytes(each["type"], inside) for each in schema["fields"])
            case "fixed":
                return bool(schema["size"] > 0)
            case "enum" | "array" | "map":
                return True
            case other:
                return self._takes_bytes(other, outer)


def _fixed(schema: Untyped) -> Scalar:
    size = schema["size"]
    if type(size) is not int or not 0 <= size <= _INT32_MAX:
        raise SchemaUnusable(f"the size of a fixed type is {size!r}")
    if schema.get("logicalType") == "decimal":
        return _decimal(schema) or Scalar(kind=PrimitiveKind.BINARY)
    if schema.get("logicalType") == "uuid" and schema["size"] == _UUID_BYTES:
        return Scalar(kind=PrimitiveKind.UUID)
    return Scalar(kind=PrimitiveKind.BINARY)


def _logical(schema: Untyped) -> Scalar | None:
    logical = schema.get("logicalType")
    if logical == "decimal" and schema["type"] == "bytes":
        return _decimal(schema)
    return _LOGICAL.get((schema["type"], cast("str", logical)))


def _decimal(schema: Untyped) -> Scalar | None:
    """The decimal; None where Iceberg has no such decimal, so that the column has the bytes."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return None
    if not 0 < precision <= TYPED_DECIMAL_DIGITS_MAX or not 0 <= scale <= precision:
        return None
    return Scalar(kind=PrimitiveKind.DECIMAL, form=Form.BIG_ENDIAN, precision=precision, scale=scale)
