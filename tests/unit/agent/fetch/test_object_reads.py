"""What consumers cost in requests to the bucket, through an agent that has nothing in memory."""

import asyncio
from collections import Counter

import pytest

from agent.fetch.sessions import RequestedPartition
from protocol.errors import ErrorCode
from protocol.limits import MIB, READ_CACHE_ENTRY_BYTES
from storage.decorators.failing import FaultKind, InjectedFault, StoreOperation
from storage.memory_store import MemoryStore
from storage.object_store import StoreUnavailable
from storage.refs import INTAKE_PREFIX
from tests.support.agent.data_paths import DataPaths, another_agent, data_paths
from tests.support.commands.commands import TOPIC
from tests.support.records.plain_records import Record, make_batch, read_batches

PARTITIONS = 100
OBJECTS = 40
RECORDS = 4
BATCH = make_batch([Record(offset=n, timestamp=1_000 + n, value=b"v" * 500) for n in range(RECORDS)])


class CountingStore(MemoryStore):
    """Counts reads of each object, which take some turns of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.gets: Counter[str] = Counter()
        self.in_flight = 0
        self.in_flight_most = 0

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        self.gets[key] += 1
        self.in_flight += 1
        self.in_flight_most = max(self.in_flight_most, self.in_flight)
        try:
            for _ in range(20):
                turn = asyncio.get_running_loop().create_future()
                asyncio.get_running_loop().call_soon(turn.set_result, None)
                await turn
            return await super().get_range(key, byte_first, byte_count)
        finally:
            self.in_flight -= 1

    def per_object(self, prefix: str) -> float:
        counts = [count for key, count in self.gets.items() if key.startswith(prefix)]
        return sum(counts) / len(counts)


async def consume(paths: DataPaths, partitions: range, *, partition_bytes_max: int, bytes_max: int = MIB) -> int:
    """How many records one consumer of these partitions gets until it has reached the end of each."""
    offsets, count = dict.fromkeys(partitions, 0), 0
    while True:
        wanted = [RequestedPartition("t", n, offset, partition_bytes_max, -1, -1) for n, offset in offsets.items()]
        reads = await paths.fetch_path.fetch(wanted, max_wait_ms=60_000, bytes_min=0, bytes_max=bytes_max)
        assert {read.error_code for read in reads} == {ErrorCode.none}
        if not any(read.records for read in reads):
            assert all(read.high_watermark == offsets[read.requested.partition] for read in reads)
            return count
        for read in reads:
            for part in read.records:
                (_, offset_end) = read_batches(bytes(part)).ranges[-1]
                count += offset_end - offsets.pop(read.requested.partition)
                offsets[read.requested.partition] = offset_end  # at the end: whoever had records is asked for last


async def fill(paths: DataPaths) -> None:
    for _ in range(OBJECTS):
        await paths.produce_together(dict.fromkeys(range(PARTITIONS), BATCH))


async def test_a_thousand_consumers_of_an_agent_with_nothing_in_memory_read_an_object_about_once() -> None:
    store = CountingStore()
    async with data_paths(partitions=PARTITIONS, memory=store) as paths:
        await fill(paths)
        async with another_agent(paths) as restarted, asyncio.TaskGroup() as tasks:
            consumers = [
                tasks.create_task(consume(restarted, range(n, n + 1), partition_bytes_max=9_000))
                for n in range(PARTITIONS)
                for _ in range(10)
            ]
        print(f"GETs per object, 1,000 consumers of a partition each: {store.per_object(INTAKE_PREFIX):.2f}")
    assert {consumer.result() for consumer in consumers} == {OBJECTS * RECORDS}
    assert len(store.gets) == OBJECTS
    assert store.per_object(INTAKE_PREFIX) <= 1.25


@pytest.mark.parametrize("readers", [1, 3])
async def test_readers_of_all_partitions_read_an_object_once_whatever_their_number(readers: int) -> None:
    store = CountingStore()
    async with data_paths(partitions=PARTITIONS, memory=store) as paths:
        await fill(paths)
        async with another_agent(paths, reads_ahead=True) as restarted, asyncio.TaskGroup() as tasks:
            consumers = [
                tasks.create_task(consume(restarted, range(PARTITIONS), partition_bytes_max=5_000, bytes_max=300_000))
                for _ in range(readers)
            ]
    print(f"GETs per object, {readers} readers of all partitions: {store.per_object(INTAKE_PREFIX):.2f}")
    assert {consumer.result() for consumer in consumers} == {PARTITIONS * OBJECTS * RECORDS}
    assert set(store.gets.values()) == {1}


async def test_a_lone_consumer_of_one_partition_reads_its_ranges_and_no_more() -> None:
    store = CountingStore()
    async with data_paths(partitions=PARTITIONS, memory=store) as paths:
        await fill(paths)
        async with another_agent(paths) as restarted:
            assert await consume(restarted, range(7, 8), partition_bytes_max=9_000) == OBJECTS * RECORDS
            held = restarted.cache.bytes_held
    assert held == OBJECTS * (len(BATCH) + READ_CACHE_ENTRY_BYTES)
    assert set(store.gets.values()) == {1}


async def test_the_agent_that_produced_reads_nothing() -> None:
    store = CountingStore()
    async with data_paths(partitions=PARTITIONS, memory=store) as paths:
        await fill(paths)
        assert await consume(paths, range(PARTITIONS), partition_bytes_max=5_000) == PARTITIONS * OBJECTS * RECORDS
    assert not store.gets


async def test_a_thousand_consumers_of_the_archive_share_its_row_groups() -> None:
    store = CountingStore()
    async with data_paths(partitions=PARTITIONS, memory=store) as paths:
        await fill(paths)
        await paths.archiver.archive_topic(TOPIC)
        store.gets.clear()
        async with another_agent(paths) as restarted, asyncio.TaskGroup() as tasks:
            consumers = [
                tasks.create_task(consume(restarted, range(n, n + 1), partition_bytes_max=9_000))
                for n in range(PARTITIONS)
                for _ in range(10)
            ]
    row_groups = {
        chunk
        for found in restarted.parts.ledger.state.topics[TOPIC].partitions
        for chunk in [found.index.row(0).row_group]
    }
    print(f"GETs of an archive file with {len(row_groups)} row groups: {sum(store.gets.values())}")
    assert {consumer.result() for consumer in consumers} == {OBJECTS * RECORDS}
    assert sum(store.gets.values()) <= 1 + len(row_groups)


async def test_what_is_read_whole_takes_its_share_and_without_room_ranges_are_read() -> None:
    store = CountingStore()
    async with data_paths(partitions=PARTITIONS, memory=store) as paths:
        await fill(paths)
        async with another_agent(paths, budget_bytes=3 * len(BATCH)) as restarted, asyncio.TaskGroup() as tasks:
            for n in range(10):
                tasks.create_task(consume(restarted, range(n, n + 1), partition_bytes_max=1))
        held = restarted.budget.bytes_held
        cached = restarted.cache.bytes_held
    assert held == 0
    assert cached == 10 * OBJECTS * (len(BATCH) + READ_CACHE_ENTRY_BYTES), (
        "no object fits into the budget, so none was read whole"
    )


async def test_a_store_that_is_away_turns_all_who_wait_for_an_object_away_and_it_is_read_when_it_is_back() -> None:
    store = CountingStore()
    async with data_paths(partitions=PARTITIONS, memory=store) as paths:
        await fill(paths)
        async with another_agent(paths) as restarted:
            restarted.store.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.GET))
            wanted = [RequestedPartition("t", n, 0, 1, -1, -1) for n in range(PARTITIONS)]
            away = await asyncio.gather(
                *(restarted.fetch_path.fetch(wanted, max_wait_ms=0, bytes_min=1, bytes_max=MIB) for _ in range(3)),
                return_exceptions=True,
            )
            back = await consume(restarted, range(PARTITIONS), partition_bytes_max=5_000)
    assert not any(isinstance(answer, StoreUnavailable) for answer in away)
    assert back == PARTITIONS * OBJECTS * RECORDS


async def test_a_slow_consumer_holds_what_it_is_sent_and_neither_its_object_nor_a_share() -> None:
    store = CountingStore()
    async with data_paths(partitions=PARTITIONS, memory=store) as paths:
        await fill(paths)
        async with another_agent(paths, cache_bytes=MIB) as restarted:
            wanted = [RequestedPartition("t", n, 0, 1, -1, -1) for n in range(PARTITIONS)]
            reads = await restarted.fetch_path.fetch(wanted, max_wait_ms=0, bytes_min=1, bytes_max=MIB)
            sent = [part for read in reads for part in read.records]
            held = restarted.budget.bytes_held
            await consume(restarted, range(PARTITIONS), partition_bytes_max=5_000)
            bytes_held = restarted.cache.bytes_held
    assert held == 0
    assert bytes_held <= MIB, "the cache keeps to its bound whatever consumers hold"
    assert sent
    assert all(isinstance(part, memoryview) and memoryview(part.obj).nbytes == len(BATCH) for part in sent)


async def test_fetches_that_wait_at_the_end_hold_nothing() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        await paths.produce(BATCH)
        wanted = [RequestedPartition("t", 0, RECORDS, MIB, -1, -1)]
        polls = [
            tasks.create_task(paths.fetch_path.fetch(wanted, max_wait_ms=60_000, bytes_min=1, bytes_max=MIB))
            for _ in range(100)
        ]
        await asyncio.wait(polls, timeout=0)
        held = paths.budget.bytes_held
        await paths.produce(BATCH)
        answers = await asyncio.gather(*polls)
    assert held == 0
    assert {answer[0].record_bytes for answer in answers} == {len(BATCH)}
