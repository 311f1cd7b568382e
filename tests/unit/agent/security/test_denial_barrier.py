"""The barrier before a denial (safety rule S16): it begins after the call, is shared, and comes once in an interval."""

import asyncio

import pytest

from agent.security.denial_barrier import DenialBarrier
from coordinator.commands.commands import ReportTime
from coordinator.ledger.port import LedgerUnavailable
from protocol.limits import DENIAL_BARRIER_SECONDS
from protocol.types import Position
from tests.support.agent.ledger_parts import ManualClock, Parts, running_parts


class SharedTime(ManualClock):
    """All that sleep at once sleep through the same time."""

    async def sleep(self, seconds: float) -> None:
        end_s = self.seconds + seconds
        self.slept.append(seconds)
        await asyncio.sleep(0)
        self.seconds = max(self.seconds, end_s)


class CountedBarriers:
    """Counts the barriers that an agent begins."""

    def __init__(self, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._begin = parts.ledger.begin_barrier
        monkeypatch.setattr(parts.ledger, "begin_barrier", self)

    def __call__(self) -> asyncio.Future[Position]:
        self.count += 1
        return self._begin()


async def test_s16_a_denial_waits_for_what_was_in_the_ledger_before_it() -> None:
    async with running_parts() as parts:
        barrier = DenialBarrier(ledger=parts.ledger, clock=parts.clock)
        outcome = parts.ledger.propose(ReportTime())
        await outcome
        assert await barrier.passes()
        assert parts.ledger.state.position == (await parts.backend.head()).position


async def test_denials_that_come_while_one_waits_share_the_next_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts() as parts:
        barriers, clock = CountedBarriers(parts, monkeypatch), SharedTime()
        barrier = DenialBarrier(ledger=parts.ledger, clock=clock)
        assert await asyncio.gather(*(barrier.passes() for _ in range(20))) == [True] * 20
        assert barriers.count == 2
        assert clock.slept == [DENIAL_BARRIER_SECONDS] * 19


async def test_a_denial_after_a_quiet_interval_waits_for_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts() as parts:
        barriers = CountedBarriers(parts, monkeypatch)
        barrier = DenialBarrier(ledger=parts.ledger, clock=parts.clock)
        for _ in range(3):
            assert await barrier.passes()
            parts.clock.seconds += DENIAL_BARRIER_SECONDS
        assert (barriers.count, parts.clock.slept) == (3, [])


async def test_without_the_ledger_the_barrier_fails_and_a_later_one_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts() as parts:
        barrier = DenialBarrier(ledger=parts.ledger, clock=parts.clock)
        head = parts.backend.head

        async def away() -> object:
            raise LedgerUnavailable("away")

        monkeypatch.setattr(parts.backend, "head", away)
        assert not await barrier.passes()
        monkeypatch.setattr(parts.backend, "head", head)
        assert await barrier.passes()


async def test_a_caller_that_is_cancelled_leaves_the_barrier_to_the_others() -> None:
    async with running_parts() as parts:
        barrier = DenialBarrier(ledger=parts.ledger, clock=parts.clock)
        assert await barrier.passes()
        others = [asyncio.ensure_future(barrier.passes()) for _ in range(2)]
        for _ in range(4):
            await asyncio.sleep(0)
        others[0].cancel()
        assert await others[1]
