"""Reads what is not archived yet as rows of the topic's table, with a bucket and no broker.

Rule: read_committed, as the archive has it: markers and what was aborted are left out, nothing at or behind the last
stable offset is read, and what comes out for a range of offsets is the same whoever asks, and when. An object that is
gone was archived and deleted since the manifest was read: `PlanAgain`, never fewer rows. CPU work and reads, blocking;
memory is bounded by `TAIL_READ_BYTES_MAX` of records at a time.

    manifest = read_manifest(bucket)
    part = tail_slice(index, topic.partitions[index], first, end)     # to be sent to a task
    for rows in read_slice(part, bucket):
        batch = to_arrow(rows)                                        # of `iceberg_export.parquet.arrow_files`
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from iceberg_export.parquet.source_chunks import ChunkMismatch, SourceChunk, decode_chunk
from iceberg_export.rows.columns import RecordRows
from iceberg_export.rows.kafka_rows import BatchRows, gather_rows
from iceberg_export.rows.kernels import KERNELS
from iceberg_export.tail.bucket_reader import BucketReader
from iceberg_export.tail.manifest import TailChunk, TailManifest, TailPartition, decode_manifest
from protocol.errors import InvalidBatch
from protocol.limits import TAIL_READ_BYTES_MAX
from protocol.types import Offset, PartitionIndex
from storage.object_store import ObjectDamaged, ObjectMissing
from storage.read_plan import plan_reads, slice_read
from storage.refs import TAIL_KEY, ByteRange
from txn.isolation import AbortedBatches, AbortedExtent


class PlanAgain(Exception):
    """What was planned is there no more, or not yet: read the manifest again, and plan with that."""


class TailMissing(Exception):
    """The bucket has no tail manifest: there is no agent that writes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailSlice:
    """Offsets `[offset_first, offset_end)` of one partition, and where they lie. It can be pickled."""

    partition: PartitionIndex
    offset_first: Offset
    offset_end: Offset
    chunks: tuple[TailChunk, ...]
    aborted: tuple[AbortedExtent, ...]


def read_manifest(bucket: BucketReader) -> TailManifest:
    """The bucket's manifest. Raises `TailMissing`, `TailUnreadable`, and `StoreError` where the bucket is away."""
    try:
        return decode_manifest(bucket.get(TAIL_KEY))
    except ObjectMissing as error:
        raise TailMissing(
            f"the bucket has no {TAIL_KEY}: no agent has served it yet, or they all have tail-interval-ms = 0"
        ) from error


def tail_slice(index: PartitionIndex, partition: TailPartition, offset_first: Offset, offset_end: Offset) -> TailSlice:
    """What is needed to read a part of the partition `index`. Raises `PlanAgain` where the manifest does not have it:
    it is archived already, or deleted, or not stable yet."""
    is_empty = offset_first >= offset_end
    end = min(partition.readable_end, partition.chunks.offset_end)
    first = max(partition.log_start, partition.archived_end)
    if not is_empty and (offset_first < first or end < offset_end):
        raise PlanAgain(
            f"partition {index}: the tail manifest has offsets [{first}, {end}), "
            f"not [{offset_first}, {offset_end}): read it again"
        )
    return TailSlice(
        partition=index,
        offset_first=offset_first,
        offset_end=offset_end,
        chunks=() if is_empty else partition.chunks.between(offset_first, offset_end),
        aborted=tuple(
            extent for extent in partition.aborted if extent.offset_first < offset_end and extent.marker > offset_first
        ),
    )


def read_slice(part: TailSlice, bucket: BucketReader) -> Iterator[RecordRows]:
    """The rows of the slice, in order of their offsets, some at a time; none empty.

    Raises `PlanAgain`, `ObjectDamaged` where an object does not hold what the manifest says, and other `StoreError`s
    where the bucket is away.
    """
    KERNELS.watch()
    aborted = AbortedBatches(part.aborted)
    for chunks in _steps([chunk for chunk in part.chunks if not chunk.is_marker]):
        batches: list[BatchRows] = []
        for chunk, records in zip(chunks, _read(chunks, bucket), strict=True):
            source = SourceChunk(
                partition=part.partition,
                offset_first=chunk.offset_first,
                offset_end=chunk.offset_end,
                append_time_ms=chunk.append_time_ms,
                records=records,
                checksum=chunk.checksum,
                aborted=aborted,
            )
            try:
                batches += [rows for rows in decode_chunk(source, part.offset_first, part.offset_end) if len(rows)]
            except (InvalidBatch, ChunkMismatch) as error:
                raise ObjectDamaged(f"{chunk.object_key} at byte {chunk.byte_first}: {error}") from error
        if batches:
            yield gather_rows(batches)


def _steps(chunks: Sequence[TailChunk]) -> Iterator[list[TailChunk]]:
    """As many chunks at a time as are read together, in their order; a larger one alone."""
    step: list[TailChunk] = []
    step_bytes = 0
    for chunk in chunks:
        if step and step_bytes + chunk.byte_count > TAIL_READ_BYTES_MAX:
            yield step
            step, step_bytes = [], 0
        step.append(chunk)
        step_bytes += chunk.byte_count
    if step:
        yield step


def _read(chunks: Sequence[TailChunk], bucket: BucketReader) -> list[memoryview]:
    """The chunks' bytes, in their order; neighbours in one object are read together."""
    found = [memoryview(b"")] * len(chunks)
    wanted = [ByteRange(key=each.object_key, byte_first=each.byte_first, byte_count=each.byte_count) for each in chunks]
    for planned in plan_reads(wanted):
        read = planned.read
        try:
            payload = bucket.get_range(read.key, read.byte_first, read.byte_count)
        except ObjectMissing as error:
            raise PlanAgain(f"{read.key} is gone: its records were archived since the manifest was read") from error
        for row, records in slice_read(planned, payload):
            found[row] = records
    return found
