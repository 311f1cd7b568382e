"""Decodes Protobuf messages whose fields are single scalars with a compiled kernel that frees the GIL.

The kernel reads and writes only inside its arrays. It marks a message that it is not sure of, without a reason: one
with a group, with a field of another wire type than the schema's, or with a number that has more bits than a column.
Fields that the schema lacks are passed over. Small functions of `avro_kernels` stand here again: numba's cache of a
kernel does not notice a change in another file. The import reads the kernel, or compiles it (`protocol.kernel_cache`).
Specification: Protocol Buffers, "Encoding".
"""

from collections.abc import Callable, MutableSequence
from enum import IntEnum
from typing import Any

from numba import njit, types

from protocol.kernel_cache import kernel

Numbers = MutableSequence[int]
"""The type of a numpy array in the source of kernels."""
Table = Any
"""A two-dimensional array: fields, rows."""


class WireType(IntEnum):
    """How a value is written."""

    VARINT = 0
    EIGHT = 1
    BYTES = 2
    FOUR = 5


class Meaning(IntEnum):
    """The meaning of a value's bits."""

    INT64 = 0
    INT32 = 1
    UINT64 = 2
    UINT32 = 3
    SINT64 = 4
    SINT32 = 5
    BOOLEAN = 6
    BITS = 7
    """The bits of a float or a double."""
    BYTES = 8
    TIMESTAMP = 9
    """A message google.protobuf.Timestamp, which becomes microseconds."""


class FieldColumn(IntEnum):
    """A column of the program: a row for each field, in the order of their numbers."""

    NUMBER = 0
    WIRE = 1
    MEANING = 2


_VARINT, _EIGHT, _LENGTH, _FOUR = int(WireType.VARINT), int(WireType.EIGHT), int(WireType.BYTES), int(WireType.FOUR)
_INT32, _UINT64, _UINT32 = int(Meaning.INT32), int(Meaning.UINT64), int(Meaning.UINT32)
_SINT64, _SINT32, _BOOLEAN = int(Meaning.SINT64), int(Meaning.SINT32), int(Meaning.BOOLEAN)
_BYTES, _TIMESTAMP = int(Meaning.BYTES), int(Meaning.TIMESTAMP)
_NUMBER, _WIRE, _MEANING = int(FieldColumn.NUMBER), int(FieldColumn.WIRE), int(FieldColumn.MEANING)
_NONE = -1
"""Replaces a position where there is no value, or where the kernel is not sure of it."""
_MICROSECONDS, _NANOSECONDS = 1_000_000, 1000
_SECONDS_END = 9_000_000_000_000
_INT32_BITS = 0xFFFFFFFF
_SHORT_BYTES = 5
"""The bytes of a tag or a length at most: libraries reject longer ones, whatever their number is."""


@njit(nogil=True, inline="always")
def _varint(data: Numbers, position: int, stop: int) -> tuple[int, int]:
    """The 64 bits of a number, and the position after it; `_NONE` where it is cut off, or has more bits."""
    raw, shift = 0, 0
    while True:
        if position >= stop:
            return 0, _NONE
        byte = data[position]
        position += 1
        if shift == 63 and byte > 1:
            return 0, _NONE
        raw |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return raw, position


@njit(nogil=True, inline="always")
def _little_endian(data: Numbers, position: int, size: int) -> int:
    bits = 0
    for index in range(size):
        bits |= data[position + index] << (8 * index)
    return bits


@njit(nogil=True, inline="always")
def _signed32(bits: int) -> int:
    bits &= _INT32_BITS
    return bits - (1 << 32) if bits >= (1 << 31) else bits


