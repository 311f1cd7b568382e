"""The primitive types of Kafka's messages, read from a memoryview and packed into bytes.

Rule: a reader takes (view, position) and gives (value, position after it). Nothing is believed that the bytes do not
hold: every length is checked against what remains before anything is allocated.
Specification: https://kafka.apache.org/protocol#protocol_types and KIP-482 for the compact forms and tagged fields.

Readers may also raise `struct.error`, `IndexError` or `UnicodeDecodeError` (see `UNREADABLE`) where the bytes end
early: the reader of a whole message turns these into `MalformedRequest`, once, instead of a check before each field.
"""

import struct
from typing import Final, TypeVar

from protocol.errors import MalformedRequest
from protocol.limits import ARRAY_LENGTH_MAX, TAGGED_FIELDS_MAX

Buffer = bytes | bytearray | memoryview
View = TypeVar("View", bytes, memoryview)
"""The bytes of a message. Slices of `bytes` are copies."""

UNREADABLE: Final = (struct.error, IndexError, UnicodeDecodeError)
"""Errors of reading beyond the end, or of text that is not UTF-8."""

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")

UNSIGNED_VARINT_BYTES_MAX: Final = 5
UUID_BYTES: Final = 16
NO_UUID: Final = bytes(UUID_BYTES)
"""Kafka's ZERO_UUID: no id."""


def read_unsigned_varint(view: bytes | memoryview, position: int) -> tuple[int, int]:
    """An unsigned LEB128 number of at most 5 bytes, below 2**31."""
    value = view[position]
    if value < 0x80:
        return value, position + 1
    byte = view[position + 1]
    if byte < 0x80:
        return value & 0x7F | byte << 7, position + 2
    value = value & 0x7F | (byte & 0x7F) << 7
    position += 2
    for shift in (14, 21, 28):
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        raise MalformedRequest(f"a varint is longer than {UNSIGNED_VARINT_BYTES_MAX} bytes at {position}")
    if value >= 1 << 31:
        raise MalformedRequest(f"a length of {value} is beyond an int32")
    return value, position


def read_length(view: memoryview, position: int, *, is_flexible: bool) -> tuple[int, int]:
    """The int32 or compact length of an array, bytes or records; -1 for null. It fits into what remains."""
    if is_flexible:
        length, position = read_unsigned_varint(view, position)
        length -= 1
    else:
        (length,) = INT32.unpack_from(view, position)
        position += 4
        if length < 0:
            length = -1
    if length > len(view) - position:
        raise MalformedRequest(f"a length of {length}, but {len(view) - position} bytes remain")
    return length, position


def read_array_length(view: memoryview, position: int, *, is_flexible: bool) -> tuple[int, int]:
    """The number of elements of an array that must not be null; every element takes at least one byte."""
    length, position = read_length(view, position, is_flexible=is_flexible)
    if length < 0:
        raise MalformedRequest("an array is null that must not be")
    if length > ARRAY_LENGTH_MAX:
        raise MalformedRequest(f"an array of {length} elements; at most {ARRAY_LENGTH_MAX} are read")
    return length, position


def read_bytes(view: memoryview, position: int, *, is_flexible: bool) -> tuple[memoryview | None, int]:
    """A slice of `view` (no copy), or None for null."""
    length, position = read_length(view, position, is_flexible=is_flexible)
    if length < 0:
        return None, position
    return view[position : position + length], position + length


def read_nullable_string(view: memoryview, position: int, *, is_flexible: bool) -> tuple[str | None, int]:
    """A text, or None for null.

    Differs from Kafka: bytes that are not UTF-8 are rejected, not replaced.
    """
    if is_flexible:
        length, position = read_unsigned_varint(view, position)
        length -= 1
    else:
        (length,) = INT16.unpack_from(view, position)
        position += 2
    if length < 0:
        return None, position
    end = position + length
    if end > len(view):
        raise MalformedRequest(f"a string of {length} bytes, but {len(view) - position} remain")
    return str(view[position:end], "utf-8"), end


