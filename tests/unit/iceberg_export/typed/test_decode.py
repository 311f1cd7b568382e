"""Values as columns, and what is said of those that cannot be."""

from decimal import Decimal

import pytest

from iceberg_export.typed.avro_shapes import AvroReader
from iceberg_export.typed.columns import StructType
from iceberg_export.typed.decode import ValueReader
from iceberg_export.typed.framing import WriterSchema
from iceberg_export.typed.json_shapes import JsonReader
from iceberg_export.typed.union import merge_value
from protocol.limits import TYPED_ERROR_CHARS_MAX
from tests.support.lake.typed_records import (
    avro_bytes,
    avro_reader,
    decoded,
    decoded_rows,
    framed,
    merged,
    protobuf_files,
    record,
)

Readers = dict[WriterSchema, ValueReader | str]

FLAT = record("R", ("a", "int"), ("b", ["null", "string"]))


def flat(a: int, b: str | None = None) -> bytes:
    return framed(7, avro_bytes(FLAT, {"a": a, "b": b}))


def test_what_cannot_be_decoded_is_null_and_says_why_and_the_others_stay_in_their_places() -> None:
    reader = avro_reader(FLAT)
    values = [flat(1, "x"), None, b"plain", flat(2), framed(9, b"abc"), flat(3)[:-1], framed(8, b""), flat(4, "y"), b""]
    readers: Readers = {WriterSchema(schema_id=7): reader, WriterSchema(schema_id=8): "schema 8 is too large"}
    no_frame = {"error": "it does not begin with a byte 0 and the id of a schema"}
    assert decoded_rows(merged(reader.shape).value, readers, values) == [
        {"value_a": 1, "value_b": "x"},
        {},
        no_frame,
        {"value_a": 2},
        {"error": "schema 9 is not registered"},
        {"error": "schema 7: ValueError: the record ends too early"},
        {"error": "schema 8 is too large"},
        {"value_a": 4, "value_b": "y"},
        no_frame,
    ]


def test_no_values_are_columns_without_rows() -> None:
    reader = avro_reader(FLAT)
    made = decoded(merged(reader.shape).value, {WriterSchema(schema_id=7): reader}, [])
    assert [len(each) for each in made.arrays] == [0, 0]
    assert made.errors == []


def test_records_of_several_schemas_and_formats_share_the_columns() -> None:
    old, new = avro_reader(FLAT), avro_reader(record("R", ("a", "long"), ("c", "double")))
    text = JsonReader('{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"boolean"}}}')
    message = protobuf_files('syntax = "proto3"; message M { string b = 1; }').reader((0,))
    columns = merged(old.shape, new.shape, text.shape, message.shape).value
    readers: Readers = {
        WriterSchema(schema_id=7): old,
        WriterSchema(schema_id=8): new,
        WriterSchema(schema_id=9): text,
        WriterSchema(schema_id=10, indexes=(0,)): message,
    }
    values = [
        framed(9, b'{"a":5,"b":true}'),
        flat(1, "x"),
        framed(10, b"\0\x0a\1z"),
        framed(8, avro_bytes(record("R", ("a", "long"), ("c", "double")), {"a": 1 << 40, "c": 0.5})),
        flat(2, "y"),
    ]
    assert decoded_rows(columns, readers, values) == [
        {"value_a": 5, "value_b_2": True},
        {"value_a": 1, "value_b": "x"},
        {"value_b": "z"},
        {"value_a": 1 << 40, "value_c": 0.5},
        {"value_a": 2, "value_b": "y"},
    ]


def test_values_of_narrower_types_stand_in_wider_columns() -> None:
    def reader(precision: int, number: str, real: str) -> AvroReader:
        price = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}
        return avro_reader(record("R", ("p", price), ("n", number), ("r", real)))

    narrow, wide = reader(4, "int", "float"), reader(30, "long", "double")
    columns = merged(narrow.shape, wide.shape).value
    value = framed(1, b"\x04\x04\xd2" + b"\x02" + b"\0\0\x80\x3f")
    assert decoded_rows(columns, {WriterSchema(schema_id=1): narrow}, [value]) == [
        {"value_p": Decimal("12.34"), "value_n": 1, "value_r": 1.0}
    ]


