"""Columns of Protobuf messages, and their values."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from iceberg_export.typed.columns import iceberg_fields
from iceberg_export.typed.framing import WriterSchema
from iceberg_export.typed.protobuf_shapes import ProtobufFiles
from iceberg_export.typed.shapes import SchemaUnusable
from tests.support.lake.typed_records import decoded_rows, framed, merged, protobuf_files

TEXT = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Order {
  int64 id = 1;
  optional string note = 2;
  google.protobuf.Timestamp at = 3;
  google.protobuf.Int32Value rating = 4;
  oneof how { string card = 5; uint64 voucher = 6; }
  enum State { NEW = 0; PAID = 1; }
  State state = 7;
  repeated Line lines = 8;
  map<string, Line> by_name = 9;
  Order first = 10;
  google.protobuf.Struct extra = 11;
  map<int32, State> states = 12;
  message Line { uint32 count = 1; bytes code = 2; }
}
message Other { float f = 1; }
"""


def decode(data: bytes, indexes: bytes, path: tuple[int, ...]) -> dict[str, Any]:
    reader = protobuf_files(TEXT).reader(path)
    columns = merged(reader.shape).value
    (row,) = decoded_rows(columns, {WriterSchema(schema_id=7, indexes=path): reader}, [framed(7, indexes + data)])
    return row


def test_types_are_those_of_the_table() -> None:
    fields = iceberg_fields(merged(protobuf_files(TEXT).reader((0,)).shape).value)
    types = {str(each["name"]).removeprefix("value_"): each["type"] for each in fields}
    assert {name: kind for name, kind in types.items() if isinstance(kind, str)} == {
        "id": "long",
        "note": "string",
        "at": "timestamptz",
        "rating": "int",
        "card": "string",
        "voucher": "decimal(20, 0)",
        "state": "string",
        "first": "string",
        "extra": "string",
    }
    assert set(types) - {name for name, kind in types.items() if isinstance(kind, str)} == {
        "lines",
        "by_name",
        "states",
    }


def test_values_are_what_was_written() -> None:
    message: Any = protobuf_files(TEXT).reader((0,)).read(b"")
    message.id = 5
    message.at.FromDatetime(datetime(2024, 5, 6, tzinfo=UTC))
    message.rating.value = 0
    message.voucher = 2**64 - 1
    message.state = 1
    message.lines.add(count=2**32 - 1, code=b"\xff")
    message.by_name["x"].count = 1
    message.first.id = 6
    message.extra["k"] = [1, None]
    message.states[3] = 9
    assert decode(message.SerializeToString(), b"\0", (0,)) == {
        "value_id": 5,
        "value_at": datetime(2024, 5, 6, tzinfo=UTC),
        "value_rating": 0,
        "value_voucher": Decimal(2**64 - 1),
        "value_state": "PAID",
        "value_lines": [{"count": 2**32 - 1, "code": b"\xff"}],
        "value_by_name": [("x", {"count": 1, "code": b""})],
        "value_first": '{"id":"6"}',
        "value_extra": '{"k":[1.0,null]}',
        "value_states": [(3, "9")],
    }


def test_fields_without_presence_have_their_default_and_others_none() -> None:
    row = decode(b"", b"\0", (0,))
    assert row == {"value_id": 0, "value_state": "NEW", "value_lines": [], "value_by_name": [], "value_states": []}


def test_indexes_lead_to_other_messages() -> None:
    assert decode(b"\x0d\0\0\x80\x3f", b"\x02\x02", (1,)) == {"value_f": 1.0}
    assert decode(b"\x08\x05", b"\x04\x00\x04", (0, 2)) == {"value_count": 5, "value_code": b""}


@pytest.mark.parametrize("path", [(2,), (0, 3), (-1,), (1, 0)])
def test_a_message_that_is_not_there_cannot_be_used(path: tuple[int, ...]) -> None:
    with pytest.raises(SchemaUnusable, match="no message with the index"):
        protobuf_files(TEXT).reader(path)


def test_bytes_that_are_no_message_are_an_error() -> None:
    row = decode(b"\x08", b"\0", (0,))
    assert list(row) == ["error"]
    assert row["error"].startswith("schema 7: DecodeError")
    assert list(decode(b"", b"", (0,))) == ["error"]
    assert list(decode(b"", b"\x06\x00", (0,))) == ["error"]
    assert list(decode(b"", b"\x01", (0,))) == ["error"]


def test_files_that_are_no_descriptors_cannot_be_used() -> None:
    with pytest.raises(SchemaUnusable, match="cannot be used"):
        ProtobufFiles([], b"\xff")


def test_imports_are_found_among_the_references() -> None:
    text = 'syntax = "proto3"; import "a.proto"; message M { A a = 1; }'
    reader = protobuf_files(text, a='syntax = "proto3"; message A { sint32 n = 1; }').reader((0,))
    columns = merged(reader.shape).value
    readers = {WriterSchema(schema_id=1, indexes=(0,)): reader}
    assert decoded_rows(columns, readers, [framed(1, b"\0\x0a\x02\x08\x03")]) == [{"value_a": {"n": -2}}]
