"""Produced chunks in the read cache are found by their offsets, for as long as they are in it."""

import random
import tracemalloc

import pytest

from agent.cache import produced_chunks
from agent.cache.chunk_cache import ChunkCache, ServedChunk
from agent.cache.produced_chunks import PartitionChunks, ProducedChunk
from coordinator.state.chunk_index import ChunkIndex, ChunkRef
from protocol.limits import MIB, PRODUCED_CHUNKS_CUT_MIN, READ_CACHE_ENTRY_BYTES
from protocol.records.batch import patch_offsets
from protocol.types import ObjectId, Offset, PartitionIndex, TopicId
from tests.support.records.plain_records import Record, make_batch

PARTITION = (TopicId(b"t" * 16), PartitionIndex(0))
OTHER = (TopicId(b"t" * 16), PartitionIndex(1))
RECORDS = 10
BATCH = make_batch([Record(offset=n, timestamp=n, value=b"v") for n in range(RECORDS)])
ENTRY_BYTES = len(BATCH) + READ_CACHE_ENTRY_BYTES


@pytest.fixture(autouse=True)
def chunks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produced_chunks, "PRODUCED_CHUNK_BYTES_MIN", 0)


def ref(number: int) -> ChunkRef:
    """The chunk of ten records of one object: the offsets from ten times its number on."""
    index = ChunkIndex(Offset(number * RECORDS))
    index.append((number + 1) * RECORDS, number + 1, 0, len(BATCH), 1_000, -1)
    return index.row(0)


def served(number: int) -> ServedChunk:
    batches = bytearray(BATCH)
    patch_offsets(batches, number * RECORDS)
    return ServedChunk(batches)


def cache_of(*numbers: int, count_max: int = 100) -> ChunkCache:
    """A cache for so many chunks, and these in it, the first one first."""
    cache = ChunkCache(bytes_max=count_max * ENTRY_BYTES)
    for number in numbers:
        cache.put_produced(PARTITION, ref(number), served(number), [0])
    return cache


def found(cache: ChunkCache, offset: int, offset_end: int) -> list[tuple[int, int]]:
    return [(part.offset_first, part.offset_end) for part, _ in cache.produced_from(PARTITION, offset, offset_end)]


@pytest.mark.parametrize(
    ("offset", "offset_end", "expected"),
    [
        (0, 30, (0, 30)),
        (9, 10, (0, 10)),
        (10, 11, (10, 20)),
        (15, 25, (10, 30)),
        (15, 31, None),
        (30, 40, None),
        (40, 50, (40, 50)),
        (45, 60, None),
        (50, 60, None),
    ],
)
def test_a_range_is_found_where_chunks_without_a_gap_hold_it(
    offset: int, offset_end: int, expected: tuple[int, int] | None
) -> None:
    cache = cache_of(1, 0, 4, 2)
    assert cache.produced_range(PARTITION, offset, offset_end) == expected
    assert cache.produced_range(OTHER, offset, offset_end) is None


def test_chunks_are_returned_in_order_from_the_one_that_holds_the_offset() -> None:
    cache = cache_of(2, 0, 1, 3)
    assert found(cache, 15, 30) == [(10, 20), (20, 30)]
    assert found(cache, 10, 11) == [(10, 20)]
    assert list(cache.produced_from(OTHER, 15, 30)) == []
    (_, chunk), *_ = cache.produced_from(PARTITION, 15, 30)
    assert chunk is cache.get(ref(1))


def test_a_chunk_that_is_returned_counts_as_used_and_one_that_is_looked_for_does_not() -> None:
    cache = cache_of(0, 1, 2, count_max=3)
    cache.produced_range(PARTITION, 0, 30)
    assert cache.hits_count == 0
    assert found(cache, 0, 10) == [(0, 10)]
    assert (cache.hits_count, cache.misses_count) == (1, 0)
    cache.put_produced(PARTITION, ref(3), served(3), [0])
    assert [cache.produced_range(PARTITION, n * 10, n * 10 + 10) is not None for n in range(4)] == [
        True,
        False,
        True,
        True,
    ]


