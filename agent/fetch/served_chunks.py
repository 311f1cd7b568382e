"""Makes chunks as consumers get them: of an intake object's bytes, or of a marker's row in the index. Pure, CPU work.

Archived chunks are made by the archive reader, which encodes their rows as batches.
"""

from agent.cache.chunk_cache import ServedChunk
from coordinator.state.chunk_index import NO_CHECKSUM, ChunkRef
from protocol.errors import ErrorCode, InvalidBatch
from protocol.records.batch import check_crcs, patch_offsets, set_log_append_time
from protocol.records.control_batches import marker_batch
from protocol.types import NO_TIMESTAMP


def serve_intake(batches: bytearray, chunk: ChunkRef) -> ServedChunk:
    """The chunk as consumers get it: `batches` with real offsets and, by the topic's setting, append times (S14).

    Raises `InvalidBatch` where the bytes do not match the index, or are not those that were produced.
    """
    # Before any header is believed (S20), and before `set_log_append_time` computes a new CRC, which would make
    # damaged records look intact.
    checksum = check_crcs(batches)
    if chunk.checksum not in (NO_CHECKSUM, checksum):
        raise InvalidBatch(
            ErrorCode.corrupt_message,
            f"batches with the checksum {checksum:#010x} at byte {chunk.byte_first}, not {chunk.checksum:#010x}",
        )
    offset_end = patch_offsets(batches, chunk.offset_first)
    if offset_end != chunk.offset_end:
        raise InvalidBatch(
            ErrorCode.corrupt_message, f"offsets {chunk.offset_first} to {offset_end}, not to {chunk.offset_end}"
        )
    if chunk.append_time_ms != NO_TIMESTAMP:
        set_log_append_time(batches, chunk.append_time_ms)
    return ServedChunk(batches)


def serve_marker(chunk: ChunkRef) -> ServedChunk:
    """A transaction's marker as consumers get it. It is made of the index's row: no object has it."""
    marker = chunk.marker
    assert marker is not None
    batch = marker_batch(
        offset=chunk.offset_first,
        producer_id=marker.producer_id,
        producer_epoch=marker.epoch,
        is_commit=marker.is_commit,
        timestamp_ms=marker.timestamp_ms,
    )
    return ServedChunk(batch)
