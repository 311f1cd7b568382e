"""Protobuf schemas are compiled, whether they come as text or as a descriptor, and compared by numbers and names."""

import base64

import pytest
from confluent_kafka.schema_registry.confluent import meta_pb2
from confluent_kafka.schema_registry.confluent.type import decimal_pb2, variant_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from agent.schemas.parsed import InvalidSchema, NamedText, Parsed
from agent.schemas.protobuf import SERIALIZED, compile_text, parse_protobuf
from coordinator.commands.registry import SchemaType

MONEY = NamedText(name="shared/money.proto", text='syntax = "proto3"; package m; message Money { int64 cents = 1; }')
ORDER = 'syntax = "proto3"; package o; import "shared/money.proto"; message Order { m.Money price = 1; }'


def schema(*body: str, syntax: str = "proto3", package: str = "p") -> Parsed:
    return parse_protobuf(f'syntax = "{syntax}"; package {package}; {" ".join(body)}')


def message(*fields: str) -> str:
    return f"message M {{ {' '.join(fields)} }}"


def faults(after: Parsed, before: Parsed) -> list[str]:
    return after.faults_reading(before)


class TestReading:
    def test_a_text_is_kept_as_it_is(self) -> None:
        text = '// told\nsyntax = "proto3";\nmessage M { string a = 1; }\n'
        parsed = parse_protobuf(text)
        assert parsed.text == parsed.normalized == parsed.formatted("") == text
        assert parsed.schema_type is SchemaType.PROTOBUF

    @pytest.mark.parametrize(
        "text",
        [
            "message M { optional int32 a = 1; }",
            "/* told */ // and told\n message M { required int32 a = 1; }",
            'edition = "2023"; message M { int32 a = 1; }',
        ],
    )
    def test_any_language_of_protobuf_is_read(self, text: str, capfd: pytest.CaptureFixture[str]) -> None:
        assert parse_protobuf(text).faults_reading(parse_protobuf(text)) == []
        # The compiler would warn of a missing syntax. Kafka clients that another test left write to the same place.
        assert "syntax" not in "".join(capfd.readouterr())

    def test_a_descriptor_is_the_same_as_its_text(self) -> None:
        text = schema(message("map<string, int32> a = 1;", "optional string b = 2;"))
        descriptor = parse_protobuf(text.formatted(SERIALIZED))
        assert descriptor.is_same(text)
        assert text.is_same(descriptor)
        assert not text.is_same(schema(message()))
        assert descriptor.formatted(SERIALIZED) == text.formatted(SERIALIZED)
        assert faults(text, descriptor) == faults(descriptor, text) == []

    def test_imports_are_found_among_the_references(self) -> None:
        order = parse_protobuf(ORDER, [MONEY])
        again = parse_protobuf(order.formatted(SERIALIZED), [MONEY])
        assert again.is_same(order)
        money = parse_protobuf(MONEY.text)
        described = NamedText(name=MONEY.name, text=money.formatted(SERIALIZED))
        assert parse_protobuf(order.formatted(SERIALIZED), [described]).is_same(order)
        with pytest.raises(InvalidSchema, match=r"'shared/money\.proto' was registered as a descriptor"):
            parse_protobuf(ORDER, [described])

    def test_a_reference_may_have_the_name_that_the_schema_would_have(self) -> None:
        reference = NamedText(name="schema.proto", text=MONEY.text)
        parsed = parse_protobuf(ORDER.replace("shared/money.proto", "schema.proto"), [reference])
        assert list(parsed.files) == ["schema.proto"]

    @pytest.mark.parametrize(
        "name", ["google/protobuf/timestamp.proto", "google/type/money.proto", "confluent/meta.proto"]
    )
    def test_what_every_client_has_needs_no_reference(self, name: str) -> None:
        text = parse_protobuf(f'syntax = "proto3"; import "{name}"; message M {{}}')
        assert parse_protobuf(text.formatted(SERIALIZED)).is_same(text)

    @pytest.mark.parametrize("module", [meta_pb2, decimal_pb2, variant_pb2])
    def test_the_files_of_confluents_clients_are_theirs(self, module: object) -> None:
        theirs = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(theirs)  # type: ignore[attr-defined]
        ours = compile_text(f'syntax = "proto3"; import "{theirs.name}";', {})[theirs.name]
        assert ours == theirs

    def test_the_old_name_of_decimals_stands_for_the_new_one(self) -> None:
        text = 'syntax = "proto3"; import "confluent/types/decimal.proto"; message M { confluent.type.Decimal d = 1; }'
        assert list(parse_protobuf(text).files) == ["confluent/type/decimal.proto", "confluent/types/decimal.proto"]

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("message {", "schema.proto, line 1, column"),
            ('syntax = "proto3";\nmessage M { Unknown a = 1; }', 'line 2, column 13: "Unknown" is not defined'),
            ('import "../up.proto";', "not allowed"),
            ('import "/etc/hostname";', "was not found"),
            ("aGVsbG8gd29ybGQ=", "neither a text nor a descriptor"),
            ("abc", "neither a text nor a descriptor"),
            (ORDER, "was not found"),
        ],
    )
    def test_what_is_none_is_refused_with_its_place(self, text: str, told: str) -> None:
        with pytest.raises(InvalidSchema, match=told):
            parse_protobuf(text)

    @pytest.mark.parametrize("name", ["../up.proto", "/root.proto", "a/./b", "a//b", "", "ü.proto"])
    def test_a_reference_stays_where_it_is_written(self, name: str) -> None:
        with pytest.raises(InvalidSchema, match="is not a valid name of an imported file"):
            parse_protobuf(ORDER, [NamedText(name=name, text=MONEY.text)])

    def test_a_descriptor_that_no_client_can_build_is_refused(self) -> None:
        file = FileDescriptorProto(name="a.proto")
        file.message_type.add(name="M").field.add(name="f", number=1, type=11, label=1, type_name=".none.N")
        text = base64.b64encode(file.SerializeToString()).decode()
        with pytest.raises(InvalidSchema, match=r"the descriptor 'a\.proto' cannot be built"):
            parse_protobuf(text)

    def test_a_descriptor_has_a_name_of_its_own(self) -> None:
        file = FileDescriptorProto(name=MONEY.name)
        text = base64.b64encode(file.SerializeToString()).decode()
        with pytest.raises(InvalidSchema, match=r"its name 'shared/money\.proto'"):
            parse_protobuf(text, [MONEY])

    def test_descriptors_that_import_each_other_are_refused(self) -> None:
        own = FileDescriptorProto(name="a.proto", dependency=["b.proto"])
        other = FileDescriptorProto(name="b.proto", dependency=["a.proto"])
        own_text, other_text = (base64.b64encode(each.SerializeToString()).decode() for each in (own, other))
        with pytest.raises(InvalidSchema, match=r"import each other: a\.proto, b\.proto"):
            parse_protobuf(own_text, [NamedText(name="b.proto", text=other_text)])


