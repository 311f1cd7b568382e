"""Shares out among several entries what one would take too long for.

Rule: applying an entry holds up every agent's loop at once, and with it the signs of life that keep sessions open. So
whoever proposes to drop chunks does it by entries of so many partitions and so many chunks, one after the other.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from protocol.limits import DROPPED_CHUNKS_PER_ENTRY_MAX, DROPPING_PARTITIONS_PER_ENTRY_MAX

T = TypeVar("T")


def split(chunk_count: int) -> Iterator[int]:
    """In how many chunks at a time a partition lets go of `chunk_count`; one step of none where there are none."""
    while chunk_count > DROPPED_CHUNKS_PER_ENTRY_MAX:
        yield DROPPED_CHUNKS_PER_ENTRY_MAX
        chunk_count -= DROPPED_CHUNKS_PER_ENTRY_MAX
    yield chunk_count


def batches(rows: Iterable[tuple[T, int]]) -> Iterator[list[T]]:
    """The rows in their order, as many of them together as one entry may have; with each comes its step of chunks."""
    batch: list[T] = []
    chunks_left = DROPPED_CHUNKS_PER_ENTRY_MAX
    for row, chunk_count in rows:
        if batch and (chunk_count > chunks_left or len(batch) == DROPPING_PARTITIONS_PER_ENTRY_MAX):
            yield batch
            batch, chunks_left = [], DROPPED_CHUNKS_PER_ENTRY_MAX
        batch.append(row)
        chunks_left -= chunk_count
    if batch:
        yield batch