@njit(nogil=True, inline="always")
def _meant(bits: int, meaning: int) -> int:
    """The number of a varint, or of four or eight bytes."""
    if meaning == _INT32:
        return _signed32(bits)
    if meaning == _UINT32:
        return bits & _INT32_BITS
    if meaning == _SINT64:
        return ((bits >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(bits & 1)
    if meaning == _SINT32:
        bits &= _INT32_BITS
        return (bits >> 1) ^ -(bits & 1)
    if meaning == _BOOLEAN:
        return 1 if bits != 0 else 0
    return bits


@njit(nogil=True)
def _timestamp(data: Numbers, position: int, stop: int) -> tuple[int, bool]:
    """The microseconds of a timestamp, and whether it is one."""
    seconds, nanos = 0, 0
    while position < stop:
        tag = data[position]
        if tag != 8 and tag != 16:
            return 0, False
        bits, position = _varint(data, position + 1, stop)
        if position < 0:
            return 0, False
        if tag == 8:
            seconds = bits
        else:
            nanos = _signed32(bits)
    if seconds > _SECONDS_END or seconds < -_SECONDS_END:
        return 0, False
    return seconds * _MICROSECONDS + nanos // _NANOSECONDS, True


@njit(nogil=True, inline="always")
def _value(data: Numbers, position: int, stop: int, wire: int) -> tuple[int, int, int, int]:
    """Bits of a number, position and length of bytes, and the end of a value: `_NONE` where it is invalid."""
    if wire == _VARINT:
        bits, position = _varint(data, position, stop)
        return bits, 0, 0, position
    if wire == _LENGTH:
        length, value = _varint(data, position, stop)
        if value < 0 or value - position > _SHORT_BYTES or length < 0 or length > stop - value:
            return 0, 0, 0, _NONE
        return 0, value, length, value + length
    size = 8 if wire == _EIGHT else 4
    if (wire != _EIGHT and wire != _FOUR) or size > stop - position:
        return 0, 0, 0, _NONE
    return _little_endian(data, position, size), 0, 0, position + size


@njit(nogil=True, inline="always")
def _row_of(program: Table, number: int) -> int:
    """The row of a field, or of the next one where there is none of that number."""
    row, end = 0, program.shape[0]
    while row < end:
        middle = (row + end) // 2
        if program[middle, _NUMBER] < number:
            row = middle + 1
        else:
            end = middle
    return row


def _read_messages(  # noqa: C901 - one loop over the fields of a message
    data: Numbers,
    first: Numbers,
    end: Numbers,
    program: Table,
    numbers: Table,
    lengths: Table,
    absent: Table,
    bad: Numbers,
) -> None:
    """Fill the tables. `absent`: cleared for fields that the message has; `bad`: set for rows of the slow reader."""
    fields = program.shape[0]
    for row in range(len(first)):
        position, stop, place = first[row], end[row], 0
        while position >= 0 and position < stop:
            tag, after = _varint(data, position, stop)
            if after < 0 or after - position > _SHORT_BYTES:
                position = _NONE
                break
            position = after
            number, wire = tag >> 3, tag & 7
            bits, value, length, position = _value(data, position, stop, wire)
            if position < 0 or number <= 0 or number >= (1 << 29):
                position = _NONE
                break
            # Fields mostly come in the order of their numbers.
            if place >= fields or program[place, _NUMBER] != number:
                place = _row_of(program, number)
                if place == fields or program[place, _NUMBER] != number:
                    continue
            meaning = program[place, _MEANING]
            if program[place, _WIRE] != wire:
                position = _NONE
                break
            if meaning == _BYTES:
                if not absent[place, row]:  # the library checks the text of each of them
                    position = _NONE
                    break
                numbers[place, row], lengths[place, row] = value, length
            elif meaning == _TIMESTAMP:
                time, is_time = _timestamp(data, value, value + length)
                if not is_time or not absent[place, row]:  # two of them are merged
                    position = _NONE
                    break
                numbers[place, row] = time
            else:
                meant = _meant(bits, meaning)
                if meaning == _UINT64 and meant < 0:
                    position = _NONE
                    break
                numbers[place, row] = meant
            absent[place, row] = False
            place += 1
        bad[row] = position != stop


_ARGUMENTS = (
    types.Array(types.uint8, 1, "C", readonly=True),
    types.Array(types.int64, 1, "C"),
    types.Array(types.int64, 1, "C"),
    types.Array(types.int64, 2, "C"),
    types.Array(types.int64, 2, "C"),
    types.Array(types.int32, 2, "C"),
    types.Array(types.boolean, 2, "C"),
    types.Array(types.boolean, 1, "C"),
)
read_messages: Callable[..., None] = kernel(*_ARGUMENTS)(_read_messages)
