"""Decodes Avro records, flat and nested ones, with compiled kernels that free the GIL.

The kernels read and write only inside their arrays. They mark a record that they are not sure of, without a reason. The
import reads the kernels, or compiles them (`protocol.kernel_cache`). All numbers are int64, because numba makes a float
of an operation on int64 and uint64.
Specification: Apache Avro 1.12, "Binary Encoding".
"""

from collections.abc import Callable, MutableSequence
from enum import IntEnum
from typing import Any

import numpy as np
from numba import njit, types

from iceberg_export.typed.value_plans import ReadOp
from protocol.kernel_cache import kernel
from protocol.limits import TYPED_DEPTH_MAX, TYPED_KEYS_COMPARED_MAX

Numbers = MutableSequence[int]
"""The type of a numpy array in the source of kernels."""
Table = Any
"""A two-dimensional array: fields, rows."""


class NodeOp(IntEnum):
    """The operation of a value that holds others; the others' are `ReadOp`s."""

    STRUCT = 9
    LIST = 10
    MAP = 11


class NodeColumn(IntEnum):
    """A column of the program for nested records."""

    OP = 0
    NULL = 1
    """The union's branch that is null, or -1."""
    SIZE = 2
    """The bytes of a fixed, or the count of symbols of an enum."""
    END = 3
    """The node behind this one and all that it holds."""


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


_STRUCT, _LIST, _MAP = int(NodeOp.STRUCT), int(NodeOp.LIST), int(NodeOp.MAP)
_OP, _NULL, _SIZE, _END = int(NodeColumn.OP), int(NodeColumn.NULL), int(NodeColumn.SIZE), int(NodeColumn.END)
_NODE, _PLACE, _LEFT, _COUNT = 0, 1, 2, 3
"""The columns of lists and maps whose items are being read: the node, the place of its value, items left and in all."""
_DEPTH = TYPED_DEPTH_MAX + 1
_KEYS_COMPARED = TYPED_KEYS_COMPARED_MAX


@njit(nogil=True, inline="always")
def _block(data: Numbers, position: int, stop: int) -> tuple[int, int]:
    """The count of a list's next items, each of which has a byte at least, and the position of the first one."""
    count, position = _varint(data, position, stop)
    if position >= 0 and count < 0:
        count = -count
        _, position = _varint(data, position, stop)  # their bytes
    if position < 0 or count < 0 or count > stop - position:
        return 0, _NONE
    return count, position


@njit(nogil=True)
def _has_repeated_key(data: Numbers, first: Numbers, length: Numbers, place: int, end: int) -> bool:
    """Whether two of the strings `[place, end)` are the same."""
    for later in range(place + 1, end):
        for earlier in range(place, later):
            if length[later] == length[earlier]:
                index = 0
                while index < length[later] and data[first[later] + index] == data[first[earlier] + index]:
                    index += 1
                if index == length[later]:
                    return True
    return False


@njit(nogil=True, inline="always")
def _next_item(
    data: Numbers,
    position: int,
    stop: int,
    program: Table,
    open_list: Numbers,
    bases: Numbers,
    counts: Numbers,
    numbers: Numbers,
    lengths: Numbers,
    is_filling: bool,  # noqa: FBT001 - kernels take arguments by position
) -> int:
    """The position behind a list's item: of the next one, or where none is left of what follows the list."""
    open_list[_LEFT] -= 1
    if open_list[_LEFT] > 0:
        return position
    count, position = _block(data, position, stop)
    open_list[_LEFT] = count
    open_list[_COUNT] += count
    if position < 0 or count > 0:
        return position
    node, count = open_list[_NODE], open_list[_COUNT]
    if program[node, _OP] == _MAP:
        keys_end = bases[node + 1] + counts[node + 1]
        # fastavro takes the last value of a key that comes twice.
        if count > _KEYS_COMPARED or (
            is_filling and _has_repeated_key(data, numbers, lengths, keys_end - count, keys_end)
        ):
            return _NONE
    if is_filling:
        numbers[open_list[_PLACE]] = count
    return position


