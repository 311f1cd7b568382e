"""Read ahead: for those who read on, as far as the next fetch reaches, where there is room, and for nobody else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent.fetch.partition_read import PartitionRead
from agent.fetch.read_ahead import FetchStep, chunks_ahead
from protocol.errors import ErrorCode
from protocol.limits import CONSUMER_POSITIONS_REMEMBERED_MAX, READ_AHEAD_SECONDS_MAX, READ_AHEAD_SHARE_OF_READS_MAX
from protocol.records.compression import Compression
from protocol.types import PartitionIndex
from storage.decorators.failing import FaultKind, InjectedFault, StoreOperation
from tests.support.agent.data_paths import DataPaths, another_agent, data_paths
from tests.support.commands.commands import TOPIC
from tests.support.records.plain_records import Record, make_batch, read_batches

RECORDS = 4
CHUNKS = 12
BATCH = make_batch([Record(offset=n, timestamp=1_000 + n, value=b"v" * 500) for n in range(RECORDS)])


@asynccontextmanager
async def cold(
    *, is_archived: bool = False, cache_bytes: int = 1 << 26, budget_bytes: int = 1 << 26
) -> AsyncIterator[DataPaths]:
    """An agent with nothing in memory that reads ahead, over one partition of `CHUNKS` chunks."""
    async with data_paths() as paths:
        for _ in range(CHUNKS):
            await paths.produce(BATCH)
            if is_archived:
                await paths.archiver.archive_topic(TOPIC)
        async with another_agent(
            paths, reads_ahead=True, cache_bytes=cache_bytes, budget_bytes=budget_bytes
        ) as restarted:
            yield restarted


async def fetched(paths: DataPaths, offset: int) -> PartitionRead:
    """A fetch of one chunk; what it began to read ahead is read when this returns."""
    read = await paths.fetch(offset, partition_bytes_max=len(BATCH))
    assert read.error_code is ErrorCode.none
    while paths.budget.bytes_held:
        await paths.parts.clock.sleep(0)
    return read


def held(paths: DataPaths) -> list[int]:
    """Which chunks are in memory."""
    index = paths.parts.ledger.state.topics[TOPIC].partitions[0].index
    return [row for row in range(len(index)) if paths.cache.holds(index.row(row))]


async def test_the_second_fetch_in_a_row_brings_what_the_third_will_want() -> None:
    async with cold() as paths:
        each_held = []
        for number in range(4):
            await fetched(paths, number * RECORDS)
            each_held.append(held(paths))
    assert each_held == [[0], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]]


async def test_what_will_be_served_as_it_was_produced_is_not_ahead() -> None:
    """It counts towards no limit, and so leaves the room to those who read the archive."""
    large = make_batch([Record(offset=n, timestamp=1_000 + n, value=b"v" * 2_000) for n in range(RECORDS)])
    async with data_paths() as paths, another_agent(paths, reads_ahead=True) as here:
        for number in range(CHUNKS):
            await here.produce(large)
            index = here.parts.ledger.state.topics[TOPIC].partitions[0].index
            if number == 1:  # it has left memory, so the second fetch reads the archive
                here.cache.drop_chunks(index.row(len(index) - 1).object_id)
            await here.archiver.archive_topic(TOPIC)
        for number in range(4):
            read = await here.fetch(number * RECORDS, partition_bytes_max=len(large))
            assert read.error_code is ErrorCode.none
            assert read.records
            assert here.ahead.bytes_ahead == 0
        assert held(here) == [1]


async def test_nothing_is_read_ahead_for_consumers_that_jump_or_ask_for_the_same_again() -> None:
    async with cold() as paths:
        for number in (0, 0, 0, 5, 3, 9):
            await fetched(paths, number * RECORDS)
        assert held(paths) == [0, 3, 5, 9]
        assert paths.ahead.bytes_ahead == 0


async def test_consumers_side_by_side_share_what_is_read_ahead() -> None:
    async with cold() as paths:
        for number in range(3):
            for _ in range(3):
                await fetched(paths, number * RECORDS)
        assert held(paths) == [0, 1, 2, 3]
        assert paths.ahead.bytes_ahead == len(BATCH)


async def test_nothing_is_read_ahead_for_those_who_find_everything_in_memory() -> None:
    async with cold() as paths:
        for _ in range(2):
            for number in range(3):
                await fetched(paths, number * RECORDS)
            paths.parts.clock.seconds += 2 * READ_AHEAD_SECONDS_MAX
        assert held(paths) == [0, 1, 2, 3]


async def test_of_the_archive_the_row_group_after_the_next_fetch_is_read() -> None:
    async with cold(is_archived=True) as paths:
        await fetched(paths, 0)
        before = held(paths)
        await fetched(paths, RECORDS)
        second = held(paths)
        await fetched(paths, 2 * RECORDS)
        assert (before, second, held(paths)) == ([0], [0, 1, 2, 3], [0, 1, 2, 3, 4])


async def test_the_end_of_the_log_ends_it() -> None:
    async with cold() as paths:
        last = [await fetched(paths, number * RECORDS) for number in range(CHUNKS)][-1]
        assert held(paths) == list(range(CHUNKS))
        assert paths.ahead.bytes_ahead == 0
    assert read_batches(bytes(last.records[0])).ranges == [((CHUNKS - 1) * RECORDS, CHUNKS * RECORDS)]


async def test_a_consumer_that_stops_costs_one_fetch_and_counts_for_some_seconds() -> None:
    async with cold() as paths:
        for number in range(2):
            await fetched(paths, number * RECORDS)
        ahead = paths.ahead.bytes_ahead
        paths.parts.clock.seconds += READ_AHEAD_SECONDS_MAX
        await fetched(paths, 8 * RECORDS)
        assert held(paths) == [0, 1, 2, 8]
        assert (ahead, paths.ahead.bytes_ahead) == (len(BATCH), 0)


async def test_no_more_is_read_ahead_than_a_part_of_the_cache() -> None:
    async with cold(cache_bytes=len(BATCH) - 1) as paths:
        for number in range(3):
            await fetched(paths, number * RECORDS)
        assert paths.ahead.bytes_ahead == 0
        assert held(paths) == []


async def test_where_others_read_all_that_may_be_read_nothing_is_read_ahead_and_nobody_waits_for_it() -> None:
    async with cold(budget_bytes=16 * len(BATCH)) as paths:
        for number in range(2):
            await fetched(paths, number * RECORDS)
        assert (held(paths), paths.ahead.bytes_ahead) == ([0, 1, 2], len(BATCH))
        with await paths.budget.take(16 * len(BATCH)):
            async with asyncio.timeout(5):
                await paths.fetch(2 * RECORDS, partition_bytes_max=len(BATCH))
            assert (held(paths), paths.ahead.bytes_ahead) == ([0, 1, 2], 0)


async def test_what_is_on_its_way_ahead_takes_a_small_part_of_what_may_be_read() -> None:
    async with cold(budget_bytes=int(len(BATCH) / READ_AHEAD_SHARE_OF_READS_MAX)) as paths:
        for offset in (0, 4 * RECORDS):
            await fetched(paths, offset)
        back = asyncio.Event()
        paths.during_pause = back.wait
        each_ahead = []
        for number in (1, 5):
            step = FetchStep((TOPIC, PartitionIndex(0)), number * RECORDS, (number + 1) * RECORDS, 1, Compression.NONE)
            paths.store.script(InjectedFault(kind=FaultKind.SLOW, operation=StoreOperation.GET))
            paths.ahead.answered(paths.parts.ledger.state, [step], has_read=True)
            each_ahead.append((paths.ahead.bytes_ahead, paths.budget.bytes_held))
        back.set()
    assert each_ahead == [(len(BATCH), len(BATCH))] * 2


async def test_a_read_ahead_that_fails_is_nobodys_error() -> None:
    async with cold() as paths:
        await fetched(paths, 0)
        paths.store.script(
            InjectedFault(kind=FaultKind.SLOW, operation=StoreOperation.GET),
            InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.GET),
        )
        second = await fetched(paths, RECORDS)
        failed = held(paths)
        third = await fetched(paths, 2 * RECORDS)
    assert failed == [0, 1]
    assert (second.record_bytes, third.record_bytes) == (len(BATCH), len(BATCH))


async def test_as_many_positions_are_remembered_as_the_bound_allows() -> None:
    async with cold() as paths:
        read = await fetched(paths, 0)
        assert read.offset_next == RECORDS
        for number in range(CONSUMER_POSITIONS_REMEMBERED_MAX):
            step = FetchStep((TOPIC, PartitionIndex(1)), 2 * number, 2 * number + 1, 100, Compression.NONE)
            paths.ahead.answered(paths.parts.ledger.state, [step], has_read=True)
        await fetched(paths, RECORDS)
        assert held(paths) == [0, 1], "the first fetch is forgotten"


async def test_chunks_ahead_are_those_of_the_next_fetch() -> None:
    async with cold() as paths:
        partition = paths.parts.ledger.state.topics[TOPIC].partitions[0]
        assert [chunk.offset_first for chunk in chunks_ahead(partition, 5, len(BATCH) + 1)] == [4, 8]
        assert chunks_ahead(partition, CHUNKS * RECORDS, 1 << 20) == []
