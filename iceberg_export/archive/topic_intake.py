"""What of a topic waits for the archive, as the state has it.

Rule: nothing behind the first record of an open transaction, for nobody knows yet whether it belongs into the lake. Of
what is decided the markers and the aborted records are told, so that a pass leaves them out.
"""

from collections.abc import Iterator, Mapping

from coordinator.state.chunk_index import NO_OBJECT, ChunkRef
from coordinator.state.state import ClusterState, PartitionState, TopicState
from coordinator.state.table_folders import folder_name
from iceberg_export.archive.plan import NO_KEY, NO_WAITING_OFFSETS, IntakeChunk, TopicIntake
from protocol.limits import ARCHIVE_PASS_CHUNKS_MAX
from protocol.types import Offset, PartitionIndex, TopicId
from storage.refs import ObjectKind
from txn.isolation import AbortedBatches


def topic_intake(state: ClusterState, topic_id: TopicId) -> TopicIntake | None:
    """The topic's oldest intake chunks, as far as transactions are decided; None for an unknown topic."""
    topic = state.topics.get(topic_id)
    if topic is None:
        return None
    return TopicIntake(
        topic_id=topic_id,
        name=topic.name,
        folder_name=folder_name(state, topic),
        chunks=tuple(_intake_chunks(state, topic)),
        aborted={
            PartitionIndex(number): AbortedBatches(held.transactions.aborted_extents(_intake_first(held), held.log_end))
            for number, held in enumerate(topic.partitions)
            if held.transactions is not None
        },
    )


def intake_bytes(
    state: ClusterState, topic_id: TopicId, waiting: Mapping[PartitionIndex, Offset] = NO_WAITING_OFFSETS
) -> int:
    """How many bytes of the topic could be archived; 0 for an unknown topic. `waiting`: as `plan_pass` has it."""
    topic = state.topics.get(topic_id)
    if topic is None:
        return 0
    return sum(
        held.index.intake_bytes
        if held.transactions is None and PartitionIndex(number) not in waiting
        else held.index.intake_bytes_before(_row_end(held, waiting.get(PartitionIndex(number))))
        for number, held in enumerate(topic.partitions)
    )


def intake_first(state: ClusterState, topic_id: TopicId) -> list[Offset]:
    """Per partition of a known topic the first offset that is not archived; the log's end where all is."""
    return [_intake_first(held) for held in state.topics[topic_id].partitions]


def intake_end(state: ClusterState, topic_id: TopicId) -> list[Offset]:
    """Per partition of a known topic the offset behind the last that can be archived: whole chunks of it alone."""
    return [held.index.offset_first(_row_end(held)) for held in state.topics[topic_id].partitions]


def _intake_first(held: PartitionState) -> Offset:
    return held.index.offset_first(held.index.intake_row)


def _row_end(held: PartitionState, waits_from: Offset | None = None) -> int:
    """Behind the last row before whose end every transaction is decided, and no record waits."""
    end = len(held.index)
    if held.transactions is not None:
        end = held.index.count_before(held.transactions.decided_end(held.log_end))
    return end if waits_from is None else min(end, held.index.count_before(waits_from))


def _intake_chunks(state: ClusterState, topic: TopicState) -> Iterator[IntakeChunk]:
    """The oldest chunks of each partition, as many as one pass could take."""
    for partition, held in enumerate(topic.partitions):
        first = held.index.intake_row
        for row in range(first, min(_row_end(held), first + ARCHIVE_PASS_CHUNKS_MAX)):
            chunk = held.index.row(row)
            yield IntakeChunk(
                partition=PartitionIndex(partition),
                offset_first=chunk.offset_first,
                offset_end=chunk.offset_end,
                object_id=chunk.object_id,
                object_key=_object_key(state, chunk),
                byte_first=chunk.byte_first,
                byte_count=chunk.byte_count,
                append_time_ms=chunk.append_time_ms,
                checksum=chunk.checksum,
            )


def _object_key(state: ClusterState, chunk: ChunkRef) -> str:
    if chunk.object_id == NO_OBJECT:
        return NO_KEY
    stored = state.objects[chunk.object_id]
    assert stored.kind is ObjectKind.INTAKE, "what is archived lies before what is not"
    return stored.key
