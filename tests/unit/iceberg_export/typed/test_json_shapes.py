"""Columns of JSON Schemas, and their values."""

import json
from typing import Any

import pytest

from iceberg_export.typed.columns import iceberg_fields
from iceberg_export.typed.framing import WriterSchema
from iceberg_export.typed.json_shapes import JsonReader
from iceberg_export.typed.shapes import SchemaUnusable
from tests.support.lake.typed_records import decoded_rows, framed, merged


def types_of(schema: object) -> dict[str, object]:
    shape = JsonReader(json.dumps(schema)).shape
    return {str(each["name"]): each["type"] for each in iceberg_fields(merged(shape).value)}


def values_of(schema: object, *texts: str) -> list[dict[str, Any]]:
    reader = JsonReader(json.dumps(schema))
    columns = merged(reader.shape).value
    return decoded_rows(columns, {WriterSchema(schema_id=7): reader}, [framed(7, each.encode()) for each in texts])


def an_object(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "integer"}, "long"),
        ({"type": ["null", "number"]}, "double"),
        ({"type": ["string", "number"]}, "string"),
        ({"enum": ["a", "b", None]}, "string"),
        ({"const": "a"}, "string"),
        ({"oneOf": [{"type": "null"}, {"type": "boolean"}]}, "boolean"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "string"),
        ({"allOf": [{"type": "integer"}]}, "long"),
        ({"type": "string", "format": "date-time"}, "string"),
        ({}, "string"),
        (True, "string"),
        ({"type": "object"}, "string"),
        ({"type": "array"}, "string"),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "integer"}}, "string"),
    ],
)
def test_a_type_is_that_of_the_table_and_json_where_it_is_open(schema: object, kind: str) -> None:
    assert types_of(an_object(a=schema)) == {"value_a": kind}


def test_objects_lists_and_maps_keep_their_form() -> None:
    schema = an_object(
        who=an_object(name={"type": "string"}),
        tags={"type": "array", "items": {"type": "integer"}},
        counts={"type": "object", "additionalProperties": {"type": "number"}},
        rest={},
    )
    text = '{"who":{"name":"a","more":1},"tags":[1,2.0],"counts":{"x":1,"y":2.5},"rest":[{"b":null}]}'
    assert values_of(schema, text) == [
        {
            "value_who": {"name": "a"},
            "value_tags": [1, 2],
            "value_counts": [("x", 1.0), ("y", 2.5)],
            "value_rest": '[{"b":null}]',
        }
    ]


def test_references_lead_into_the_schema_and_to_others() -> None:
    schema = an_object(
        a={"$ref": "#/definitions/A"}, b={"$ref": "b.json"}, c={"$ref": "b.json#/$defs/C"}, d={"$ref": "#named"}
    )
    schema["definitions"] = {"A": {"type": "integer"}, "D": {"$anchor": "named", "type": "boolean"}}
    other = {**an_object(x={"$ref": "#/$defs/C"}), "$defs": {"C": {"type": "string"}}}
    reader = JsonReader(json.dumps(schema), {"b.json": json.dumps(other)})
    text = b'{"a":1,"b":{"x":"u"},"c":"v","d":true}'
    (row,) = decoded_rows(merged(reader.shape).value, {WriterSchema(schema_id=1): reader}, [framed(1, text)])
    assert row == {"value_a": 1, "value_b": {"x": "u"}, "value_c": "v", "value_d": True}


def test_what_holds_itself_is_json_from_there_on() -> None:
    schema = an_object(n={"type": "integer"}, next={"$ref": "#"})
    assert values_of(schema, '{"n":1,"next":{"n":2}}') == [{"value_n": 1, "value_next": '{"n":2}'}]


def test_all_of_several_objects_has_the_properties_of_each() -> None:
    schema = {"allOf": [an_object(a={"type": "integer"}), an_object(b={"type": "string"})]}
    assert types_of(schema) == {"value_a": "long", "value_b": "string"}
    assert types_of({"allOf": [an_object(a={"type": "integer"}), {"type": "string"}]}) == {"value_content": "string"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a":"1"}', "int was expected, not str"),
        ('{"a":true}', "int was expected, not bool"),
        ('{"a":1.5}', "1.5 is no integer"),
        ('{"a":9223372036854775808}', "OverflowError"),
        ("[1]", "an object was expected, not list"),
        ('{"a":', "truncated"),
        ("\xff", "malformed"),
        ("[" * 100_000, "Recursion"),
    ],
)
def test_a_record_that_is_none_of_its_schema_s_has_an_error_and_no_values(text: str, why: str) -> None:
    schema = an_object(a={"type": "integer"}, b={"type": "string"})
    good, bad, also_good = values_of(schema, '{"a":1,"b":"x"}', text, '{"a":2.0}')
    assert good == {"value_a": 1, "value_b": "x"}
    assert also_good == {"value_a": 2}
    assert list(bad) == ["error"]
    assert why in bad["error"]


@pytest.mark.parametrize("reference", ["other.json", "#/nowhere", "#nowhere"])
def test_a_schema_that_refers_to_nothing_cannot_be_used(reference: str) -> None:
    with pytest.raises(SchemaUnusable, match=reference.strip("#/")):
        JsonReader(json.dumps(an_object(a={"$ref": reference})))
