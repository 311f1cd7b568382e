"""Encodes flat Avro records with compiled kernels that free the GIL: the inverse of `avro_kernels`.

Each value has one encoding here, the shortest. Records are compared with the producer's bytes, so a record with another
encoding is never left out. A record that cannot be encoded is marked. The kernels read and write only inside their
arrays. The import reads the kernels, or compiles them (`protocol.kernel_cache`).
Specification: Apache Avro 1.12, "Binary Encoding"; the frame is `framing`'s.
"""

from collections.abc import MutableSequence
from typing import Any

from numba import njit, types

from iceberg_export.typed.framing import FRAME_BYTES
from iceberg_export.typed.value_plans import ReadOp
from protocol.kernel_cache import kernel
from protocol.records.copy_kernel import copy_bytes

Numbers = MutableSequence[int]
Table = Any
"""A two-dimensional array: fields, rows."""
_BOOLEAN, _FLOAT, _DOUBLE, _FIXED = int(ReadOp.BOOLEAN), int(ReadOp.FLOAT), int(ReadOp.DOUBLE), int(ReadOp.FIXED)
_INT, _ENUM, _BYTES, _DECIMAL = int(ReadOp.INT), int(ReadOp.ENUM), int(ReadOp.BYTES), int(ReadOp.DECIMAL)
_FRAME = FRAME_BYTES


@njit(nogil=True, inline="always")
def _zigzag(number: int) -> int:
    return (number << 1) ^ (number >> 63)


@njit(nogil=True, inline="always")
def _varint_size(number: int) -> int:
    bits, size = _zigzag(number), 1
    while bits < 0 or bits > 0x7F:
        bits = (bits >> 7) & 0x01FFFFFFFFFFFFFF
        size += 1
    return size


@njit(nogil=True, inline="always")
def _write_varint(out: Numbers, position: int, number: int) -> int:
    bits = _zigzag(number)
    while bits < 0 or bits > 0x7F:
        out[position] = (bits & 0x7F) | 0x80
        bits = (bits >> 7) & 0x01FFFFFFFFFFFFFF
        position += 1
    out[position] = bits
    return position + 1


@njit(nogil=True, inline="always")
def _big_endian_size(number: int) -> int:
    """The count of bytes of the shortest two's complement encoding."""
    bits, size = number, 1
    while bits < -128 or bits > 127:
        bits >>= 8
        size += 1
    return size


@njit(nogil=True, inline="always")
def _size(op: int, number: int, length: int) -> int:
    """The count of bytes of a value that is not null."""
    if op == _BOOLEAN:
        return 1
    if op == _FLOAT:
        return 4
    if op == _DOUBLE:
        return 8
    if op == _FIXED:
        return length
    if op == _BYTES:
        return _varint_size(length) + length
    if op == _DECIMAL:
        return 1 + _big_endian_size(number)
    return _varint_size(number)


@njit(nogil=True, inline="always")
def _is_bad(op: int, size: int, number: int, length: int) -> bool:
    if op == _FIXED:
        return length != size
    if op == _ENUM:
        return number < 0 or number >= size
    return op == _INT and (number < -(2**31) or number >= 2**31)


def _measure_rows(program: Table, numbers: Table, lengths: Table, nulls: Table, bad: Numbers, sizes: Numbers) -> None:
    """Compute each row's bytes in `sizes`, with its frame. A row that cannot be encoded gets `bad`, and the size 0."""
    rows = len(sizes)
    for row in range(rows):
        sizes[row] = _FRAME
    for field in range(program.shape[0]):
        op, null, size = program[field, 0], program[field, 1], program[field, 2]
        for row in range(rows):
            if null >= 0:
                sizes[row] += 1
            if nulls[field, row]:
                if null < 0:
                    bad[row] = True
            elif _is_bad(op, size, numbers[field, row], lengths[field, row]):
                bad[row] = True
            else:
                sizes[row] += _size(op, numbers[field, row], lengths[field, row])
    for row in range(rows):
        if bad[row]:
            sizes[row] = 0


@njit(nogil=True, inline="always")
def _write_value(out: Numbers, position: int, texts: Numbers, op: int, number: int, length: int) -> int:
    """Write a value; returns the position after it."""
    if op == _BOOLEAN:
        out[position] = number
        return position + 1
    if op < _FIXED:
        size = 4 if op == _FLOAT else 8
        for index in range(size):
            out[position + index] = (number >> (8 * index)) & 0xFF
        return position + size
    if op == _BYTES:
        position = _write_varint(out, position, length)
    if op in (_BYTES, _FIXED):
        copy_bytes(out, position, texts, number, length)
        return position + length
    if op == _DECIMAL:
        size = _big_endian_size(number)
        position = _write_varint(out, position, size)
        for index in range(size):
            out[position + index] = (number >> (8 * (size - 1 - index))) & 0xFF
        return position + size
    return _write_varint(out, position, number)


def _write_rows(
    schema_id: int,
    program: Table,
    numbers: Table,
    lengths: Table,
    nulls: Table,
    bad: Numbers,
    texts: Numbers,
    first: Numbers,
    out: Numbers,
) -> None:
    """Write each row that is not bad from its position in `first`, which follows from `_measure_rows`."""
    for row in range(len(bad)):
        if bad[row]:
            continue
        position = first[row]
        out[position] = 0
        for index in range(4):
            out[position + 1 + index] = (schema_id >> (8 * (3 - index))) & 0xFF
        position += _FRAME
        for field in range(program.shape[0]):
            null = program[field, 1]
            is_null = nulls[field, row]
            if null >= 0:
                out[position] = 2 * null if is_null else 2 * (1 - null)
                position += 1
            if not is_null:
                number, length = numbers[field, row], lengths[field, row]
                position = _write_value(out, position, texts, program[field, 0], number, length)


def _compare_rows(
    out: Numbers, out_ends: Numbers, data: Numbers, first: Numbers, end: Numbers, is_same: Numbers
) -> None:
    """Set `is_same[i]` where row i of `out`, up to `out_ends[i + 1]`, equals `data[first[i]:end[i]]`."""
    for row in range(len(first)):
        begin, size = out_ends[row], out_ends[row + 1] - out_ends[row]
        if size != end[row] - first[row]:
            is_same[row] = False
            continue
        differing = 0
        for index in range(size):
            differing |= out[begin + index] ^ data[first[row] + index]
        is_same[row] = differing == 0


_BOOLEANS = types.Array(types.boolean, 1, "C")
_TABLES = (
    types.Array(types.int64, 2, "C"),
    types.Array(types.int64, 2, "C"),
    types.Array(types.int32, 2, "C"),
    types.Array(types.boolean, 2, "C"),
    _BOOLEANS,
)
_BYTES_IN = types.Array(types.uint8, 1, "C", readonly=True)
_BYTES_OUT = types.Array(types.uint8, 1, "C")
_PLACES = types.Array(types.int64, 1, "C")

measure_rows = kernel(*_TABLES, _PLACES)(_measure_rows)
write_rows = kernel(types.int64, *_TABLES, _BYTES_IN, _PLACES, _BYTES_OUT)(_write_rows)
compare_rows = kernel(_BYTES_IN, _PLACES, _BYTES_IN, _PLACES, _PLACES, _BOOLEANS)(_compare_rows)
