"""Avro schemas are read as Avro's own library reads them."""

import json

import pytest
from avro.errors import AvroException
from avro.schema import parse as parse_by_avro

from agent.schemas.avro import parse_avro
from agent.schemas.parsed import InvalidSchema, NamedText
from coordinator.commands.registry import SchemaType
from protocol.limits import SCHEMA_DEPTH_MAX

RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
GOOD: list[object] = [
    "string",
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
    RECORD,
    {**RECORD, "namespace": "a.b", "aliases": ["Old", "c.Older"], "doc": "told"},
    {**RECORD, "name": "a.b.R"},
    {"type": "error", "name": "E", "fields": []},
    {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "B"},
    {"type": "fixed", "name": "F", "size": 16},
    {"type": "array", "items": {"type": "map", "values": ["null", "long"]}},
    ["null", RECORD, {"type": "fixed", "name": "F", "size": 0}],
    {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"], "default": None}]},
    {
        "type": "record",
        "name": "a.R",
        "fields": [
            {"name": "x", "type": {"type": "enum", "name": "E", "symbols": ["A"]}, "order": "ignore", "aliases": ["y"]},
            {"name": "z", "type": "E"},
            {"name": "w", "type": "a.E"},
        ],
    },
]
BAD: list[tuple[object, str]] = [
    (7, "a type must be a name, a list or an object"),
    ("strin", "'strin' is not a defined name"),
    ({"name": "R"}, "the type of an object is not a name"),
    ({"type": {"type": "string"}}, "the type of an object is not a name"),
    ({"type": "array"}, "array has no items"),
    ({"type": "map"}, "map has no values"),
    (["int", "int"], "a union has 'int' twice"),
    (["null", ["int"]], "a union is directly in another union"),
    ([RECORD, RECORD], "'R' is defined twice"),
    ({**RECORD, "name": "int"}, "a primitive type of Avro"),
    ({**RECORD, "name": "1R"}, "'1R' is not a valid name"),
    ({**RECORD, "name": "a..R"}, "'a..R' is not a valid name"),
    ({**RECORD, "name": None}, "of the kind record has no name"),
    ({**RECORD, "namespace": 3}, "the namespace of 'R' is '3'"),
    ({**RECORD, "aliases": "x"}, "the aliases of 'R' must be a list of texts"),
    ({**RECORD, "aliases": [1]}, "the aliases of 'R' must be a list of texts"),
    ({"type": "record", "name": "R"}, "has no list of fields"),
    ({"type": "record", "name": "R", "fields": ["a"]}, "a field that is not an object"),
    ({"type": "record", "name": "R", "fields": [{"type": "int"}]}, "a field with the name 'null'"),
    ({"type": "record", "name": "R", "fields": [{"name": "a-b", "type": "int"}]}, "a field with the name 'a-b'"),
    ({"type": "record", "name": "R", "fields": [{"name": "a"}]}, "field a has no type"),
    ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2}, "the field 'a' twice"),
    ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "order": "up"}]}, "the order 'up'"),
    ({"type": "enum", "name": "E"}, "the symbols of 'E' must be a list"),
    ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "a symbol twice"),
    ({"type": "enum", "name": "E", "symbols": ["A B"]}, "the symbol 'A B'"),
    ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "the default 'B', which is not one"),
    ({"type": "fixed", "name": "F"}, "has the size 'null'"),
    ({"type": "fixed", "name": "F", "size": True}, "has the size 'true'"),
    ({"type": "fixed", "name": "x" * 100, "size": -1}, "x'\\.\\.\\. has the size '-1'"),
]


@pytest.mark.parametrize("schema", GOOD, ids=json.dumps)
def test_a_schema_is_read_and_kept_without_blanks(schema: object) -> None:
    parse_by_avro(json.dumps(schema))
    parsed = parse_avro(json.dumps(schema, indent=2))
    assert parsed.text == json.dumps(schema, separators=(",", ":"))
    assert parsed.normalized == json.dumps(schema, separators=(",", ":"), sort_keys=True)
    assert parsed.schema_type is SchemaType.AVRO
    assert parsed.formatted("resolved") == parsed.text
    assert parsed.is_same(parse_avro(json.dumps(schema)))


@pytest.mark.parametrize(("schema", "message"), BAD, ids=lambda case: json.dumps(case))
def test_what_is_none_is_refused_with_what_is_wrong(schema: object, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        parse_avro(json.dumps(schema))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("NaN", "not JSON: NaN is not a JSON number"),
        ('{"type": "int", "x": 1e999}', "the number 1e999 is too large"),
        ('"\\ud800"', "surrogate"),
        ('"\ud800"', "surrogate"),
        ("[" * 100_000, "nested"),
        ('{"type":"array","items":' * SCHEMA_DEPTH_MAX + '"int"' + "}" * SCHEMA_DEPTH_MAX, "nested"),
    ],
)
def test_what_is_no_text_of_a_schema_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        parse_avro(text)


def test_the_deepest_schema_can_be_read_and_compared() -> None:
    depth = SCHEMA_DEPTH_MAX - 1
    parsed = parse_avro('{"type":"array","items":' * depth + '"int"' + "}" * depth)
    assert parsed.faults_reading(parsed) == []


def test_names_are_found_in_what_is_referred_to() -> None:
    reference = NamedText(name="any", text=json.dumps({**RECORD, "namespace": "a"}))
    parsed = parse_avro('{"type":"array","items":"a.R"}', [reference])
    assert parsed.type.inner[0].name == "a.R"
    with pytest.raises(InvalidSchema, match=r"'a\.R' is defined twice"):
        parse_avro(reference.text, [reference])


@pytest.mark.parametrize("schema", [schema for schema, _ in BAD[:5]])
def test_avros_library_refuses_the_same(schema: object) -> None:
    with pytest.raises((AvroException, AttributeError)):
        parse_by_avro(json.dumps(schema))
