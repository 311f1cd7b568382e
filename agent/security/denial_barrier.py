"""The barrier before a denial (safety rule S16): one for all that wait, and at most one in each interval.

A client that is denied again and again costs the ledger one request in an interval, not one for each denial.
"""

import asyncio
import math

from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from coordinator.ledger.port import LedgerUnavailable
from protocol.limits import BARRIER_SECONDS_MAX, DENIAL_BARRIER_SECONDS
from protocol.types import Position


class DenialBarrier:
    """One agent has one. Denials of rights and of unknown users share it."""

    def __init__(self, *, ledger: LedgerClient, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._began_s = -math.inf
        self._barrier: asyncio.Future[Position] | None = None

    async def passes(self) -> bool:
        """True once everything is applied that was in the ledger before the call; False where it does not answer."""
        begin_s = max(self._clock.monotonic_s(), self._began_s + DENIAL_BARRIER_SECONDS)
        pause_s = begin_s - self._clock.monotonic_s()
        if pause_s > 0:
            await self._clock.sleep(pause_s)
        # A barrier that another caller began after this call serves this one, too.
        if self._barrier is None or self._began_s < begin_s:
            self._began_s = max(begin_s, self._clock.monotonic_s())
            self._barrier = self._ledger.begin_barrier()
        try:
            async with self._clock.timeout(BARRIER_SECONDS_MAX):
                # Shielded: a caller whose connection ends must not cancel the barrier of the others.
                await asyncio.shield(self._barrier)
        except (LedgerUnavailable, TimeoutError):
            return False
        return True
