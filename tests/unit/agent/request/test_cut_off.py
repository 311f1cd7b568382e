"""An agent whose session is not confirmed is cut off while another agent serves, and only then."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from agent.request.cut_off import CutOff
from agent.runtime.clock import Clock, SystemClock
from coordinator.commands.commands import ReportTime, StartDrain
from protocol.limits import CUT_OFF_HOLD_SECONDS, CUT_OFF_POLL_SECONDS, LEDGER_SESSION_SECONDS
from protocol.types import SessionId
from tests.support.agent.data_paths import another_agent, data_paths
from tests.support.agent.ledger_parts import Parts
from tests.support.handlers.stalled_ledger import Impatient


@asynccontextmanager
async def two_agents() -> AsyncIterator[tuple[Parts, Parts]]:
    """The agent that may be cut off, and another one, which it knows."""
    async with data_paths() as paths, another_agent(paths) as other:
        await paths.parts.ledger.barrier()
        yield paths.parts, other.parts


def cut(parts: Parts, clock: Clock) -> CutOff:
    """The ledger has confirmed the agent's session for the last time one lease ago."""
    parts.clock.seconds = parts.ledger.confirmed_s + LEDGER_SESSION_SECONDS
    return CutOff(ledger=parts.ledger, clock=clock)


async def confirm(parts: Parts) -> None:
    await parts.ledger.propose(ReportTime())


async def test_it_begins_one_lease_after_the_last_confirmation() -> None:
    async with two_agents() as (parts, _):
        cut_off = cut(parts, Impatient())
        assert cut_off.is_cut_off
        parts.clock.seconds -= 0.01
        assert not cut_off.is_cut_off


async def test_clients_see_the_sessions_of_the_other_agents_alone() -> None:
    async with two_agents() as (parts, other):
        cut_off = cut(parts, Impatient())
        assert set(cut_off.sessions) == {other.ledger.session}
        await confirm(parts)
        assert set(cut_off.sessions) == {parts.ledger.session, other.ledger.session}


async def test_the_only_agent_is_never_cut_off() -> None:
    async with data_paths() as paths:
        parts, clock = paths.parts, Impatient()
        cut_off = cut(parts, clock)
        # While a session is replaced the one before is in the state.
        own = parts.ledger.state.sessions[parts.ledger.session]
        parts.ledger.state.sessions[SessionId(999)] = replace(own)
        assert not await cut_off.redirects(CUT_OFF_HOLD_SECONDS)
        assert cut_off.sessions is parts.ledger.state.sessions
        assert clock.waits == []
        del parts.ledger.state.sessions[SessionId(999)]


async def test_an_agent_beside_others_that_drain_is_not_cut_off() -> None:
    async with two_agents() as (parts, other):
        await other.ledger.propose(StartDrain(session=other.ledger.session))
        await parts.ledger.barrier()
        assert not cut(parts, Impatient()).is_cut_off


async def test_a_request_waits_no_longer_than_it_may() -> None:
    async with two_agents() as (parts, _):
        clock = Impatient()
        cut_off = cut(parts, clock)
        assert await cut_off.redirects(0.7)
        assert await cut_off.redirects(0.0)
        assert await cut_off.redirects(-1.0)
        assert clock.waits == [0.7]


async def test_all_that_wait_are_served_at_once_when_the_ledger_answers_again() -> None:
    async with two_agents() as (parts, _):
        cut_off = cut(parts, SystemClock())
        for _ in range(2):  # a second outage is waited for like the first
            waiting = [asyncio.ensure_future(cut_off.redirects(60.0)) for _ in range(3)]
            await asyncio.wait(waiting, timeout=3 * CUT_OFF_POLL_SECONDS)
            assert not any(each.done() for each in waiting)
            await confirm(parts)
            assert await asyncio.wait_for(asyncio.gather(*waiting), 10) == [False] * 3
            parts.clock.seconds += LEDGER_SESSION_SECONDS


async def test_nothing_is_polled_once_no_request_waits() -> None:
    async with two_agents() as (parts, _):
        cut_off = cut(parts, SystemClock())
        waiting = asyncio.ensure_future(cut_off.redirects(60.0))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=2 * CUT_OFF_POLL_SECONDS)
        assert cut_off._timer is None  # a timer is seen nowhere else
