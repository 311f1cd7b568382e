"""Says whether this agent's wall clock may be believed (safety rule S2).

Rule: an agent proposes a time only while it compared its clock with the object store's within the last minutes, found
it close, and the clock has not been set since: it is held to the monotonic clock in between. Where the store has no
clock of its own (the embedded one), the machine's clocks are all there is.
"""

import logging

from agent.clock import Clock
from protocol.limits import CLOCK_CHECK_INTERVAL_S, CLOCK_CHECK_RETRY_S, CLOCK_CHECK_VALID_S, CLOCK_SKEW_MS_MAX
from protocol.types import Milliseconds
from storage.object_store import ObjectStore, StoreError

log = logging.getLogger(__name__)


class ClockCheck:
    def __init__(self, *, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._checked_s = 0.0
        self._checked_ms = 0
        """What the store's clock said at `_checked_s`, or the machine's where it has none."""
        self._valid_until_s = 0.0

    def proposed_time(self) -> Milliseconds | None:
        """The time for a ledger entry, or None while the clock is unchecked or off."""
        now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        if now_s >= self._valid_until_s:
            return None
        expected_ms = self._checked_ms + int((now_s - self._checked_s) * 1000)
        return now_ms if abs(now_ms - expected_ms) <= CLOCK_SKEW_MS_MAX else None

    async def check(self) -> None:
        """Compare once. A clock that is off is not believed until a later check finds it right."""
        began_s = self._clock.monotonic_s()
        store_ms = await self._store.server_time_ms()
        now_ms = self._clock.now_ms()
        skew_ms = 0 if store_ms is None else abs(now_ms - store_ms)
        if skew_ms > CLOCK_SKEW_MS_MAX:
            self._valid_until_s = 0.0
            log.error(
                "this machine's clock differs from the object store's; entries get no time until it is set right",
                extra={"skew_ms": skew_ms, "allowed_ms": CLOCK_SKEW_MS_MAX},
            )
            return
        self._checked_s = self._clock.monotonic_s()
        self._checked_ms = now_ms if store_ms is None else store_ms
        self._valid_until_s = began_s + CLOCK_CHECK_VALID_S

    async def check_or_report(self) -> None:
        """Compare once; a store that is away is only reported, and the clock stays as far believed as it was."""
        try:
            await self.check()
        except StoreError as error:
            log.warning("could not compare clocks with the object store", extra={"reason": str(error)})

    async def run(self) -> None:
        """Check again and again, for ever; the caller has checked once.

        A clock that is not believed, because the store was away or the clock is off or was set, is checked soon.
        """
        while True:
            await self._clock.sleep(CLOCK_CHECK_RETRY_S)
            is_due = self._clock.monotonic_s() - self._checked_s >= CLOCK_CHECK_INTERVAL_S
            if is_due or self.proposed_time() is None:
                await self.check_or_report()
