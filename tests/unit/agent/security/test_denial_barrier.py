"""The barrier before a denial (safety rule S16): it begins after the call, is shared, and comes once in an interval."""

import asyncio

import pytest

from agent.security.denial_barrier import DenialBarrier
from coordinator.commands.commands import ReportTime
from coordinator.ledger.port import LedgerUnavailable
from protocol.limits import BARRIER_SECONDS_MAX, DENIAL_BARRIER_SECONDS, LOGIN_BARRIER_SECONDS_MAX
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


async def settled() -> None:
    """Lets the tasks go on until each waits for something."""
    for _ in range(10):
        await asyncio.sleep(0)


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


async def test_a_login_waits_less_long_for_a_ledger_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts() as parts:
        barrier, waits = DenialBarrier(ledger=parts.ledger, clock=parts.clock), list[float | None]()

        def timeout(seconds: float | None) -> asyncio.Timeout:
            waits.append(seconds)
            return asyncio.timeout(0)

        async def silent() -> object:
            return await asyncio.get_running_loop().create_future()

        monkeypatch.setattr(parts.backend, "head", silent)
        monkeypatch.setattr(parts.clock, "timeout", timeout)
        await barrier.before_login()
        assert not await barrier.passes()
        assert waits == [LOGIN_BARRIER_SECONDS_MAX, BARRIER_SECONDS_MAX]


async def test_logins_that_wait_share_the_barrier_that_the_first_of_them_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts() as parts:
        barriers, clock = CountedBarriers(parts, monkeypatch), SharedTime()
        barrier = DenialBarrier(ledger=parts.ledger, clock=clock)
        await asyncio.gather(*(barrier.before_login() for _ in range(20)))
        # The first one's began before the others came.
        assert barriers.count == 2
        assert [seconds for seconds in clock.slept if seconds] == [DENIAL_BARRIER_SECONDS]


async def test_s16_a_login_that_comes_after_a_barrier_began_waits_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_parts() as parts:
        barriers = CountedBarriers(parts, monkeypatch)
        barrier = DenialBarrier(ledger=parts.ledger, clock=SharedTime())
        first = asyncio.ensure_future(barrier.before_login())
        await asyncio.sleep(0)
        assert barriers.count == 1
        second = asyncio.ensure_future(barrier.before_login())
        await asyncio.gather(first, second)
        assert barriers.count == 2


async def test_s16_a_login_that_is_cancelled_behind_its_barrier_leaves_the_others_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_parts() as parts:
        begun = list[asyncio.Future[Position]]()

        def begin() -> asyncio.Future[Position]:
            begun.append(asyncio.get_running_loop().create_future())
            return begun[-1]

        monkeypatch.setattr(parts.ledger, "begin_barrier", begin)
        barrier = DenialBarrier(ledger=parts.ledger, clock=SharedTime())
        before = asyncio.ensure_future(barrier.before_login())
        await asyncio.sleep(0)
        logins = [asyncio.ensure_future(barrier.before_login()) for _ in range(3)]
        await asyncio.sleep(0)
        begun[0].set_result(parts.ledger.state.position)
        await before
        await settled()
        assert len(begun) == 2
        logins[0].cancel()
        await settled()
        assert not any(login.done() for login in logins[1:])
        begun[1].set_result(parts.ledger.state.position)
        await asyncio.gather(*logins[1:])
        assert len(begun) == 2, "the one that began after they came serves them"


async def test_logins_that_are_cancelled_in_front_of_one_cost_it_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts() as parts:
        waits = list[float | None]()
        clock = SharedTime()
        barrier = DenialBarrier(ledger=parts.ledger, clock=clock)
        pending = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(parts.ledger, "begin_barrier", lambda: pending)

        def timeout(seconds: float | None) -> asyncio.Timeout:
            waits.append(seconds)
            return asyncio.timeout(None)

        monkeypatch.setattr(clock, "timeout", timeout)
        logins = [asyncio.ensure_future(barrier.before_login())]
        await settled()
        logins += [asyncio.ensure_future(barrier.before_login()) for _ in range(2)]
        await settled()
        for login in logins[:2]:
            clock.seconds += 2.0
            login.cancel()
            await settled()
        pending.set_result(parts.ledger.state.position)
        await logins[2]
        assert waits == [LOGIN_BARRIER_SECONDS_MAX, LOGIN_BARRIER_SECONDS_MAX, LOGIN_BARRIER_SECONDS_MAX - 2.0]
