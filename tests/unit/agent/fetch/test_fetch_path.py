"""What consumers are given: whole batches, none skipped, whatever the limit and wherever the records lie."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from agent.fetch.partition_read import PartitionRead
from agent.fetch.sessions import RequestedPartition
from agent.fetch.wait import FetchWait
from agent.runtime.clock import SystemClock
from coordinator.ledger.memory import MemoryLedger
from coordinator.ledger.port import Head
from protocol.errors import ErrorCode
from protocol.limits import LEDGER_SESSION_SECONDS, ROWS_PER_TURN
from protocol.records.compression import Compression
from protocol.types import TopicId
from storage.decorators.failing import FaultKind, InjectedFault, StoreOperation
from tests.support.agent.data_paths import DataPaths, another_agent, data_paths
from tests.support.agent.fetch_paths import batch, consumer_of, fetch_path_of, intake_objects
from tests.support.agent.ledger_parts import ManualClock
from tests.support.commands.commands import TOPIC, create
from tests.support.records.plain_records import read_batches

RECORDS = 40


@pytest.mark.parametrize("limit", [1, 700, 5_000, 1 << 20])
@pytest.mark.parametrize("cache_bytes", [0, 64 << 20])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
async def test_no_limit_makes_a_consumer_skip_records(limit: int, cache_bytes: int, compression: Compression) -> None:
    async with data_paths(cache_bytes=cache_bytes) as paths:
        await paths.produce(*[batch(RECORDS, compression) for _ in range(3)])
        before = await paths.consume(partition_bytes_max=limit)
        await paths.archiver.archive_topic(TOPIC)
        await paths.produce(batch(RECORDS, compression))
        after = await paths.consume(partition_bytes_max=limit)
    assert [record.offset for record in before] == list(range(3 * RECORDS))
    assert [record.offset for record in after] == list(range(4 * RECORDS))
    assert [record.value for record in after] == [b"x" * 200] * (4 * RECORDS)


async def test_a_fetch_at_the_end_is_empty_and_one_beyond_it_is_out_of_range() -> None:
    async with data_paths() as paths:
        await paths.produce(batch(3))
        at_end, beyond = await paths.fetch(3), await paths.fetch(4)
    assert (at_end.error_code, at_end.record_bytes, at_end.high_watermark) == (ErrorCode.none, 0, 3)
    assert (beyond.error_code, beyond.record_bytes) == (ErrorCode.offset_out_of_range, 0)


async def test_a_damaged_object_is_an_error_and_not_an_end() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(batch(3))
        (found,) = await intake_objects(paths)
        await paths.memory.put(found.key, [b"\x00" * found.size_bytes])
        read = await paths.fetch(0)
    assert (read.error_code, read.record_bytes) == (ErrorCode.kafka_storage_error, 0)


async def lose(paths: DataPaths, key: str) -> None:
    await paths.memory.delete([key])


async def damage(paths: DataPaths, key: str) -> None:
    await paths.memory.put(key, [bytes((await paths.memory.head(key)).size_bytes)])


async def cut(paths: DataPaths, key: str) -> None:
    await paths.memory.put(key, [(await paths.memory.get(key))[:20]])


async def take_away(paths: DataPaths, key: str) -> None:
    paths.store.script(*[InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.GET, key_prefix=key)] * 2)


@pytest.mark.parametrize("is_archived", [False, True])
@pytest.mark.parametrize(
    ("harm", "error_code"),
    [
        (damage, ErrorCode.kafka_storage_error),
        (cut, ErrorCode.kafka_storage_error),
        (lose, ErrorCode.not_leader_or_follower),
        (take_away, ErrorCode.not_leader_or_follower),
    ],
)
async def test_what_comes_before_a_chunk_that_cannot_be_read_is_served_and_the_next_fetch_is_told(
    harm: Callable[[DataPaths, str], Awaitable[None]], error_code: ErrorCode, *, is_archived: bool
) -> None:
    async with data_paths(cache_bytes=0) as paths:
        for _ in range(3):
            await paths.produce(batch(3))
            if is_archived:
                await paths.archiver.archive_topic(TOPIC)
        state = paths.parts.ledger.state
        second = state.topics[TOPIC].partitions[0].index.row(1)
        await harm(paths, state.objects[second.object_id].key)
        before, at, beyond = await paths.fetch(0), await paths.fetch(3), await paths.fetch(6)
    assert (before.error_code, before.high_watermark) == (ErrorCode.none, 9)
    assert read_batches(b"".join(bytes(part) for part in before.records)).ranges[-1][1] == 3
    assert (at.error_code, at.record_bytes) == (error_code, 0)
    assert (beyond.error_code, beyond.record_bytes > 0) == (ErrorCode.none, True)


async def test_a_partition_that_cannot_be_read_leaves_the_others_of_a_fetch_theirs() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(batch(3), batch(3))
        state = paths.parts.ledger.state
        first = state.topics[TOPIC].partitions[0].index.row(0)
        await damage(paths, state.objects[first.object_id].key)
        wanted = [consumer_of("t", offset) for offset in (0, 3)]
        reads = await paths.fetch_path.fetch(wanted, max_wait_ms=0, bytes_min=1, bytes_max=1 << 20)
    assert [read.error_code for read in reads] == [ErrorCode.kafka_storage_error, ErrorCode.none]
    assert [read.record_bytes > 0 for read in reads] == [False, True]


async def test_a_missing_object_is_an_error_and_not_an_end() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(batch(3))
        await paths.memory.delete([meta.key for meta in await intake_objects(paths)])
        read = await paths.fetch(0)
    assert (read.error_code, read.record_bytes) == (ErrorCode.not_leader_or_follower, 0)


async def test_a_fetch_ends_where_the_log_ended_when_it_was_planned() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(batch(3))
        paths.during_pause = lambda: paths.produce(batch(3))
        paths.store.script(InjectedFault(kind=FaultKind.SLOW, operation=StoreOperation.GET))
        read = await paths.fetch(0)
    served = read_batches(b"".join(bytes(part) for part in read.records))
    assert (served.ranges[-1][1], read.high_watermark) == (3, 3)


async def test_records_that_are_archived_with_later_ones_meanwhile_are_given_once() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(batch(3))

        async def join() -> None:
            await paths.produce(batch(3))
            await paths.archiver.archive_topic(TOPIC)

        paths.during_pause = join
        paths.store.script(InjectedFault(kind=FaultKind.SLOW, operation=StoreOperation.GET))
        read = await paths.fetch(0)
    served = read_batches(b"".join(bytes(part) for part in read.records))
    assert [record.offset for record in served.records] == [0, 1, 2]


class HeadLedger(MemoryLedger):
    """Counts how often it is asked for its head, and lets something happen at the first time."""

    heads_count = 0
    at_first_head: Callable[[], Awaitable[object]] | None = None

    async def head(self) -> Head:
        self.heads_count += 1
        if self.heads_count == 1 and self.at_first_head is not None:
            await self.at_first_head()
        return await super().head()


class SteppedClock(ManualClock):
    """Every wait with a limit lasts for as long, and ends so."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []
        self.at_timeout: Callable[[], object] = lambda: None

    @asynccontextmanager
    async def timeout(self, seconds: float | None) -> AsyncIterator[None]:
        self.waits.append(seconds)
        try:
            async with asyncio.timeout(0):
                yield
        finally:
            self.seconds += seconds or 0.0
            self.at_timeout()


