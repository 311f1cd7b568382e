"""JSON Schemas are read by the draft that they name, and their references lead somewhere."""

import json

import pytest

from agent.schemas.json_schema import parse_json_schema
from agent.schemas.parsed import InvalidSchema, NamedText
from coordinator.commands.registry import SchemaType

LATEST_DRAFT = "https://json-schema.org/draft/2020-12/schema"
OTHER = NamedText(name="other.json", text='{"definitions": {"q": {"type": "integer"}}}')


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": ["object", "null"], "properties": {"a": {"$ref": "#/definitions/a"}}, "definitions": {"a": {}}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "maximum": 3, "exclusiveMaximum": True},
        {"$schema": LATEST_DRAFT, "$defs": {"a": {"$anchor": "x"}}, "items": {"$ref": "#x"}},
        {"$schema": LATEST_DRAFT, "$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}, "maxLength": 3},
        {"$schema": "https://example.org/own", "type": "string"},
        {
            "$id": "https://example.org/a",
            "properties": {"b": {"$id": "b", "items": {"$ref": "#/definitions/c"}, "definitions": {"c": {}}}},
        },
        {"enum": [{"$ref": "nowhere"}], "default": {"$ref": 3}},
        {"properties": {"$ref": {"type": "string"}}},
    ],
    ids=json.dumps,
)
def test_a_schema_is_read_and_kept_without_blanks(schema: object) -> None:
    parsed = parse_json_schema(json.dumps(schema, indent=2))
    assert parsed.text == json.dumps(schema, separators=(",", ":"))
    assert parsed.normalized == json.dumps(schema, separators=(",", ":"), sort_keys=True)
    assert parsed.schema_type is SchemaType.JSON
    assert parsed.formatted("any") == parsed.text
    assert parsed.is_same(parse_json_schema(json.dumps(schema)))
    assert parsed.faults_reading(parsed) == []


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (7, "must be an object, true or false"),
        ({"type": "objct"}, "the schema violates its draft at #/type: 'objct' is not valid"),
        ({"properties": {"a": {"required": True}}}, "violates its draft at #/properties/a/required"),
        ({"$ref": "#/definitions/none"}, "'#/definitions/none' cannot be resolved"),
        ({"$ref": "none.json"}, "'none.json' cannot be resolved"),
        ({"$ref": "http://[bad"}, "cannot be resolved"),
        ({"$ref": "#/allOf/x", "allOf": [{}]}, "cannot be read|cannot be resolved"),
        ({"$ref": "#"}, "refers to itself"),
    ],
)
def test_what_is_none_is_refused_with_what_is_wrong(schema: object, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        parse_json_schema(json.dumps(schema))


@pytest.mark.parametrize("base", [None, "https://example.org/schemas/own.json"])
def test_references_are_found_under_their_names(base: str | None) -> None:
    schema: dict[str, object] = {"properties": {"a": {"$ref": "other.json#/definitions/q"}}}
    if base is not None:
        schema["$id"] = base
    parsed = parse_json_schema(json.dumps(schema), [OTHER])
    text = parse_json_schema('{"properties": {"a": {"type": "string"}}}')
    assert parsed.faults_reading(text) == ["TYPE_CHANGED at #/properties/a"]


def test_what_is_referred_to_is_checked_too() -> None:
    with pytest.raises(InvalidSchema, match=r"bad\.json violates its draft at #/type"):
        parse_json_schema("{}", [NamedText(name="bad.json", text='{"type": 3}')])


def test_a_schema_that_is_too_deep_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="nested"):
        parse_json_schema('{"items":' * 150 + "{}" + "}" * 150)
