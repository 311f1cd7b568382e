"""Primitive types: literal bytes in, values out, and nothing believed that the bytes do not hold."""

import struct

import pytest

from protocol.errors import MalformedRequest
from protocol.limits import ARRAY_LENGTH_MAX, TAGGED_FIELDS_MAX
from protocol.wire import (
    pack_length,
    pack_string,
    pack_tagged_fields,
    pack_unsigned_varint,
    read_array_length,
    read_bytes,
    read_length,
    read_nullable_string,
    read_string,
    read_tagged_fields,
    read_unsigned_varint,
    read_uuid,
)

VARINTS = [
    (b"\x00", 0),
    (b"\x01", 1),
    (b"\x7f", 127),
    (b"\x80\x01", 128),
    (b"\xff\x7f", 16383),
    (b"\x80\x80\x01", 16384),
    (b"\xff\xff\xff\x7f", (1 << 28) - 1),
    (b"\xff\xff\xff\xff\x07", (1 << 31) - 1),
]


@pytest.mark.parametrize(("data", "value"), VARINTS)
def test_a_varint_is_read_and_packed(data: bytes, value: int) -> None:
    assert read_unsigned_varint(memoryview(b"x" + data + b"x"), 1) == (value, 1 + len(data))
    assert pack_unsigned_varint(value) == data


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\xff\x01", b"\x80\x80\x80\x80\x80", b"\x80\x80\x80\x80\x08"])
def test_a_varint_beyond_an_int32_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_unsigned_varint(memoryview(data), 0)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff"])
def test_a_varint_that_is_cut_off_is_beyond_the_end(data: bytes) -> None:
    with pytest.raises(IndexError):
        read_unsigned_varint(memoryview(data), 0)


@pytest.mark.parametrize(
    ("data", "is_flexible", "expected"),
    [
        (b"\x00\x00\x00\x02ab", False, (2, 4)),
        (b"\x00\x00\x00\x00", False, (0, 4)),
        (b"\xff\xff\xff\xff", False, (-1, 4)),
        (b"\x80\x00\x00\x00", False, (-1, 4)),
        (b"\x03ab", True, (2, 1)),
        (b"\x01", True, (0, 1)),
        (b"\x00", True, (-1, 1)),
    ],
)
def test_a_length_is_read_in_both_forms(data: bytes, is_flexible: bool, expected: tuple[int, int]) -> None:
    assert read_length(memoryview(data), 0, is_flexible=is_flexible) == expected
    if data != b"\x80\x00\x00\x00":
        assert pack_length(expected[0], is_flexible=is_flexible) == data[: expected[1]]


@pytest.mark.parametrize(("data", "is_flexible"), [(b"\x7f\xff\xff\xffab", False), (b"\x04ab", True)])
def test_a_length_beyond_what_remains_is_malformed(data: bytes, is_flexible: bool) -> None:
    with pytest.raises(MalformedRequest, match="2 bytes remain"):
        read_length(memoryview(data), 0, is_flexible=is_flexible)


def test_an_array_must_not_be_null() -> None:
    with pytest.raises(MalformedRequest, match="null"):
        read_array_length(memoryview(b"\x00"), 0, is_flexible=True)


def test_an_array_is_bounded_even_where_its_bytes_are_there() -> None:
    data = memoryview(struct.pack(">i", ARRAY_LENGTH_MAX + 1) + bytes(ARRAY_LENGTH_MAX + 1))
    with pytest.raises(MalformedRequest, match="1000001 elements"):
        read_array_length(data, 0, is_flexible=False)
    data = memoryview(struct.pack(">i", ARRAY_LENGTH_MAX) + bytes(ARRAY_LENGTH_MAX))
    assert read_array_length(data, 0, is_flexible=False) == (ARRAY_LENGTH_MAX, 4)


def test_bytes_are_a_slice_and_not_a_copy() -> None:
    source = bytearray(b"\x03ab")
    value, position = read_bytes(memoryview(source), 0, is_flexible=True)
    assert value is not None
    assert (bytes(value), position) == (b"ab", 3)
    source[1] = ord("x")
    assert bytes(value) == b"xb"
    assert read_bytes(memoryview(b"\xff\xff\xff\xff"), 0, is_flexible=False) == (None, 4)


@pytest.mark.parametrize(
    ("data", "is_flexible", "text"),
    [
        (b"\x00\x03\xc3\xa9t", False, "ét"),
        (b"\x00\x00", False, ""),
        (b"\xff\xff", False, None),
        (b"\x04\xc3\xa9t", True, "ét"),
        (b"\x01", True, ""),
        (b"\x00", True, None),
    ],
)
def test_a_string_is_read_and_packed(data: bytes, is_flexible: bool, text: str | None) -> None:
    assert read_nullable_string(memoryview(data), 0, is_flexible=is_flexible) == (text, len(data))
    assert pack_string(text, is_flexible=is_flexible) == data


def test_a_string_must_be_there_and_whole_and_utf_8() -> None:
    assert read_string(memoryview(b"\x03ab"), 0, is_flexible=True) == ("ab", 3)
    with pytest.raises(MalformedRequest, match="null"):
        read_string(memoryview(b"\x00"), 0, is_flexible=True)
    with pytest.raises(MalformedRequest, match="3 bytes, but 2 remain"):
        read_string(memoryview(b"\x00\x03ab"), 0, is_flexible=False)
    with pytest.raises(UnicodeDecodeError):
        read_string(memoryview(b"\x00\x02\xff\xfe"), 0, is_flexible=False)
    with pytest.raises(UnicodeDecodeError):  # a lone surrogate
        read_string(memoryview(b"\x00\x03\xed\xa0\x80"), 0, is_flexible=False)


def test_a_uuid_is_16_bytes() -> None:
    assert read_uuid(memoryview(b"x" + bytes(range(16))), 1) == (bytes(range(16)), 17)
    with pytest.raises(MalformedRequest, match="UUID"):
        read_uuid(memoryview(bytes(15)), 0)


def test_tagged_fields_are_kept_where_known_and_stepped_over_elsewhere() -> None:
    data = b"\x03\x00\x02ab\x01\x00\x89\x01\x01z" + b"rest"
    assert read_tagged_fields(memoryview(data), 0, tags_end=1) == ({0: memoryview(b"ab")}, len(data) - 4)
    assert read_tagged_fields(memoryview(data), 0) == ({}, len(data) - 4)
    assert read_tagged_fields(memoryview(b"\x00"), 0) == ({}, 1)


def test_tagged_fields_are_packed_in_the_order_given() -> None:
    assert pack_tagged_fields([(0, b"ab"), (137, b"")]) == b"\x02\x00\x02ab\x89\x01\x00"


def test_tagged_fields_are_bounded() -> None:
    with pytest.raises(MalformedRequest, match="129 tagged fields"):
        read_tagged_fields(memoryview(pack_unsigned_varint(TAGGED_FIELDS_MAX + 1) + bytes(999)), 0)
    with pytest.raises(MalformedRequest, match="5 bytes, but 2 remain"):
        read_tagged_fields(memoryview(b"\x01\x00\x05ab"), 0)
