"""What of a topic waits for the archive, as the state has it."""

from collections.abc import Iterator

from coordinator.state import ClusterState, TopicState
from iceberg_export.plan import IntakeChunk, TopicIntake
from protocol.limits import ARCHIVE_PASS_CHUNKS_MAX
from protocol.types import Offset, PartitionIndex, TopicId
from storage.refs import ObjectKind


def topic_intake(state: ClusterState, topic_id: TopicId) -> TopicIntake | None:
    """The topic's oldest intake chunks below the last stable offset, None for an unknown topic.

    Without transactions the last stable offset is the log's end, so all of the index counts.
    """
    topic = state.topics.get(topic_id)
    if topic is None:
        return None
    return TopicIntake(topic_id=topic_id, name=topic.name, chunks=tuple(_intake_chunks(state, topic)))


def intake_bytes(state: ClusterState, topic_id: TopicId) -> int:
    """How many bytes of the topic wait for the archive; 0 for an unknown topic."""
    topic = state.topics.get(topic_id)
    if topic is None:
        return 0
    return sum(held.index.intake_bytes for held in topic.partitions)


def intake_first(state: ClusterState, topic_id: TopicId) -> list[Offset]:
    """Per partition of a known topic the first offset that is not archived; the log's end where all is."""
    return [held.index.offset_first(held.index.intake_row) for held in state.topics[topic_id].partitions]


def _intake_chunks(state: ClusterState, topic: TopicState) -> Iterator[IntakeChunk]:
    """The oldest chunks of each partition, as many as one pass could take."""
    for partition, held in enumerate(topic.partitions):
        first = held.index.intake_row
        for row in range(first, min(len(held.index), first + ARCHIVE_PASS_CHUNKS_MAX)):
            chunk = held.index.row(row)
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
