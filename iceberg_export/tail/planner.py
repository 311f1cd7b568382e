"""Makes the topics of a tail manifest from the cluster state: each one's table, and its chunks that are not archived.

The result depends on the state alone. One call makes a topic, so its table metadata and its chunks are of the same
ledger position. Between two topics the caller may apply entries. So the manifest's position is the one before the first
topic, and each topic is of that position or of a later one.
"""

from array import array
from collections.abc import Collection, Sequence
from itertools import chain, repeat
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coordinator.state.chunk_index import NO_OBJECT, Places
from coordinator.state.state import ClusterState, PartitionState, TopicState
from iceberg_export.tail.manifest import NO_KEY, NO_ROWS, TailChunks, TailPartition, TailTopic
from protocol.limits import TAIL_CHUNKS_MAX, TAIL_CHUNKS_PER_PARTITION_MAX
from protocol.types import ObjectId, Offset, TopicId
from txn.isolation import AbortedExtent

_NOTHING: Final = TailChunks()


def waiting_chunks(state: ClusterState, topic_id: TopicId) -> list[int]:
    """The count of chunks of each partition that are not archived; empty for an unknown topic."""
    topic = state.topics.get(topic_id)
    if topic is None:
        return []
    return [_row_end(partition) - partition.index.intake_row for partition in topic.partitions]


def chunks_each(
    waiting: Sequence[int], *, each_max: int = TAIL_CHUNKS_PER_PARTITION_MAX, all_max: int = TAIL_CHUNKS_MAX
) -> int:
    """The limit of chunks for each partition at which all partitions together have at most `all_max`.

    It is 1 at least: without a chunk, readers of a partition would make no progress.
    """
    limit = each_max
    while limit > 1 and sum(min(count, limit) for count in waiting) > all_max:
        limit //= 2
    return limit


class TailTopics:
    """The topics of successive manifests.

    Between two manifests most partitions do not change. They are cached here: the check whether one has changed takes a
    twentieth of the time to make it again.
    """

    def __init__(self) -> None:
        self._planned: dict[TopicId, list[_PlannedPartition]] = {}

    def topic(self, state: ClusterState, topic_id: TopicId, *, each_max: int) -> TailTopic | None:
        """The manifest's topic, with at most `each_max` chunks of each partition; None for an unknown topic."""
        topic = state.topics.get(topic_id)
        if topic is None:
            return None
        before = chain(self._planned.get(topic_id, ()), repeat(None))
        self._planned[topic_id] = planned = [
            _plan_partition(partition, state, each_max, known)
            for partition, known in zip(topic.partitions, before, strict=False)
        ]
        return TailTopic(
            name=topic.name,
            topic_id=topic_id,
            metadata_key=_metadata_key(topic),
            partitions=tuple(each.tail for each in planned),
        )

    def forget_others(self, topic_ids: Collection[TopicId]) -> None:
        """Remove all other topics from the cache: they were deleted."""
        for topic_id in self._planned.keys() - topic_ids:
            del self._planned[topic_id]


def _metadata_key(topic: TopicState) -> str:
    if topic.table is not None:
        return topic.table.metadata_key
    # An archive pass over aborted records alone commits nothing to the table, so the table may stay without commits.
    archived = [partition.index for partition in topic.partitions if partition.index.intake_row]
    return NO_ROWS if archived and not any(index.archived_objects() for index in archived) else NO_KEY


class _PlannedPartition(NamedTuple):
    """A partition of the manifest, with the values that it depends on.

    Rows of an index never change, and neither do aborted transactions before `decided_end`: they are only added and
    removed. So the partition is unchanged where these limits are.
    """

    state: PartitionState
    log_start: Offset
    decided_end: Offset
    archived_end: Offset
    chunks_end: Offset
    tail: TailPartition


def _decided_end(partition: PartitionState) -> Offset:
    """The offset before which every transaction is committed or aborted."""
    if partition.transactions is None:
        return partition.log_end
    return partition.transactions.decided_end(partition.log_end)


def _row_end(partition: PartitionState) -> int:
    """The end of the index rows with decided offsets. The last stable offset may lie inside the last row."""
    if partition.transactions is None:
        return len(partition.index)
    decided_end = _decided_end(partition)
    row = partition.index.count_before(decided_end)
    return row + (row < len(partition.index) and partition.index.offset_first(row) < decided_end)


def _plan_partition(
    partition: PartitionState, state: ClusterState, each_max: int, before: _PlannedPartition | None
) -> _PlannedPartition:
    index = partition.index
    row_first = index.intake_row
    row_end = max(row_first, min(_row_end(partition), row_first + each_max))
    archived_end, chunks_end = index.offset_first(row_first), index.offset_first(row_end)
    log_start, decided_end = partition.log_start, _decided_end(partition)
    if (
        before is not None
        and before.state is partition
        and (before.log_start, before.decided_end) == (log_start, decided_end)
        and (before.archived_end, before.chunks_end) == (archived_end, chunks_end)
    ):
        return before
    chunks, aborted = _NOTHING, list[AbortedExtent]()
    if row_end > row_first:
        chunks = _chunks(index.places(row_first, row_end), archived_end, state)
        if partition.transactions is not None:
            # Transactions after `decided_end` may still change, and readers stop before them.
            aborted = partition.transactions.aborted_extents(archived_end, min(chunks_end, decided_end))
    tail = TailPartition(
        log_start=log_start,
        archived_end=archived_end,
        last_stable=partition.last_stable,
        chunks=chunks,
        aborted=tuple(aborted),
        # A merge may replace the index rows of these offsets, but never gives them records.
        without_rows=tuple(index.archived_without_rows()),
    )
    return _PlannedPartition(partition, log_start, decided_end, archived_end, chunks_end, tail)


def _chunks(places: Places, archived_end: Offset, state: ClusterState) -> TailChunks:
    rows: dict[int, int] = {}
    keys: list[str] = []
    is_stored = places.object_id != NO_OBJECT
    key_rows = array("q")
    for object_id in places.object_id.tolist():
        row = rows.get(object_id)
        if row is None:
            row = -1
            if object_id != NO_OBJECT:
                row = len(keys)
                keys.append(state.objects[ObjectId(object_id)].key)
            rows[object_id] = row
        key_rows.append(row)
    columns = [
        _array(places.offset_end),
        key_rows,
        _array(places.byte_first * is_stored),
        _array(places.byte_count * is_stored),
        _array(places.append_time_ms),
        _array(places.checksum.astype(np.int64)),
    ]
    return TailChunks(offset_first=archived_end, keys=keys, columns=columns)


def _array(column: NDArray[np.int64]) -> "array[int]":
    numbers = array("q")
    numbers.frombytes(column.tobytes())
    return numbers
