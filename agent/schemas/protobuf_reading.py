"""Checks whether messages written with one Protobuf schema can be read with another.

Rule: fields are matched by number, messages by name. A value that would be read as another value is a fault.
Source: Protocol Buffers language guide, "Updating A Message Type"; Confluent's documentation, "Protobuf compatibility
rules", and io.confluent.kafka.schemaregistry.protobuf.diff, with its names of faults. Differs from Confluent's
registry: a numeric field that becomes repeated, or is no longer repeated, is a fault in proto3, too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

Files = tuple[FileDescriptorProto, Iterable[FileDescriptorProto]]
"""A file, and all that it imports."""
_F = FieldDescriptorProto
WIRE_KINDS = {
    **dict.fromkeys(
        (_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM), "general number"
    ),
    **dict.fromkeys((_F.TYPE_SINT32, _F.TYPE_SINT64), "signed number"),
    **dict.fromkeys((_F.TYPE_STRING, _F.TYPE_BYTES), "string or bytes"),
    **dict.fromkeys((_F.TYPE_FIXED32, _F.TYPE_SFIXED32), "fixed 32"),
    **dict.fromkeys((_F.TYPE_FIXED64, _F.TYPE_SFIXED64), "fixed 64"),
    _F.TYPE_FLOAT: "float",
    _F.TYPE_DOUBLE: "double",
    _F.TYPE_MESSAGE: "message",
    _F.TYPE_GROUP: "group",
}
"""The kind of each type. Types of one kind can be read as each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """The definitions of one schema and its imports."""

    own: FileDescriptorProto
    messages: Mapping[str, tuple[DescriptorProto, str]]
    """The messages with their packages, by full name."""

    def local_name(self, full_name: str) -> str:
        """The name without the package."""
        package = self.messages[full_name][1] if full_name in self.messages else ""
        return full_name.removeprefix(f".{package}.") if package else full_name.removeprefix(".")


@dataclass(slots=True, kw_only=True)
class _ProtobufComparison:
    reader: _Side
    writer: _Side
    compared: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    faults: list[str] = field(default_factory=list[str])

    def note(self, kind: str, path: str) -> None:
        self.faults.append(f"{kind} at {path}")


def faults_reading(*, reader: Files, writer: Files) -> list[str]:
    """The faults, each with its place; empty where every message can be read."""
    comparison = _ProtobufComparison(reader=_side(*reader), writer=_side(*writer))
    was, now = comparison.writer.own, comparison.reader.own
    if was.package != now.package:
        comparison.note("PACKAGE_CHANGED", "#/")
    _compare_all(comparison, _by_name(was.message_type), _by_name(now.message_type), "#/")
    return list(dict.fromkeys(comparison.faults))


def _side(own: FileDescriptorProto, imports: Iterable[FileDescriptorProto]) -> _Side:
    messages: dict[str, tuple[DescriptorProto, str]] = {}
    for file in (own, *imports):
        prefix = f".{file.package}" if file.package else ""
        waiting = [(f"{prefix}.{message.name}", message) for message in file.message_type]
        while waiting:
            name, message = waiting.pop()
            messages[name] = message, file.package
            waiting += [(f"{name}.{nested.name}", nested) for nested in message.nested_type]
    return _Side(own=own, messages=messages)


def _by_name(messages: Iterable[DescriptorProto]) -> dict[str, DescriptorProto]:
    """Messages by name, without the entry messages of maps."""
    return {message.name: message for message in messages if not message.options.map_entry}


def _compare_all(
    comparison: _ProtobufComparison, was: Mapping[str, DescriptorProto], now: Mapping[str, DescriptorProto], path: str
) -> None:
    for name, message in was.items():
        if name in now:
            _compare_messages(comparison, message, now[name], f"{path}{name}")
        else:
            comparison.note("MESSAGE_REMOVED", f"{path}{name}")


