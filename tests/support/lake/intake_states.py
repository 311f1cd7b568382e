"""States of a topic with a few chunks, archived and not."""

from coordinator.state.chunk_index import ChunkRef
from coordinator.state.state import ClusterState, ObjectState, PartitionState, TopicState
from protocol.types import (
    NO_TIMESTAMP,
    Milliseconds,
    ObjectId,
    TopicId,
)
from storage.refs import ObjectKind

TOPIC = TopicId(b"t" * 16)
ARCHIVED = ObjectId(3)


def state_of(*partitions: PartitionState) -> ClusterState:
    state = ClusterState.empty("cluster", 0)
    state.topics[TOPIC] = TopicState(
        topic_id=TOPIC, name="orders", configs={}, partitions=list(partitions), created_ms=Milliseconds(0)
    )
    for number in (1, 2):
        state.objects[ObjectId(number)] = ObjectState(
            key=f"intake/{number}", kind=ObjectKind.INTAKE, object_bytes=1000, references=1
        )
    state.objects[ARCHIVED] = ObjectState(key="lake/3", kind=ObjectKind.PARQUET, object_bytes=1000, references=1)
    return state


def partition_of(*chunks: tuple[int, int, int], archived_count: int = 0, row_count: int = 1) -> PartitionState:
    """Chunks as (offset end, object, bytes); the first ones are archived, with so many rows each."""
    partition = PartitionState()
    for end, number, size in chunks:
        partition.index.append(end, number, 40, size, 7, NO_TIMESTAMP, size)
    for row in range(archived_count):
        chunk = partition.index.row(row)
        archived = ChunkRef(
            chunk.offset_first, chunk.offset_end, ARCHIVED, 4, 99, Milliseconds(7), NO_TIMESTAMP, 0, row, row_count
        )
        partition.index.replace(row, row + 1, [archived])
    return partition