def test_a_chunk_that_is_dropped_is_not_found_any_more() -> None:
    cache = cache_of(0, 1, 2)
    cache.drop_chunks(ObjectId(2))
    assert cache.produced_range(PARTITION, 0, 30) is None
    assert found(cache, 0, 30) == [(0, 10), (20, 30)]
    cache.put_produced(PARTITION, ref(1), served(1), [0])
    assert cache.produced_range(PARTITION, 0, 30) == (0, 30)
    for number in range(3):
        cache.drop_chunks(ObjectId(number + 1))
    assert (cache.bytes_held, cache._produced) == (0, {})


def test_only_what_is_in_the_cache_by_its_own_call_is_found() -> None:
    cache = ChunkCache(bytes_max=2 * ENTRY_BYTES)
    cache.put(ref(0), served(0))
    cache.put_produced(PARTITION, ref(0), served(0), [0])
    assert cache.produced_range(PARTITION, 0, 10) is None
    small = ChunkCache(bytes_max=ENTRY_BYTES - 1)
    small.put_produced(PARTITION, ref(0), served(0), [0])
    assert (small.produced_range(PARTITION, 0, 10), small.bytes_held) == (None, 0)


@pytest.mark.parametrize(
    ("batch_is_transactional", "bytes_min", "is_found"),
    [([0, 0], 0, True), ([0, 1], 0, False), ([0], len(BATCH), True), ([0], len(BATCH) + 1, False)],
)
def test_s5_small_chunks_and_those_with_a_transaction_are_not_found(
    batch_is_transactional: list[int], bytes_min: int, monkeypatch: pytest.MonkeyPatch, *, is_found: bool
) -> None:
    monkeypatch.setattr(produced_chunks, "PRODUCED_CHUNK_BYTES_MIN", bytes_min)
    cache = cache_of()
    cache.put_produced(PARTITION, ref(0), served(0), batch_is_transactional)
    assert (cache.produced_range(PARTITION, 0, 10) is not None) is is_found
    assert cache.holds(ref(0))


def test_whatever_is_added_and_removed_what_is_left_is_found() -> None:
    chance = random.Random(1)
    chunks, left = PartitionChunks(PARTITION), set[int]()
    for number in range(4_000):
        if chance.random() < 0.7:
            left.add(number)
            chunks.add(ProducedChunk(number, number * RECORDS, (number + 1) * RECORDS))
        while left and chance.random() < 0.4:
            # Mostly the oldest, as the least recently used is dropped first.
            gone = min(left) if chance.random() < 0.8 else chance.choice(sorted(left))
            left.remove(gone)
            chunks.remove(gone * RECORDS)
        sought = chance.randrange(max(number - 60, 0), number + 2)
        expected = (sought * RECORDS, sought * RECORDS + RECORDS) if sought in left else None
        assert chunks.range_around(sought * RECORDS + 5, sought * RECORDS + 6) == expected
        assert len(chunks) == len(left)
        assert [part.key for part in chunks.chunks_from(0, 1 << 60)] == sorted(left)


def test_removed_chunks_at_the_front_take_little_memory() -> None:
    chunks = PartitionChunks(PARTITION)
    for number in range(20 * PRODUCED_CHUNKS_CUT_MIN):
        chunks.add(ProducedChunk(number, number * RECORDS, (number + 1) * RECORDS))
        if number >= 2:
            chunks.remove((number - 2) * RECORDS)
    assert len(chunks) == 2
    assert len(chunks._keys) == len(chunks._firsts) == len(chunks._ends) < 2 * PRODUCED_CHUNKS_CUT_MIN


def test_chunks_that_are_found_by_offset_take_no_more_memory_than_the_bound_says() -> None:
    bytes_max = 4 * MIB
    cache, each = ChunkCache(bytes_max=bytes_max), ref(0)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(20_000):
        chunk = each._replace(
            object_id=ObjectId(number), offset_first=Offset(number * 10), offset_end=Offset(number * 10 + 10)
        )
        cache.put_produced(PARTITION, chunk, served(number), [0])
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert 0 < cache.bytes_held <= bytes_max
    assert taken < bytes_max
