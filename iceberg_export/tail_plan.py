"""What the tail manifest says of a state: of each topic its table, and where what is not archived lies.

Rule: pure. A topic is told in one go, so it is consistent in itself: its table's metadata and the chunks behind it are
those of one position. Of many topics whoever asks may let the state change in between: the manifest's position is the
one before the first of them, and each is told as of that or of a later one.
"""

from array import array
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from coordinator.chunk_index import NO_OBJECT
from coordinator.state import ClusterState, PartitionState
from iceberg_export.tail_format import NO_KEY, TailChunks, TailPartition, TailTopic
from protocol.limits import TAIL_CHUNKS_MAX, TAIL_CHUNKS_PER_PARTITION_MAX
from protocol.types import ObjectId, TopicId

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


def tail_topic(state: ClusterState, topic_id: TopicId, *, each_max: int) -> TailTopic | None:
    """The topic as the manifest tells it, with at most `each_max` chunks of a partition; None for an unknown topic."""
    topic = state.topics.get(topic_id)
    if topic is None:
        return None
    keys = _Keys(state)
    return TailTopic(
        name=topic.name,
        topic_id=topic_id,
        metadata_key=NO_KEY if topic.table is None else topic.table.metadata_key,
        partitions=tuple(_partition(held, keys, each_max) for held in topic.partitions),
    )


class _Keys:
    """Keys of objects, each once, in rows that `TailChunks` names."""

    def __init__(self, state: ClusterState) -> None:
        self._objects = state.objects
        self._rows: dict[int, int] = {NO_OBJECT: -1}
        self.keys: list[str] = []

    def rows(self, object_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        distinct, places = np.unique(object_ids, return_inverse=True)
        rows = np.array([self._row(object_id) for object_id in distinct.tolist()], np.int64)
        found: NDArray[np.int64] = rows[places]
        return found

    def _row(self, object_id: int) -> int:
        row = self._rows.get(object_id)
        if row is None:
            row = self._rows[object_id] = len(self.keys)
            self.keys.append(self._objects[ObjectId(object_id)].key)
        return row


def _row_end(held: PartitionState) -> int:
    """Behind the last row of which something is decided: the last stable offset may lie within it."""
    if held.transactions is None:
        return len(held.index)
    decided_end = held.transactions.decided_end(held.log_end)
    row = held.index.count_before(decided_end)
    return row + (row < len(held.index) and held.index.offset_first(row) < decided_end)


def _partition(held: PartitionState, keys: _Keys, each_max: int) -> TailPartition:
    index = held.index
    row_first = index.intake_row
    row_end = min(_row_end(held), row_first + each_max)
    archived_end = index.offset_first(row_first)
    if row_first >= row_end:
        return TailPartition(
            log_start=held.log_start, archived_end=archived_end, last_stable=held.last_stable, chunks=_NOTHING
        )
    places = index.places(row_first, row_end)
    is_stored = places.object_id != NO_OBJECT
    columns = (
        places.offset_end,
        keys.rows(places.object_id),
        np.where(is_stored, places.byte_first, 0),
        np.where(is_stored, places.byte_count, 0),
        places.append_time_ms,
    )
    chunks = TailChunks(offset_first=archived_end, keys=keys.keys, columns=[_array(column) for column in columns])
    aborted = () if held.transactions is None else held.transactions.aborted_extents(archived_end, chunks.offset_end)
    return TailPartition(
        log_start=held.log_start,
        archived_end=archived_end,
        last_stable=held.last_stable,
        chunks=chunks,
        aborted=tuple(aborted),
    )


def _array(column: NDArray[np.int64]) -> "array[int]":
    numbers = array("q")
    numbers.frombytes(column.tobytes())
    return numbers