@njit(nogil=True, inline="always")
def _null_end(
    program: Table,
    node: int,
    bases: Numbers,
    counts: Numbers,
    nulls: Numbers,
    is_filling: bool,  # noqa: FBT001 - kernels take arguments by position
) -> int:
    """The node behind a null value, which is counted: a null for each field of a struct, and no items of a list."""
    node_end = program[node, _END]
    while node < node_end:
        if is_filling:
            nulls[bases[node] + counts[node]] = True
        counts[node] += 1
        node = program[node, _END] if program[node, _OP] >= _LIST else node + 1
    return node


def _read_nested(  # noqa: C901 - one loop over the nodes of a record
    data: Numbers,
    first: Numbers,
    end: Numbers,
    program: Table,
    greatest: Numbers,
    bases: Numbers,
    counts: Numbers,
    numbers: Numbers,
    lengths: Numbers,
    nulls: Numbers,
    bad: Numbers,
    is_filling: bool,  # noqa: FBT001 - kernels take arguments by position
) -> None:
    """Count the values of each node in `counts`; if `is_filling`, put them into the arrays too, from `bases` on.

    The number of a list is the count of its items. `greatest`: the greatest absolute number of each node. `bad`: rows
    that are passed over, and set for rows of the slow reader; where one is set while filling, the arrays are of no use.
    """
    before = np.empty(program.shape[0], np.int64)
    open_lists = np.empty((_DEPTH, 4), np.int64)
    for row in range(len(first)):
        if bad[row]:
            continue
        before[:] = counts
        position, stop, node, depth = first[row], end[row], 0, 0
        while position >= 0 and (depth > 0 or node < program.shape[0]):
            if depth > 0 and node == program[open_lists[depth - 1, _NODE], _END]:
                top = open_lists[depth - 1]
                position = _next_item(data, position, stop, program, top, bases, counts, numbers, lengths, is_filling)
                if top[_LEFT] > 0:
                    node = top[_NODE] + 1
                else:
                    depth -= 1
                continue
            op, null = program[node, _OP], program[node, _NULL]
            if null >= 0:
                if position >= stop or (data[position] != 0 and data[position] != 2):
                    position = _NONE
                    break
                position += 1
                if (data[position - 1] >> 1) == null:
                    node = _null_end(program, node, bases, counts, nulls, is_filling)
                    continue
            place = bases[node] + counts[node]
            counts[node] += 1
            if op == _STRUCT:
                node += 1
            elif op >= _LIST:
                count, position = _block(data, position, stop)
                if count == 0:
                    node = program[node, _END]
                    continue
                top = open_lists[depth]
                top[_NODE], top[_PLACE], top[_LEFT], top[_COUNT] = node, place, count, count
                depth += 1
                node += 1
            else:
                number, length, position = _value(data, position, stop, op, program[node, _SIZE])
                if position < 0 or number > greatest[node] or number < -greatest[node]:
                    position = _NONE
                elif is_filling:
                    numbers[place] = number
                    lengths[place] = length
                node += 1
        if position != stop:
            bad[row] = True
            counts[:] = before


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
_NESTED_ARGUMENTS = (
    types.Array(types.uint8, 1, "C", readonly=True),
    types.Array(types.int64, 1, "C"),
    types.Array(types.int64, 1, "C"),
    types.Array(types.int64, 2, "C"),
    types.Array(types.int64, 1, "C"),
    types.Array(types.int64, 1, "C"),
    types.Array(types.int64, 1, "C"),
    types.Array(types.int64, 1, "C"),
    types.Array(types.int32, 1, "C"),
    types.Array(types.boolean, 1, "C"),
    types.Array(types.boolean, 1, "C"),
    types.boolean,
)
read_nested: Callable[..., None] = kernel(*_NESTED_ARGUMENTS)(_read_nested)
