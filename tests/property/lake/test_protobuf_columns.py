"""Columns of Protobuf messages: the kernel gives what the library does, whatever the bytes are."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_export.typed.framing import WriterSchema
from iceberg_export.typed.protobuf_shapes import ProtobufReader
from tests.support.lake.typed_records import decoded, framed, merged, protobuf_files

SCALARS = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
enum Carrier { UA = 0; AA = 1; DL = -3; }
message Flight {
  double double = 12; float float = 2; int64 int64 = 3; uint64 uint64 = 4; int32 int32 = 5; fixed64 fixed64 = 6;
  fixed32 fixed32 = 7; bool bool = 8; string string = 9; bytes bytes = 10; uint32 uint32 = 11; Carrier enum = 1;
  sfixed32 sfixed32 = 13; sfixed64 sfixed64 = 14; sint32 sint32 = 15; sint64 sint64 = 16;
  optional int32 maybe_int32 = 17; optional string maybe_string = 18; optional Carrier maybe_enum = 19;
  google.protobuf.Timestamp time = 536870911;
}
"""
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
UINT32, UINT64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "double": st.floats(allow_nan=False),
    "float": st.floats(allow_nan=False, width=32),
    "int64": INT64,
    "uint64": UINT64,
    "int32": INT32,
    "fixed64": UINT64,
    "fixed32": UINT32,
    "bool": st.booleans(),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
    "uint32": UINT32,
    "enum": st.sampled_from([0, 1, -3, 7]),
    "sfixed32": INT32,
    "sfixed64": INT64,
    "sint32": INT32,
    "sint64": INT64,
    "maybe_int32": INT32,
    "maybe_string": st.text(max_size=5),
    "maybe_enum": st.sampled_from([0, 1, 5]),
    "time": st.fixed_dictionaries({"seconds": st.integers(-(2**40), 2**40), "nanos": st.integers(0, 999_999_999)}),
}
UNKNOWN = st.sampled_from(
    [
        b"\xa0\x06\x01",
        b"\xa2\x06\x02ab",
        b"\xa5\x06abcd",
        b"\xa1\x06abcdefgh",
        b"\xa3\x06\xa4\x06",
        b"\x00\x01",
        b"\x80\x01",
    ]
)
"""Fields that the schema lacks, of each wire type, and one without a number."""


@pytest.fixture(scope="module")
def reader() -> ProtobufReader:
    return protobuf_files(SCALARS).reader((0,))


@st.composite
def rows(draw: st.DrawFn) -> list[tuple[dict[str, Any], str, bytes]]:
    """Fields of messages, what happens to the bytes of each, and bytes for it."""
    one = st.tuples(
        st.fixed_dictionaries({}, optional=FIELDS),
        st.sampled_from(("whole", "whole", "cut", "longer", "changed", "twice")),
        st.one_of(UNKNOWN, st.binary(min_size=1, max_size=12)),
    )
    return draw(st.lists(one, max_size=6))


def damaged(data: bytes, how: str, more: bytes) -> bytes:
    match how:
        case "cut":
            return data[: more[0] % (len(data) + 1)]
        case "longer":
            return data + more
        case "changed" if data:
            place = more[0] % len(data)
            return data[:place] + more[-1:] + data[place + 1 :]
        case "twice":
            return data + data
        case _:
            return data


@given(made=rows())
def test_the_kernel_gives_what_the_library_does(made: list[tuple[dict[str, Any], str, bytes]], reader: Any) -> None:  # noqa: ANN401
    new = type(reader.read(b""))
    sent = [framed(1, b"\0" + damaged(new(**fields).SerializeToString(), how, more)) for fields, how, more in made]
    columns = merged(reader.shape).value
    slow = protobuf_files(SCALARS).reader((0,))
    slow.fast = None
    by_kernel, by_library = (
        decoded(columns, {WriterSchema(schema_id=1, indexes=(0,)): each}, sent) for each in (reader, slow)
    )
    assert by_kernel.errors == by_library.errors
    for one, other in zip(by_kernel.arrays, by_library.arrays, strict=True):
        one.validate(full=True)
        assert one.type == other.type
        assert shown(one) == shown(other)


def shown(array: Any) -> list[str]:  # noqa: ANN401
    """The values as texts, by which one NaN is like another; times as numbers, for Python has no years beyond 9999."""
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    return [repr(each) for each in array.to_pylist()]
