"""Fetches of records that cannot be read: an error in time, the rest answered, and what is lost is told."""

import asyncio

import pytest

from agent.fetch import planner
from agent.fetch.timestamp_search import TimestampSearch
from agent.runtime.clock import SystemClock
from protocol.errors import ErrorCode
from protocol.limits import MISSING_OBJECT_LOG_INTERVAL_S, OUTAGE_REMINDER_SECONDS
from protocol.types import PartitionIndex
from storage.decorators.failing import FaultKind, InjectedFault, StoreOperation
from storage.memory_store import MemoryStore
from storage.object_store import StoreDenied
from tests.support.agent.data_paths import another_agent, data_paths
from tests.support.agent.fetch_paths import batch, consumer_of, fetch_path_of, intake_objects
from tests.support.commands.commands import TOPIC


async def test_a_store_that_is_away_is_a_retriable_error() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(batch(3))
        paths.store.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.GET))
        away, back = await paths.fetch(0), await paths.fetch(0)
    assert (away.error_code, back.error_code) == (ErrorCode.not_leader_or_follower, ErrorCode.none)


async def test_a_lost_object_is_named_in_the_log_from_time_to_time_and_counted_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(batch(3))
        (lost,) = await intake_objects(paths)
        await paths.memory.delete([lost.key])
        for _ in range(3):
            await paths.fetch(1)
        told = [record for record in caplog.records if "penstock audit" in record.message]
        paths.parts.clock.seconds += MISSING_OBJECT_LOG_INTERVAL_S
        await paths.fetch(1)
        told_later = [record for record in caplog.records if "penstock audit" in record.message]
        exposition = paths.parts.metrics.exposition().decode()
    assert [(record.levelname, len(told), len(told_later)) for record in told] == [("ERROR", 1, 2)]
    assert {key: told[0].__dict__[key] for key in ("topic", "partition", "offset", "key")} == {
        "topic": "t",
        "partition": 0,
        "offset": 1,
        "key": lost.key,
    }
    assert "penstock_fetch_missing_objects_total 4.0" in exposition


class DenyingStore(MemoryStore):
    """Lets nobody read ranges of objects."""

    is_denying = True

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        if self.is_denying:
            raise StoreDenied(f"get {key}: AccessDenied")
        return await super().get_range(key, byte_first, byte_count)


async def test_a_store_that_denies_its_objects_is_told_once_a_minute_and_not_with_each_fetch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = DenyingStore()
    async with data_paths(cache_bytes=0, partitions=2, memory=store) as paths:
        for partition in range(2):
            await paths.produce(batch(3), partition=partition)
        wanted = [consumer_of("t", 1, partition) for partition in range(2)]
        for _ in range(5):
            reads = await paths.fetch_path.fetch(wanted, max_wait_ms=0, bytes_min=1, bytes_max=1 << 20)
            assert {read.error_code for read in reads} == {ErrorCode.kafka_storage_error}
        timestamps = TimestampSearch(
            ledger=paths.parts.ledger, reader=paths.reader, budget=paths.budget, clock=paths.parts.clock
        )
        for _ in range(5):
            with pytest.raises(StoreDenied):
                await timestamps.find((TOPIC, PartitionIndex(1)), 0)
        by_offset, by_time = [record.__dict__ for record in caplog.records if record.levelname == "ERROR"]
        paths.parts.clock.seconds += OUTAGE_REMINDER_SECONDS
        await paths.fetch(1)
        later = [record.__dict__ for record in caplog.records if record.levelname == "ERROR"][-1]
        store.is_denying = False
        assert (await paths.fetch(1)).error_code is ErrorCode.none
    key = by_offset["key"]
    assert key in {held.key for held in await intake_objects(paths)}
    assert by_offset["reason"] == f"StoreDenied: get {key}: AccessDenied"
    assert [by_offset[name] for name in ("topic", "partition", "offset", "rejected")] == ["t", 0, 1, 1]
    assert [by_time[name] for name in ("topic", "partition", "offset", "rejected")] == ["t", 1, 0, 1]
    assert [later[name] for name in ("partition", "rejected")] == [0, 10]


async def test_a_fetch_answers_what_is_in_memory_once_the_store_has_not_answered_for_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planner, "FETCH_READ_SECONDS_MAX", 0.01)
    async with data_paths(partitions=4) as paths:
        for partition in range(4):
            await paths.produce(batch(3), partition=partition)
        back = asyncio.Event()
        async with another_agent(paths) as cold:
            await cold.fetch_path.fetch([consumer_of("t", 0, 2)], max_wait_ms=0, bytes_min=1, bytes_max=1 << 20)
            cold.during_pause = back.wait
            cold.store.script(*[InjectedFault(kind=FaultKind.SLOW, operation=StoreOperation.GET)] * 3)
            path = fetch_path_of(cold, SystemClock(), SystemClock().monotonic_s)
            wanted = [consumer_of("t", 0, partition) for partition in range(4)]
            async with asyncio.timeout(5):
                reads = await path.fetch(wanted, max_wait_ms=0, bytes_min=1, bytes_max=1 << 20)
            held_meanwhile = cold.budget.bytes_held
            back.set()
            after = await path.fetch(wanted, max_wait_ms=0, bytes_min=1, bytes_max=1 << 20)
    away = ErrorCode.not_leader_or_follower
    assert [read.error_code for read in reads] == [away, away, ErrorCode.none, away]
    assert [read.record_bytes > 0 for read in reads] == [False, False, True, False]
    assert held_meanwhile > 0, "what is being read counts until it is read"
    assert [read.record_bytes > 0 for read in after] == [True] * 4


async def test_a_fetch_of_many_partitions_asks_a_store_that_is_away_once_for_each_object() -> None:
    async with data_paths(cache_bytes=0, partitions=10) as paths:
        for partition in range(10):
            await paths.produce(batch(3), partition=partition)
        paths.store.script(*[InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.GET)] * 100)
        wanted = [consumer_of("t", 0, partition) for partition in range(10)]
        reads = await paths.fetch_path.fetch(wanted, max_wait_ms=0, bytes_min=1, bytes_max=1 << 20)
    assert {read.error_code for read in reads} == {ErrorCode.not_leader_or_follower}
    assert len(paths.store.struck) == 10
