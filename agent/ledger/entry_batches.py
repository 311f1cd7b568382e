"""Splits a large deletion of chunks into ledger entries of bounded size.

Applying an entry stops every agent's event loop at the same time, and with it the renewals that keep sessions open. So
an entry names at most DROPPING_PARTITIONS_PER_ENTRY_MAX partitions and drops at most DROPPED_CHUNKS_PER_ENTRY_MAX
chunks; the next one is proposed when it is applied.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from protocol.limits import DROPPED_CHUNKS_PER_ENTRY_MAX, DROPPING_PARTITIONS_PER_ENTRY_MAX

T = TypeVar("T")


def split(chunk_count: int) -> Iterator[int]:
    """Divides a partition's `chunk_count` dropped chunks into steps of bounded size; one step of 0 for none."""
    while chunk_count > DROPPED_CHUNKS_PER_ENTRY_MAX:
        yield DROPPED_CHUNKS_PER_ENTRY_MAX
        chunk_count -= DROPPED_CHUNKS_PER_ENTRY_MAX
    yield chunk_count


def batches(rows: Iterable[tuple[T, int]]) -> Iterator[list[T]]:
    """Groups rows, each with its number of dropped chunks, into entries; their order is kept."""
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
