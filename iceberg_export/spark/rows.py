"""The rows of a split as Arrow record batches, with the Kafka source's columns.

Rule: what is read of a split is known at every moment, so that what an object no longer holds is planned again from a
newer manifest, and no row comes twice or is missing. Nothing here knows Spark.
"""
# pyright: reportAttributeAccessIssue=false

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_export import schema
from iceberg_export.arrow_files import to_arrow
from iceberg_export.kafka_rows import BatchRows, gather_rows
from iceberg_export.source_chunks import SourceChunk, decode_chunk
from iceberg_export.spark.bucket import Bucket
from iceberg_export.spark.conditions import Conditions
from iceberg_export.spark.planning import FilePiece, OffsetRange, Piece, Split, TailPart, TailPiece, rest_of
from iceberg_export.spark.row_groups import Arrow, choose_rows, read_footer_of, read_groups, wanted_groups
from iceberg_export.tail_format import TailChunk
from protocol.limits import SPARK_GATHERED_BYTES, SPARK_MISSES_MAX, TAIL_READ_BYTES_MAX
from protocol.types import Offset
from storage.object_store import ObjectMissing
from storage.read_plan import plan_reads, slice_read
from storage.refs import ByteRange
from txn.isolation import AbortedBatches

_PARQUET_COLUMNS: Final = {
    "key": schema.KEY,
    "value": schema.VALUE,
    "partition": schema.PARTITION,
    "offset": schema.OFFSET,
    "timestamp": schema.TIMESTAMP,
    "timestampType": schema.TIMESTAMP_TYPE,
    "headers": schema.HEADERS,
}

PlanAgain = Callable[[Sequence[OffsetRange]], Sequence[Piece]]
"""Where the rows of these ranges lie by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which columns, by the Kafka source's names, and which rows."""

    columns: tuple[str, ...]
    conditions: Conditions

    @property
    def file_columns(self) -> tuple[str, ...]:
        """Those of a data file."""
        return tuple(_PARQUET_COLUMNS[name] for name in self.columns if name in _PARQUET_COLUMNS)


def read_split(bucket: Bucket, split: Split, wanted: Wanted, plan_again: PlanAgain) -> Iterator[Arrow]:
    """The wanted rows of a split. Raises `StoreError`, `InvalidBatch`, `ChunkMismatch`, and what `plan_again` does."""
    pending = deque(split.pieces)
    misses = 0
    while pending:
        try:
            for rest, batch in _read_piece(bucket, pending[0], wanted):
                if rest is None:
                    pending.popleft()
                else:
                    pending[0] = rest
                if batch is not None and batch.num_rows:
                    yield batch
        except ObjectMissing:
            misses += 1
            if misses > SPARK_MISSES_MAX:
                raise
            pending = deque(plan_again([each for piece in pending for each in piece.ranges]))


def _read_piece(bucket: Bucket, piece: Piece, wanted: Wanted) -> Iterator[tuple[Piece | None, Arrow | None]]:
    """Its rows bit by bit, each with what is left behind it: None once, at the end."""
    if isinstance(piece, FilePiece):
        return _read_file(bucket, piece, wanted)
    return _read_tail(bucket, piece, wanted)


def _read_file(bucket: Bucket, piece: FilePiece, wanted: Wanted) -> Iterator[tuple[Piece | None, Arrow | None]]:
    footer = read_footer_of(bucket, piece)
    groups = wanted_groups(footer, piece.ranges, wanted.conditions)
    # A row group of which no column is wanted has rows all the same.
    columns = wanted.file_columns or (schema.OFFSET,)
    topic = piece.ranges[0].topic
    for group, table in read_groups(bucket, piece.key, footer, groups, columns=columns):
        found = choose_rows(group, table, piece.ranges, wanted.conditions, columns)
        left = _after(piece, found.partition_last, found.offset_last)
        rows = found.table.combine_chunks()
        for batch in rows.to_batches():
            # Of several batches the last one alone may say how far it goes; a table of one chunk is one batch.
            assert batch.num_rows == rows.num_rows, "combined chunks are one batch"
            yield left or replace(piece, ranges=()), _to_spark(batch, topic, wanted.columns)
    yield None, None


def _after(piece: FilePiece, partition: int, offset: int) -> FilePiece | None:
    """What of the piece lies behind a row; None where nothing does."""
    ranges = tuple(
        replace(each, first=max(each.first, Offset(offset + 1))) if each.partition == partition else each
        for each in piece.ranges
        if each.partition > partition or (each.partition == partition and each.end > offset + 1)
    )
    return replace(piece, ranges=ranges) if ranges else None


