"""The barrier before a denial (safety rule S16): one for all that wait, and at most one in each interval.

A client that is denied again and again costs the ledger one request in an interval, not one for each denial.
A login takes it before its user is looked up, whether or not the user is known: otherwise the wait would show who
exists. So a user that any agent created before is never rejected, and one that was deleted before is never let in.
"""

import asyncio
import math

from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from coordinator.ledger.port import LedgerUnavailable
from protocol.limits import BARRIER_SECONDS_MAX, DENIAL_BARRIER_SECONDS, LOGIN_BARRIER_SECONDS_MAX
from protocol.types import Position


class DenialBarrier:
    """One agent has one. Denials of rights and logins share it."""

    def __init__(self, *, ledger: LedgerClient, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._began_s = -math.inf
        self._barrier: asyncio.Future[Position] | None = None
        self._logins_count = 0
        self._logins_before_barrier = 0
        """The logins that had come when the newest barrier began."""
        self._logins_served = 0
        """The logins that had come when a barrier began that has ended: they need no other one."""
        self._turns = asyncio.Lock()

    async def passes(self, seconds_max: float = BARRIER_SECONDS_MAX) -> bool:
        """True once everything is applied that was in the ledger before the call; False where it does not answer.

        `seconds_max`: how long an answer is waited for.
        """
        begin_s = max(self._clock.monotonic_s(), self._began_s + DENIAL_BARRIER_SECONDS)
        pause_s = begin_s - self._clock.monotonic_s()
        if pause_s > 0:
            await self._clock.sleep(pause_s)
        # A barrier that another caller began after this call serves this one, too.
        if self._barrier is None or self._began_s < begin_s:
            self._began_s = max(begin_s, self._clock.monotonic_s())
            self._barrier = self._ledger.begin_barrier()
            self._logins_before_barrier = self._logins_count
        return await self._ends(self._barrier, seconds_max)

    async def _ends(self, barrier: asyncio.Future[Position], seconds_max: float) -> bool:
        logins_before = self._logins_before_barrier
        try:
            async with self._clock.timeout(seconds_max):
                # Shielded: a caller whose connection ends must not cancel the barrier of the others.
                await asyncio.shield(barrier)
        except (LedgerUnavailable, TimeoutError):
            has_passed = False
        else:
            has_passed = True
        # Not where this caller is cancelled: then the barrier may not have ended.
        self._logins_served = max(self._logins_served, logins_before)
        return has_passed

    async def before_login(self) -> None:
        """Returns behind the barrier, or without the ledger: then what is applied has to do for the login."""
        self._logins_count += 1
        number = self._logins_count
        # One at a time, and other clients in between. The first of those that wait takes the barrier for all of them: a
        # thousand that waited for it themselves would all be free at once, and hold the loop for tens of milliseconds.
        async with self._turns:
            if number > self._logins_served:
                if self._barrier is not None and number <= self._logins_before_barrier:
                    # A barrier began after this login came, and its taker was cancelled: the rest of its time counts.
                    left_s = self._began_s + LOGIN_BARRIER_SECONDS_MAX - self._clock.monotonic_s()
                    await self._ends(self._barrier, max(left_s, 0.0))
                else:
                    await self.passes(LOGIN_BARRIER_SECONDS_MAX)
            await self._clock.sleep(0)
