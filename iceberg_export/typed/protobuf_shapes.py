"""Converts Protobuf messages to shapes, and decodes their records to dynamic messages.

A field is identified by its number, so a renamed field keeps its column. Absent fields that track presence (`optional`,
members of a oneof, messages) are null; other absent fields have their default. A message that contains itself, and
those of google/protobuf/struct.proto, are JSON.
Specification: Protocol Buffers, "Field Presence", "Well-Known Types"; Confluent's wire format, "Message indexes".
"""

from collections.abc import Callable, Mapping, Sequence

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from iceberg_export.typed.flat_protobuf import flat_message
from iceberg_export.typed.shapes import (
    Field,
    Form,
    Items,
    Pairs,
    Picker,
    PrimitiveKind,
    Scalar,
    SchemaUnusable,
    Shape,
    ShapeBudget,
    Struct,
    Untyped,
    flattened,
)

_UINT64_DIGITS = 20
_UINT64 = Scalar(kind=PrimitiveKind.DECIMAL, form=Form.NUMBER, precision=_UINT64_DIGITS, scale=0)
"""An unsigned 64-bit number, for which Iceberg has no type."""
_INT, _LONG = Scalar(kind=PrimitiveKind.INT), Scalar(kind=PrimitiveKind.LONG)
_SCALARS: Mapping[int, Scalar] = {
    1: Scalar(kind=PrimitiveKind.DOUBLE),
    2: Scalar(kind=PrimitiveKind.FLOAT),
    3: _LONG,
    4: _UINT64,
    5: _INT,
    6: _UINT64,
    7: _LONG,
    8: Scalar(kind=PrimitiveKind.BOOLEAN),
    9: Scalar(kind=PrimitiveKind.STRING),
    12: Scalar(kind=PrimitiveKind.BINARY),
    13: _LONG,
    15: _INT,
    16: _LONG,
    17: _INT,
    18: _LONG,
}
"""The types of scalar fields, by `FieldDescriptorProto.Type`."""
_TYPE_ENUM = 14
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
}
_TIMESTAMP = "google.protobuf.Timestamp"
_PROTOBUF_JSON = Scalar(kind=PrimitiveKind.JSON, form=Form.PROTOBUF_JSON)
_AS_JSON = {f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue", "Duration", "FieldMask")}


class ProtobufFiles:
    """The files of one Protobuf schema in a descriptor pool."""

    def __init__(self, files: Sequence[bytes], own: bytes) -> None:
        """`own`: the schema's file; `files`: all that it imports, directly or not. Serialized `FileDescriptorProto`s.

        Raises `SchemaUnusable`.
        """
        try:
            self._pool = DescriptorPool()
            pending = {file.name: file for file in map(FileDescriptorProto.FromString, files)}
            self._own = FileDescriptorProto.FromString(own)
            pending[self._own.name] = self._own
            # The pool accepts a file only after those that it imports.
            while pending:
                ready = [name for name, file in pending.items() if not any(each in pending for each in file.dependency)]
                if not ready:
                    raise SchemaUnusable(f"the Protobuf files import each other: {', '.join(sorted(pending))}")
                for name in ready:
                    self._pool.Add(pending.pop(name))
        except (TypeError, KeyError, DecodeError) as error:
            raise SchemaUnusable(f"the Protobuf schema cannot be used: {error}") from error

    def reader(self, indexes: tuple[int, ...]) -> "ProtobufReader":
        """The reader of a message. Raises `SchemaUnusable` where it does not exist.

        `indexes`: the path to the message: its index among the file's messages, then among the nested ones.
        """
        messages: Untyped = self._own.message_type
        names = [self._own.package] if self._own.package else []
        for index in indexes:
            if not 0 <= index < len(messages):
                raise SchemaUnusable(f"the Protobuf schema has no message with the indexes {list(indexes)}")
            names.append(messages[index].name)
            messages = messages[index].nested_type
        return ProtobufReader(self._pool, ".".join(names))


class ProtobufReader:
    """Reads records that are messages of one type. Implements `decode.ValueReader`."""

    flat = None

    def __init__(self, pool: DescriptorPool, name: str) -> None:
        try:
            descriptor = pool.FindMessageTypeByName(name)
            self._new = GetMessageClass(descriptor)
            self.shape = flattened(_message_shape(descriptor, (), ShapeBudget()))
            self.fast = flat_message(descriptor, self.shape)
        except (TypeError, KeyError, RecursionError) as error:
            raise SchemaUnusable(f"the Protobuf message {name} cannot be used: {error}") from error

    def read(self, data: bytes) -> object:
        """The message of a record. Raises `google.protobuf.message.DecodeError` for invalid bytes."""
        message = self._new()
        message.ParseFromString(data)
        return message


def _message_shape(descriptor: Untyped, outer: tuple[str, ...], budget: ShapeBudget) -> Shape:
    budget.take()
    name = descriptor.full_name
    if name == _TIMESTAMP:
        return Scalar(kind=PrimitiveKind.TIMESTAMP_UTC, form=Form.PROTOBUF_TIMESTAMP)
    if name in _AS_JSON or name in outer or not descriptor.fields:
        return _PROTOBUF_JSON
    inside = (*outer, name)
    fields = sorted(descriptor.fields, key=lambda each: int(each.index))
    return Struct(fields=tuple(_field(each, inside, budget) for each in fields))


def _field(field: Untyped, outer: tuple[str, ...], budget: ShapeBudget) -> Field:
    return Field(
        name=field.name,
        shape=_field_shape(field, outer, budget),
        pick=_picker(field),
        identity=f"{field.containing_type.full_name}#{field.number}",
    )


def _field_shape(field: Untyped, outer: tuple[str, ...], budget: ShapeBudget) -> Shape:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key = _SCALARS[message.fields_by_name["key"].type]
        return Pairs(key=key, value=_value_shape(message.fields_by_name["value"], outer, budget))
    shape = _value_shape(field, outer, budget)
    return Items(element=shape) if field.is_repeated else shape


def _value_shape(field: Untyped, outer: tuple[str, ...], budget: ShapeBudget) -> Shape:
    """The shape of one value of the field, repeated or not."""
    budget.take()
    message = field.message_type
    if message is None:
        return Scalar(kind=PrimitiveKind.STRING) if field.type == _TYPE_ENUM else _SCALARS[field.type]
    if message.full_name in _WRAPPERS:
        return _SCALARS[message.fields_by_name["value"].type]
    return _message_shape(message, outer, budget)


def _picker(field: Untyped) -> Picker:
    """A function that takes a field's value from a message: a list or dict for a repeated field, None if absent."""
    name = field.name
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        of_value = _converter(message.fields_by_name["value"])

        def pick_map(value: Untyped) -> object:
            entries = getattr(value, name)
            return {key: of_value(entries[key]) for key in entries}

        return pick_map
    of_one = _converter(field)
    if field.is_repeated:
        return lambda value: [of_one(each) for each in getattr(value, name)]
    if field.has_presence:
        return lambda value: of_one(getattr(value, name)) if value.HasField(name) else None  # type: ignore[attr-defined]
    if field.enum_type is None:
        return lambda value: getattr(value, name)
    return lambda value: of_one(getattr(value, name))


def _converter(field: Untyped) -> Callable[[Untyped], object]:
    """The conversion of one value: an enum to its name, a wrapper to its content."""
    if field.message_type is not None and field.message_type.full_name in _WRAPPERS:
        return lambda value: value.value
    if field.enum_type is None:
        return _as_is
    names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
    return lambda value: names.get(value) or str(value)


def _as_is(value: Untyped) -> object:
    return value
