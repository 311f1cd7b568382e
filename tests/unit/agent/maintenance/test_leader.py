"""One agent is the maintenance leader; another takes over when it is gone or stops."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coordinator.commands.commands import EndSession, StartDrain
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import LedgerUnavailable
from tests.support.agent.ledger_parts import Parts, running_parts
from tests.support.commands.commands import start

SECONDS_MAX = 10.0


@asynccontextmanager
async def two_agents() -> AsyncIterator[tuple[Parts, Parts]]:
    core = MemoryLedgerCore()
    async with (
        running_parts(MemoryLedger(core)) as one,
        running_parts(MemoryLedger(core), start("b", node=2)) as other,
        asyncio.timeout(SECONDS_MAX),
    ):
        yield one, other


def is_leader(parts: Parts) -> bool:
    return parts.maintenance_leader.is_leader


async def both_know(one: Parts, other: Parts) -> None:
    await one.ledger.barrier()
    await other.ledger.barrier()


async def test_of_several_that_claim_at_once_one_gets_the_role() -> None:
    async with two_agents() as (one, other):
        given = await asyncio.gather(one.maintenance_leader.claim(), other.maintenance_leader.claim())
        assert sorted(given) == [False, True]
        await both_know(one, other)
        assert [is_leader(one), is_leader(other)] == list(given)
        assert not await one.maintenance_leader.claim()
        assert not await other.maintenance_leader.claim()
        assert one.maintenance_leader.epoch == other.maintenance_leader.epoch == 1


async def test_when_the_holder_s_session_ends_another_agent_takes_over_by_itself() -> None:
    async with two_agents() as (one, other):
        assert await one.maintenance_leader.claim()
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(other.repeat(other.maintenance_leader.job))
            await other.ledger.barrier()
            assert not is_leader(other)
            one.backend.core.expire(one.ledger.session)  # type: ignore[attr-defined]
            await other.ledger.propose(EndSession(session=one.ledger.session))
            while not is_leader(other):
                await other.clock.sleep(0)
            run.cancel()
        assert other.maintenance_leader.epoch == 2


async def test_who_stops_hands_it_over_while_its_session_lives() -> None:
    async with two_agents() as (one, other):
        assert await one.maintenance_leader.claim()
        await one.ledger.propose(StartDrain(session=one.ledger.session))
        assert not is_leader(one)
        assert not await one.maintenance_leader.claim()
        await other.ledger.barrier()
        assert await other.maintenance_leader.claim()


async def test_an_agent_that_is_alone_takes_it_and_asks_nobody() -> None:
    async with running_parts() as parts, asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as tasks:
        run = tasks.create_task(parts.repeat(parts.maintenance_leader.job))
        while not is_leader(parts):
            await parts.clock.sleep(0)
        position = parts.ledger.state.position
        for _ in range(100):
            await parts.clock.sleep(0)
        assert parts.ledger.state.position == position
        run.cancel()


async def test_an_agent_that_is_cut_off_believes_that_it_has_the_role_until_it_hears_otherwise() -> None:
    async with two_agents() as (one, other):
        assert await one.maintenance_leader.claim()
        await both_know(one, other)
        assert isinstance(one.backend, MemoryLedger)
        one.backend.is_reachable = False
        one.backend.core.expire(one.ledger.session)
        await other.ledger.propose(EndSession(session=one.ledger.session))
        assert await other.maintenance_leader.claim()
        assert is_leader(one)
        one.backend.is_reachable = True
        while is_leader(one):
            try:
                await one.ledger.barrier()
            except LedgerUnavailable:
                continue
        assert is_leader(other)
