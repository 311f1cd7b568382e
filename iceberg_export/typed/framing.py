"""Reads the schema id of each value: Confluent's wire format.

The input and output are numpy arrays. A value without a frame has no schema, which is no error here.
Specification: Confluent, "Wire format": a byte 0, four bytes big-endian of the schema's id, for Protobuf the indexes of
the message as zigzag varints, then the record.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iceberg_export.rows.columns import BinaryColumn
from protocol.limits import TYPED_INDEXES_MAX

FRAME_BYTES = 5
NO_FRAME = -1
NULL = -2


class NoIndexes(ValueError):
    """A record of a Protobuf schema has no valid message indexes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSchema:
    """The schema that a record was written with. `indexes`: those of the Protobuf message; () for other formats."""

    schema_id: int
    indexes: tuple[int, ...] = ()


def schema_ids(data: NDArray[np.uint8], first: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.int64]:
    """The schema id of each value `data[first:first + length]`; `NO_FRAME`, or `NULL` where `length` is negative."""
    ids = np.full(len(first), NO_FRAME, dtype=np.int64)
    ids[length < 0] = NULL
    framed = np.flatnonzero(length >= FRAME_BYTES)
    framed = framed[data[first[framed]] == 0]
    starts = first[framed]
    number = np.zeros(len(framed), dtype=np.int64)
    for place in range(1, FRAME_BYTES):
        number = (number << 8) | data[starts + place]
    ids[framed] = number
    return ids


def column_schema_ids(column: BinaryColumn) -> NDArray[np.int64]:
    """The schema id of each value of a column; see `schema_ids`."""
    ends = column.ends.astype(np.int64)
    length = np.diff(ends)
    if column.is_null is not None:
        length[column.is_null] = -1
    return schema_ids(column.data, ends[:-1], length)


def message_indexes(data: bytes, position: int = FRAME_BYTES) -> tuple[tuple[int, ...], int]:
    """The message indexes at `position`, and the position of the record after them. Raises `NoIndexes`."""
    if data[position : position + 1] == b"\0":
        return (0,), position + 1
    count, position = _zigzag(data, position)
    if not 0 < count <= TYPED_INDEXES_MAX:
        raise NoIndexes(f"{count} indexes of a Protobuf message")
    indexes: list[int] = []
    for _ in range(count):
        index, position = _zigzag(data, position)
        indexes.append(index)
    return tuple(indexes), position


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise NoIndexes("the indexes of the Protobuf message are cut off, or too large")
