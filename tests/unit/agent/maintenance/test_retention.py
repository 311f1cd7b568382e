"""Old records are dropped by the maintenance leader, by a checked clock, and nothing is written while none are too
old."""

import asyncio

import pytest

from agent.ledger import entry_batches
from agent.maintenance import retention as retention_module
from agent.maintenance.retention import Retention
from coordinator.ledger.memory import MemoryLedger
from protocol.types import TopicId
from tests.support.agent.ledger_parts import BEGAN_MS, DAY_MS, Parts, running_parts
from tests.support.commands.commands import TOPIC, Batch, Chunk, commit, create

OTHER = TopicId(bytes([1] * 16))


def retention(parts: Parts, **broker_configs: str) -> Retention:
    """Its defaults are Kafka's, seven days among them; underscores in the names of `broker_configs` stand for dots."""
    return Retention(
        parts.context(broker_configs={name.replace("_", "."): value for name, value in broker_configs.items()})
    )


async def produced(parts: Parts) -> None:
    """A record of now in the first partitions of two topics, of which one keeps everything."""
    await parts.ledger.propose(create())
    await parts.ledger.propose(create("u", topic_id=OTHER, retention_ms="-1"))
    chunks = [Chunk(topic_id=topic_id, batches=[Batch(timestamp=BEGAN_MS)]) for topic_id in (TOPIC, OTHER)]
    await parts.ledger.propose(commit(0, *chunks, session=parts.ledger.session))
    assert log_starts(parts) == [0, 0]


def log_starts(parts: Parts) -> list[int]:
    return [parts.ledger.state.topics[topic_id].partitions[0].log_start for topic_id in (TOPIC, OTHER)]


async def test_records_are_dropped_once_they_are_older_than_their_topic_keeps_them() -> None:
    async with running_parts() as parts:
        await produced(parts)
        parts.clock.seconds += 7 * DAY_MS / 1000
        assert await retention(parts).retain() == 0
        parts.clock.seconds += 1
        assert await retention(parts).retain() == 1
        assert log_starts(parts) == [1, 0]


async def test_nothing_is_written_while_nothing_is_due() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts:
        await produced(parts)
        head = await ledger.head()
        parts.clock.seconds += 60
        assert await retention(parts).retain() == 0
        assert await ledger.head() == head


async def test_defaults_are_those_of_the_agents_broker_configs() -> None:
    async with running_parts() as parts:
        await produced(parts)
        parts.clock.seconds += 60
        assert await retention(parts, log_retention_ms="1", log_cleanup_policy="compact").retain() == 0
        assert await retention(parts, log_retention_minutes="1").retain() == 0
        assert await retention(parts, log_retention_hours="-1", log_retention_bytes="100").retain() == 0
        assert await retention(parts, log_retention_ms="59999").retain() == 1
        assert log_starts(parts) == [1, 0]
        assert await retention(parts, log_retention_bytes="0").retain() == 1
        assert log_starts(parts) == [1, 1]


async def test_s2_an_unchecked_clock_drops_nothing() -> None:
    async with running_parts() as parts:
        await produced(parts)
        parts.clock.seconds += 8 * DAY_MS
        parts.is_clock_checked = False
        assert await retention(parts, log_retention_bytes="0").retain() == 0
        assert log_starts(parts) == [0, 0]


async def test_what_one_entry_cannot_hold_goes_into_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_batches, "DROPPING_PARTITIONS_PER_ENTRY_MAX", 1)
    async with running_parts() as parts:
        await produced(parts)
        head = await parts.backend.head()
        assert await retention(parts, log_retention_bytes="0").retain() == 2
        assert log_starts(parts) == [1, 1]
        assert (await parts.backend.head()).appends_count == head.appends_count + 2


async def test_chunks_that_one_entry_must_not_drop_all_go_by_several(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (entry_batches, retention_module):
        monkeypatch.setattr(module, "DROPPED_CHUNKS_PER_ENTRY_MAX", 2)
    async with running_parts() as parts:
        await parts.ledger.propose(create(partitions=4))
        for number, partition in enumerate([0, 0, 0, 0, 0, 1, 3]):
            chunk = Chunk(partition=partition, batches=[Batch(timestamp=BEGAN_MS)])
            await parts.ledger.propose(commit(number, chunk, session=parts.ledger.session))
        head = await parts.backend.head()
        assert await retention(parts, log_retention_bytes="0").retain() == 3
        assert (await parts.backend.head()).appends_count == head.appends_count + 4
        partitions = parts.ledger.state.topics[TOPIC].partitions
        assert [(each.log_start, len(each.index)) for each in partitions] == [(5, 0), (1, 0), (0, 0), (1, 0)]


async def turns() -> None:
    """Lets everybody else go on until they would have done what they can."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_only_the_maintenance_leader_looks_and_as_often_as_it_is_told() -> None:
    async with running_parts() as parts:
        await produced(parts)
        role = asyncio.create_task(parts.repeat(retention(parts, log_retention_check_interval_ms="86400000").job))
        try:
            await turns()
            assert len(parts.clock.slept) > 8
            assert set(parts.clock.slept) == {DAY_MS / 1000}
            assert log_starts(parts) == [0, 0]
            assert await parts.maintenance_leader.claim()
            await turns()
            assert log_starts(parts) == [1, 0]
        finally:
            role.cancel()
