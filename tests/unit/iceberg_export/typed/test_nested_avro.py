"""Nested Avro records that the kernel reads, and those that it leaves to the library."""

from typing import Any
from uuid import UUID

import numpy as np
import pytest

from iceberg_export.typed import nested_avro
from iceberg_export.typed.columns import Column
from iceberg_export.typed.framing import WriterSchema
from iceberg_export.typed.nested_avro import NestedAvro
from iceberg_export.typed.shapes import SchemaUnusable
from protocol.limits import TYPED_KEYS_COMPARED_MAX
from tests.support.lake.typed_records import avro_bytes, avro_reader, decoded_rows, framed, merged, record

STOP = record("Stop", ("airport", "string"), ("minutes", ["null", "int"]))
TRIP = record(
    "Trip",
    ("id", "long"),
    ("stops", {"type": "array", "items": STOP}),
    ("first", ["null", "Stop"]),
    ("codes", {"type": "map", "values": {"type": "array", "items": "long"}}),
    ("grid", {"type": "array", "items": {"type": "array", "items": "boolean"}}),
    ("carrier", {"type": "enum", "name": "Carrier", "symbols": ["UA", "AA"]}),
)
NAMES = record("Names", ("of", {"type": "map", "values": "int"}), ("last", "int"))
EWR: dict[str, Any] = {"airport": "EWR", "minutes": 5}
VALUES: list[dict[str, Any]] = [
    {"id": 1, "stops": [EWR], "first": EWR, "codes": {"a": [1, -2], "b": []}, "grid": [[True], []], "carrier": "UA"},
    {"id": 2, "stops": [], "first": None, "codes": {}, "grid": [], "carrier": "AA"},
    {
        "id": -(2**62),
        "stops": [{"airport": "", "minutes": None}, {"airport": "Zürich", "minutes": 0}, EWR],
        "first": {"airport": "LGA", "minutes": None},
        "codes": {"": [2**40]},
        "grid": [[], [False, True, True], [True]],
        "carrier": "AA",
    },
]


def read(schema: dict[str, Any], rows: list[bytes]) -> tuple[list[dict[str, Any]], list[int]]:
    """What the kernel alone makes of records, and which of them it has read."""
    reader = avro_reader(schema)
    assert isinstance(reader.fast, NestedAvro)
    columns: tuple[Column, ...] = merged(reader.shape).value
    ends = np.cumsum([0, *map(len, rows)])
    data = np.frombuffer(b"".join(rows), dtype=np.uint8)
    arrays, good = reader.fast.read(data, ends[:-1].copy(), ends[1:].copy(), columns)
    for array in arrays:
        array.validate(full=True)
    names = [column.name.removeprefix("value_") for column in columns]
    found = zip(*(array.to_pylist() for array in arrays), strict=True)
    return [dict(zip(names, row, strict=True)) for row in found], good.tolist()


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """As Arrow gives it: a map is a list of pairs."""
    return {name: list(value.items()) if name in {"codes", "of"} else value for name, value in row.items()}


def test_the_kernel_reads_all_of_it() -> None:
    made, good = read(TRIP, [avro_bytes(TRIP, value) for value in VALUES])
    assert good == [0, 1, 2]
    assert made == [plain(value) for value in VALUES]


