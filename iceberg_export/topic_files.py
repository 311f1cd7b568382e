"""Which data files hold a topic's log, in the order of their offsets, and where each one's rows stand in the index.

Rule: made of the state alone. Two files that hold rows of one partition stand in the order of those rows; a file's rows
of a partition are neighbours in the index, for passes and merges replace neighbours. So a few files that follow each
other here can be replaced by one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise

from coordinator.chunk_index import ChunkRef
from coordinator.state import ClusterState, TopicState
from protocol.types import NO_TIMESTAMP, Milliseconds, ObjectId, PartitionIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFile:
    """A data file and the rows of the index that it stands for.

    `rows`: for each of its partitions, ascending, `[row_first, row_end)` as the index is now. `newest_ms`: the greatest
    timestamp of its records, -1 where none has one.
    """

    object_id: ObjectId
    key: str
    object_bytes: int
    rows: Mapping[PartitionIndex, tuple[int, int]]
    newest_ms: Milliseconds

    @property
    def chunk_count(self) -> int:
        """How many rows of the index those are."""
        return sum(end - first for first, end in self.rows.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeChunk:
    """An archived row of the index: `chunk` of a partition, in the file of that number among those that are merged."""

    partition: PartitionIndex
    file: int
    chunk: ChunkRef


def topic_files(state: ClusterState, topic: TopicState) -> list[TopicFile]:
    """The data files of a topic's log, in the order of their offsets."""
    rows: dict[int, dict[PartitionIndex, tuple[int, int]]] = {}
    newest: dict[int, int] = {}
    before: dict[int, set[int]] = {}
    for number, held in enumerate(topic.partitions):
        runs = held.index.file_runs()
        for object_id, first, end, newest_ms in zip(*runs, strict=True):
            of_file = rows.setdefault(object_id, {})
            assert number not in of_file, "a file's rows of a partition are neighbours"
            of_file[PartitionIndex(number)] = (first, end)
            newest[object_id] = max(newest_ms, newest.get(object_id, NO_TIMESTAMP))
            before.setdefault(object_id, set())
        for older, newer in pairwise(runs.object_id):
            before[newer].add(older)
    return [
        TopicFile(
            object_id=ObjectId(object_id),
            key=state.objects[ObjectId(object_id)].key,
            object_bytes=state.objects[ObjectId(object_id)].object_bytes,
            rows=rows[object_id],
            newest_ms=Milliseconds(newest[object_id]),
        )
        for object_id in TopologicalSorter(before).static_order()
    ]
