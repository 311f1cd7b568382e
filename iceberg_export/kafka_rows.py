"""Between Kafka's record batches and columns: the one place that touches both.

Rule: bytes are decoded and encoded by `protocol.records` alone; here they are only gathered. Nothing is interpreted:
keys, values, header keys and header values come out as the producer's bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from iceberg_export.columns import BinaryColumn, RecordRows
from iceberg_export.gather import gather
from iceberg_export.schema import CREATE_TIME, LOG_APPEND_TIME
from protocol.compression import Compression
from protocol.record_columns import BytesColumn, EncodeColumns, RecordColumns
from protocol.records import decode_headers, encode_batches
from protocol.types import Milliseconds, Offset, PartitionIndex

RECORD_OVERHEAD_BYTES = 12
"""About what a record takes besides key, value and headers: lengths, deltas and attributes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedBatch:
    """The records of one batch, with what its header and its chunk know. `append_time_ms` is -1 for CreateTime."""

    partition: PartitionIndex
    base_offset: Offset
    append_time_ms: Milliseconds
    columns: RecordColumns

    def row_bytes(self) -> NDArray[np.int64]:
        """Each record's size uncompressed, about as Kafka would encode it."""
        columns = self.columns
        sizes = columns.headers_bytes + RECORD_OVERHEAD_BYTES
        return sizes + np.maximum(columns.key_bytes, 0) + np.maximum(columns.value_bytes, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRows:
    """Rows `[first, end)` of a decoded batch."""

    batch: DecodedBatch
    first: int
    end: int

    def __len__(self) -> int:
        return self.end - self.first

    def offsets(self) -> NDArray[np.int64]:
        return self.batch.base_offset + self.batch.columns.offset_delta[self.first : self.end].astype(np.int64)

    def timestamps_ms(self) -> NDArray[np.int64]:
        """The chunk's append time for every record where the topic's type is LogAppendTime (safety rule S14)."""
        if self.batch.append_time_ms >= 0:
            return np.full(len(self), self.batch.append_time_ms, dtype=np.int64)
        return self.batch.columns.timestamp[self.first : self.end]


def gather_rows(parts: Sequence[BatchRows]) -> RecordRows:
    """The rows of all parts as columns, in the order given. At least one part; CPU work."""
    counts = [len(part) for part in parts]
    types = [CREATE_TIME if part.batch.append_time_ms < 0 else LOG_APPEND_TIME for part in parts]
    header_ends, header_key, header_value = _gather_headers(parts)
    return RecordRows(
        partition=np.repeat(np.array([part.batch.partition for part in parts], dtype=np.int32), counts),
        offset=np.concatenate([part.offsets() for part in parts]),
        timestamp_ms=np.concatenate([part.timestamps_ms() for part in parts]),
        timestamp_type=np.repeat(np.array(types, dtype=np.int32), counts),
        key=_gather_column(
            [
                _Strings(columns.payload, columns.key_first[first:end], columns.key_bytes[first:end])
                for columns, first, end in _slices(parts)
            ]
        ),
        value=_gather_column(
            [
                _Strings(columns.payload, columns.value_first[first:end], columns.value_bytes[first:end])
                for columns, first, end in _slices(parts)
            ]
        ),
        header_ends=header_ends,
        header_key=header_key,
        header_value=header_value,
    )


@dataclass(frozen=True, slots=True)
class _Strings:
    """Byte strings of one payload: where they begin, and how long they are (-1 for null)."""

    payload: NDArray[np.uint8]
    first: NDArray[np.int64]
    length: NDArray[np.int32]


def _slices(parts: Sequence[BatchRows]) -> list[tuple[RecordColumns, int, int]]:
    return [(part.batch.columns, part.first, part.end) for part in parts]


def _gather_column(pieces: Sequence[_Strings]) -> BinaryColumn:
    lengths = np.concatenate([piece.length for piece in pieces]) if pieces else np.zeros(0, dtype=np.int32)
    is_null = lengths < 0
    ends = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(np.maximum(lengths, 0), out=ends[1:])
    data = np.empty(int(ends[-1]), dtype=np.uint8)
    position = 0
    for piece in pieces:
        position = gather(piece.payload, piece.first, piece.length, data, position)
    assert position == len(data)
    return BinaryColumn(ends=ends, data=data, is_null=is_null if bool(is_null.any()) else None)


def _gather_headers(parts: Sequence[BatchRows]) -> tuple[NDArray[np.int32], BinaryColumn, BinaryColumn]:
    """List ends per row, and the two columns of all headers."""
    counts: list[NDArray[np.int32]] = []
    keys: list[_Strings] = []
    values: list[_Strings] = []
    for columns, first, end in _slices(parts):
        count = columns.header_count[first:end]
        counts.append(count)
        if count.any():
            headers = decode_headers(columns)
            low, high = int(headers.ends[first]), int(headers.ends[end])
            keys.append(_Strings(columns.payload, headers.key_first[low:high], headers.key_bytes[low:high]))
            values.append(_Strings(columns.payload, headers.value_first[low:high], headers.value_bytes[low:high]))
    all_counts = np.concatenate(counts)
    ends = np.zeros(len(all_counts) + 1, dtype=np.int32)
    np.cumsum(all_counts, out=ends[1:])
    return ends, _gather_column(keys), _gather_column(values)


def encode_rows(rows: RecordRows, compression: Compression, batch_bytes_target: int) -> bytes:
    """The rows, of one partition, as concatenated record batches with their real offsets. CPU work.

    Rows of different timestamp types, which a change of the topic's config leaves side by side, never share a batch.
    """
    bounds = [0, *(np.flatnonzero(np.diff(rows.timestamp_type)) + 1).tolist(), len(rows)]
    return b"".join(
        encode_batches(
            _to_encode(rows.part(first, end)),
            compression=compression,
            batch_bytes_target=batch_bytes_target,
            log_append_time=int(rows.timestamp_type[first]) == LOG_APPEND_TIME,
        )
        for first, end in pairwise(bounds)
    )


def _to_encode(rows: RecordRows) -> EncodeColumns:
    low, high = int(rows.header_ends[0]), int(rows.header_ends[-1])
    return EncodeColumns(
        offset=rows.offset,
        timestamp=rows.timestamp_ms,
        key=_strings(rows.key),
        value=_strings(rows.value),
        header_ends=rows.header_ends.astype(np.int64) - low,
        header_key=_strings(rows.header_key.part(low, high)),
        header_value=_strings(rows.header_value.part(low, high)),
    )


def _strings(column: BinaryColumn) -> BytesColumn:
    return BytesColumn.from_ends(column.data, column.ends, column.is_null)