def read_string(view: memoryview, position: int, *, is_flexible: bool) -> tuple[str, int]:
    """A text that must not be null."""
    text, position = read_nullable_string(view, position, is_flexible=is_flexible)
    if text is None:
        raise MalformedRequest("a string is null that must not be")
    return text, position


def read_uuid(view: memoryview, position: int) -> tuple[bytes, int]:
    """The 16 bytes of a UUID."""
    end = position + UUID_BYTES
    if end > len(view):
        raise MalformedRequest("the bytes end within a UUID")
    return bytes(view[position:end]), end


def read_topic(
    view: memoryview, position: int, *, has_id: bool, is_flexible: bool
) -> tuple[str | None, bytes | None, int, int]:
    """A topic up to its partitions: its name or its id, their number, and the position of the first (KIP-516)."""
    name = topic_id = None
    if has_id:
        topic_id, position = read_uuid(view, position)
    else:
        name, position = read_string(view, position, is_flexible=is_flexible)
    count, position = read_array_length(view, position, is_flexible=is_flexible)
    return name, topic_id, count, position


def read_tagged_fields(view: View, position: int, *, tags_end: int = 0) -> tuple[dict[int, View], int]:
    """The tagged fields with a tag below `tags_end`, as tag -> its bytes; others are stepped over (KIP-482)."""
    known: dict[int, View] = {}
    if view[position] == 0:
        return known, position + 1
    count, position = read_unsigned_varint(view, position)
    if count > TAGGED_FIELDS_MAX:
        raise MalformedRequest(f"{count} tagged fields; at most {TAGGED_FIELDS_MAX} are read")
    for _ in range(count):
        tag, position = read_unsigned_varint(view, position)
        field_bytes, position = read_unsigned_varint(view, position)
        end = position + field_bytes
        if end > len(view):
            raise MalformedRequest(f"tagged field {tag} of {field_bytes} bytes, but {len(view) - position} remain")
        if tag < tags_end:
            known[tag] = view[position:end]
        position = end
    return known, position


def pack_unsigned_varint(value: int) -> bytes:
    """`value` (0 to 2**31 - 1) as unsigned LEB128."""
    if value < 0x80:
        return value.to_bytes()
    packed = bytearray()
    while value >= 0x80:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    packed.append(value)
    return bytes(packed)


def pack_length(length: int, *, is_flexible: bool) -> bytes:
    """The length of an array, bytes or records; -1 for null."""
    return pack_unsigned_varint(length + 1) if is_flexible else INT32.pack(length)


def pack_string(text: str | None, *, is_flexible: bool) -> bytes:
    """A text of at most 32767 bytes of UTF-8, or null.

    Raises:
        struct.error: the text is longer (a bug: such text must not get this far).
    """
    if text is None:
        return b"\0" if is_flexible else b"\xff\xff"
    encoded = text.encode()
    if is_flexible:
        return pack_unsigned_varint(len(encoded) + 1) + encoded
    return INT16.pack(len(encoded)) + encoded


def pack_topic(name: str | None, topic_id: bytes | None, count: int, *, has_id: bool, is_flexible: bool) -> bytes:
    """A topic up to its partitions: its name or its id, and their number (KIP-516)."""
    if has_id:
        assert topic_id is not None
        return topic_id + pack_length(count, is_flexible=is_flexible)
    assert name is not None
    return pack_string(name, is_flexible=is_flexible) + pack_length(count, is_flexible=is_flexible)


def pack_tagged_fields(fields: list[tuple[int, bytes]]) -> bytes:
    """A section of tagged fields; `fields` in ascending order of their tags."""
    parts = [pack_unsigned_varint(len(fields))]
    for tag, value in fields:
        parts += (pack_unsigned_varint(tag), pack_unsigned_varint(len(value)), value)
    return b"".join(parts)
