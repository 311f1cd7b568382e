"""Small Parquet files of records with null keys, values and headers, written in memory."""

import io
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from coordinator.commands.commands import ArchivedChunk
from coordinator.state.chunk_index import ChunkRef
from iceberg_export.parquet.arrow_writer import FileWriter
from iceberg_export.rows.columns import BinaryColumn, RecordRows
from iceberg_export.rows.footer import RowGroupLocation
from protocol.types import NO_TIMESTAMP, Milliseconds, ObjectId


def binary(values: Sequence[bytes | None]) -> BinaryColumn:
    is_null = np.array([value is None for value in values], dtype=np.bool_)
    return BinaryColumn(
        ends=np.cumsum([0, *(len(value or b"") for value in values)], dtype=np.int32),
        data=np.frombuffer(b"".join(value or b"" for value in values), dtype=np.uint8),
        is_null=is_null if is_null.any() else None,
    )


def listed(column: BinaryColumn) -> list[bytes | None]:
    return [column.row(index) for index in range(len(column))]


ROWS = RecordRows(
    partition=np.array([0, 0, 3], dtype=np.int32),
    offset=np.array([7, 9, 0], dtype=np.int64),
    timestamp_ms=np.array([-1, 0, 9_223_372_036_854_774], dtype=np.int64),
    timestamp_type=np.array([0, 0, 1], dtype=np.int32),
    key=binary([None, b"", b"k"]),
    value=binary([b"v", None, b""]),
    header_ends=np.array([0, 0, 2, 3], dtype=np.int32),
    header_key=binary(["ö".encode(), b"", b"trace"]),
    header_value=binary([None, b"", b"\x00"]),
)


def file_of(
    *row_groups: RecordRows, metadata: Mapping[str, str] = MappingProxyType({"who": "penstock"})
) -> tuple[bytes, tuple[RowGroupLocation, ...]]:
    sink = io.BytesIO()
    writer = FileWriter(sink)
    for rows in row_groups:
        writer.write_row_group([rows])
    places = writer.close(metadata)
    assert not sink.closed
    return sink.getvalue(), places


def piece(data: bytes, place: RowGroupLocation) -> bytes:
    return data[place.byte_first : place.byte_first + place.byte_count]


def as_indexed(chunk: ArchivedChunk) -> ChunkRef:
    """The row of the index for a chunk of a new file."""
    return ChunkRef(
        offset_first=chunk.offset_first,
        offset_end=chunk.offset_end,
        object_id=ObjectId(1),
        byte_first=chunk.byte_first,
        byte_count=chunk.byte_count,
        max_timestamp=chunk.max_timestamp,
        append_time_ms=Milliseconds(NO_TIMESTAMP),
        row_group=chunk.row_group,
        row_first=chunk.row_first,
        row_count=chunk.row_count,
    )