async def test_what_is_committed_while_a_fetch_looks_at_another_partition_wakes_it() -> None:
    ledger = HeadLedger()
    async with data_paths(ledger=ledger) as paths:

        async def grow() -> None:
            await paths.produce(batch(3))
            await paths.parts.ledger.propose(replace(create(), topic_id=TopicId(b"u" * 16), name="u"))

        ledger.at_first_head = grow
        async with asyncio.timeout(5):
            reads = await paths.fetch_path.fetch(
                [consumer_of("t"), consumer_of("u")], max_wait_ms=60_000, bytes_min=1, bytes_max=1 << 20
            )
    assert [read.high_watermark for read in reads] == [3, 0]
    assert reads[0].record_bytes > 0


async def test_a_fetch_does_not_wait_for_more_bytes_than_it_may_have() -> None:
    async with data_paths() as paths:
        await paths.produce(batch(3))
        async with asyncio.timeout(5):
            reads = await paths.fetch_path.fetch(
                [consumer_of("t")], max_wait_ms=60_000, bytes_min=1 << 20, bytes_max=100
            )
    assert reads[0].record_bytes > 0


async def test_many_unknown_partitions_take_one_barrier_and_leave_others_their_turn() -> None:
    ledger = HeadLedger()
    async with data_paths(ledger=ledger) as paths:
        wanted = [consumer_of("gone", partition=n) for n in range(2 * ROWS_PER_TURN)]
        reads = await paths.fetch_path.fetch(wanted, max_wait_ms=0, bytes_min=1, bytes_max=1 << 20)
        turns = paths.parts.clock.slept.count(0)
    assert {read.error_code for read in reads} == {ErrorCode.unknown_topic_or_partition}
    assert ledger.heads_count == 1
    assert turns >= 2


