"""Commands of archive passes and table commits that fit a state."""

import itertools

from coordinator.commands.commands import (
    ArchivedChunk,
    Command,
    PartitionReplacement,
    ReplaceChunks,
    ReplacedChunk,
    TableCommit,
)
from coordinator.state.state import ClusterState
from protocol.types import Milliseconds, ObjectNumber, Offset, PartitionIndex, SessionId, TopicId
from storage.refs import ObjectKind, parquet_key
from tests.support.commands.table_commits import commit_table, table_commit


def archive_of(state: ClusterState, session: int, number: int, topic_id: TopicId, row: int) -> Command | None:
    """An archive pass over the topic's first partition from a row on; None where it has no such row."""
    topic = state.topics.get(topic_id)
    if topic is None or row >= len(topic.partitions[0].index):
        return None
    chunks = list(topic.partitions[0].index.rows_from(topic.partitions[0].index.offset_first(row)))
    first, end = chunks[0].offset_first, chunks[-1].offset_end
    middle = Offset((first + end) // 2)
    key = parquet_key(topic.name, topic_id, SessionId(session), ObjectNumber(number))
    edges = [first, middle, end] if first < middle else [first, end]
    return ReplaceChunks(
        topic_id=topic_id,
        object_session=SessionId(session),
        object_key=key,
        object_bytes=10,
        partitions=(
            PartitionReplacement(
                partition=PartitionIndex(0),
                replaced=tuple(
                    ReplacedChunk(
                        offset_first=chunk.offset_first,
                        offset_end=chunk.offset_end,
                        object_key="" if chunk.is_marker else state.objects[chunk.object_id].key,
                        byte_first=chunk.byte_first,
                    )
                    for chunk in chunks
                ),
                archived=tuple(
                    ArchivedChunk(
                        offset_first=edge,
                        offset_end=edge_next,
                        row_group=0,
                        row_first=edge - first,
                        row_count=edge_next - edge,
                        byte_first=4,
                        byte_count=6,
                        max_timestamp=Milliseconds(3),
                    )
                    for edge, edge_next in itertools.pairwise(edges)
                ),
            ),
        ),
        table=next_of_table(state, session, number, topic_id, added=(key,)) if number % 3 else None,
    )


def next_of_table(
    state: ClusterState, session: int, number: int, topic_id: TopicId, *, added: tuple[str, ...]
) -> TableCommit:
    """A commit that releases the earlier metadata and files without chunks, and for odd numbers all metadata."""
    topic = state.topics[topic_id]
    replaces, released = "", set[str]()
    if topic.table is not None:
        replaces = topic.table.metadata_key
        released = {replaces, *(state.objects[object_id].key for object_id in topic.table.unneeded)}
        if number % 2:
            kinds = {state.objects[object_id].key: state.objects[object_id].kind for object_id in topic.table.objects}
            released |= {key for key, kind in kinds.items() if kind is ObjectKind.TABLE_METADATA}
    return table_commit(
        number,
        replaces=replaces,
        data_files=added,
        released=tuple(sorted(released)),
        session=session,
        name=topic.name,
        topic_id=topic_id,
    )


def upkeep_of(state: ClusterState, session: int, number: int, topic_id: TopicId) -> Command | None:
    """A commit of the table alone, or None where there is no such topic."""
    if topic_id not in state.topics:
        return None
    return commit_table(next_of_table(state, session, number, topic_id, added=()), session=session, topic_id=topic_id)
