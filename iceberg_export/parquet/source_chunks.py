"""Decodes a chunk of an intake object into rows, for archive passes and for readers of the tail without a broker.

Both use this one path, so they leave out the same records: markers and aborted batches. Damaged bytes are an error,
never rows. CPU work.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from iceberg_export.rows.executor import ReserveMemory, no_reservation
from iceberg_export.rows.kafka_rows import BatchRows
from protocol.errors import DoesNotUnpack
from protocol.limits import DECOMPRESSED_BYTES_MAX, UNPACKED_BYTES_UNRESERVED_MAX
from protocol.records.batch import BatchHeader, check_crc, checksum_of, walk_batches
from protocol.records.columns import RecordColumns
from protocol.records.records import decode_records
from protocol.types import Milliseconds, Offset, PartitionIndex
from storage.object_store import Buffer
from txn.isolation import NOTHING_ABORTED, AbortedBatches


class ChunkMismatch(Exception):
    """A chunk's bytes are not those that the index describes, so no file may be made of them."""


class SourceChunk(NamedTuple):
    """A chunk with its bytes.

    `records`: concatenated v2 batches. Their own base offsets are ignored: the first record has `offset_first`.
    `append_time_ms`: -1 for CreateTime; else it replaces every record's timestamp (safety rule S14). `checksum`: that
    of `coordinator.state.chunk_index.ChunkRef`; 0 where it is unknown. `aborted`: the partition's aborted batches.
    `reserve`: for batches that unpack to more than UNPACKED_BYTES_UNRESERVED_MAX.
    """

    partition: PartitionIndex
    offset_first: Offset
    offset_end: Offset
    append_time_ms: Milliseconds
    records: Buffer
    checksum: int = 0
    aborted: AbortedBatches = NOTHING_ABORTED
    reserve: ReserveMemory = no_reservation


def decode_chunk(
    chunk: SourceChunk, offset_first: Offset | None = None, offset_end: Offset | None = None
) -> Iterator[BatchRows]:
    """The chunk's batches with their real base offsets, as far as they are within `[offset_first, offset_end)`.

    The limits are the chunk's own by default. A batch that a limit cuts may come without rows. Raises `InvalidBatch` or
    `ChunkMismatch`; the latter perhaps after all batches, so a caller keeps none until the iteration ends.

    A batch that unpacks to much has its reservation until the next one is asked for, so no caller may keep it longer.
    """
    range_first = chunk.offset_first if offset_first is None else offset_first
    range_end = chunk.offset_end if offset_end is None else offset_end
    for header, batch_offset in readable_batches(chunk):
        batch_end = batch_offset + header.last_offset_delta + 1
        if batch_end <= range_first or batch_offset >= range_end:
            continue
        for columns in _decoded(chunk, header):
            deltas = columns.offset_delta
            is_cut = batch_offset < range_first or batch_end > range_end
            yield BatchRows(
                partition=chunk.partition,
                base_offset=batch_offset,
                append_time_ms=chunk.append_time_ms,
                columns=columns,
                first=int(np.searchsorted(deltas, range_first - batch_offset)) if is_cut else 0,
                end=int(np.searchsorted(deltas, range_end - batch_offset)) if is_cut else len(deltas),
            )
            del columns, deltas


def readable_batches(chunk: SourceChunk) -> Iterator[tuple[BatchHeader, Offset]]:
    """The chunk's batches that have records to be read, each with its real base offset: no markers, nothing aborted.

    Their bytes have the checksums of their headers and of the chunk. Raises as `decode_chunk` does, at the same times.
    """
    base_offset = chunk.offset_first
    headers = list(walk_batches(chunk.records))
    if chunk.checksum and checksum_of(headers) != chunk.checksum:
        # Checked before the first yield: the bytes may be another valid chunk, whose batches pass every later check.
        raise ChunkMismatch(
            f"partition {chunk.partition}: the bytes of the chunk at offset {chunk.offset_first} have the checksum "
            f"{checksum_of(headers):#010x}, the index says {chunk.checksum:#010x}"
        )
    for header in headers:
        # The intake is deleted after the pass, so the file becomes the only copy: damage must not be archived.
        check_crc(chunk.records, header)
        batch_offset, base_offset = base_offset, Offset(base_offset + header.last_offset_delta + 1)
        is_aborted = header.is_transactional and chunk.aborted.holds(header.producer_id, batch_offset)
        if not header.is_control and not is_aborted:
            yield header, batch_offset  # the offsets of the others become a gap
    # Batches are missing, or too many: the file would answer for offsets that it does not have.
    if base_offset != chunk.offset_end:
        raise ChunkMismatch(
            f"partition {chunk.partition}: the chunk at offset {chunk.offset_first} ends at {base_offset}, "
            f"the index says {chunk.offset_end}"
        )


def _decoded(chunk: SourceChunk, header: BatchHeader) -> Iterator[RecordColumns]:
    """The one batch, with its reservation where it needs one."""
    try:
        columns = decode_records(chunk.records, header, unpacked_bytes_max=UNPACKED_BYTES_UNRESERVED_MAX)
    except DoesNotUnpack:
        pass  # outside the handler: its traceback refers to what was unpacked
    else:
        yield columns
        return
    with chunk.reserve(DECOMPRESSED_BYTES_MAX):
        yield decode_records(chunk.records, header)