def _read_tail(bucket: Bucket, piece: TailPiece, wanted: Wanted) -> Iterator[tuple[Piece | None, Arrow | None]]:
    left = list(piece.parts)
    for run in _tail_runs(piece.parts):
        payloads = _fetch(bucket, [chunk for _, chunk in run])
        gathered: list[BatchRows] = []
        gathered_bytes = 0
        topic = run[0][0].range.topic
        for (part, chunk), payload in zip(run, payloads, strict=True):
            if gathered and (part.range.topic != topic or gathered_bytes >= SPARK_GATHERED_BYTES):
                yield TailPiece(parts=tuple(left)), _gather(gathered, topic, wanted)
                gathered, gathered_bytes = [], 0
            topic = part.range.topic
            for batch in _decode(part, chunk, payload):
                gathered.append(batch)
                gathered_bytes += batch.byte_end() - batch.byte_first()
            remaining = rest_of(left[0], chunk.offset_end)
            left[:1] = [] if remaining is None else [remaining]
        yield TailPiece(parts=tuple(left)), _gather(gathered, topic, wanted) if gathered else None
    yield None, None


def _tail_runs(parts: Sequence[TailPart]) -> Iterator[list[tuple[TailPart, TailChunk]]]:
    """The chunks of all parts in order, as many at a time as are read together."""
    run: list[tuple[TailPart, TailChunk]] = []
    run_bytes = 0
    for part in parts:
        for chunk in part.chunks:
            if run and run_bytes + chunk.byte_count > TAIL_READ_BYTES_MAX:
                yield run
                run, run_bytes = [], 0
            run.append((part, chunk))
            run_bytes += chunk.byte_count
    if run:
        yield run


def _fetch(bucket: Bucket, chunks: Sequence[TailChunk]) -> list[memoryview]:
    """The chunks' bytes, none of markers."""
    stored = [index for index, chunk in enumerate(chunks) if not chunk.is_marker]
    ranges = [
        ByteRange(key=chunk.object_key, byte_first=chunk.byte_first, byte_count=chunk.byte_count)
        for chunk in chunks
        if not chunk.is_marker
    ]
    found: list[memoryview] = [memoryview(b"")] * len(chunks)
    under_way = [
        (planned, bucket.begin_range(planned.read.key, planned.read.byte_first, planned.read.byte_count))
        for planned in plan_reads(ranges)
    ]
    for planned, future in under_way:
        for index, records in slice_read(planned, future.result()):
            found[stored[index]] = records
    return found


def _decode(part: TailPart, chunk: TailChunk, payload: memoryview) -> Iterator[BatchRows]:
    """The chunk's batches, and of the first and the last what lies within the part."""
    if chunk.is_marker:
        return
    source = SourceChunk(
        partition=part.range.partition,
        offset_first=chunk.offset_first,
        offset_end=chunk.offset_end,
        append_time_ms=chunk.append_time_ms,
        records=payload,
        aborted=AbortedBatches(part.aborted),
    )
    for batch in decode_chunk(source, part.range.first, part.range.end):
        if len(batch):
            yield batch


def _gather(batches: Sequence[BatchRows], topic: str, wanted: Wanted) -> Arrow:
    rows = gather_rows(batches)
    batch = to_arrow(rows)
    conditions = wanted.conditions
    if not (conditions.offsets.is_all and conditions.times_us.is_all):
        is_wanted = conditions.offsets.mask(rows.offset)
        is_wanted &= conditions.times_us.mask(rows.timestamp_ms * schema.MICROSECONDS_PER_MILLISECOND)
        batch = batch.filter(pa.array(is_wanted))
    return _to_spark(batch, topic, wanted.columns)


def _to_spark(batch: Arrow, topic: str, columns: Sequence[str]) -> Arrow:
    """A batch of a file's columns with the names, and the nulls, of the Kafka source."""
    arrays: list[Arrow] = []
    for name in columns:
        if name == "topic":
            arrays.append(pa.repeat(pa.scalar(topic, pa.string()), batch.num_rows))
            continue
        column = batch.column(_PARQUET_COLUMNS[name])
        if name == "headers":
            # Differs from the table, where a record without headers has an empty list.
            column = pc.if_else(pc.equal(pc.list_value_length(column), 0), pa.scalar(None, column.type), column)
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))
