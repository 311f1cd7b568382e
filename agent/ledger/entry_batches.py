"""Splits large changes, such as deletions of chunks, into ledger entries of bounded size.

Applying an entry stops every agent's event loop at the same time, and with it the renewals that keep sessions open. So
a deletion names at most DROPPING_PARTITIONS_PER_ENTRY_MAX partitions an entry, and drops at most
DROPPED_CHUNKS_PER_ENTRY_MAX chunks; the next entry is proposed when it is applied.
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
    return bounded_batches(
        rows, weight_max=DROPPED_CHUNKS_PER_ENTRY_MAX, rows_count_max=DROPPING_PARTITIONS_PER_ENTRY_MAX
    )


def bounded_batches(rows: Iterable[tuple[T, int]], *, weight_max: int, rows_count_max: int) -> Iterator[list[T]]:
    """Groups rows, each with its weight, in their order. A row that is heavier than `weight_max` stands alone."""
    batch: list[T] = []
    weight_left = weight_max
    for row, weight in rows:
        if batch and (weight > weight_left or len(batch) == rows_count_max):
            yield batch
            batch, weight_left = [], weight_max
        batch.append(row)
        weight_left -= weight
    if batch:
        yield batch
