"""Fetches of records that cannot be read: an error in time, the rest answered, and what is lost is told."""

import asyncio

import pytest

from agent import fetch_path
from agent.clock import SystemClock
from protocol.errors import ErrorCode
from protocol.limits import LOST_OBJECT_TOLD_INTERVAL_S
from storage.failing import Fault, FaultKind, Operation
from tests.unit.agent.data_paths import another_agent, data_paths
from tests.unit.agent.test_fetch_path import batch, consumer_of, fetch_path_of, intake_objects


async def test_a_store_that_is_away_is_a_retriable_error() -> None:
    async with data_paths(cache_bytes=0) as paths:
        await paths.produce(batch(3))
        paths.store.script(Fault(kind=FaultKind.BEFORE, operation=Operation.GET))
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
        paths.parts.clock.seconds += LOST_OBJECT_TOLD_INTERVAL_S
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
    assert "penstock_fetch_lost_objects_total 4.0" in exposition


async def test_a_fetch_answers_what_is_in_memory_once_the_store_has_not_answered_for_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_path, "FETCH_READ_SECONDS_MAX", 0.01)
    async with data_paths(partitions=4) as paths:
        for partition in range(4):
            await paths.produce(batch(3), partition=partition)
        back = asyncio.Event()
        async with another_agent(paths) as cold:
            await cold.fetch_path.fetch([consumer_of("t", 0, 2)], max_wait_ms=0, bytes_min=1, bytes_max=1 << 20)
            cold.during_pause = back.wait
            cold.store.script(*[Fault(kind=FaultKind.SLOW, operation=Operation.GET)] * 3)
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
        paths.store.script(*[Fault(kind=FaultKind.BEFORE, operation=Operation.GET)] * 100)
        wanted = [consumer_of("t", 0, partition) for partition in range(10)]
        reads = await paths.fetch_path.fetch(wanted, max_wait_ms=0, bytes_min=1, bytes_max=1 << 20)
    assert {read.error_code for read in reads} == {ErrorCode.not_leader_or_follower}
    assert len(paths.store.struck) == 10
