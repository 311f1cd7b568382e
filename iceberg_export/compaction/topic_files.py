"""Lists the data files of a topic's log in the order of their offsets, with the rows that each one has in the index.

Pure. Two files that hold rows of one partition are in the order of those rows. A file's rows of a partition are
neighbours in the index, because archive passes and merges replace neighbours. So one file can replace a few consecutive
files of this list. A topic of a thousand partitions and hundreds of files takes a tenth of a second: the caller runs it
in a thread, over copies of the indexes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from coordinator.state.chunk_index import ChunkIndex, ChunkRef
from protocol.types import NO_TIMESTAMP, Milliseconds, ObjectId, PartitionIndex


class FilesOutOfOrder(Exception):
    """No order of the files is right for every partition.

    Two agents merged concurrently, and neither had seen the other's merge. Each partition is right by itself. The
    topic's files are not merged again until retention has deleted these.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFile:
    """A data file, and its rows in the index.

    `rows`: `[row_first, row_end)` for each of its partitions, ascending. `newest_ms`: the greatest timestamp of its
    records, -1 where none has one.
    """

    object_id: ObjectId
    rows: Mapping[PartitionIndex, tuple[int, int]]
    newest_ms: Milliseconds

    @property
    def chunk_count(self) -> int:
        """The count of its rows in the index."""
        return sum(end - first for first, end in self.rows.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeChunk:
    """An archived row of the index. `file`: the position of its file among the files to merge."""

    partition: PartitionIndex
    file: int
    chunk: ChunkRef


def topic_files(indexes: Sequence[ChunkIndex]) -> list[TopicFile]:
    """The data files of a topic's log, in the order of their offsets. `indexes`: the chunk index of each partition.

    Raises `FilesOutOfOrder`.
    """
    rows: dict[int, dict[PartitionIndex, tuple[int, int]]] = {}
    newest: dict[int, int] = {}
    before: dict[int, set[int]] = {}
    for number, index in enumerate(indexes):
        runs = index.file_runs()
        for object_id, first, end, newest_ms in zip(*runs, strict=True):
            of_file = rows.setdefault(object_id, {})
            # One file cannot replace files whose rows have another file's rows between them.
            if number in of_file:
                raise FilesOutOfOrder(f"partition {number}: rows of another file lie between rows of one file")
            of_file[PartitionIndex(number)] = (first, end)
            newest[object_id] = max(newest_ms, newest.get(object_id, NO_TIMESTAMP))
            before.setdefault(object_id, set())
        for older, newer in pairwise(runs.object_id):
            before[newer].add(older)
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        raise FilesOutOfOrder("two partitions have the same files in different orders") from error
    return [
        TopicFile(object_id=ObjectId(object_id), rows=rows[object_id], newest_ms=Milliseconds(newest[object_id]))
        for object_id in order
    ]


def merge_chunks(files: Sequence[TopicFile], indexes: Sequence[ChunkIndex]) -> tuple[MergeChunk, ...]:
    """The rows of these files in the index, in the order of (partition, offset)."""
    return tuple(sorted(_chunks(files, indexes), key=lambda each: (each.partition, each.chunk.offset_first)))


def _chunks(files: Sequence[TopicFile], indexes: Sequence[ChunkIndex]) -> Iterator[MergeChunk]:
    for number, file in enumerate(files):
        for partition, (first, end) in file.rows.items():
            for row in range(first, end):
                yield MergeChunk(partition=partition, file=number, chunk=indexes[partition].row(row))
