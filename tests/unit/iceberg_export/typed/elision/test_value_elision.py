"""Which values are left out of a file, and which keep their bytes: from literal bytes of flat Avro records."""

import struct
from typing import Any

import pytest

from iceberg_export.rows.schema import FieldId
from iceberg_export.typed.elision import flat_avro_writer, value_elision
from iceberg_export.typed.elision.value_decoder import PlannedValueDecoder
from iceberg_export.typed.value_plans import decode_plans, encode_plans
from tests.support.lake.typed_records import framed, record
from tests.support.lake.value_elision import LeftOutFile, made_file

OPTIONAL = record("R", ("a", ["null", "long"]), ("b", ["string", "null"]))
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2}
MOMENT = {"type": "long", "logicalType": "timestamp-millis"}
COLOUR = {"type": "enum", "name": "C", "symbols": ["RED", "GREEN"]}
CRC = {"type": "fixed", "name": "F", "size": 2}


def is_left_out(file: LeftOutFile) -> list[bool]:
    """After everything came back as it was sent."""
    return [each is not None for each in file.schema_ids()]


@pytest.mark.parametrize(
    ("kind", "body", "wanted"),
    [
        ("boolean", b"\x01", True),
        ("boolean", b"\x02", False),
        ("int", b"\x01", True),
        ("int", b"\xff\xff\xff\xff\x0f", True),
        pytest.param("int", b"\x81\x00", False, id="a varint longer than it has to be"),
        ("long", b"\xff" * 9 + b"\x01", True),
        ("long", b"\x80\x80\x80\x80\x10", True),
        ("float", struct.pack("<f", -0.0), True),
        ("float", struct.pack("<I", 0x7F800001), True),
        ("double", struct.pack("<d", -0.0), True),
        pytest.param("double", struct.pack("<Q", 0xFFF0000000000ABC), True, id="a NaN that signals, with a payload"),
        ("string", b"\x04\xc3\xb6", True),
        pytest.param("string", b"\x02\xff", False, id="no UTF-8"),
        pytest.param("string", b"\x82\x00a", False, id="a length longer than it has to be"),
        ("string", b"\x00", True),
        ("bytes", b"\x04\xff\x00", True),
        (CRC, b"ab", True),
        (COLOUR, b"\x02", True),
        (COLOUR, b"\x04", False),
        (PRICE, b"\x02\x80", True),
        (PRICE, b"\x04\xff\x7f", True),
        pytest.param(PRICE, b"\x04\xff\x80", False, id="a decimal of more bytes than it needs"),
        pytest.param(PRICE, b"\x00", False, id="a decimal of none"),
        pytest.param(PRICE, b"\x12\x01" + bytes(8), False, id="a decimal of nine bytes"),
        (MOMENT, b"\x02", True),
        pytest.param(MOMENT, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", False, id="a time beyond microseconds"),
        pytest.param("int", b"\x02\x00", False, id="bytes behind the record"),
        pytest.param("int", b"", False, id="no bytes"),
    ],
)
def test_a_value_is_left_out_if_it_is_the_shortest_that_its_schema_has(
    kind: object, body: bytes, *, wanted: bool
) -> None:
    for schema, sent in (
        (record("R", ("f", kind)), body),
        (record("R", ("f", ["null", kind])), b"\x02" + body),
        (record("R", ("f", [kind, "null"])), b"\x00" + body),
    ):
        values = [framed(7, sent), None, b"", framed(7, sent)]
        file = made_file(values, {7: schema})
        assert file.values() == values
        assert file.schema_ids() == ([7, None, None, 7] if wanted else [None] * 4)
        assert file.kept() == ([None, None, b"", None] if wanted else values)
        assert file.file.counts.nulls_of(FieldId.VALUE) == (3 if wanted else 1)


def test_nulls_of_unions_come_back_in_either_order() -> None:
    values = [framed(1, body) for body in (b"\x00\x02", b"\x02\x06\x00\x02a", b"\x00\x00\x00", b"\x02\x00\x02")]
    file = made_file(values, {1: OPTIONAL})
    assert file.values() == values
    assert is_left_out(file) == [True] * 4
    assert file.table()["value_a"].to_pylist() == [None, 3, None, 0]


def test_a_branch_that_the_union_does_not_have_keeps_the_bytes() -> None:
    values = [framed(1, b"\x04\x02"), framed(1, b"\x80\x00\x02"), framed(1, b"\x00\x02")]
    file = made_file(values, {1: OPTIONAL})
    assert file.values() == values
    assert is_left_out(file) == [False, False, True]


NAN, HALF = struct.pack("<f", float("nan")), struct.pack("<f", 0.5)


def test_a_float_in_a_column_of_doubles_is_left_out_unless_it_is_no_number() -> None:
    schemas = {1: record("R", ("f", "float")), 2: record("R", ("f", "double"))}
    values = [framed(1, NAN), framed(1, HALF), framed(2, struct.pack("<d", float("nan"))), framed(2, bytes(8))]
    file = made_file(values, schemas)
    assert str(file.table().schema.field("value_f").type) == "double"
    assert file.values() == values
    assert file.schema_ids() == [None, 1, 2, 2]


def test_an_int_in_a_column_of_longs_comes_back() -> None:
    schemas = {1: record("R", ("a", "int"), ("b", "string")), 2: record("R", ("b", "string"), ("a", "long"))}
    values = [framed(1, b"\x03\x02x"), framed(2, b"\x02y\x80\x80\x80\x80\x80\x01"), framed(1, b"\x04\x00")]
    file = made_file(values, schemas)
    assert file.values() == values
    assert file.schema_ids() == [1, 2, 1]


def test_what_is_no_flat_record_keeps_its_bytes() -> None:
    nested = record("R", ("l", {"type": "array", "items": "int"}))
    schemas: dict[int, Any] = {1: OPTIONAL, 2: nested, 3: "string", 4: record("E")}
    values = [framed(2, b"\x00"), framed(3, b"\x02a"), framed(4, b""), framed(1, b"\x00\x02"), framed(9, b"\x00")]
    file = made_file(values, schemas)
    assert file.values() == values
    assert file.schema_ids() == [None, None, None, 1, None]


def test_a_file_without_flat_records_is_as_ever() -> None:
    file = made_file([b"x", None], {1: OPTIONAL})
    assert file.planned.plans is None
    assert not file.planned.columns.has_schema_id
    assert "value" in file.table().column_names
    assert file.values() == [b"x", None]


def test_ids_that_a_column_of_ints_cannot_hold_keep_their_bytes() -> None:
    values = [framed(2**31, b"\x00\x02"), framed(2**31 - 1, b"\x00\x02")]
    file = made_file(values, {2**31: OPTIONAL, 2**31 - 1: OPTIONAL})
    assert file.schema_ids() == [None, 2**31 - 1]
    assert file.values() == values


def test_schemas_beyond_what_a_footer_takes_keep_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_elision, "VALUE_PLANS_BYTES_MAX", 150)
    values = [framed(schema_id, b"\x00\x02") for schema_id in (1, 2)]
    file = made_file(values, {1: OPTIONAL, 2: OPTIONAL})
    assert file.schema_ids() == [1, None]
    assert file.values() == values


def test_values_are_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat_avro_writer, "TYPED_CELLS_WRITTEN_AT_ONCE", 4)
    values = [framed(1 + number % 2, b"\x02" + bytes([2 * number]) + b"\x00\x02a") for number in range(11)]
    values[4] = b"other"
    file = made_file(values, {1: OPTIONAL, 2: OPTIONAL})
    assert file.values() == values
    assert is_left_out(file) == [True] * 4 + [False] + [True] * 6


def test_plans_come_back_of_their_text() -> None:
    file = made_file([framed(1, b"\x00\x02")], {1: record("R", ("a", ["null", "long"]), ("c", COLOUR))})
    assert file.planned.plans is not None
    text = encode_plans(file.planned.plans)
    assert text == file.footer.metadata["penstock.value-plans"]
    assert decode_plans(text) == file.planned.plans
    assert file.footer.value_decoder == PlannedValueDecoder(plans=file.planned.plans)
    with pytest.raises(ValueError, match="version 2"):
        decode_plans(text.replace('"version":1', '"version":2'))
