"""What becomes of a table's columns as schemas change."""

import json
from typing import Any

import pytest

from iceberg_export.typed.columns import TypedColumns, decode, encode, every_column, iceberg_fields, with_schema_id
from iceberg_export.typed.json_shapes import JsonReader
from iceberg_export.typed.shapes import SchemaUnusable, Shape
from iceberg_export.typed.union import merge_key, merge_value
from protocol.decoding import Undecodable
from protocol.limits import TYPED_COLUMNS_MAX
from tests.support.lake.typed_records import NOTHING, avro_reader, merged, protobuf_files, record


def shape(*fields: tuple[str, object], **aliases: str) -> Shape:
    schema = record("R", *fields)
    for each in schema["fields"]:
        if each["name"] in aliases:
            each["aliases"] = [aliases[each["name"]]]
    return avro_reader(schema).shape


def names(columns: TypedColumns) -> dict[str, tuple[int, Any]]:
    return {str(each["name"]): (int(str(each["id"])), each["type"]) for each in iceberg_fields(columns.value)}


def decimal(precision: int, scale: int = 2) -> dict[str, object]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def test_a_field_that_is_added_is_a_column_behind_the_others() -> None:
    columns = merged(shape(("a", "int")), shape(("b", "string"), ("a", "int")))
    assert names(columns) == {"value_a": (100, "int"), "value_b": (101, "string")}
    assert (columns.version, columns.field_id_next) == (2, 102)


def test_a_field_that_is_removed_stays_and_comes_back_as_the_same_column() -> None:
    first = shape(("a", "int"), ("b", "string"))
    columns = merged(first, shape(("a", "int")), first)
    assert names(columns) == {"value_a": (100, "int"), "value_b": (101, "string")}
    assert columns.version == 1


def test_a_field_that_is_renamed_by_an_alias_keeps_its_column() -> None:
    before, after = shape(("a", "int"), ("c", "int")), shape(("b", "int"), ("c", "int"), b="a")
    columns = merged(before, after)
    assert names(columns) == {"value_b": (100, "int"), "value_c": (101, "int")}
    assert merge_value(columns, before) is columns


def test_a_field_that_is_renamed_without_an_alias_is_a_new_column() -> None:
    assert names(merged(shape(("a", "int")), shape(("b", "int")))) == {"value_a": (100, "int"), "value_b": (101, "int")}


def test_an_alias_does_not_take_a_column_that_a_field_of_its_own_name_has() -> None:
    columns = merged(shape(("a", "int")), shape(("b", "int"), ("a", "int"), b="a"))
    assert names(columns) == {"value_a": (100, "int"), "value_b": (101, "int")}


def test_the_name_of_a_renamed_field_may_be_given_to_another_one() -> None:
    columns = merged(shape(("a", "int")), shape(("b", "int"), b="a"), shape(("b", "int"), ("a", "int")))
    assert names(columns) == {"value_b": (100, "int"), "value_a": (101, "int")}


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("int", "long", "long"),
        ("long", "int", "long"),
        ("float", "double", "double"),
        ("double", "float", "double"),
        (decimal(5), decimal(9), "decimal(9, 2)"),
        (decimal(9), decimal(5), "decimal(9, 2)"),
    ],
)
def test_a_type_is_widened_in_its_place(before: object, after: object, kind: str) -> None:
    assert names(merged(shape(("a", before)), shape(("a", after)))) == {"value_a": (100, kind)}


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("int", "string", "string"),
        ("int", "double", "double"),
        (decimal(5), decimal(5, 3), "decimal(5, 3)"),
        ("string", ["int", "string"], "string"),
        ({"type": "array", "items": "int"}, "int", "int"),
        ({"type": "map", "values": "int"}, "int", "int"),
        ("long", {"type": "long", "logicalType": "timestamp-millis"}, "timestamptz"),
    ],
)
def test_a_type_that_does_not_fit_gets_a_column_of_its_own(before: object, after: object, kind: str) -> None:
    first, second = shape(("a", before)), shape(("a", after))
    columns = merged(first, second)
    assert list(names(columns)) == ["value_a", "value_a_2"]
    assert names(columns)["value_a_2"][1] == kind
    assert merge_value(merge_value(columns, first), second) is columns


def test_a_third_type_gets_the_next_number() -> None:
    columns = merged(shape(("a", "int")), shape(("a", "string")), shape(("a", "boolean")))
    assert list(names(columns)) == ["value_a", "value_a_2", "value_a_3"]


