"""Says whether this agent's wall clock may be believed (safety rule S2).

Rule: an agent proposes a time only while it compared its clock with the object store's within the last minutes and
found it close. Where the store has no clock of its own (the embedded one), the machine's clock is all there is.
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
        self._valid_until_s = 0.0

    def proposed_time(self) -> Milliseconds | None:
        """The time for a ledger entry, or None while the clock is unchecked or off."""
        return self._clock.now_ms() if self._clock.monotonic_s() < self._valid_until_s else None

    async def check(self) -> None:
        """Compare once. A clock that is off is not believed until a later check finds it right."""
        began_s = self._clock.monotonic_s()
        store_ms = await self._store.server_time_ms()
        skew_ms = 0 if store_ms is None else abs(self._clock.now_ms() - store_ms)
        if skew_ms > CLOCK_SKEW_MS_MAX:
            self._valid_until_s = 0.0
            log.error(
                "this machine's clock differs from the object store's; entries get no time until it is set right",
                extra={"skew_ms": skew_ms, "allowed_ms": CLOCK_SKEW_MS_MAX},
            )
            return
        self._valid_until_s = began_s + CLOCK_CHECK_VALID_S

    async def check_or_report(self) -> None:
        """Compare once; a store that is away is only reported, and the clock stays as far believed as it was."""
        try:
            await self.check()
        except StoreError as error:
            log.warning("could not compare clocks with the object store", extra={"reason": str(error)})

    async def run(self) -> None:
        """Check again and again, for ever; the caller has checked once. A store that is away is asked again soon."""
        while True:
            is_believed = self.proposed_time() is not None
            await self._clock.sleep(CLOCK_CHECK_INTERVAL_S if is_believed else CLOCK_CHECK_RETRY_S)
            await self.check_or_report()
