"""The chunks in the read cache that producers brought to this agent, by partition and offset.

An archive pass replaces chunks in the index, and nothing names them from then on. Offsets are never given twice, so a
chunk is found by its own for as long as it is in the cache. Only chunks that `may_outlive_pass` are found, and they are
served only where the archive has each of their records (`agent.fetch.chunk_plan.has_every_record`).
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from protocol.limits import PRODUCED_CHUNK_BYTES_MIN, PRODUCED_CHUNKS_CUT_MIN
from protocol.types import PartitionIndex, TopicId


def may_outlive_pass(chunk_bytes: int, batch_is_transactional: Sequence[int]) -> bool:
    """Whether a chunk may be served behind its archive pass: it is large enough, and no batch is of a transaction.

    The state forgets which transactions were aborted when it archives their markers (safety rule S5).
    """
    return chunk_bytes >= PRODUCED_CHUNK_BYTES_MIN and not any(batch_is_transactional)


class ProducedChunk(NamedTuple):
    """A chunk of one partition in the cache: its key there, and its offsets."""

    key: Hashable
    offset_first: int
    offset_end: int


class PartitionChunks:
    """The chunks of one partition, ascending. They do not overlap, and there may be gaps."""

    __slots__ = ("_ends", "_firsts", "_keys", "_start", "partition")

    def __init__(self, partition: tuple[TopicId, PartitionIndex]) -> None:
        self.partition = partition
        self._firsts, self._ends = array("q"), array("q")
        self._keys: list[Hashable] = []
        self._start = 0
        """The first element that counts: those before it are removed, and cut off now and then. Chunks are mostly
        removed from the front, and to move all others each time would take long."""

    def __len__(self) -> int:
        return len(self._keys) - self._start

    def add(self, chunk: ProducedChunk) -> None:
        """Add a chunk, mostly behind all others."""
        if not self or chunk.offset_first >= self._ends[-1]:
            self._firsts.append(chunk.offset_first)
            self._ends.append(chunk.offset_end)
            self._keys.append(chunk.key)
            return
        row = bisect_left(self._firsts, chunk.offset_first, self._start)
        self._firsts.insert(row, chunk.offset_first)
        self._ends.insert(row, chunk.offset_end)
        self._keys.insert(row, chunk.key)

    def remove(self, offset_first: int) -> None:
        """Remove the chunk that begins there, mostly the first one."""
        if self._firsts[self._start] != offset_first:
            row = bisect_left(self._firsts, offset_first, self._start)
            del self._firsts[row], self._ends[row], self._keys[row]
            return
        self._start += 1
        if self._start >= PRODUCED_CHUNKS_CUT_MIN and self._start * 2 >= len(self._keys):
            del self._firsts[: self._start], self._ends[: self._start], self._keys[: self._start]
            self._start = 0

    def range_around(self, offset: int, offset_end: int) -> tuple[int, int] | None:
        """The first offset and the end of the chunks that hold `[offset, offset_end)`; None where there is a gap."""
        first = row = bisect_right(self._ends, offset, self._start)
        if row == len(self._keys) or self._firsts[row] > offset:
            return None
        while self._ends[row] < offset_end:
            row += 1
            if row == len(self._keys) or self._firsts[row] != self._ends[row - 1]:
                return None
        return self._firsts[first], self._ends[row]

    def chunks_from(self, offset: int, offset_end: int) -> Iterator[ProducedChunk]:
        """The chunks that hold `[offset, offset_end)`, as far as they are there. None may be removed meanwhile."""
        for row in range(bisect_right(self._ends, offset, self._start), len(self._keys)):
            if self._firsts[row] >= offset_end:
                return
            yield ProducedChunk(self._keys[row], self._firsts[row], self._ends[row])
