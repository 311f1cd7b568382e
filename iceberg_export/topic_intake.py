"""What of a topic waits for the archive, as the state has it."""

from collections.abc import Iterator

from coordinator.chunk_index import ChunkIndex, ChunkRef
from coordinator.state import ClusterState, TopicState
from iceberg_export.plan import IntakeChunk, TopicIntake
from protocol.types import PartitionIndex, TopicId
from storage.refs import ObjectKind


def topic_intake(state: ClusterState, topic_id: TopicId) -> TopicIntake | None:
    """The topic's intake chunks below the last stable offset, None for an unknown topic.

    Without transactions the last stable offset is the log's end, so all of the index counts.
    """
    topic = state.topics.get(topic_id)
    if topic is None:
        return None
    return TopicIntake(topic_id=topic_id, name=topic.name, chunks=tuple(_intake_chunks(state, topic)))


def intake_bytes(state: ClusterState, topic_id: TopicId) -> int:
    """How many bytes of the topic wait for the archive; 0 for an unknown topic. Cheap where nothing waits."""
    topic = state.topics.get(topic_id)
    if topic is None:
        return 0
    return sum(chunk.byte_count for held in topic.partitions for chunk in _intake_backwards(held.index))


def _intake_chunks(state: ClusterState, topic: TopicState) -> Iterator[IntakeChunk]:
    for partition, held in enumerate(topic.partitions):
        for chunk in reversed(list(_intake_backwards(held.index))):
            stored = state.objects[chunk.object_id]
            assert stored.kind is ObjectKind.INTAKE, "what is archived lies before what is not"
            yield IntakeChunk(
                partition=PartitionIndex(partition),
                offset_first=chunk.offset_first,
                offset_end=chunk.offset_end,
                object_id=chunk.object_id,
                object_key=stored.key,
                byte_first=chunk.byte_first,
                byte_count=chunk.byte_count,
                append_time_ms=chunk.append_time_ms,
            )


def _intake_backwards(index: ChunkIndex) -> Iterator[ChunkRef]:
    """The newest chunk first. Passes take chunks from the front, so an archived one has no intake before it."""
    for row in range(len(index) - 1, -1, -1):
        chunk = index.row(row)
        if chunk.is_archived:
            return
        yield chunk
