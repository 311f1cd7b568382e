"""A stopping agent waits for clients that still come, and no longer."""

import asyncio

from agent.request.draining import Draining
from protocol.limits import DRAIN_QUIET_SECONDS
from tests.support.agent.ledger_parts import ManualClock


class Visited(ManualClock):
    """A client comes at each of some times."""

    def __init__(self, draining: Draining, times_s: list[float]) -> None:
        super().__init__()
        self._draining = draining
        self._times_s = times_s

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        while self._times_s and self._times_s[0] <= self.seconds:
            self._times_s.pop(0)
            assert await self._draining.redirects()


async def test_nobody_is_sent_away_or_counted_before_it_begins() -> None:
    draining = Draining()
    assert not await draining.redirects()
    assert draining.redirected_count == 0


async def test_a_spare_serves_while_no_other_agent_does() -> None:
    others = [True]
    draining = Draining(lambda: bool(others))
    draining.begin()
    draining.announce()
    assert await draining.redirects()
    others.clear()
    assert not await draining.redirects()
    others.append(True)
    assert await draining.redirects()


async def test_a_client_waits_until_it_can_find_another_leader() -> None:
    draining = Draining()
    draining.begin()
    waiting = asyncio.ensure_future(draining.redirects())
    await asyncio.wait([waiting], timeout=0.01)
    assert not waiting.done()
    draining.announce()
    assert await waiting
    assert draining.redirected_count == 1


async def test_it_is_quiet_once_nobody_came_for_a_while() -> None:
    draining = Draining()
    draining.begin()
    draining.announce()
    clock = Visited(draining, [0.3, 0.9, 1.5])
    await draining.until_quiet(clock)
    assert 1.5 + DRAIN_QUIET_SECONDS <= clock.seconds < 1.6 + DRAIN_QUIET_SECONDS
