"""Waiting for the ledger: outcomes, growth, positions and barriers (safety rule S4)."""

import asyncio

import pytest

from coordinator.commands import DeleteTopic, ReportTime
from coordinator.log import Head, LedgerUnavailable
from coordinator.memory_log import MemoryLedger
from protocol.types import PartitionIndex, Position
from tests.made_commands import TOPIC, Batch, Chunk, commit, create, start
from tests.unit.agent.ledger_parts import Parts, running_parts

PARTITION = (TOPIC, PartitionIndex(0))
SECONDS_MAX = 10.0


class GatedLedger(MemoryLedger):
    """Answers `head` only when the test lets it, with what was true when it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[asyncio.Event] = []
        self.is_gated = False

    async def head(self) -> Head:
        head = await super().head()
        if self.is_gated:
            self.asked.append(asyncio.Event())
            await self.asked[-1].wait()
        return head


async def rounds(count: int = 20) -> None:
    """Let everything that can go on go on."""
    for _ in range(count):
        await asyncio.sleep(0)


async def produce(parts: Parts, number: int) -> None:
    await parts.writer.submit(commit(number, Chunk(batches=[Batch()]), session=parts.writer.session))


async def test_a_barrier_returns_when_what_was_there_is_applied() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts, running_parts(ledger, start("b", node=2)) as others:
        await parts.writer.submit(create())
        await others.metadata.barrier()
        assert others.metadata.state.position >= parts.metadata.state.position


async def test_a_barrier_joins_only_a_request_that_was_not_sent_yet() -> None:
    ledger = GatedLedger()
    async with running_parts(ledger) as parts:
        ledger.is_gated = True
        first = asyncio.ensure_future(parts.metadata.barrier())
        await rounds()
        late = [asyncio.ensure_future(parts.metadata.barrier()) for _ in range(3)]
        await rounds()
        assert len(ledger.asked) == 1
        ledger.asked[0].set()
        await first
        await rounds()
        assert [barrier.done() for barrier in late] == [False, False, False]
        assert len(ledger.asked) == 2  # one request for all that came while the first was on its way
        ledger.asked[1].set()
        await asyncio.gather(*late)


async def test_a_barrier_fails_where_the_ledger_is_away_and_the_next_one_works_again() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts:
        ledger.is_reachable = False
        with pytest.raises(LedgerUnavailable):
            await parts.metadata.barrier()
        ledger.is_reachable = True
        await parts.metadata.barrier()


async def test_whoever_watches_a_partition_is_woken_when_it_grows() -> None:
    async with running_parts() as parts:
        await parts.writer.submit(create())
        growth = parts.metadata.watch([PARTITION, (TOPIC, PartitionIndex(1))])
        waiting = asyncio.ensure_future(growth.wait())
        await parts.writer.submit(ReportTime())
        await rounds()
        assert not waiting.done()
        await produce(parts, 0)
        async with asyncio.timeout(SECONDS_MAX):
            await waiting
        parts.metadata.unwatch(growth)
        await produce(parts, 1)


async def test_whoever_watches_a_partition_is_woken_when_its_topic_goes() -> None:
    async with running_parts() as parts:
        await parts.writer.submit(create())
        growth = parts.metadata.watch([PARTITION])
        await parts.writer.submit(DeleteTopic(topic_id=TOPIC))
        async with asyncio.timeout(SECONDS_MAX):
            await growth.wait()
        parts.metadata.unwatch(growth)


async def test_a_position_is_waited_for() -> None:
    async with running_parts() as parts:
        position = parts.metadata.state.position
        await parts.metadata.reach(position)
        waiting = asyncio.ensure_future(parts.metadata.reach(Position(position + 2)))
        await parts.writer.submit(ReportTime())
        await rounds()
        assert not waiting.done()
        await parts.writer.submit(ReportTime())
        async with asyncio.timeout(SECONDS_MAX):
            await waiting


async def test_a_ledger_that_was_away_is_followed_again_from_where_it_stopped() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts:
        await parts.writer.submit(create())
        ledger.is_reachable = False
        outcome = parts.writer.submit(commit(0, Chunk(batches=[Batch()]), session=parts.writer.session))
        await rounds()
        assert not outcome.done()
        ledger.is_reachable = True
        async with asyncio.timeout(SECONDS_MAX):
            await outcome
        found = parts.metadata.state.partition(TOPIC, PartitionIndex(0))
        assert found is not None
        assert found.log_end == 1
