"""A chunk of an intake object as rows: for the archive, and for who reads the tail without a broker.

Rule: one decode path. What the archive would leave out, markers and what was aborted, nobody else gets either, and
damaged bytes are an error, never rows. CPU work.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from iceberg_export.rows.kafka_rows import BatchRows
from protocol.records.batch import check_crc, checksum_of, walk_batches
from protocol.records.records import decode_records
from protocol.types import Milliseconds, Offset, PartitionIndex
from storage.object_store import Buffer
from txn.isolation import NOTHING_ABORTED, AbortedBatches


class ChunkMismatch(Exception):
    """A chunk's bytes are not those that the index says: nothing may be replaced by them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChunk:
    """A chunk as it lies in its intake object.

    `records`: concatenated v2 batches; their own base offsets are not looked at, the first is `offset_first`.
    `append_time_ms` is -1 for CreateTime; else it replaces every record's timestamp (safety rule S14). `checksum` is
    the one of `coordinator.state.chunk_index.ChunkRef`, 0 where it is not known.
    """

    partition: PartitionIndex
    offset_first: Offset
    offset_end: Offset
    append_time_ms: Milliseconds
    records: Buffer
    checksum: int = 0
    aborted: AbortedBatches = NOTHING_ABORTED


def decode_chunk(
    chunk: SourceChunk, offset_first: Offset | None = None, offset_end: Offset | None = None
) -> Iterator[BatchRows]:
    """The chunk's batches with their real base offsets; of those that are cut by `[offset_first, offset_end)` the rows
    within, perhaps none, and nothing of those outside. Raises `InvalidBatch` or `ChunkMismatch`."""
    wanted_first = chunk.offset_first if offset_first is None else offset_first
    wanted_end = chunk.offset_end if offset_end is None else offset_end
    base_offset = chunk.offset_first
    headers = list(walk_batches(chunk.records))
    if chunk.checksum and checksum_of(headers) != chunk.checksum:
        # Before anything is yielded: it may be another chunk, whose batches are as good as any.
        raise ChunkMismatch(
            f"partition {chunk.partition}: the bytes of the chunk at offset {chunk.offset_first} have the checksum "
            f"{checksum_of(headers):#010x}, the index says {chunk.checksum:#010x}"
        )
    for header in headers:
        # These bytes may become the only copy: what was damaged in the bucket must not be archived as good.
        check_crc(chunk.records, header)
        batch_offset, base_offset = base_offset, Offset(base_offset + header.last_offset_delta + 1)
        is_aborted = header.is_transactional and chunk.aborted.holds(header.producer_id, batch_offset)
        if header.is_control or is_aborted or base_offset <= wanted_first or batch_offset >= wanted_end:
            continue  # its offsets become a gap
        columns = decode_records(chunk.records, header)
        deltas = columns.offset_delta
        is_cut = batch_offset < wanted_first or base_offset > wanted_end
        yield BatchRows(
            partition=chunk.partition,
            base_offset=batch_offset,
            append_time_ms=chunk.append_time_ms,
            columns=columns,
            first=int(np.searchsorted(deltas, wanted_first - batch_offset)) if is_cut else 0,
            end=int(np.searchsorted(deltas, wanted_end - batch_offset)) if is_cut else len(deltas),
        )
    if base_offset != chunk.offset_end:
        raise ChunkMismatch(
            f"partition {chunk.partition}: the chunk at offset {chunk.offset_first} ends at {base_offset}, "
            f"the index says {chunk.offset_end}"
        )
