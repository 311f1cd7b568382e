"""The part of a topic that waits for the archive, taken from the cluster state.

It ends before the first record of an open transaction: the lake holds committed records alone. Before that end it
includes the aborted batches and the markers, so that a pass leaves them out of its file.
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
    """The topic's oldest intake chunks, before its first open transaction; None for an unknown topic."""
    topic = state.topics.get(topic_id)
    if topic is None:
        return None
    return TopicIntake(
        topic_id=topic_id,
        name=topic.name,
        folder_name=folder_name(state, topic),
        chunks=tuple(_intake_chunks(state, topic)),
        aborted={
            PartitionIndex(number): AbortedBatches(
                partition.transactions.aborted_extents(_intake_first(partition), partition.log_end)
            )
            for number, partition in enumerate(topic.partitions)
            if partition.transactions is not None
        },
    )


def intake_bytes(
    state: ClusterState, topic_id: TopicId, waiting: Mapping[PartitionIndex, Offset] = NO_WAITING_OFFSETS
) -> int:
    """The count of bytes that could be archived; 0 for an unknown topic. `waiting`: see `plan_pass`."""
    topic = state.topics.get(topic_id)
    if topic is None:
        return 0
    return sum(
        partition.index.intake_bytes
        if partition.transactions is None and PartitionIndex(number) not in waiting
        else partition.index.intake_bytes_before(_row_end(partition, waiting.get(PartitionIndex(number))))
        for number, partition in enumerate(topic.partitions)
    )


def intake_first(state: ClusterState, topic_id: TopicId) -> list[Offset]:
    """The first offset of each partition that is not archived; the log's end where everything is. The topic exists."""
    return [_intake_first(partition) for partition in state.topics[topic_id].partitions]


def intake_end(state: ClusterState, topic_id: TopicId) -> list[Offset]:
    """The end of each partition's chunks that can be archived as a whole. The topic exists."""
    return [partition.index.offset_first(_row_end(partition)) for partition in state.topics[topic_id].partitions]


def _intake_first(partition: PartitionState) -> Offset:
    return partition.index.offset_first(partition.index.intake_row)


def _row_end(partition: PartitionState, waits_from: Offset | None = None) -> int:
    """The end of the index rows that can be archived: all transactions in them are decided, no offset is in wait."""
    end = len(partition.index)
    if partition.transactions is not None:
        end = partition.index.count_before(partition.transactions.decided_end(partition.log_end))
    return end if waits_from is None else min(end, partition.index.count_before(waits_from))


def _intake_chunks(state: ClusterState, topic: TopicState) -> Iterator[IntakeChunk]:
    """The oldest chunks of each partition, as many as one pass could take."""
    for number, partition in enumerate(topic.partitions):
        first = partition.index.intake_row
        for row in range(first, min(_row_end(partition), first + ARCHIVE_PASS_CHUNKS_MAX)):
            chunk = partition.index.row(row)
            yield IntakeChunk(
                partition=PartitionIndex(number),
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
    assert stored.kind is ObjectKind.INTAKE, "archived chunks come before intake chunks"
    return stored.key