@pytest.mark.parametrize("cache_bytes", [0, 64 << 20])
async def test_a_consumer_gets_everything_through_the_smallest_budget(cache_bytes: int) -> None:
    async with data_paths(cache_bytes=cache_bytes, budget_bytes=1) as paths:
        for _ in range(2):
            await paths.produce(batch(RECORDS))
            await paths.archiver.archive_topic(TOPIC)
        await paths.produce(batch(RECORDS), batch(RECORDS))
        records = await paths.consume(partition_bytes_max=1 << 20)
        held = paths.budget.bytes_held
    assert [record.offset for record in records] == list(range(4 * RECORDS))
    assert held == 0


async def test_what_is_in_memory_is_served_while_others_read_all_that_may_be_read() -> None:
    async with data_paths(budget_bytes=1_000) as paths:
        await paths.produce(batch(3))
        with await paths.budget.take(1_000):
            read = await paths.fetch(0)
    assert (read.error_code, read.record_bytes > 0) == (ErrorCode.none, True)


async def test_a_fetch_that_may_not_wait_for_its_turn_tells_marks_and_errors_and_no_records() -> None:
    async with data_paths(cache_bytes=0, budget_bytes=1_000) as paths:
        await paths.produce(batch(3))
        wanted = [consumer_of("t"), consumer_of("gone")]
        with await paths.budget.take(1_000):
            (full, gone) = await paths.fetch_path.fetch(wanted, max_wait_ms=0, bytes_min=1, bytes_max=1 << 20)
        freed = await paths.fetch(0)
    assert (full.error_code, full.record_bytes, full.high_watermark) == (ErrorCode.none, 0, 3)
    assert gone.error_code is ErrorCode.unknown_topic_or_partition
    assert freed.record_bytes > 0


async def test_a_fetch_whose_turn_does_not_come_in_time_answers_without_records() -> None:
    async with data_paths(cache_bytes=0, budget_bytes=1_000) as paths:
        await paths.produce(batch(3))
        fetch_path = fetch_path_of(paths, SystemClock(), SystemClock().monotonic_s)
        with await paths.budget.take(1_000):
            (read,) = await fetch_path.fetch([consumer_of("t")], max_wait_ms=1, bytes_min=1, bytes_max=1 << 20)
            waiting = paths.budget.waiting_count
    assert (read.error_code, read.record_bytes, read.high_watermark) == (ErrorCode.none, 0, 3)
    assert waiting == 0


async def test_a_fetch_whose_patience_ends_waits_for_its_turn_no_longer() -> None:
    fetch_wait = FetchWait()
    async with data_paths(cache_bytes=0, budget_bytes=1_000) as paths, asyncio.TaskGroup() as tasks:
        await paths.produce(batch(3))
        with await paths.budget.take(1_000):
            fetching = tasks.create_task(
                paths.fetch_path.fetch(
                    [consumer_of("t")], max_wait_ms=60_000, bytes_min=1, bytes_max=1 << 20, fetch_wait=fetch_wait
                )
            )
            while not paths.budget.waiting_count:
                await paths.parts.clock.sleep(0)
            fetch_wait.end()
            async with asyncio.timeout(5):
                (read,) = await fetching
            waiting = paths.budget.waiting_count
    assert (read.error_code, read.record_bytes, read.high_watermark) == (ErrorCode.none, 0, 3)
    assert waiting == 0


async def test_a_fetch_waits_for_records_and_for_its_turn_together_no_longer_than_it_may() -> None:
    clock = SteppedClock()
    async with data_paths(cache_bytes=0, budget_bytes=1_000) as paths:
        await paths.produce(batch(3))
        path = fetch_path_of(paths, clock, lambda: clock.seconds)
        with await paths.budget.take(1_000):
            (read,) = await path.fetch([consumer_of("t")], max_wait_ms=3_000, bytes_min=1 << 19, bytes_max=1 << 20)
    assert (read.error_code, read.record_bytes) == (ErrorCode.none, 0)
    assert clock.waits == [3.0]


