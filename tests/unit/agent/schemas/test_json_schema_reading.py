"""Which changes of a JSON Schema let values of the earlier one pass. Each row: the earlier schema, the later one, and
what is wrong with the later one as a reader (nothing) and with the earlier one (the last column)."""

import json

import pytest

from agent.schemas.json_schema import parse_json_schema
from protocol.limits import SCHEMA_DEPTH_MAX

DRAFT_4, DRAFT_2020 = "http://json-schema.org/draft-04/schema#", "https://json-schema.org/draft/2020-12/schema"


def closed(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def opened(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties}


def partly(of: object, **properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "additionalProperties": of}


INT, NUM, STR = {"type": "integer"}, {"type": "number"}, {"type": "string"}


def tuple_of(*items: object, rest: object = True) -> dict[str, object]:
    return {"type": "array", "items": list(items), "additionalItems": rest}


WIDER: list[tuple[object, object, str]] = [
    # Types.
    (INT, NUM, "TYPE_NARROWED at #"),
    (STR, {"type": ["string", "null"]}, "SUM_TYPE_NARROWED"),
    ({"type": ["string", "null"]}, {"type": ["null", "integer", "string"]}, "SUM_TYPE_NARROWED"),
    (STR, True, "TYPE_CHANGED"),
    (STR, {"description": "anything"}, "TYPE_CHANGED"),
    (False, STR, "TYPE_CHANGED"),
    ({"type": "string", "maxLength": 3}, {"maxLength": 3}, "TYPE_CHANGED"),
    # Texts and numbers.
    ({**STR, "maxLength": 3}, {**STR, "maxLength": 4}, "MAX_LENGTH_DECREASED at #/maxLength"),
    ({**STR, "maxLength": 3}, STR, "MAX_LENGTH_ADDED"),
    ({**STR, "minLength": 3}, {**STR, "minLength": 2}, "MIN_LENGTH_INCREASED"),
    ({**STR, "minLength": 3}, {**STR, "minLength": 0}, "MIN_LENGTH_INCREASED"),
    ({**STR, "pattern": "a"}, STR, "PATTERN_ADDED"),
    ({**NUM, "maximum": 3}, {**NUM, "maximum": 3.5}, "MAXIMUM_DECREASED"),
    ({**NUM, "minimum": 3}, NUM, "MINIMUM_ADDED"),
    ({**NUM, "exclusiveMaximum": 3}, {**NUM, "exclusiveMaximum": 4}, "EXCLUSIVE_MAXIMUM_DECREASED"),
    ({**NUM, "exclusiveMinimum": 3}, {**NUM, "exclusiveMinimum": 2}, "EXCLUSIVE_MINIMUM_INCREASED"),
    (
        {"$schema": DRAFT_4, **NUM, "maximum": 3, "exclusiveMaximum": True},
        {"$schema": DRAFT_4, **NUM, "maximum": 4, "exclusiveMaximum": True},
        "EXCLUSIVE_MAXIMUM_DECREASED",
    ),
    ({**NUM, "multipleOf": 6}, {**NUM, "multipleOf": 3}, "MULTIPLE_OF_CHANGED"),
    ({**NUM, "multipleOf": 6}, NUM, "MULTIPLE_OF_ADDED"),
    # Values.
    ({"enum": [1, "a"]}, {"enum": ["a", 1, None]}, "ENUM_ARRAY_NARROWED at #/enum"),
    ({"const": 1}, {"enum": [1.0, 2]}, "ENUM_ARRAY_NARROWED"),
    ({"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["a", "b"]}, "PRODUCT_TYPE_EXTENDED"),
    ({"type": "string", "enum": ["a"]}, STR, "PRODUCT_TYPE_EXTENDED"),
    ({"not": {"type": ["string", "null"]}}, {"not": STR}, "NOT_TYPE_EXTENDED"),
    # Objects.
    (closed(a=INT), closed(a=INT, b=STR), "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at #/properties/b"),
    (opened(a=INT, b=STR), opened(a=INT), "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL at #/properties/b"),
    (closed(a=INT), opened(a=INT), "ADDITIONAL_PROPERTIES_REMOVED at #/additionalProperties"),
    (partly(INT, a=INT), opened(a=INT), "ADDITIONAL_PROPERTIES_NARROWED"),
    (partly(INT, a=INT), partly(NUM, a=INT), "TYPE_NARROWED at #/additionalProperties"),
    (partly(STR, a=INT, b=STR), partly(STR, a={}), "TYPE_CHANGED"),
    (opened(a=INT), opened(a=NUM), "TYPE_NARROWED at #/properties/a"),
    ({**opened(a=INT), "required": ["a"]}, opened(a=INT), "REQUIRED_ATTRIBUTE_ADDED at #/required/a"),
    ({**opened(), "maxProperties": 2}, {**opened(), "maxProperties": 3}, "MAX_PROPERTIES_DECREASED"),
    ({**opened(), "minProperties": 2}, opened(), "MIN_PROPERTIES_ADDED"),
    ({**opened(), "propertyNames": {"maxLength": 3}}, opened(), "TYPE_CHANGED at #/propertyNames"),
    (
        {**opened(), "dependencies": {"a": ["b", "c"]}},
        {**opened(), "dependencies": {"a": ["b"]}},
        "DEPENDENCY_ARRAY_EXT",
    ),
    ({**opened(), "dependentRequired": {"a": ["b"]}}, opened(), "DEPENDENCY_ARRAY_ADDED at #/dependencies/a"),
    ({**opened(), "dependencies": {"a": opened(b=INT)}}, opened(), "DEPENDENCY_SCHEMA_ADDED"),
    (
        {**opened(), "dependentSchemas": {"a": opened(b=INT)}},
        {**opened(), "dependentSchemas": {"a": opened(b=NUM)}},
        "TYPE_NARROWED at #/dependencies/a/properties/b",
    ),
    (
        {**closed(), "patternProperties": {"^x": INT}},
        {**closed(), "patternProperties": {"^x": NUM, "^y": INT}},
        "PATTERN_PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    (
        {**closed(), "patternProperties": {"^x": INT}},
        {**closed(xa=INT), "patternProperties": {"^x": NUM}},
        "TYPE_NARROWED at #/patternProperties/^x",
    ),
    # Arrays.
    ({"type": "array", "items": INT}, {"type": "array", "items": NUM}, "TYPE_NARROWED at #/items"),
    ({"type": "array", "items": INT}, {"type": "array"}, "TYPE_CHANGED at #/items"),
    (tuple_of(INT, rest=False), tuple_of(INT, STR, rest=False), "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL at #/items/1"),
    (tuple_of(INT, STR), tuple_of(INT), "ITEM_ADDED_TO_OPEN_CONTENT_MODEL at #/items/1"),
    (tuple_of(INT, STR, rest=STR), tuple_of(NUM, rest=STR), "TYPE_NARROWED at #/items/0"),
    (
        {"$schema": DRAFT_2020, "type": "array", "prefixItems": [INT], "items": False},
        {"$schema": DRAFT_2020, "type": "array", "prefixItems": [INT, STR], "items": False},
        "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    ({"type": "array", "maxItems": 3}, {"type": "array", "maxItems": 4}, "MAX_ITEMS_DECREASED"),
    ({"type": "array", "minItems": 1}, {"type": "array", "minItems": 0}, "MIN_ITEMS_INCREASED"),
    ({"type": "array", "uniqueItems": True}, {"type": "array"}, "UNIQUE_ITEMS_ADDED"),
    ({"type": "array", "contains": INT}, {"type": "array", "contains": NUM}, "TYPE_NARROWED at #/contains"),
    # What is joined.
    ({"oneOf": [INT, STR]}, {"oneOf": [INT, STR, {"type": "null"}]}, "SUM_TYPE_NARROWED"),
    ({"anyOf": [INT, STR]}, {"anyOf": [STR, NUM]}, "SUM_TYPE_NARROWED"),
    ({"oneOf": [INT, STR]}, {"anyOf": [INT, STR]}, "COMBINED_TYPE_CHANGED"),
    ({"allOf": [INT]}, {"anyOf": [INT, STR]}, "SUM_TYPE_NARROWED"),
    ({"allOf": [{**NUM, "maximum": 3}, {**NUM, "minimum": 1}]}, {"allOf": [{**NUM, "maximum": 3}]}, "PRODUCT_TYPE_EXT"),
    (INT, {"oneOf": [STR, NUM]}, "SUM_TYPE_NARROWED"),
    (INT, {"allOf": [NUM]}, "COMBINED_TYPE_SUBSCHEMAS_CHANGED"),
    # What there is no rule for.
    ({**STR, "if": {"minLength": 3}, "then": {"pattern": "a"}}, STR, "PRODUCT_TYPE_EXTENDED"),
    # References.
    (
        {"$ref": "#/definitions/a", "definitions": {"a": INT}},
        {"$ref": "#/definitions/a", "definitions": {"a": NUM}},
        "TYPE_NARROWED",
    ),
    (
        {"$schema": DRAFT_2020, "$ref": "#/$defs/a", "$defs": {"a": STR}, "maxLength": 3},
        {"$schema": DRAFT_2020, "$ref": "#/$defs/a", "$defs": {"a": STR}},
        "PRODUCT_TYPE_EXTENDED",
    ),
    (
        {**closed(n={"$ref": "#"}, a=INT)},
        {**closed(n={"$ref": "#"}, a=INT, b=INT)},
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at #/properties/b",
    ),
]

SAME: list[tuple[object, object]] = [
    (STR, {**STR, "title": "t", "description": "d", "default": "x", "examples": ["y"]}),
    (STR, {"type": ["string"]}),
    (opened(a=INT), opened(a=INT, b={})),
    (closed(a=INT), closed(a=INT, b=False)),
    (INT, {"anyOf": [INT]}),
    ({"type": ["integer", "string"]}, {"oneOf": [INT, STR]}),
    ({"definitions": {"a": INT}, "items": {"$ref": "#/definitions/a"}}, {"items": INT}),
    ({"type": "boolean"}, {"type": "boolean"}),
    ({"enum": [None]}, {"const": None}),
]
NEITHER: list[tuple[object, object, str]] = [
    (STR, INT, "TYPE_CHANGED at #"),
    ({"type": "boolean"}, {"type": "null"}, "TYPE_CHANGED"),
    ({**STR, "pattern": "a"}, {**STR, "pattern": "b"}, "PATTERN_CHANGED at #/pattern"),
    ({**NUM, "multipleOf": 4}, {**NUM, "multipleOf": 6}, "MULTIPLE_OF_CHANGED"),
    ({"enum": [1]}, {"enum": [True]}, "ENUM_ARRAY_NARROWED"),
    ({"enum": [[1, {"a": 0}]]}, {"enum": [[1, {"a": False}]]}, "ENUM_ARRAY_NARROWED"),
    (closed(a=INT), closed(b=INT), "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at #/properties/a"),
    (partly(INT), partly(INT, a=STR), "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
    (partly(INT, a=STR), partly(INT), "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
    (
        opened(),
        {**opened(), "required": ["x"], "additionalProperties": INT},
        "REQUIRED_ATTRIBUTE_ADDED at #/required/x",
    ),
    (
        {**STR, "if": {"minLength": 3}, "then": {"pattern": "a"}},
        {**STR, "if": {"minLength": 4}, "then": {"pattern": "a"}},
        "KEYWORD_CHANGED at #/if",
    ),
    (
        {**STR, "if": {"minLength": 3}, "then": {"pattern": "a"}, "else": {"pattern": "b"}},
        {**STR, "if": {"minLength": 2}, "then": {"pattern": "a"}},
        "CONDITION_CHANGED at #/if",
    ),
    (
        {"patternProperties": {"^(?!x)": INT}, "type": "object"},
        {"patternProperties": {"^(?!x)": INT}, "type": "object", "properties": {"a": STR}},
        "TOO_COMPLEX: RE2 does not support the pattern",
    ),
]


def faults(reader: object, writer: object) -> list[str]:
    return parse_json_schema(json.dumps(reader)).faults_reading(parse_json_schema(json.dumps(writer)))


def shown(case: object) -> str:
    return case if isinstance(case, str) else json.dumps(case)


@pytest.mark.parametrize(("narrow", "wide", "told"), WIDER, ids=shown)
def test_a_schema_that_allows_more_reads_one_that_allows_less_and_not_the_other_way_round(
    narrow: object, wide: object, told: str
) -> None:
    assert faults(wide, narrow) == []
    assert any(fault.startswith(told) for fault in faults(narrow, wide)), faults(narrow, wide)


@pytest.mark.parametrize(("one", "other"), SAME, ids=shown)
def test_what_allows_the_same_goes_together(one: object, other: object) -> None:
    assert faults(one, other) == faults(other, one) == []


@pytest.mark.parametrize(("before", "after", "told"), NEITHER, ids=shown)
def test_what_allows_something_else_does_not(before: object, after: object, told: str) -> None:
    assert any(fault.startswith(told) for fault in faults(after, before)), faults(after, before)


def test_a_condition_may_go_whole_or_in_part() -> None:
    conditions = {**STR, "if": {"minLength": 3}, "then": {"pattern": "a"}, "else": {"pattern": "b"}}
    assert faults(STR, conditions) == []
    assert faults({key: value for key, value in conditions.items() if key != "else"}, conditions) == []


def test_a_name_may_become_required_where_a_default_stands_in_for_it() -> None:
    with_default = {**opened(a={**INT, "default": 3}), "required": ["a"]}
    assert faults(with_default, opened(a=INT)) == []


def test_schemas_that_refer_to_themselves_are_compared() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "value": INT}, "additionalProperties": False}
    wider = {"type": "object", "properties": {"left": {"$ref": "#"}, "value": NUM}, "additionalProperties": False}
    assert faults(wider, tree) == []
    assert faults(tree, wider) == ["TYPE_NARROWED at #/properties/value"]


def test_one_that_only_refers_to_itself_beside_something_ends() -> None:
    schema = {"$schema": DRAFT_2020, "$ref": "#", "type": "object"}
    assert all(fault.startswith("TOO_COMPLEX") for fault in faults(schema, schema))


def test_choices_of_choices_are_not_tried_indefinitely() -> None:
    schema: object = INT
    other: object = STR
    for _ in range(SCHEMA_DEPTH_MAX // 2 - 2):
        schema, other = {"anyOf": [schema, {**NUM, "maximum": 1}]}, {"anyOf": [{**NUM, "maximum": 2}, other]}
    assert faults(schema, other)