def test_columns_inside_structs_that_a_schema_lacks_are_null() -> None:
    old = avro_reader(record("R", ("s", record("I", ("x", "int")))))
    new = avro_reader(record("R", ("s", record("I", ("x", "string"), ("y", "int")))))
    columns = merged(old.shape, new.shape).value
    assert isinstance(columns[0].type, StructType)
    assert decoded_rows(
        columns,
        {WriterSchema(schema_id=1): old, WriterSchema(schema_id=2): new},
        [framed(1, b"\x02"), framed(2, b"\x02a\x04")],
    ) == [{"value_s": {"x": 1, "x_2": None, "y": None}}, {"value_s": {"x": None, "x_2": "a", "y": 2}}]


@pytest.mark.parametrize(
    ("schema", "good", "bad", "why"),
    [
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1},
            b"\x02\x05",
            b"\x04\x7f\xff",
            "digits",
        ),
        ({"type": "string", "logicalType": "uuid"}, b"\x48" + b"0" * 36, b"\x02x", "UUID"),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\x02", b"\xff" * 8 + b"\x7f", "overflow"),
        ("string", b"\x02a", b"\x02\xff", "utf-8"),
        ("string", b"\x02a", b"\x03", ""),
        ({"type": "array", "items": "int"}, b"\x00", b"\xff\xff\xff\xff\x0f\x02", "too early"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x00", b"\x04", "range"),
        (["int", "string"], b"\x00\x02", b"\x06", "range"),
    ],
)
def test_one_bad_value_does_no_harm_to_the_others(schema: object, good: bytes, bad: bytes, why: str) -> None:
    if isinstance(schema, dict) and schema.get("logicalType") == "uuid":
        good = b"\x48" + b"00000000-0000-0000-0000-000000000005"
    reader = avro_reader(record("R", ("n", "int"), ("v", schema)))
    columns = merged(reader.shape).value
    values = [framed(1, b"\x08" + (bad if row in (3, 8) else good)) for row in range(11)]
    rows = decoded_rows(columns, {WriterSchema(schema_id=1): reader}, values)
    assert [row for row, each in enumerate(rows) if "error" in each] == [3, 8]
    assert why.lower() in rows[3]["error"].lower()
    assert list(rows[3]) == ["error"]
    assert all(each["value_n"] == 4 and "value_v" in each for row, each in enumerate(rows) if row not in (3, 8))


def test_an_error_is_not_longer_than_it_may_be() -> None:
    reader = JsonReader('{"type":"object","properties":{"a":{"type":"integer"}}}')
    (row,) = decoded_rows(
        merged(reader.shape).value, {WriterSchema(schema_id=1): reader}, [framed(1, b'"' + b"x" * 5000)]
    )
    assert len(row["error"]) <= TYPED_ERROR_CHARS_MAX
    long = decoded(merged(reader.shape).value, {WriterSchema(schema_id=1): "y" * 5000}, [framed(1, b"")])
    assert long.errors == ["y" * TYPED_ERROR_CHARS_MAX]


class _Quoting:
    """A reader whose error quotes half of a surrogate pair."""

    shape = avro_reader(FLAT).shape
    fast = flat = None

    def read(self, data: bytes) -> object:
        raise ValueError(f"\ud800 in {len(data)} bytes")


def test_an_error_is_text_that_a_column_can_hold() -> None:
    made = decoded(merged(_Quoting.shape).value, {WriterSchema(schema_id=7): _Quoting()}, [framed(7, b"ab")])
    assert made.errors == ["schema 7: ValueError: ? in 2 bytes"]


def test_arrays_have_the_columns_types_whatever_was_read() -> None:
    reader = avro_reader(FLAT)
    columns = merge_value(merged(reader.shape), avro_reader(record("R", ("a", "long"), ("z", "int"))).shape).value
    for values in ([], [None], [b"x"], [flat(1)], [flat(1), b"x", None]):
        made = decoded(columns, {WriterSchema(schema_id=7): reader}, values)
        assert [str(each.type) for each in made.arrays] == ["int64", "string", "int32"]
        for each in made.arrays:
            each.validate(full=True)
