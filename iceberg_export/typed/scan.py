"""Finds the schemas that the records of a pass were written with, on which the columns of its file depend. Pure.

It runs before the file is written. Batches are decoded as for the file, and damaged ones raise the same errors. CPU
work.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from iceberg_export.rows.columns import RecordRows
from iceberg_export.rows.kafka_rows import BatchRows
from iceberg_export.typed.framing import FRAME_BYTES, WriterSchema, message_indexes, schema_ids


class Sides(StrEnum):
    """The sides of records that become typed columns: the values of `penstock.table.columns`."""

    RAW = "raw"
    KEY = "key"
    VALUE = "value"
    BOTH = "both"

    @property
    def has_key(self) -> bool:
        return self in (Sides.KEY, Sides.BOTH)

    @property
    def has_value(self) -> bool:
        return self in (Sides.VALUE, Sides.BOTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSchemas:
    """The schemas of keys and of values; empty for a side that is not decoded."""

    key: frozenset[WriterSchema]
    value: frozenset[WriterSchema]


def writers_of(parts: Iterable[BatchRows | RecordRows], sides: Sides, with_indexes: frozenset[int]) -> WriterSchemas:
    """The schemas of all records, in batches or in archived rows. `with_indexes`: the ids of Protobuf schemas."""
    key: set[WriterSchema] = set()
    value: set[WriterSchema] = set()
    for part in parts:
        of_key, of_value = _of_rows(part) if isinstance(part, RecordRows) else _of_batch(part)
        if sides.has_key:
            key |= _writers(of_key, with_indexes)
        if sides.has_value:
            value |= _writers(of_value, with_indexes)
        del part, of_key, of_value  # before the next one is unpacked
    return WriterSchemas(key=frozenset(key), value=frozenset(value))


class _Strings(NamedTuple):
    """The positions of byte strings in a payload. A null has a length below that of any frame."""

    payload: NDArray[np.uint8]
    first: NDArray[np.int64]
    length: NDArray[np.int64]


def _of_batch(batch: BatchRows) -> tuple[_Strings, _Strings]:
    rows, columns = slice(batch.first, batch.end), batch.columns
    return (
        _Strings(columns.payload, columns.key_first[rows], columns.key_bytes[rows].astype(np.int64)),
        _Strings(columns.payload, columns.value_first[rows], columns.value_bytes[rows].astype(np.int64)),
    )


def _of_rows(rows: RecordRows) -> tuple[_Strings, _Strings]:
    key, value = (
        _Strings(column.data, column.ends[:-1].astype(np.int64), np.diff(column.ends).astype(np.int64))
        for column in (rows.key, rows.value)
    )
    return key, value


def _writers(strings: _Strings, with_indexes: frozenset[int]) -> set[WriterSchema]:
    payload, first, length = strings
    ids = schema_ids(payload, first, length)
    writers: set[WriterSchema] = set()
    for schema_id in np.unique(ids).tolist():
        if schema_id < 0:
            continue
        if schema_id not in with_indexes:
            writers.add(WriterSchema(schema_id=schema_id))
            continue
        rows = np.flatnonzero(ids == schema_id)
        starts, ends = first[rows] + FRAME_BYTES, first[rows] + length[rows]
        # A byte 0 means the first message, which is nearly always the case. Other indexes are decoded one by one.
        is_usual = (starts < ends) & (payload[np.minimum(starts, len(payload) - 1)] == 0)
        if bool(is_usual.any()):
            writers.add(WriterSchema(schema_id=schema_id, indexes=(0,)))
        for start, end in zip(starts[~is_usual].tolist(), ends[~is_usual].tolist(), strict=True):
            try:
                indexes, _ = message_indexes(payload[start:end].tobytes(), 0)
            except ValueError:
                continue  # the record gets this as its error when it is decoded
            writers.add(WriterSchema(schema_id=schema_id, indexes=indexes))
    return writers
