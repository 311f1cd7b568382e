"""Offsets by time: whether asking again helps is told apart, for an object that is away and one that is damaged. Every
answer is no older than its request (safety rule S4)."""

import asyncio
import struct

import pytest
from crc32c import crc32c

from agent.fetch import timestamp_search
from agent.fetch.timestamp_search import TimestampSearch
from agent.handlers.list_offsets import MAX_TIMESTAMP, NOTHING, offset_at
from agent.runtime.clock import SystemClock
from coordinator.ledger.memory import MemoryLedger
from protocol.errors import ErrorCode
from protocol.limits import DAMAGED_CHUNK_REMEMBERED_S
from protocol.records.batch import patch_offsets
from protocol.records.compression import Compression
from protocol.types import LEADER_EPOCH, PartitionIndex
from storage.decorators.failing import FaultKind, InjectedFault, StoreOperation
from tests.support.agent.data_paths import DataPaths, data_paths
from tests.support.commands.commands import TOPIC, delete_before
from tests.support.handlers.listed_offsets import listed
from tests.support.records.plain_records import Record, make_batch
from txn.isolation import IsolationLevel

BATCH = make_batch([Record(offset=n, timestamp=1_000 + n, value=b"x" * 50) for n in range(3)], Compression.ZSTD)

UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
Answer = tuple[ErrorCode, tuple[int, int, int]]


async def latest_in_time(paths: DataPaths) -> Answer:
    ledger = paths.parts.ledger
    partition = ledger.state.topics[TOPIC].partitions[0]
    timestamps = TimestampSearch(ledger=ledger, reader=paths.reader, budget=paths.budget, clock=paths.parts.clock)
    return await offset_at(timestamps, (TOPIC, PartitionIndex(0)), partition, MAX_TIMESTAMP, UNCOMMITTED)


async def with_object(payload: bytes) -> Answer:
    """The answer where these bytes lie where the batch was."""
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(BATCH)
        state = paths.parts.ledger.state
        chunk = state.topics[TOPIC].partitions[0].index.row(0)
        await paths.memory.put(state.objects[chunk.object_id].key, [bytes(chunk.byte_first), payload])
        return await latest_in_time(paths)


async def test_the_record_with_the_greatest_time_is_found() -> None:
    assert await with_object(BATCH) == (ErrorCode.none, (1_002, 2, LEADER_EPOCH))


async def test_a_lookup_by_time_reads_in_its_turn_and_what_it_reads_counts_until_it_is_answered() -> None:
    async with data_paths(cache_bytes=0, budget_bytes=1_000) as paths, asyncio.TaskGroup() as tasks:
        await paths.produce(BATCH)
        each_held = list[int]()

        async def pause() -> None:
            each_held.append(paths.budget.bytes_held)

        paths.during_pause = pause
        paths.store.script(InjectedFault(kind=FaultKind.SLOW, operation=StoreOperation.GET))
        with await paths.budget.take(1_000):
            lookup = tasks.create_task(latest_in_time(paths))
            while not paths.budget.waiting_count:
                await paths.parts.clock.sleep(0)
        answer = await lookup
        held_after = paths.budget.bytes_held
    assert answer == (ErrorCode.none, (1_002, 2, LEADER_EPOCH))
    assert (each_held, held_after) == ([len(BATCH)], 0)


async def test_a_lookup_by_time_whose_turn_does_not_come_may_be_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamp_search, "FETCH_READ_SECONDS_MAX", 0.01)
    async with data_paths(cache_bytes=0, budget_bytes=1_000) as paths:
        await paths.produce(BATCH)
        ledger = paths.parts.ledger
        search = TimestampSearch(ledger=ledger, reader=paths.reader, budget=paths.budget, clock=SystemClock())
        with await paths.budget.take(1_000):
            partition = ledger.state.topics[TOPIC].partitions[0]
            answer = await offset_at(search, (TOPIC, PartitionIndex(0)), partition, MAX_TIMESTAMP, UNCOMMITTED)
    assert answer == (ErrorCode.not_leader_or_follower, NOTHING)


async def test_a_damaged_object_is_a_storage_error() -> None:
    assert await with_object(bytes(len(BATCH))) == (ErrorCode.kafka_storage_error, NOTHING)


async def test_a_damaged_object_is_logged_once_however_often_it_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(BATCH)
        state = paths.parts.ledger.state
        chunk = state.topics[TOPIC].partitions[0].index.row(0)
        key = state.objects[chunk.object_id].key
        await paths.memory.put(key, [bytes(chunk.byte_first + len(BATCH))])
        answers = [(await latest_in_time(paths))[0] for _ in range(3)]
        answers.append((await paths.fetch(0)).error_code)
    assert answers == [ErrorCode.kafka_storage_error] * 4
    (line,) = [vars(record) for record in caplog.records if record.levelname == "ERROR"]
    assert (line["key"], line["topic"], line["partition"], line["offset"]) == (key, "t", 0, 0)
    assert 'docs/operations/damage.md, "A damaged file"' in line["message"]