async def test_fetches_read_as_their_turn_comes_and_one_that_is_cancelled_holds_up_nobody() -> None:
    async with data_paths(cache_bytes=0, budget_bytes=1_000) as paths, asyncio.TaskGroup() as tasks:
        await paths.produce(batch(3))
        fetches = []
        with await paths.budget.take(1_000):
            for number in range(1, 4):
                fetch = paths.fetch_path.fetch([consumer_of("t")], max_wait_ms=60_000, bytes_min=1, bytes_max=1 << 20)
                fetches.append(tasks.create_task(fetch))
                while paths.budget.waiting_count < number:
                    await paths.parts.clock.sleep(0)
            fetches[0].cancel()
        async with asyncio.timeout(5):
            answers = [await fetch for fetch in fetches[1:]]
        held = paths.budget.bytes_held
    assert [reads[0].record_bytes > 0 for reads in answers] == [True, True]
    assert fetches[0].cancelled()
    assert held == 0


async def held_while_reading(paths: DataPaths, partitions: int, *, bytes_max: int) -> tuple[int, list[PartitionRead]]:
    """What a fetch of partitions from their beginnings on takes of the budget, and its answers."""
    each_held = list[int]()

    async def pause() -> None:
        each_held.append(paths.budget.bytes_held)

    paths.during_pause = pause
    paths.store.script(InjectedFault(kind=FaultKind.SLOW, operation=StoreOperation.GET))
    wanted = [RequestedPartition("t", partition, 0, 1 << 20, -1, -1) for partition in range(partitions)]
    reads = await paths.fetch_path.fetch(wanted, max_wait_ms=0, bytes_min=1, bytes_max=bytes_max)
    (held,) = each_held
    return held, reads


async def test_a_row_group_that_partitions_of_a_fetch_share_is_counted_once() -> None:
    async with data_paths(cache_bytes=0, partitions=30) as paths:
        for partition in range(30):
            await paths.produce(batch(3), partition=partition)
        await paths.archiver.archive_topic(TOPIC)
        (row_group,) = {found.index.row(0)[2:5] for found in paths.parts.ledger.state.topics[TOPIC].partitions}
        held, reads = await held_while_reading(paths, 30, bytes_max=55 << 20)
    assert all(read_batches(bytes(read.records[0])).ranges == [(0, 3)] for read in reads)
    assert row_group[2] <= held <= 10 * row_group[2]


async def test_a_fetch_of_the_archive_takes_no_more_room_than_its_answer_and_one_row_group_may_be() -> None:
    async with data_paths(cache_bytes=0, partitions=10) as paths:
        for partition in range(10):
            await paths.produce(batch(3), partition=partition)
            await paths.archiver.archive_topic(TOPIC)
        sizes = [found.index.row(0).byte_count for found in paths.parts.ledger.state.topics[TOPIC].partitions]
        assert sum(sizes) > 3_000
        held, reads = await held_while_reading(paths, 10, bytes_max=2_000)
    assert 2_000 <= held <= 2_000 + max(sizes)
    assert [bool(read.records) for read in reads[:2]] == [True, True]


async def test_what_a_fetch_that_is_given_up_reads_counts_until_it_is_read() -> None:
    async with data_paths(cache_bytes=0) as paths, asyncio.TaskGroup() as tasks:
        await paths.produce(batch(3))
        is_reading, go_on = asyncio.Event(), asyncio.Event()

        async def pause() -> None:
            is_reading.set()
            await go_on.wait()

        paths.during_pause = pause
        paths.store.script(InjectedFault(kind=FaultKind.SLOW, operation=StoreOperation.GET))
        fetch = tasks.create_task(paths.fetch(0))
        await is_reading.wait()
        held = paths.budget.bytes_held
        fetch.cancel()
        await asyncio.wait([fetch])
        left = paths.budget.bytes_held
        go_on.set()
        again = await paths.fetch(0)
        freed = paths.budget.bytes_held
    assert held > 0
    assert (left, freed) == (held, 0)
    assert again.record_bytes > 0