GOES: list[tuple[str, str]] = [
    (message("int32 a = 1;"), message("int32 a = 1;", "string b = 2;")),
    (message("int32 a = 1;", "string b = 2;"), message("int32 a = 1;")),
    (message("int32 a = 1;"), message("int32 b = 1;")),
    *((message("int32 a = 1;"), message(f"{kind} a = 1;")) for kind in ("int64", "uint32", "uint64", "bool")),
    (message("E a = 1;", "enum E { X = 0; }"), message("int32 a = 1;")),
    (message("sint32 a = 1;"), message("sint64 a = 1;")),
    (message("fixed32 a = 1;"), message("sfixed32 a = 1;")),
    (message("fixed64 a = 1;"), message("sfixed64 a = 1;")),
    (message("string a = 1;"), message("bytes a = 1;")),
    (message("string a = 1;"), message("repeated string a = 1;")),
    (message("int32 a = 1;"), message("optional int32 a = 1;")),
    (message(), message() + " message N {}"),
    (message("enum E { X = 0; Y = 1; }"), message("enum E { X = 0; Z = 1; }")),
    (message("enum E { X = 0; }"), message()),
    (message("int32 a = 1;"), message("oneof o { int32 a = 1; string b = 2; }")),
    (message("oneof o { int32 a = 1; string b = 2; }"), message("int32 a = 1;", "string b = 2;")),
    (message("oneof o { int32 a = 1; }"), message("oneof o { int32 a = 1; string b = 2; }")),
    (message("oneof o { int32 a = 1; string b = 2; }"), message("oneof q { int32 a = 1; string b = 2; }")),
    (message("map<string, int32> a = 1;"), message("map<string, int64> a = 1;")),
    (message("M a = 1;"), message("M a = 1;", "M b = 2;")),
]
DOES_NOT: list[tuple[str, str, str]] = [
    *(
        (message("int32 a = 1;"), message(f"{kind} a = 1;"), "FIELD_SCALAR_KIND_CHANGED at #/M/1")
        for kind in ("sint32", "fixed32", "fixed64", "float", "double", "string", "bytes")
    ),
    (message("int32 a = 1;"), message("M a = 1;"), "FIELD_KIND_CHANGED at #/M/1"),
    (message("map<string, int32> a = 1;"), message("M a = 1;"), "FIELD_KIND_CHANGED"),
    (message("map<string, int32> a = 1;"), message("map<string, string> a = 1;"), "FIELD_SCALAR_KIND_CHANGED"),
    (message("int32 a = 1;"), message("repeated int32 a = 1;"), "FIELD_NUMERIC_LABEL_CHANGED"),
    (
        message("N a = 1;") + "message N {} message O {}",
        message("O a = 1;") + "message N {} message O {}",
        "FIELD_NAMED",
    ),
    (message() + "message N {}", message(), "MESSAGE_REMOVED at #/N"),
    (message("message N {}"), message(), "MESSAGE_REMOVED at #/M/N"),
    (
        message("message N { int32 a = 1; }"),
        message("message N { float a = 1; }"),
        "FIELD_SCALAR_KIND_CHANGED at #/M/N/1",
    ),
    (
        message("int32 a = 1;", "string b = 2;"),
        message("oneof o { int32 a = 1; string b = 2; }"),
        "MULTIPLE_FIELDS_MOVED_TO_ONEOF at #/M/o",
    ),
    (
        message("int32 a = 1;", "oneof o { string b = 2; }"),
        message("oneof o { int32 a = 1; string b = 2; }"),
        "FIELD_MOVED_TO_EXISTING_ONEOF at #/M/o",
    ),
    (
        message("oneof o { int32 a = 1; }", "oneof p { string b = 2; }"),
        message("oneof o { int32 a = 1; string b = 2; }"),
        "ONEOFS_JOINED at #/M/o",
    ),
    (message("oneof o { int32 a = 1; string b = 2; }"), message("oneof o { int32 a = 1; }"), "ONEOF_FIELD_REMOVED"),
]


