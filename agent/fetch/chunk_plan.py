"""Which chunks answer a fetch, out of the state alone.

Rule: nothing is read and nothing awaited here. What archived records come to is not known before they are read.
"""

from collections.abc import Iterable, Mapping

from coordinator.configs.topic_configs import effective
from coordinator.state.chunk_index import MARKER_BYTES, ChunkRef
from coordinator.state.state import PartitionState, TopicState
from protocol.records.compression import Compression

SERVED_PER_STORED = 4
"""How many bytes of record batches one byte of a Parquet file is taken for before it is read."""


def chunks_from(
    partition: PartitionState, offset: int, bytes_max: int, *, offset_end: int | None = None
) -> list[ChunkRef]:
    """The chunks that hold `offset` and what follows, until their bytes reach `bytes_max`; at least one.

    With `offset_end` only chunks that begin before it, and none where `offset` does not.

    How many bytes archived records are served as is not known before they are read, so such a chunk ends the plan.
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
        if byte_count >= bytes_max or chunk.is_archived:
            break
        row += 1
    return chunks


def expected_bytes(chunk: ChunkRef, bytes_max: int) -> int:
    """About how many bytes an archived chunk comes to for a consumer that accepts `bytes_max`.

    It is taken for so many times what is stored of its row group, but for no more than is accepted, unless the row
    group alone is more.
    """
    return max(chunk.byte_count, min(bytes_max, SERVED_PER_STORED * chunk.byte_count))


def served_bytes(chunk: ChunkRef) -> int:
    """About what a chunk comes to in memory."""
    return SERVED_PER_STORED * chunk.byte_count if chunk.is_archived else chunk.byte_count


def stored_bytes(chunks: Iterable[ChunkRef]) -> int:
    """How many bytes of objects hold the chunks: a row group that several partitions share is read once."""
    return sum(byte_count for _, _, byte_count in {(c.object_id, c.byte_first, c.byte_count) for c in chunks})


def archive_compression(topic: TopicState, broker_configs: Mapping[str, str]) -> Compression:
    """How archived records are compressed when they are served: as the topic says, or not at all by default."""
    name = effective(topic.configs, broker_configs, "compression.type")
    return Compression[name.upper()] if name.upper() in Compression.__members__ else Compression.NONE


def available_bytes(partition: PartitionState, offset: int, bytes_wanted: int, offset_end: int) -> int:
    """About how many bytes wait in `[offset, offset_end)`, up to `bytes_wanted`: chunks count whole, as they are
    stored; one of an archive that has no rows counts for the batch that bridges it.
    """
    if offset >= offset_end or bytes_wanted <= 0:
        return 0
    chunks = chunks_from(partition, offset, bytes_wanted, offset_end=offset_end)
    return sum(chunk.byte_count or MARKER_BYTES for chunk in chunks)
