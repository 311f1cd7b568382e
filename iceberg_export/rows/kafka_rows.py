"""Converts Kafka's record batches to columns and back.

`protocol.records.records` decodes and encodes the bytes; here they are only copied. Keys, values, header keys and
header values stay the producer's bytes.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from iceberg_export.rows.columns import BinaryColumn, RecordRows
from iceberg_export.rows.gather import gather
from iceberg_export.rows.schema import CREATE_TIME, LOG_APPEND_TIME
from protocol.records.columns import BytesColumn, EncodeColumns, RecordColumns
from protocol.records.compression import Compression
from protocol.records.records import decode_headers, encode_batches
from protocol.types import Milliseconds, Offset, PartitionIndex


class BatchRows(NamedTuple):
    """Rows `[first, end)` of a decoded batch, with the fields of its header and its chunk.

    `append_time_ms`: -1 for CreateTime; else it replaces every record's timestamp (safety rule S14).
    """

    partition: PartitionIndex
    base_offset: Offset
    append_time_ms: Milliseconds
    columns: RecordColumns
    first: int
    end: int

    @property
    def row_count(self) -> int:
        return self.end - self.first

    def byte_ends(self) -> NDArray[np.int64]:
        """The end of each row in the payload. A record's headers are its last bytes."""
        rows = slice(self.first, self.end)
        return self.columns.headers_first[rows] + self.columns.headers_bytes[rows]

    def byte_first(self) -> int:
        """The first byte of the first row in the payload."""
        if self.first == 0:
            return 0
        return int(self.columns.headers_first[self.first - 1] + self.columns.headers_bytes[self.first - 1])

    def byte_end(self) -> int:
        """The end of the last row in the payload."""
        return int(self.columns.headers_first[self.end - 1] + self.columns.headers_bytes[self.end - 1])


class RunRows(NamedTuple):
    """Rows of consecutive batches in one payload, n of them. The other arrays have one element for each batch."""

    columns: RecordColumns
    """Offset deltas are those of each batch."""
    row_counts: NDArray[np.int64]
    """Their sum is n."""
    partition: NDArray[np.int32]
    base_offset: NDArray[np.int64]
    append_time_ms: NDArray[np.int64]
    """-1 for CreateTime; else it replaces the record's timestamp (safety rule S14)."""

    def byte_ends(self) -> NDArray[np.int64]:
        """The end of each row in the payload. A record's headers are its last bytes."""
        return self.columns.headers_first + self.columns.headers_bytes

    def part(self, first: int, end: int) -> "RunRows":
        """Rows `[first, end)`, at least one, with no bytes of other rows."""
        row_ends = np.concatenate(([0], np.cumsum(self.row_counts)))
        return self._replace(
            columns=_cut_columns(self.columns, first, end), row_counts=np.diff(np.clip(row_ends, first, end))
        )


def gather_rows(parts: Sequence[BatchRows]) -> RecordRows:
    """The rows of all parts as columns, in the order of `parts`: at least one, none empty. CPU work."""
    counts = [part.row_count for part in parts]
    return gather_run(
        RunRows(
            columns=_merge(parts, counts),
            row_counts=np.array(counts, dtype=np.int64),
            partition=np.array([part.partition for part in parts], dtype=np.int32),
            base_offset=np.array([part.base_offset for part in parts], dtype=np.int64),
            append_time_ms=np.array([part.append_time_ms for part in parts], dtype=np.int64),
        )
    )


def gather_run(rows: RunRows) -> RecordRows:
    """The rows as columns, which share no memory with the run's. CPU work."""
    columns = rows.columns
    append_time = np.repeat(rows.append_time_ms, rows.row_counts)
    is_stamped = append_time >= 0
    headers = decode_headers(columns)
    payload = columns.payload
    return RecordRows(
        partition=np.repeat(rows.partition, rows.row_counts),
        offset=np.repeat(rows.base_offset, rows.row_counts) + columns.offset_delta,
        timestamp_ms=np.where(is_stamped, append_time, columns.timestamp),
        timestamp_type=np.where(is_stamped, LOG_APPEND_TIME, CREATE_TIME).astype(np.int32),
        key=_gather_column(payload, columns.key_first, columns.key_bytes),
        value=_gather_column(payload, columns.value_first, columns.value_bytes),
        header_ends=headers.ends.astype(np.int32),
        header_key=_gather_column(payload, headers.key_first, headers.key_bytes),
        header_value=_gather_column(payload, headers.value_first, headers.value_bytes),
    )