def _compare_messages(comparison: _ProtobufComparison, was: DescriptorProto, now: DescriptorProto, path: str) -> None:
    before, after = {each.number: each for each in was.field}, {each.number: each for each in now.field}
    for number in sorted(before.keys() | after.keys()):
        where = f"{path}/{number}"
        if number not in after:
            if before[number].label == _F.LABEL_REQUIRED:
                comparison.note("REQUIRED_FIELD_REMOVED", where)
            elif _one_of(was, before[number]) in _one_ofs(now):
                comparison.note("ONEOF_FIELD_REMOVED", where)
        elif number not in before:
            if after[number].label == _F.LABEL_REQUIRED:
                comparison.note("REQUIRED_FIELD_ADDED", where)
        else:
            _compare_fields(comparison, before[number], after[number], where)
    _compare_one_ofs(comparison, was, now, path)
    _compare_all(comparison, _by_name(was.nested_type), _by_name(now.nested_type), f"{path}/")


def _one_of(message: DescriptorProto, field_proto: FieldDescriptorProto) -> str | None:
    """The name of the field's oneof. The synthetic oneof of a proto3 `optional` field does not count."""
    if not field_proto.HasField("oneof_index") or field_proto.proto3_optional:
        return None
    return str(message.oneof_decl[field_proto.oneof_index].name)


def _one_ofs(message: DescriptorProto) -> dict[str, set[int]]:
    """The field numbers of each oneof, by its name."""
    numbers_by_name: dict[str, set[int]] = {}
    for each in message.field:
        name = _one_of(message, each)
        if name is not None:
            numbers_by_name.setdefault(name, set()).add(each.number)
    return numbers_by_name


def _compare_one_ofs(comparison: _ProtobufComparison, was: DescriptorProto, now: DescriptorProto, path: str) -> None:
    """Compare oneofs. Only one existing field may move into a oneof, and only into a new one.

    Otherwise a writer may have set two of its fields, and a reader would lose one of them.
    """
    before = _one_ofs(was)
    in_one_before = {number for numbers in before.values() for number in numbers}
    known = {each.number for each in was.field}
    for name, numbers in _one_ofs(now).items():
        moved = (numbers & known) - in_one_before
        if len(moved) > 1:
            comparison.note("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}/{name}")
        elif moved and numbers & in_one_before:
            comparison.note("FIELD_MOVED_TO_EXISTING_ONEOF", f"{path}/{name}")
        if len({other for other, other_numbers in before.items() if other_numbers & numbers}) > 1:
            comparison.note("ONEOFS_JOINED", f"{path}/{name}")


def _compare_fields(
    comparison: _ProtobufComparison, was: FieldDescriptorProto, now: FieldDescriptorProto, path: str
) -> None:
    map_was, map_now = _map_entry(comparison.writer, was), _map_entry(comparison.reader, now)
    kind_was, kind_now = WIRE_KINDS[was.type], WIRE_KINDS[now.type]
    if (map_was is None) != (map_now is None):
        comparison.note("FIELD_KIND_CHANGED", path)
    elif map_was is not None and map_now is not None:
        for part_was, part_now in zip(map_was.field, map_now.field, strict=True):
            _compare_fields(comparison, part_was, part_now, path)
    elif kind_was != kind_now:
        is_scalar = not {kind_was, kind_now} & {"message", "group"}
        comparison.note("FIELD_SCALAR_KIND_CHANGED" if is_scalar else "FIELD_KIND_CHANGED", path)
    elif kind_was in {"message", "group"}:
        _compare_types(comparison, was.type_name, now.type_name, path)
    elif kind_was != "string or bytes" and (was.label == _F.LABEL_REPEATED) != (now.label == _F.LABEL_REPEATED):
        comparison.note("FIELD_NUMERIC_LABEL_CHANGED", path)


def _map_entry(side: _Side, field_proto: FieldDescriptorProto) -> DescriptorProto | None:
    message = side.messages.get(field_proto.type_name)
    return message[0] if message is not None and message[0].options.map_entry else None


def _compare_types(comparison: _ProtobufComparison, was: str, now: str, path: str) -> None:
    """Compare the message types of two fields; here only imported ones, since others are compared by name."""
    if comparison.writer.local_name(was) != comparison.reader.local_name(now):
        comparison.note("FIELD_NAMED_TYPE_CHANGED", path)
        return
    if (was, now) in comparison.compared:
        return
    comparison.compared.add((was, now))
    before, after = comparison.writer.messages.get(was), comparison.reader.messages.get(now)
    if before is not None and after is not None:
        _compare_messages(comparison, before[0], after[0], f"{path}({now.removeprefix('.')})")
