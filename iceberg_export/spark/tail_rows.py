"""Reads the rows of the tail: chunks of many partitions in the intake, which mostly share objects.

One request reads all selected bytes of an object that are close together. Rows of all topics go into one batch, because
the tail has very many small chunks. Each batch comes with the part of the piece after it.
"""
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from iceberg_export.parquet.arrow_rows import to_arrow
from iceberg_export.parquet.source_chunks import ChunkMismatch, SourceChunk, decode_chunk
from iceberg_export.rows import schema
from iceberg_export.rows.kafka_rows import BatchRows, gather_rows
from iceberg_export.rows.kernels import KERNELS
from iceberg_export.spark.bucket import Bucket
from iceberg_export.spark.columns import TIME_US_FIRST, Arrow, Selection, to_spark
from iceberg_export.spark.planning import TailPart, TailPiece, rest_of
from iceberg_export.tail.manifest import TailChunk
from protocol.errors import InvalidBatch
from protocol.limits import SPARK_GATHERED_BYTES, TAIL_READ_BYTES_MAX
from storage.object_store import ObjectDamaged
from storage.read_plan import plan_reads, slice_read
from storage.refs import ByteRange
from txn.isolation import AbortedBatches


@dataclass(slots=True)
class _Gathered:
    """Batches of records that become one Arrow batch."""

    batches: list[BatchRows] = field(default_factory=list[BatchRows])
    topics: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """The topic of each run of rows, with the count of its rows."""
    byte_count: int = 0

    def add(self, topic: str, batch: BatchRows) -> None:
        self.batches.append(batch)
        self.byte_count += batch.byte_end() - batch.byte_first()
        if self.topics and self.topics[-1][0] == topic:
            self.topics[-1] = (topic, self.topics[-1][1] + batch.row_count)
        else:
            self.topics.append((topic, batch.row_count))

    def rows(self, selection: Selection) -> Arrow | None:
        """The selected rows and columns; None where there are no batches."""
        if not self.batches:
            return None
        rows = gather_rows(self.batches)
        batch = to_spark(to_arrow(rows), self.topics, selection.columns)
        if selection.since_us == TIME_US_FIRST:
            return batch
        is_late_enough = rows.timestamp_ms * schema.MICROSECONDS_PER_MILLISECOND >= selection.since_us
        return batch.filter(pa.array(is_late_enough))


def read_tail(
    bucket: Bucket, piece: TailPiece, selection: Selection
) -> Iterator[tuple[TailPiece | None, Arrow | None]]:
    """The rows of the piece in batches, each with the part of the piece after it; (None, None) at the end.

    Raises `StoreError`: `ObjectMissing` where an object was archived and deleted, `ObjectDamaged`.
    """
    KERNELS.watch()
    parts = piece.parts
    for run in _runs(parts):
        payloads = _fetch(bucket, [chunk for _, chunk in run])
        gathered = _Gathered()
        row_last, aborted = -1, AbortedBatches()
        for (row, chunk), payload in zip(run, payloads, strict=True):
            if gathered.byte_count >= SPARK_GATHERED_BYTES:
                yield _after(parts, row, chunk.offset_first), gathered.rows(selection)
                gathered = _Gathered()
            part = parts[row]
            if row != row_last:
                row_last, aborted = row, AbortedBatches(part.aborted)
            for batch in _decode(part, chunk, payload, aborted):
                gathered.add(part.range.topic, batch)
        row, chunk = run[-1]
        yield _after(parts, row, chunk.offset_end), gathered.rows(selection)
    yield None, None


def _runs(parts: Sequence[TailPart]) -> Iterator[list[tuple[int, TailChunk]]]:
    """The chunks of all parts in order, each with its part's index, in runs of at most `TAIL_READ_BYTES_MAX`.

    A larger chunk is a run of its own.
    """
    run: list[tuple[int, TailChunk]] = []
    run_bytes = 0
    for row, part in enumerate(parts):
        for chunk in part.chunks:
            if run and run_bytes + chunk.byte_count > TAIL_READ_BYTES_MAX:
                yield run
                run, run_bytes = [], 0
            run.append((row, chunk))
            run_bytes += chunk.byte_count
    if run:
        yield run


def _after(parts: Sequence[TailPart], row: int, offset: int) -> TailPiece:
    """The remaining parts after those before `row` are read, and part `row` up to `offset`."""
    # A range may begin inside its first chunk.
    rest = rest_of(parts[row], max(offset, parts[row].range.first))
    return TailPiece(parts=(*(() if rest is None else (rest,)), *parts[row + 1 :]))


def _fetch(bucket: Bucket, chunks: Sequence[TailChunk]) -> list[memoryview]:
    """The bytes of each chunk; empty for a marker."""
    stored = [index for index, chunk in enumerate(chunks) if not chunk.is_marker]
    ranges = [
        ByteRange(key=chunk.object_key, byte_first=chunk.byte_first, byte_count=chunk.byte_count)
        for chunk in chunks
        if not chunk.is_marker
    ]
    chunk_bytes: list[memoryview] = [memoryview(b"")] * len(chunks)
    in_flight = [
        (planned, bucket.begin_range(planned.read.key, planned.read.byte_first, planned.read.byte_count))
        for planned in plan_reads(ranges, gap_bytes_max=bucket.read_gap_bytes)
    ]
    for planned, future in in_flight:
        for index, records in slice_read(planned, future.result()):
            chunk_bytes[stored[index]] = records
    return chunk_bytes


def _decode(part: TailPart, chunk: TailChunk, payload: memoryview, aborted: AbortedBatches) -> Iterator[BatchRows]:
    """The chunk's batches, as far as they are within the part. Raises `ObjectDamaged`."""
    if chunk.is_marker:
        return
    source = SourceChunk(
        partition=part.range.partition,
        offset_first=chunk.offset_first,
        offset_end=chunk.offset_end,
        append_time_ms=chunk.append_time_ms,
        records=payload,
        checksum=chunk.checksum,
        aborted=aborted,
    )
    try:
        for batch in decode_chunk(source, part.range.first, part.range.end):
            if batch.row_count:
                yield batch
    except (InvalidBatch, ChunkMismatch) as error:
        where = f"{chunk.object_key}, partition {part.range.partition}, offset {chunk.offset_first}"
        raise ObjectDamaged(f"{where}: {error}") from error