@pytest.mark.parametrize(("before", "after"), GOES)
def test_a_change_that_protobuf_reads_as_it_was_written_goes(before: str, after: str) -> None:
    assert faults(schema(after), schema(before)) == []


@pytest.mark.parametrize(("before", "after", "told"), DOES_NOT)
def test_another_change_is_told_with_its_place(before: str, after: str, told: str) -> None:
    assert any(fault.startswith(told) for fault in faults(schema(after), schema(before)))


def test_required_fields_neither_come_nor_go() -> None:
    with_it, without = schema(message("required int32 a = 1;"), syntax="proto2"), schema(message(), syntax="proto2")
    assert faults(with_it, without) == ["REQUIRED_FIELD_ADDED at #/M/1"]
    assert faults(without, with_it) == ["REQUIRED_FIELD_REMOVED at #/M/1"]


def test_a_package_stays() -> None:
    before, after = schema(message("M a = 1;")), schema(message("M a = 1;"), package="q")
    assert faults(after, before) == ["PACKAGE_CHANGED at #/"]


def test_what_is_imported_is_compared_too() -> None:
    other = NamedText(name=MONEY.name, text=MONEY.text.replace("int64", "double"))
    before, after = parse_protobuf(ORDER, [MONEY]), parse_protobuf(ORDER, [other])
    assert faults(after, before) == ["FIELD_SCALAR_KIND_CHANGED at #/Order/1(m.Money)/1"]
