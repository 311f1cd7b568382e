"""Columns of Avro schemas, and their values."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from iceberg_export.typed.avro_shapes import AvroReader
from iceberg_export.typed.columns import iceberg_fields
from iceberg_export.typed.framing import WriterSchema
from iceberg_export.typed.shapes import SchemaUnusable, Untyped
from tests.support.lake.typed_records import avro_bytes, avro_reader, decoded_rows, framed, merged, record


def types_of(schema: object) -> dict[str, object]:
    return {str(each["name"]): each["type"] for each in iceberg_fields(merged(avro_reader(schema).shape).value)}


def values_of(schema: Untyped, *values: object) -> list[dict[str, Any]]:
    reader = avro_reader(schema)
    written = [framed(7, avro_bytes(schema, each)) for each in values]
    return decoded_rows(merged(reader.shape).value, {WriterSchema(schema_id=7): reader}, written)


def logical(kind: str, logical_type: str, **more: object) -> dict[str, object]:
    return {"type": kind, "logicalType": logical_type, **more}


LOGICAL = record(
    "R",
    ("price", logical("bytes", "decimal", precision=9, scale=2)),
    ("fee", logical("fixed", "decimal", name="F", size=4, precision=9, scale=3)),
    ("day", logical("int", "date")),
    ("at", logical("int", "time-millis")),
    ("at_us", logical("long", "time-micros")),
    ("seen", logical("long", "timestamp-millis")),
    ("seen_us", logical("long", "timestamp-micros")),
    ("local", logical("long", "local-timestamp-micros")),
    ("id", logical("string", "uuid")),
)


def test_logical_types_are_those_of_the_table() -> None:
    assert types_of(LOGICAL) == {
        "value_price": "decimal(9, 2)",
        "value_fee": "decimal(9, 3)",
        "value_day": "date",
        "value_at": "int",
        "value_at_us": "long",
        "value_seen": "timestamptz",
        "value_seen_us": "timestamptz",
        "value_local": "timestamp",
        "value_id": "uuid",
    }


def test_values_of_logical_types_are_what_was_written() -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    written = {
        "price": Decimal("-12.34"),
        "fee": Decimal("1.001"),
        "day": date(1969, 12, 31),
        "at": time(1, 2, 3, 4000),
        "at_us": time(1, 2, 3, 4),
        "seen": moment.replace(microsecond=123000),
        "seen_us": moment,
        "local": moment.replace(tzinfo=None),
        "id": UUID(int=5),
    }
    times = {"at": 3_723_004, "at_us": 3_723_000_004}
    assert values_of(LOGICAL, written) == [{f"value_{name}": value for name, value in {**written, **times}.items()}]


def test_records_lists_and_maps_keep_their_form_and_other_unions_are_json() -> None:
    inner = record("I", ("a", ["null", "int"]), ("tags", {"type": "array", "items": "string"}))
    schema = record("R", ("inner", ["null", inner]), ("counts", {"type": "map", "values": "I"}), ("any", ["int", "I"]))
    written = {"inner": {"a": None, "tags": ["x", "y"]}, "counts": {"k": {"a": 1, "tags": []}}, "any": 3}
    first, second = values_of(schema, written, {"inner": None, "counts": {}, "any": {"a": 1, "tags": ["z"]}})
    assert first == {
        "value_inner": {"a": None, "tags": ["x", "y"]},
        "value_counts": [("k", {"a": 1, "tags": []})],
        "value_any": "3",
    }
    assert second == {"value_counts": [], "value_any": '{"a":1,"tags":["z"]}'}


def test_what_holds_itself_is_json_from_there_on() -> None:
    tree = record("T", ("n", "int"), ("left", ["null", "T"]), ("all", {"type": "array", "items": "T"}))
    leaf: dict[str, object] = {"n": 2, "left": None, "all": []}
    (row,) = values_of(tree, {"n": 1, "left": leaf, "all": [leaf]})
    text = '{"n":2,"left":null,"all":[]}'
    assert row == {"value_n": 1, "value_left": text, "value_all": [text]}


@pytest.mark.parametrize(
    ("schema", "kind", "value"),
    [
        ("string", "string", "a"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "string", "B"),
        ({"type": "fixed", "name": "F", "size": 2}, "binary", b"ab"),
        (["null", "long"], "long", 1 << 40),
        (logical("long", "timestamp-nanos"), "long", 5),
        (logical("bytes", "decimal", precision=60, scale=2), "binary", Decimal("1.00")),
        (record("E"), "string", {}),
    ],
)
def test_a_schema_without_fields_is_one_column(schema: Untyped, kind: str, value: object) -> None:
    assert types_of(schema) == {"value_content": kind}
    (row,) = values_of(schema, value)
    assert row["value_content"] == (b"d" if isinstance(value, Decimal) else value or "{}")


def test_names_of_other_schemas_are_found_among_the_references() -> None:
    reader = AvroReader(
        '{"type":"record","name":"R","fields":[{"name":"p","type":"n.P"}]}',
        ['{"type":"record","name":"P","namespace":"n","fields":[{"name":"x","type":"int"}]}'],
    )
    columns = merged(reader.shape).value
    assert decoded_rows(columns, {WriterSchema(schema_id=1): reader}, [framed(1, b"\x06")]) == [{"value_p": {"x": 3}}]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "cannot be used"),
        ('"nothing"', "cannot be used"),
        ('{"type":"array","items":"null"}', "have no bytes"),
        ('{"type":"array","items":{"type":"record","name":"E","fields":[]}}', "have no bytes"),
        ('{"type":"array","items":{"type":"fixed","name":"E","size":0}}', "have no bytes"),
    ],
)
def test_a_schema_that_cannot_be_used_says_why(text: str, why: str) -> None:
    with pytest.raises(SchemaUnusable, match=why):
        AvroReader(text)


def test_types_that_hold_each_other_over_and_over_end_somewhere() -> None:
    kind: object = "int"
    for level in range(30):
        name = f"L{level}"
        kind = record(name, ("a", kind), ("b", f"L{level - 1}" if level else "int"))
    with pytest.raises(SchemaUnusable, match="more than"):
        avro_reader(kind)


def test_bytes_behind_a_record_are_an_error() -> None:
    reader = avro_reader("int")
    (row,) = decoded_rows(merged(reader.shape).value, {WriterSchema(schema_id=1): reader}, [framed(1, b"\x02\x02")])
    assert row == {"error": "schema 1: ValueError: there are 1 bytes after the record"}


@pytest.mark.parametrize("levels", [100, 5_000, 1_000_000])
def test_a_record_that_holds_itself_too_often_is_an_error_and_not_the_end_of_the_process(levels: int) -> None:
    reader = avro_reader(record("T", ("n", "int"), ("next", ["null", "T"])))
    value = framed(1, b"\x02\x02" * levels + b"\x02\x00")
    (row,) = decoded_rows(merged(reader.shape).value, {WriterSchema(schema_id=1): reader}, [value])
    assert list(row) == (["value_n", "value_next"] if levels == 100 else ["error"])


def test_a_schema_of_too_many_levels_cannot_be_used() -> None:
    kinds: list[object] = [record("R0", ("a", "int"))]
    kinds += [record(f"R{level}", ("a", f"R{level - 1}")) for level in range(1, 3_000)]
    with pytest.raises(SchemaUnusable, match=r"RecursionError|more than"):
        avro_reader(kinds)
    with pytest.raises(SchemaUnusable, match=r"RecursionError|more than"):
        AvroReader('"R2999"', [json.dumps(each) for each in kinds])