def _merge(parts: Sequence[BatchRows], counts: Sequence[int]) -> RecordColumns:
    """All parts as one batch; the offset deltas stay relative to each part's own base offset.

    One copy of the payloads costs less than a call of every kernel for every batch.
    """
    pieces = [_rows_alone(part) for part in parts]
    merged = RecordColumns._make(np.concatenate(column) for column in zip(*pieces, strict=True))
    places = np.cumsum([0, *(len(piece.payload) for piece in pieces[:-1])])
    shift = np.repeat(places, counts)
    return merged._replace(
        key_first=merged.key_first + shift,
        value_first=merged.value_first + shift,
        headers_first=merged.headers_first + shift,
    )


def _rows_alone(part: BatchRows) -> RecordColumns:
    """The columns of a part's rows, with no bytes of other rows."""
    if part.row_count == len(part.columns.offset_delta):
        return part.columns
    return _cut_columns(part.columns, part.first, part.end)


def _cut_columns(columns: RecordColumns, first: int, end: int) -> RecordColumns:
    """Rows `[first, end)`, at least one, with no bytes of other rows. The payload's memory is shared."""
    ends = columns.headers_first[max(first - 1, 0) : end] + columns.headers_bytes[max(first - 1, 0) : end]
    byte_first = int(ends[0]) if first else 0
    cut = RecordColumns._make(
        (columns.payload[byte_first : int(ends[-1])], *(column[first:end] for column in columns[1:]))
    )
    return cut._replace(
        key_first=cut.key_first - byte_first,
        value_first=cut.value_first - byte_first,
        headers_first=cut.headers_first - byte_first,
    )


def _gather_column(payload: NDArray[np.uint8], first: NDArray[np.int64], length: NDArray[np.int32]) -> BinaryColumn:
    is_null = length < 0
    ends = np.zeros(len(length) + 1, dtype=np.int32)
    np.cumsum(np.maximum(length, 0), out=ends[1:])
    data = np.empty(int(ends[-1]), dtype=np.uint8)
    end = gather(payload, first, length, data, 0)
    assert end == len(data)
    return BinaryColumn(ends=ends, data=data, is_null=is_null if bool(is_null.any()) else None)


def encode_rows(
    rows: RecordRows, compression: Compression, batch_bytes_target: int, batch_bytes_max: int | None = None
) -> bytes:
    """The rows of one partition as concatenated record batches with their real offsets. CPU work.

    `batch_bytes_target`, `batch_bytes_max`: see `protocol.records.records.encode_batches`. Rows of different timestamp
    types are never in one batch; they are neighbours after a change of the topic's message.timestamp.type.
    """
    types = rows.timestamp_type
    bounds = [0, *(np.flatnonzero(types[1:] != types[:-1]) + 1).tolist(), len(rows)]
    parts = [rows] if len(bounds) == 2 else [rows.part(first, end) for first, end in pairwise(bounds)]
    return b"".join(
        encode_batches(
            _to_encode(part),
            compression=compression,
            batch_bytes_target=batch_bytes_target,
            batch_bytes_max=batch_bytes_max,
            log_append_time=int(part.timestamp_type[0]) == LOG_APPEND_TIME,
        )
        for part in parts
    )


def _to_encode(rows: RecordRows) -> EncodeColumns:
    low, high = int(rows.header_ends[0]), int(rows.header_ends[-1])
    if low == high:
        return EncodeColumns.without_headers(
            offset=rows.offset, timestamp=rows.timestamp_ms, key=_strings(rows.key), value=_strings(rows.value)
        )
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