def test_structs_lists_and_maps_change_inside() -> None:
    def nested(kind: object, *more: tuple[str, object]) -> Shape:
        inner = record("I", ("x", kind), *more)
        return shape(("s", inner), ("l", {"type": "array", "items": "I"}), ("m", {"type": "map", "values": "I"}))

    columns = merged(nested("int"), nested("string", ("y", "int")))
    for name in ("value_s", "value_l", "value_m"):
        kind = names(columns)[name][1]
        struct = kind.get("element", kind.get("value", kind))
        assert [each["name"] for each in struct["fields"]] == ["x", "x_2", "y"]
    assert columns.field_id_next == 100 + 3 + 1 + 2 + 3 * 3


def test_lists_of_another_type_get_a_column_of_their_own() -> None:
    one, other = {"type": "array", "items": "int"}, {"type": "array", "items": "string"}
    assert list(names(merged(shape(("a", one)), shape(("a", other))))) == ["value_a", "value_a_2"]
    one, other = {"type": "map", "values": "int"}, {"type": "map", "values": "string"}
    assert list(names(merged(shape(("a", one)), shape(("a", other))))) == ["value_a", "value_a_2"]


def test_a_protobuf_field_is_known_by_its_number() -> None:
    def message(fields: str, name: str = "M") -> Shape:
        return protobuf_files(f'syntax = "proto3"; message {name} {{ {fields} }}').reader((0,)).shape

    before = message("int64 a = 1; string b = 2;")
    after = message("int64 b = 1; string c = 2; int64 a = 3;")
    columns = merged(before, after)
    assert names(columns) == {"value_b_2": (100, "long"), "value_c": (101, "string"), "value_a": (102, "long")}
    assert merge_value(merge_value(columns, before), after) is columns
    other = merge_value(columns, message("int64 c = 1;", "N"))
    assert names(other)["value_c_2"] == (103, "long")


def test_names_are_words_and_differ_without_regard_to_case() -> None:
    properties: dict[str, object] = {"a.b": {}, "a b": {}, "A_B": {}, "": {}, "gr\u00f6\u00dfe": {}}
    reader = JsonReader(json.dumps({"type": "object", "properties": properties}))
    assert list(names(merged(reader.shape))) == [
        "value_a_b",
        "value_a_b_2",
        "value_A_B_3",
        "value_",
        "value_gr\u00f6\u00dfe",
    ]


def test_keys_and_values_have_columns_apart_and_ids_together() -> None:
    columns = merge_key(merged(shape(("a", "int"))), avro_reader("string").shape)
    assert [each.name for each in columns.columns] == ["key_content", "value_a"]
    assert [each.field_id for each in columns.columns] == [101, 100]
    assert merge_key(columns, avro_reader("string").shape) is columns


def test_columns_are_the_same_from_their_text() -> None:
    inner = record("I", ("x", {"type": "map", "values": decimal(4)}))
    columns = merge_key(merged(shape(("a", {"type": "array", "items": inner}))), avro_reader("int").shape)
    assert decode(encode(columns)) == columns
    assert encode(decode(encode(columns))) == encode(columns)
    with pytest.raises(Undecodable):
        decode('{"version":1,"field_id_next":100,"more":1}')


def test_a_table_that_had_left_out_values_keeps_their_column() -> None:
    before = merged(shape(("a", "int")))
    columns = with_schema_id(before)
    assert (columns.version, columns.has_schema_id, columns.value) == (before.version + 1, True, before.value)
    assert with_schema_id(columns) is columns
    later = merge_value(columns, shape(("b", "int")))
    assert (later.version, later.has_schema_id) == (columns.version + 1, True)
    assert decode(encode(later)) == later
    assert "has_schema_id" not in encode(before), "older agents read tables that never had any"


def test_a_schema_that_wants_too_many_columns_gets_none() -> None:
    half = [(f"a{number}", "int") for number in range(TYPED_COLUMNS_MAX)]
    columns = merged(shape(*half))
    assert sum(1 for _ in every_column(columns.value)) == TYPED_COLUMNS_MAX
    with pytest.raises(SchemaUnusable, match="more than"):
        merge_value(columns, shape(("b", "int")))
    assert merge_value(NOTHING, shape(("b", "int"))).version == 1