async def test_records_that_cannot_be_decoded_are_logged_once_and_hide_no_later_damage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As if they were stored so: their checksum is right."""
    undecodable = bytearray(BATCH)
    undecodable[61:] = bytes(len(undecodable) - 61)
    struct.pack_into(">I", undecodable, 17, crc32c(bytes(undecodable[21:])))
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(bytes(undecodable))
        state = paths.parts.ledger.state
        chunk = state.topics[TOPIC].partitions[0].index.row(0)
        key = state.objects[chunk.object_id].key
        answers = [(await latest_in_time(paths))[0] for _ in range(3)]
        assert [vars(record)["key"] for record in caplog.records if record.levelname == "ERROR"] == [key]
        assert paths.reader.damaged.is_known(key)
        paths.parts.clock.seconds += DAMAGED_CHUNK_REMEMBERED_S
        await paths.memory.put(key, [bytes(chunk.byte_first + len(BATCH))])
        answers.append((await latest_in_time(paths))[0])
    assert answers == [ErrorCode.kafka_storage_error] * 4
    assert [vars(record)["key"] for record in caplog.records if record.levelname == "ERROR"] == [key] * 2


async def test_records_that_cannot_be_unpacked_are_a_storage_error() -> None:
    damaged = bytearray(BATCH)
    patch_offsets(damaged, 0)
    damaged[61:] = bytes(len(damaged) - 61)
    assert await with_object(bytes(damaged)) == (ErrorCode.kafka_storage_error, NOTHING)


async def test_a_missing_object_and_a_store_that_is_away_are_retriable() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(BATCH)
        paths.store.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.GET))
        away, back = await latest_in_time(paths), await latest_in_time(paths)
        (stored,) = paths.parts.ledger.state.objects.values()
        await paths.memory.delete([stored.key])
        missing = await latest_in_time(paths)
    assert (away[0], back[0], missing[0]) == (
        ErrorCode.not_leader_or_follower,
        ErrorCode.none,
        ErrorCode.not_leader_or_follower,
    )


@pytest.mark.parametrize(
    ("log_start", "timestamp", "found"),
    [
        # Offsets 0 to 6 have the times 90, 50, 60 and 40, 60, 80, 60, in two chunks.
        (0, MAX_TIMESTAMP, (90, 0, LEADER_EPOCH)),
        (1, MAX_TIMESTAMP, (80, 5, LEADER_EPOCH)),
        (6, MAX_TIMESTAMP, (60, 6, LEADER_EPOCH)),
        (7, MAX_TIMESTAMP, NOTHING),
        (0, 70, (90, 0, LEADER_EPOCH)),
        (1, 55, (60, 2, LEADER_EPOCH)),
        (1, 70, (80, 5, LEADER_EPOCH)),
        (2, 50, (60, 2, LEADER_EPOCH)),
        (6, 70, NOTHING),
        (1, 85, NOTHING),
    ],
)
async def test_deleted_records_are_found_by_no_time(
    log_start: int, timestamp: int, found: tuple[int, int, int]
) -> None:
    async with data_paths() as paths:
        for times in ((90, 50, 60), (40, 60, 80, 60)):
            await paths.produce(make_batch([Record(offset=n, timestamp=time) for n, time in enumerate(times)]))
        await paths.parts.ledger.propose(delete_before(log_start))
        ledger = paths.parts.ledger
        timestamps = TimestampSearch(ledger=ledger, reader=paths.reader, budget=paths.budget, clock=paths.parts.clock)
        partition = ledger.state.topics[TOPIC].partitions[0]
        answer = await offset_at(timestamps, (TOPIC, PartitionIndex(0)), partition, timestamp, UNCOMMITTED)
        assert answer == (ErrorCode.none, found)


async def test_of_what_a_cut_chunk_still_shows_the_latest_counts() -> None:
    async with data_paths() as paths:
        for times in ((90, 50, 60, 60), (55,)):
            await paths.produce(make_batch([Record(offset=n, timestamp=time) for n, time in enumerate(times)]))
        await paths.parts.ledger.propose(delete_before(1))
        assert await latest_in_time(paths) == (ErrorCode.none, (60, 2, LEADER_EPOCH))


async def test_s4_a_ledger_that_is_away_is_a_retriable_error_and_neither_an_old_end_nor_an_unknown_topic() -> None:
    async with data_paths() as paths:
        await paths.produce(BATCH)
        before = await listed(paths)
        ledger = paths.parts.backend
        assert isinstance(ledger, MemoryLedger)
        ledger.is_reachable = False
        away = await listed(paths), await listed(paths, b"gone")
        ledger.is_reachable = True
        back = await listed(paths), await listed(paths, b"gone")
    assert before == (ErrorCode.none, 3)
    assert away == ((ErrorCode.not_leader_or_follower, -1), (ErrorCode.not_leader_or_follower, -1))
    assert back == ((ErrorCode.none, 3), (ErrorCode.unknown_topic_or_partition, -1))