def test_uuids_are_texts_or_bytes_and_another_form_is_left_to_the_library() -> None:
    text = {"type": "string", "logicalType": "uuid"}
    fixed = {"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}
    schema = record("R", ("text", ["null", text]), ("fixed", fixed))
    one = UUID("00112233-4455-6677-8899-AABBCCDDEEFF")
    rows = [b"\x02" + b"\x48" + form.encode() + one.bytes for form in (str(one), str(one).upper())]
    made, good = read(schema, [*rows, b"\x00" + one.bytes])
    assert good == [0, 1, 2]
    assert [(row["text"], row["fixed"]) for row in made] == [(one, one), (one, one), (None, one)]
    for form in (one.hex, f"{{{one}}}"[:36], str(one).replace("a", "g"), str(one)[:-2]):
        with pytest.raises(ValueError, match="a UUID has"):
            read(schema, [b"\x02" + bytes([2 * len(form)]) + form.encode() + one.bytes])


def test_a_row_that_is_cut_off_leaves_the_others_whole() -> None:
    whole = [avro_bytes(TRIP, value) for value in VALUES]
    for cut in range(len(whole[2])):
        made, good = read(TRIP, [whole[0], whole[2][:cut], whole[1]])
        assert good == [0, 2]
        assert made == [plain(VALUES[0]), plain(VALUES[1])]


def test_a_list_in_blocks_is_one_list() -> None:
    schema = record("R", ("n", {"type": "array", "items": "int"}), ("end", "int"))
    # Two items; one item, with the bytes of its block; the end.
    blocks = b"\x04\x02\x04" + b"\x01\x02\x06" + b"\x00"
    assert read(schema, [blocks + b"\x08"]) == ([{"n": [1, 2, 3], "end": 4}], [0])


@pytest.mark.parametrize("count", [b"\x06", b"\xfe\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"])
def test_a_block_that_promises_more_items_than_there_are_bytes_is_left_to_the_library(count: bytes) -> None:
    schema = record("R", ("n", {"type": "array", "items": "int"}))
    assert read(schema, [count + b"\x02\x00"]) == ([], [])


def test_of_a_key_that_comes_twice_the_library_has_its_say() -> None:
    twice = b"\x04" + b"\x02a\x02" + b"\x02a\x04" + b"\x00" + b"\x0a"
    once = avro_bytes(NAMES, {"of": {"a": 7, "b": 8}, "last": 9})
    assert read(NAMES, [once, twice, once]) == ([{"of": [("a", 7), ("b", 8)], "last": 9}] * 2, [0, 2])
    reader = avro_reader(NAMES)
    rows = decoded_rows(merged(reader.shape).value, {WriterSchema(schema_id=1): reader}, [framed(1, twice)])
    assert rows == [{"value_of": [("a", 2)], "value_last": 5}]


def test_a_map_with_very_many_keys_is_left_to_the_library() -> None:
    for count, good in ((TYPED_KEYS_COMPARED_MAX, [0]), (TYPED_KEYS_COMPARED_MAX + 1, [])):
        value = {"of": {str(number): number for number in range(count)}, "last": 0}
        assert read(NAMES, [avro_bytes(NAMES, value)])[1] == good


def test_values_that_take_too_much_memory_are_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested_avro, "TYPED_CELLS_MAX", 3)
    with pytest.raises(ValueError, match="1 records have 4 values"):
        read(record("R", ("n", {"type": "array", "items": "int"})), [avro_bytes_of_list(2)])


def avro_bytes_of_list(count: int) -> bytes:
    return avro_bytes(record("R", ("n", {"type": "array", "items": "int"})), {"n": list(range(count))})


@pytest.mark.parametrize(
    "kind",
    [
        ["null", "int", "string"],
        {"type": "array", "items": ["int", "string"]},
        {"type": "record", "name": "Empty", "fields": []},
        {"type": "record", "name": "Twice", "fields": [{"name": "n", "type": "int"}, {"name": "n", "type": "int"}]},
    ],
)
def test_a_schema_with_values_that_the_kernel_cannot_read_is_left_to_the_library(kind: object) -> None:
    schema = record("R", ("values", {"type": "map", "values": "int"}), ("other", kind))
    assert avro_reader(schema).fast is None


def test_types_named_as_avros_own_are_not_mistaken_for_them() -> None:
    inner = {"type": "record", "name": "map", "fields": [{"name": "n", "type": "int"}]}
    schema = record("R", ("one", inner), ("many", {"type": "map", "values": "int"}), ("again", "map"))
    reader = avro_reader(schema)
    assert reader.fast is None or read(schema, [b"\x02\x00\x04"])[1] == [0]


@pytest.mark.parametrize("size", [-1, "4", 2.0, 2**31])
def test_a_fixed_type_has_a_size(size: object) -> None:
    with pytest.raises(SchemaUnusable, match="the size of a fixed type"):
        avro_reader(record("R", ("f", {"type": "fixed", "name": "F", "size": size})))
