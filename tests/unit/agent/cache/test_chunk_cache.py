"""Chunks in memory: cut at whole batches, kept within a bound, the least recently used dropped first."""

import tracemalloc

import pytest

from agent.cache.chunk_cache import ChunkCache, ServedChunk
from coordinator.state.chunk_index import ChunkIndex, ChunkRef
from protocol.limits import MIB, READ_CACHE_ENTRY_BYTES
from protocol.records.batch import patch_offsets, walk_batches
from protocol.types import ObjectId, Offset
from tests.support.records.plain_records import Record, make_batch

COUNTS = (3, 1, 5)


def served(first: int = 10) -> ServedChunk:
    """Batches of 3, 1 and 5 records from an offset on."""
    batches = bytearray()
    for count in COUNTS:
        batches += make_batch([Record(offset=n, timestamp=n, value=b"v" * 10) for n in range(count)])
    patch_offsets(batches, first)
    return ServedChunk(memoryview(batches))


def entry_bytes(chunk: ServedChunk) -> int:
    """What a chunk takes of the bound."""
    return len(chunk.buffer) + READ_CACHE_ENTRY_BYTES


def refs(count: int) -> list[ChunkRef]:
    index = ChunkIndex()
    for number in range(count):
        index.append(number + 1, number, 0, 100, 1_000, -1)
    return [index.row(row) for row in range(count)]


ENDS = [header.end for header in walk_batches(served().buffer)]


@pytest.mark.parametrize(
    ("offset", "first", "end"),
    [(10, 0, 3), (12, 0, 3), (13, 1, 3), (14, 2, 3), (18, 2, 3), (19, 3, 3), (99, 3, 3)],
)
def test_a_read_begins_with_the_batch_that_holds_its_offset(offset: int, first: int, end: int) -> None:
    chunk, places = served(), [0, *ENDS]
    given = chunk.from_offset(offset, 1 << 20, at_least_one=False)
    assert given.reaches_end
    assert given.records == chunk.buffer[places[first] : places[end]]


def test_only_whole_batches_are_given_and_where_they_end_is_said() -> None:
    chunk = served()
    for bytes_max, bytes_given, offset_end in [
        (ENDS[0], ENDS[0], 13),
        (ENDS[1] - 1, ENDS[0], 13),
        (ENDS[1], ENDS[1], 14),
    ]:
        assert chunk.from_offset(10, bytes_max, at_least_one=False) == (chunk.buffer[:bytes_given], offset_end, False)
    assert chunk.from_offset(10, ENDS[2], at_least_one=False) == (chunk.buffer, 19, True)


def test_the_first_batch_is_given_whole_where_one_must_be() -> None:
    chunk = served()
    assert chunk.from_offset(10, 5, at_least_one=False) == (b"", 10, False)
    assert chunk.from_offset(10, 5, at_least_one=True) == (chunk.buffer[: ENDS[0]], 13, False)
    assert chunk.from_offset(13, 0, at_least_one=True) == (chunk.buffer[ENDS[0] : ENDS[1]], 14, False)
    assert chunk.from_offset(14, 0, at_least_one=True) == (chunk.buffer[ENDS[1] :], 19, True)


def test_a_chunk_is_found_again_and_counted() -> None:
    cache, (ref, other), chunk = ChunkCache(bytes_max=1 << 20), refs(2), served()
    assert cache.get(ref) is None
    cache.put(ref, chunk)
    assert cache.get(ref) is chunk
    assert cache.get(other) is None
    assert (cache.hits_count, cache.misses_count) == (1, 2)


def test_to_look_whether_a_chunk_is_held_is_no_use_of_it() -> None:
    chunk = served()
    cache, (first, second, third) = ChunkCache(bytes_max=2 * entry_bytes(chunk)), refs(3)
    cache.put(first, chunk)
    cache.put(second, chunk)
    assert [cache.holds(ref) for ref in (first, second, third)] == [True, True, False]
    cache.put(third, chunk)
    assert [cache.holds(ref) for ref in (first, second, third)] == [False, True, True]
    assert (cache.hits_count, cache.misses_count) == (0, 0)


@pytest.mark.parametrize("offsets", [(0, 9), (5, 10), (5, 9)])
def test_chunks_of_one_file_that_hold_no_rows_are_distinguished_by_their_offsets(offsets: tuple[int, int]) -> None:
    """Two partitions may both have nothing but control batches in one file."""
    cache, chunk = ChunkCache(bytes_max=1 << 20), served()
    held = refs(1)[0]._replace(
        offset_first=Offset(0), offset_end=Offset(10), byte_count=0, row_group=0, row_first=0, row_count=0
    )
    cache.put(held, chunk)
    assert cache.get(held) is chunk
    assert cache.get(held._replace(offset_first=Offset(offsets[0]), offset_end=Offset(offsets[1]))) is None


def test_the_least_recently_used_chunk_goes_first() -> None:
    chunk = served()
    cache, (first, second, third) = ChunkCache(bytes_max=2 * entry_bytes(chunk)), refs(3)
    cache.put(first, chunk)
    cache.put(second, chunk)
    cache.get(first)
    cache.put(third, chunk)
    assert [cache.get(ref) is not None for ref in (first, second, third)] == [True, False, True]
    assert cache.bytes_held == 2 * entry_bytes(chunk)


def test_the_same_chunk_is_counted_once_and_one_above_the_bound_is_not_kept() -> None:
    chunk = served()
    cache, (ref,) = ChunkCache(bytes_max=entry_bytes(chunk)), refs(1)
    cache.put(ref, chunk)
    cache.put(ref, chunk)
    assert cache.bytes_held == entry_bytes(chunk)
    small = ChunkCache(bytes_max=entry_bytes(chunk) - 1)
    small.put(ref, chunk)
    assert (small.get(ref), small.bytes_held) == (None, 0)


def test_many_small_chunks_take_no_more_memory_than_the_bound_says() -> None:
    bytes_max = 4 * MIB
    cache, ref = ChunkCache(bytes_max=bytes_max), refs(1)[0]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(20_000):
        cache.put(ref._replace(object_id=ObjectId(number)), ServedChunk(memoryview(bytearray(150))))
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert 0 < cache.bytes_held <= bytes_max
    assert bytes_max / 4 < taken < bytes_max


def test_a_whole_object_counts_with_its_entry_until_it_is_dropped() -> None:
    cache = ChunkCache(bytes_max=1 << 20)
    cache.put_object(ObjectId(7), memoryview(bytes(100)), chunks_count=1)
    assert cache.bytes_held == 100 + READ_CACHE_ENTRY_BYTES
    cache.drop_object(ObjectId(7))
    assert cache.bytes_held == 0
