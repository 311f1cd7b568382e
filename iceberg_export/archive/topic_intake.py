"""The part of a topic that waits for the archive, chosen from the cluster state.

It ends before the first record of an open transaction: the lake holds committed records alone. Before that end it
includes the aborted batches and the markers, so that a pass leaves them out of its file.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coordinator.state.chunk_index import NO_OBJECT, ChunkIndex, Places, joined_places
from coordinator.state.state import ClusterState, PartitionState
from coordinator.state.table_folders import folder_name
from iceberg_export.archive.plan import (
    NO_KEY,
    NO_WAITING_OFFSETS,
    ArchivePass,
    IntakeChunk,
    IntakeRows,
    plan_rows,
)
from protocol.limits import ARCHIVE_PASS_BYTES_MAX, ARCHIVE_PASS_CHUNKS_MAX
from protocol.types import Offset, PartitionIndex, TopicId
from storage.refs import ObjectKind
from txn.isolation import AbortedBatches

_Range: TypeAlias = tuple[int, ChunkIndex, int, int]
"""A partition, its index, and the rows of it that could be archived: [first, end)."""
_ROWS_READ_MIN: Final = 64
"""The rows of a partition that are read at first, at least."""


def next_pass(
    state: ClusterState,
    topic_id: TopicId,
    *,
    waiting: Mapping[PartitionIndex, Offset] = NO_WAITING_OFFSETS,
    bytes_max: int = ARCHIVE_PASS_BYTES_MAX,
    chunks_max: int = ARCHIVE_PASS_CHUNKS_MAX,
) -> ArchivePass | None:
    """The topic's next pass (`iceberg_export.archive.plan.plan_rows`), before its first open transaction.

    None where nothing can be archived, and for an unknown topic.
    """
    topic = state.topics.get(topic_id)
    if topic is None:
        return None
    ranges = [
        (number, partition.index, partition.index.intake_row, _row_end(partition))
        for number, partition in enumerate(topic.partitions)
    ]
    ranges = [each for each in ranges if each[2] < each[3]]
    # Nearly always a pass takes about as many chunks of each partition, and there may be many more of them.
    rows_max = max(2 * chunks_max // max(len(ranges), 1), _ROWS_READ_MIN)
    while True:
        rows, places = _intake_rows(ranges, rows_max)
        chosen = plan_rows(rows, waiting=waiting, bytes_max=bytes_max, chunks_max=chunks_max)
        if rows_max >= chunks_max or not _is_cut(ranges, rows_max, chosen):
            break
        rows_max *= 4
    if not len(chosen):
        return None
    return ArchivePass(
        topic_id=topic_id,
        name=topic.name,
        folder_name=folder_name(state, topic),
        chunks=tuple(_chunks(state, rows, places, chosen)),
        aborted={
            PartitionIndex(number): AbortedBatches(
                partition.transactions.aborted_extents(_intake_first(partition), partition.log_end)
            )
            for number, partition in enumerate(topic.partitions)
            if partition.transactions is not None
        },
    )


def _intake_rows(ranges: Sequence[_Range], rows_max: int) -> tuple[IntakeRows, Places]:
    """The first `rows_max` rows of each range."""
    counts = [min(end - first, rows_max) for _, _, first, end in ranges]
    places = joined_places(
        (index, first, first + count) for (_, index, first, _), count in zip(ranges, counts, strict=True)
    )
    offset_first = np.empty_like(places.offset_end)
    offset_first[1:] = places.offset_end[:-1]
    firsts = np.cumsum([0, *counts[:-1]]) if counts else np.empty(0, np.int64)
    offset_first[firsts] = [index.offset_first(first) for _, index, first, _ in ranges]
    rows = IntakeRows(
        partition=np.repeat(np.array([number for number, *_ in ranges], dtype=np.int64), counts),
        offset_first=offset_first,
        offset_end=places.offset_end,
        object_id=places.object_id,
        byte_count=places.byte_count,
    )
    return rows, places


def _is_cut(ranges: Sequence[_Range], rows_max: int, chosen: NDArray[np.intp]) -> bool:
    """Whether a pass takes all rows that were read of a partition that has more."""
    counts = np.array([min(end - first, rows_max) for _, _, first, end in ranges])
    has_more = np.array([end - first > rows_max for _, _, first, end in ranges])
    lasts = np.cumsum(counts)[has_more] - 1
    return bool(np.isin(lasts, chosen).any())


def _chunks(state: ClusterState, rows: IntakeRows, places: Places, chosen: NDArray[np.intp]) -> Iterator[IntakeChunk]:
    columns = (
        rows.partition, rows.offset_first, rows.offset_end, rows.object_id, places.byte_first, rows.byte_count,
        places.append_time_ms, places.checksum,
    )  # fmt: skip
    keys: dict[int, str] = {NO_OBJECT: NO_KEY}
    for partition, first, end, object_id, *rest in zip(*(column[chosen].tolist() for column in columns), strict=True):
        key = keys.get(object_id)
        if key is None:
            stored = state.objects[object_id]
            assert stored.kind is ObjectKind.INTAKE, "archived chunks come before intake chunks"
            key = keys[object_id] = stored.key
        yield IntakeChunk(partition, first, end, object_id, key, *rest)


def intake_bytes(
    state: ClusterState, topic_id: TopicId, waiting: Mapping[PartitionIndex, Offset] = NO_WAITING_OFFSETS
) -> int:
    """The count of bytes that could be archived; 0 for an unknown topic. `waiting`: see `plan.plan_rows`."""
    topic = state.topics.get(topic_id)
    if topic is None:
        return 0
    return sum(
        partition_intake_bytes(partition, waiting.get(PartitionIndex(number)))
        for number, partition in enumerate(topic.partitions)
    )


def partition_intake_bytes(partition: PartitionState, waits_from: Offset | None = None) -> int:
    """The same of one partition. `waits_from`: the first offset that must not be archived yet."""
    if partition.transactions is None and waits_from is None:
        return partition.index.intake_bytes
    return partition.index.intake_bytes_before(_row_end(partition, waits_from))


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