async def test_fetches_that_are_given_up_one_after_the_other_read_no_more_than_the_budget() -> None:
    size = len(batch(3))
    async with data_paths(cache_bytes=0, budget_bytes=2 * size) as paths, asyncio.TaskGroup() as tasks:
        await paths.produce(*[batch(3)] * 5)
        gets_count, go_on = 0, asyncio.Event()

        async def pause() -> None:
            nonlocal gets_count
            gets_count += 1
            await go_on.wait()

        paths.during_pause = pause
        for offset in range(0, 15, 3):
            paths.store.script(InjectedFault(kind=FaultKind.SLOW, operation=StoreOperation.GET))
            wanted = RequestedPartition("t", 0, offset, 1, -1, -1)
            fetch = paths.fetch_path.fetch([wanted], max_wait_ms=60_000, bytes_min=1, bytes_max=1 << 20)
            fetching = tasks.create_task(fetch)
            while gets_count * 3 <= offset and paths.budget.waiting_count == 0:
                await paths.parts.clock.sleep(0)
            fetching.cancel()
            await asyncio.wait([fetching])
        assert (gets_count, paths.budget.bytes_held) == (2, 2 * size)
        go_on.set()


async def test_a_fetch_of_the_archive_goes_on_past_what_is_in_memory_only_where_there_is_room() -> None:
    async with data_paths() as writes, another_agent(writes, budget_bytes=1_000) as paths:
        for _ in range(2):
            await writes.produce(batch(RECORDS))
            await writes.archiver.archive_topic(TOPIC)
        await paths.parts.ledger.barrier()
        await paths.fetch(0, partition_bytes_max=1_000)
        with await paths.budget.take(1_000):
            full = await paths.fetch(0)
        freed = await paths.fetch(0)
    ends = [read_batches(b"".join(bytes(part) for part in read.records)).ranges[-1][1] for read in (full, freed)]
    assert ends == [RECORDS, 2 * RECORDS]


async def test_a_record_that_compression_made_small_is_as_small_in_the_archive() -> None:
    """Else a batch of a few kilobytes would come back as one that its consumer does not take."""
    async with data_paths() as paths:
        await paths.produce(batch(1, Compression.LZ4, size=8 << 20), batch(1))
        await paths.archiver.archive_topic(TOPIC)
        first = await paths.fetch(0)
        records = await paths.consume(partition_bytes_max=1 << 20)
    assert 0 < first.record_bytes < 1 << 20
    assert [(record.offset, len(record.value or b"")) for record in records] == [(0, 8 << 20), (1, 200)]


async def test_s4_a_fetch_at_the_end_is_turned_away_once_the_session_is_not_confirmed_for_a_leases_time() -> None:
    async with data_paths() as paths:
        await paths.produce(batch(3))
        paths.confirmed_s = paths.parts.clock.seconds
        paths.parts.clock.seconds += LEDGER_SESSION_SECONDS - 0.001
        trusted = await paths.fetch(3)
        paths.parts.clock.seconds += 0.002
        cut_off, known = await paths.fetch(3), await paths.fetch(0)
        paths.confirmed_s = paths.parts.clock.seconds
        again = await paths.fetch(3)
    assert (trusted.error_code, again.error_code) == (ErrorCode.none, ErrorCode.none)
    assert (cut_off.error_code, cut_off.high_watermark) == (ErrorCode.not_leader_or_follower, -1)
    assert (known.error_code, known.record_bytes > 0) == (ErrorCode.none, True)


async def test_s4_a_fetch_that_waits_ends_with_the_trust_in_what_the_agent_sees() -> None:
    """And not before: as long as the session is confirmed again in time it waits on."""
    clock = SteppedClock()
    async with data_paths() as paths:
        await paths.produce(batch(3))
        confirmations = [0.0, 3.0, 6.0]
        clock.at_timeout = lambda: confirmations.pop(0) if len(confirmations) > 1 else None
        path = fetch_path_of(paths, clock, lambda: confirmations[0])
        (read,) = await path.fetch([consumer_of("t", 3)], max_wait_ms=60_000, bytes_min=1, bytes_max=1 << 20)
    assert read.error_code is ErrorCode.not_leader_or_follower
    assert clock.waits == [LEDGER_SESSION_SECONDS, 3.0, 3.0]
    assert clock.seconds == 6.0 + LEDGER_SESSION_SECONDS


async def test_a_missing_object_while_the_ledger_is_away_is_a_retriable_error() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(batch(3))
        await paths.memory.delete([meta.key for meta in await intake_objects(paths)])
        ledger = paths.parts.backend
        assert isinstance(ledger, MemoryLedger)
        ledger.is_reachable = False
        read = await paths.fetch(0)
    assert (read.error_code, read.record_bytes) == (ErrorCode.not_leader_or_follower, 0)
