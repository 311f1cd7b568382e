"""What the tail manifest says of a state: of each topic its table, and where what is not archived lies.

Rule: what is told depends on the state alone. A topic is told in one go, so it is consistent in itself: its table's
metadata and the chunks behind it are those of one position. Of many topics whoever asks may let the state change in
between: the manifest's position is the one before the first of them, and each is told as of that or of a later one.
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
    """How many chunks of each partition a manifest would name; none for an unknown topic."""
    topic = state.topics.get(topic_id)
    if topic is None:
        return []
    return [_row_end(held) - held.index.intake_row for held in topic.partitions]


def chunks_each(
    waiting: Sequence[int], *, each_max: int = TAIL_CHUNKS_PER_PARTITION_MAX, all_max: int = TAIL_CHUNKS_MAX
) -> int:
    """How many of each partition's chunks are named, so that all together are at most `all_max`: at least one of each,
    or a partition would never be seen to go on."""
    each = each_max
    while each > 1 and sum(min(count, each) for count in waiting) > all_max:
        each //= 2
    return each


class TailTopics:
    """What was told of topics, for whoever tells of them again and again: between two manifests most partitions stay as
    they are, and to look whether one did costs a twentieth of telling it."""

    def __init__(self) -> None:
        self._planned: dict[TopicId, list[_PlannedPartition]] = {}

    def topic(self, state: ClusterState, topic_id: TopicId, *, each_max: int) -> TailTopic | None:
        """The topic as the manifest tells it, with at most `each_max` chunks of a partition. None: there is none."""
        topic = state.topics.get(topic_id)
        if topic is None:
            return None
        before = chain(self._planned.get(topic_id, ()), repeat(None))
        self._planned[topic_id] = planned = [
            _plan_partition(held, state, each_max, known) for held, known in zip(topic.partitions, before, strict=False)
        ]
        return TailTopic(
            name=topic.name,
            topic_id=topic_id,
            metadata_key=_metadata_key(topic),
            partitions=tuple(each.partition for each in planned),
        )

    def forget_others(self, topic_ids: Collection[TopicId]) -> None:
        """Only these topics are left."""
        for topic_id in self._planned.keys() - topic_ids:
            del self._planned[topic_id]


def _metadata_key(topic: TopicState) -> str:
    if topic.table is not None:
        return topic.table.metadata_key
    # Passes over aborted records alone commit nothing to a table; so there may be none for long.
    archived = [partition.index for partition in topic.partitions if partition.index.intake_row]
    return NO_ROWS if archived and not any(index.archived_objects() for index in archived) else NO_KEY


class _PlannedPartition(NamedTuple):
    """A partition as it was told, and what that depends on: rows of an index, and aborted transactions where all is
    decided, never change, but come and go."""

    held: PartitionState
    log_start: Offset
    decided_end: Offset
    archived_end: Offset
    chunks_end: Offset
    partition: TailPartition


def _decided_end(held: PartitionState) -> Offset:
    """Before it every transaction is decided."""
    return held.log_end if held.transactions is None else held.transactions.decided_end(held.log_end)


def _row_end(held: PartitionState) -> int:
    """Behind the last row of which something is decided: the last stable offset may lie within it."""
    if held.transactions is None:
        return len(held.index)
    decided_end = _decided_end(held)
    row = held.index.count_before(decided_end)
    return row + (row < len(held.index) and held.index.offset_first(row) < decided_end)


def _plan_partition(
    held: PartitionState, state: ClusterState, each_max: int, before: _PlannedPartition | None
) -> _PlannedPartition:
    index = held.index
    row_first = index.intake_row
    row_end = max(row_first, min(_row_end(held), row_first + each_max))
    archived_end, chunks_end = index.offset_first(row_first), index.offset_first(row_end)
    log_start, decided_end = held.log_start, _decided_end(held)
    if (
        before is not None
        and before.held is held
        and (before.log_start, before.decided_end) == (log_start, decided_end)
        and (before.archived_end, before.chunks_end) == (archived_end, chunks_end)
    ):
        return before
    chunks, aborted = _NOTHING, list[AbortedExtent]()
    if row_end > row_first:
        chunks = _chunks(index.places(row_first, row_end), archived_end, state)
        if held.transactions is not None:
            # What lies behind may still change; nobody may read there.
            aborted = held.transactions.aborted_extents(archived_end, min(chunks_end, decided_end))
    partition = TailPartition(
        log_start=log_start,
        archived_end=archived_end,
        last_stable=held.last_stable,
        chunks=chunks,
        aborted=tuple(aborted),
        # A merge may change the rows behind these, and never what is true of them.
        without_rows=tuple(index.archived_without_rows()),
    )
    return _PlannedPartition(held, log_start, decided_end, archived_end, chunks_end, partition)


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
