"""Which data files hold a topic's log, in the order of their offsets, and where each one's rows stand in the index.

Rule: pure. Two files that hold rows of one partition stand in the order of those rows; a file's rows of a partition are
neighbours in the index, for passes and merges replace neighbours. So a few files that follow each other here can be
replaced by one. A topic of a thousand partitions and hundreds of files takes a tenth of a second: work for a thread,
over copies of the indexes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from coordinator.state.chunk_index import ChunkIndex, ChunkRef
from protocol.types import NO_TIMESTAMP, Milliseconds, ObjectId, PartitionIndex


class FilesOutOfOrder(Exception):
    """No order is right for every partition: two agents merged at once, each over what the other had not seen. Every
    partition is right by itself, and such files stay until they leave the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFile:
    """A data file, and the rows of the index that it stands for.

    `rows`: for each of its partitions, ascending, `[row_first, row_end)`. `newest_ms`: the greatest timestamp of its
    records, -1 where none has one.
    """

    object_id: ObjectId
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


def topic_files(indexes: Sequence[ChunkIndex]) -> list[TopicFile]:
    """The data files of a topic's log, in the order of their offsets. `indexes`: one for each partition.

    Raises `FilesOutOfOrder`.
    """
    rows: dict[int, dict[PartitionIndex, tuple[int, int]]] = {}
    newest: dict[int, int] = {}
    before: dict[int, set[int]] = {}
    for number, index in enumerate(indexes):
        runs = index.file_runs()
        for object_id, first, end, newest_ms in zip(*runs, strict=True):
            of_file = rows.setdefault(object_id, {})
            if number in of_file:
                raise FilesOutOfOrder(f"rows of one file stand apart in partition {number}")
            of_file[PartitionIndex(number)] = (first, end)
            newest[object_id] = max(newest_ms, newest.get(object_id, NO_TIMESTAMP))
            before.setdefault(object_id, set())
        for older, newer in pairwise(runs.object_id):
            before[newer].add(older)
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        raise FilesOutOfOrder("files stand in another order in one partition than in another") from error
    return [
        TopicFile(object_id=ObjectId(object_id), rows=rows[object_id], newest_ms=Milliseconds(newest[object_id]))
        for object_id in order
    ]


def merge_chunks(files: Sequence[TopicFile], indexes: Sequence[ChunkIndex]) -> tuple[MergeChunk, ...]:
    """What the index has of these files, in the order of (partition, offset)."""
    return tuple(sorted(_chunks(files, indexes), key=lambda each: (each.partition, each.chunk.offset_first)))


def _chunks(files: Sequence[TopicFile], indexes: Sequence[ChunkIndex]) -> Iterator[MergeChunk]:
    for number, file in enumerate(files):
        for partition, (first, end) in file.rows.items():
            for row in range(first, end):
                yield MergeChunk(partition=partition, file=number, chunk=indexes[partition].row(row))
