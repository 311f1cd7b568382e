"""Decodes flat Avro records with a compiled kernel that frees the GIL.

The kernel reads and writes only inside its arrays. It marks a record that it is not sure of, without a reason. The
import reads the kernel, or compiles it (`protocol.kernel_cache`). All numbers are int64, because numba makes a float of
an operation on int64 and uint64.
Specification: Apache Avro 1.12, "Binary Encoding".
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


class ReadOp(IntEnum):
    """The operation that reads a value."""

    BOOLEAN = 0
    FLOAT = 1
    DOUBLE = 2
    FIXED = 3
    LONG = 4
    INT = 5
    ENUM = 6
    BYTES = 7
    DECIMAL = 8
    """At most eight bytes that are a number."""


_BOOLEAN, _FLOAT, _DOUBLE, _FIXED = int(ReadOp.BOOLEAN), int(ReadOp.FLOAT), int(ReadOp.DOUBLE), int(ReadOp.FIXED)
_INT, _ENUM, _BYTES, _DECIMAL = int(ReadOp.INT), int(ReadOp.ENUM), int(ReadOp.BYTES), int(ReadOp.DECIMAL)
_NONE = -1
"""Replaces a position where there is no value, or where the kernel is not sure of it."""


@njit(nogil=True, inline="always")
def _varint(data: Numbers, position: int, stop: int) -> tuple[int, int]:
    """A zigzag number, and the position after it; `_NONE` where it is cut off, or larger than 64 bits."""
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
            return ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1), position


@njit(nogil=True, inline="always")
def _little_endian(data: Numbers, position: int, size: int) -> int:
    """The unsigned number of at most eight bytes."""
    bits = 0
    for index in range(size):
        bits |= data[position + index] << (8 * index)
    return bits


@njit(nogil=True, inline="always")
def _big_endian(data: Numbers, position: int, size: int) -> int:
    """The two's complement number of at most eight bytes."""
    value = 0
    if size > 0 and data[position] >= 0x80:
        value = -1
    for index in range(size):
        value = (value << 8) | data[position + index]
    return value


@njit(nogil=True, inline="always")
def _value(data: Numbers, position: int, stop: int, op: int, size: int) -> tuple[int, int, int]:
    """Number or position, length, and end of a value that is not null; the end is `_NONE` where it is invalid."""
    if op <= _FIXED:
        width = size
        if op == _BOOLEAN:
            width = 1
        elif op == _FLOAT:
            width = 4
        elif op == _DOUBLE:
            width = 8
        end = position + width
        if end > stop or (op == _BOOLEAN and data[position] > 1):
            return 0, 0, _NONE
        if op == _FIXED:
            return position, width, end
        return _little_endian(data, position, width), 0, end
    number, end = _varint(data, position, stop)
    if end < 0 or (op == _INT and (number < -(2**31) or number >= 2**31)):
        return 0, 0, _NONE
    if op == _ENUM and (number < 0 or number >= size):
        return 0, 0, _NONE
    if op < _BYTES:
        return number, 0, end
    if number < 0 or number > stop - end or (op == _DECIMAL and number > 8):
        return 0, 0, _NONE
    if op == _BYTES:
        return end, number, end + number
    return _big_endian(data, end, number), 0, end + number


def _read_rows(
    data: Numbers,
    first: Numbers,
    end: Numbers,
    program: Table,
    numbers: Table,
    lengths: Table,
    nulls: Table,
    bad: Numbers,
) -> None:
    """Fill the tables. `bad`: set for rows that the slow reader has to read."""
    for row in range(len(first)):
        position, stop = first[row], end[row]
        for field in range(program.shape[0]):
            null = program[field, 1]
            if null >= 0:
                if position >= stop or (data[position] != 0 and data[position] != 2):
                    position = _NONE
                    break
                position += 1
                if (data[position - 1] >> 1) == null:
                    nulls[field, row] = True
                    continue
            number, length, position = _value(data, position, stop, program[field, 0], program[field, 2])
            if position < 0:
                break
            numbers[field, row] = number
            lengths[field, row] = length
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
read_rows: Callable[..., None] = kernel(*_ARGUMENTS)(_read_rows)
