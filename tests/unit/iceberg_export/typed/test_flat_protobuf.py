"""Protobuf messages that the kernel reads, and those that it leaves to the library."""

from typing import Any

import numpy as np
import pytest

from iceberg_export.typed.flat_protobuf import FlatProtobuf
from tests.support.lake.typed_records import merged, protobuf_files

FLIGHT = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
enum Carrier { UA = 0; AA = 1; }
message Flight {
  string tail = 2; int64 id = 1; optional int32 delay = 4; Carrier carrier = 3; google.protobuf.Timestamp time = 5;
}
"""


def read(text: str, rows: list[bytes]) -> tuple[list[dict[str, Any]], list[int]]:
    """What the kernel alone makes of messages, and which of them it has read."""
    reader = protobuf_files(text).reader((0,))
    assert isinstance(reader.fast, FlatProtobuf)
    columns = merged(reader.shape).value
    ends = np.cumsum([0, *map(len, rows)])
    data = np.frombuffer(b"".join(rows), dtype=np.uint8)
    arrays, good = reader.fast.read(data, ends[:-1].copy(), ends[1:].copy(), columns)
    for array in arrays:
        array.validate(full=True)
    names = [column.name.removeprefix("value_") for column in columns]
    found = zip(*(array.to_pylist() for array in arrays), strict=True)
    return [dict(zip(names, row, strict=True)) for row in found], good.tolist()


def messages(text: str, *fields: dict[str, Any]) -> list[bytes]:
    new: Any = type(protobuf_files(text).reader((0,)).read(b""))
    return [new(**each).SerializeToString() for each in fields]


def test_the_kernel_reads_all_of_it() -> None:
    rows = messages(
        FLIGHT,
        {"id": -5, "tail": "Zürich", "delay": 0, "carrier": 1, "time": {"seconds": 1, "nanos": 2_500}},
        {},
        {"id": 2**62, "delay": -7, "carrier": 9, "time": {"seconds": -1, "nanos": 1}},
    )
    made, good = read(FLIGHT, rows)
    assert good == [0, 1, 2]
    times = [row.pop("time") for row in made]
    assert made == [
        {"tail": "Zürich", "id": -5, "delay": 0, "carrier": "AA"},
        {"tail": "", "id": 0, "delay": None, "carrier": "UA"},
        {"tail": "", "id": 2**62, "delay": -7, "carrier": "9"},
    ]
    assert [None if time is None else round(time.timestamp() * 1e6) for time in times] == [1_000_002, None, -1_000_000]


def test_of_a_field_that_comes_twice_the_last_value_counts_and_unknown_fields_are_passed_over() -> None:
    first, second = messages(FLIGHT, {"id": 1, "tail": "a", "delay": 9}, {"id": 2, "delay": 3})
    unknown = b"\xa0\x06\x01" + b"\xa2\x06\x02ab" + b"\xa5\x06abcd" + b"\xa1\x06abcdefgh"
    made, good = read(FLIGHT, [first + unknown + second])
    assert good == [0]
    assert (made[0]["id"], made[0]["tail"], made[0]["delay"]) == (2, "a", 3)


@pytest.mark.parametrize(
    "row",
    [
        b"\x08",  # cut off
        b"\x12\x05ab",  # a string longer than the message
        b"\x0a\x01\x01",  # a number as bytes
        b"\x0b\x0c",  # a group
        b"\x00\x01",  # no number
        b"\x88\x80\x80\x80\x80\x00\x01",  # a tag of six bytes
        b"\x08" + b"\xff" * 10 + b"\x01",  # more than 64 bits
        b"\x12\x01\xff\x12\x02ok",  # two strings, of which the library checks both
        b"\x2a\x02\x08\x01" * 2,  # two timestamps, which are one
        b"\x2a\x02\x18\x01",  # a timestamp with a field that it lacks
    ],
)
def test_what_it_is_not_sure_of_is_left_to_the_library(row: bytes) -> None:
    (whole,) = messages(FLIGHT, {"id": 1})
    assert read(FLIGHT, [whole, row, whole])[1] == [0, 2]


@pytest.mark.parametrize(
    "text",
    [
        'syntax = "proto3"; message M { repeated int32 n = 1; }',
        'syntax = "proto3"; message M { message N { int32 n = 1; } N n = 1; }',
        'syntax = "proto3"; message M { map<string, int32> n = 1; }',
        'syntax = "proto3"; message M { oneof o { int32 a = 1; string b = 2; } }',
        'syntax = "proto2"; message M { required int32 n = 1; }',
        'syntax = "proto2"; message M { optional int32 n = 1; extensions 100 to 200; }',
        'syntax = "proto2"; message M { enum E { A = 0; } optional E e = 1; }',
    ],
)
def test_a_message_with_other_fields_is_left_to_the_library(text: str) -> None:
    assert protobuf_files(text).reader((0,)).fast is None
