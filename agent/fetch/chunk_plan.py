"""The plan of a fetch: the chunks that answer it, by the state alone. Nothing is read or awaited here."""

from collections.abc import Iterable, Mapping

from coordinator.configs.topic_configs import effective
from coordinator.state.chunk_index import MARKER_BYTES, ChunkIndex, ChunkRef
from coordinator.state.state import PartitionState, TopicState
from protocol.records.compression import Compression

SERVED_PER_STORED = 4
"""The estimate of record batch bytes for each byte of a Parquet file, before that is read."""
_COMPRESSIONS = dict(Compression.__members__)


def chunks_from(
    partition: PartitionState, offset: int, bytes_max: int, *, offset_end: int | None = None
) -> list[ChunkRef]:
    """The chunks that hold `offset` and what follows, until their bytes reach `bytes_max`; at least one.

    With `offset_end` only chunks that begin before it, and none where `offset` does not.
    """
    chunks: list[ChunkRef] = []
    if offset_end is not None and offset >= offset_end:
        return chunks
    row = partition.index.locate(offset)
    byte_count = 0
    while row is not None and row < len(partition.index):
        chunk = partition.index.row(row)
        if offset_end is not None and chunk.offset_first >= offset_end:
            break
        chunks.append(chunk)
        byte_count += chunk.byte_count
        # The size of archived records as batches is not known before they are read, so such a chunk ends the plan.
        if byte_count >= bytes_max or chunk.is_archived:
            break
        row += 1
    return chunks


def has_every_record(index: ChunkIndex, offset_first: int, offset_end: int) -> bool:
    """Whether the archive has a record for each offset of `[offset_first, offset_end)`.

    Then these are the records that were produced there: none was aborted, was given up as damaged, or was dropped
    later. So batches that were produced at these offsets may be served in place of the archive's (safety rule S5).
    """
    if offset_first < index.first:
        return False
    for chunk in index.rows_from(offset_first):
        if chunk.offset_first >= offset_end:
            break
        if not chunk.is_archived or chunk.row_count != chunk.offset_end - chunk.offset_first:
            return False
    return offset_end <= index.end


def expected_bytes(chunk: ChunkRef, bytes_max: int) -> int:
    """The estimated bytes of an archived chunk's answer to a consumer that accepts `bytes_max`.

    SERVED_PER_STORED times the row group's stored bytes, at most `bytes_max`, and at least the stored bytes.
    """
    return max(chunk.byte_count, min(bytes_max, SERVED_PER_STORED * chunk.byte_count))


def served_bytes(chunk: ChunkRef) -> int:
    """The estimated bytes of a chunk in memory."""
    return SERVED_PER_STORED * chunk.byte_count if chunk.is_archived else chunk.byte_count


def stored_bytes(chunks: Iterable[ChunkRef]) -> int:
    """The bytes to read for the chunks: a row group that several partitions share is read once."""
    return sum(byte_count for _, _, byte_count in {(c.object_id, c.byte_first, c.byte_count) for c in chunks})


def archive_compression(topic: TopicState, broker_configs: Mapping[str, str]) -> Compression:
    """The compression of archived records when they are served: the topic's `compression.type`, by default none."""
    name = effective(topic.configs, broker_configs, "compression.type")
    return _COMPRESSIONS.get(name.upper(), Compression.NONE)


def available_bytes(partition: PartitionState, offset: int, bytes_max: int, offset_end: int) -> int:
    """The estimated bytes in `[offset, offset_end)`, up to `bytes_max`: the stored bytes of whole chunks.

    An archived chunk without rows counts as the control batch that bridges its offsets.
    """
    if offset >= offset_end or bytes_max <= 0:
        return 0
    chunks = chunks_from(partition, offset, bytes_max, offset_end=offset_end)
    return sum(chunk.byte_count or MARKER_BYTES for chunk in chunks)
