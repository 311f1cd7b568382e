"""Checks whether this agent's wall clock may be believed (safety rules S2 and S21).

The clock is compared with the object store's every few minutes, and with the machine's uptime in between. The embedded
store has no clock of its own; `agent.ledger.clock_trust` judges the machine's clock there. While the clock is not
believed, no entry gets a time, so no record, offset, producer or garbage expires.
"""

import logging
import math
from datetime import UTC, datetime

from agent.ledger.clock_trust import BELIEVED, ClockTrust, ClockVerdict
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.runtime.periodic_job import PeriodicJob
from protocol.limits import CLOCK_CHECK_INTERVAL_S, CLOCK_CHECK_RETRY_S, CLOCK_CHECK_VALID_S, CLOCK_SKEW_MS_MAX
from protocol.types import Milliseconds
from storage.object_store import ObjectStore, StoreError

log = logging.getLogger(__name__)

REMEDY = 'docs/operations/clock.md, "The clock is wrong, or was set"'


class ClockCheck:
    """The check of one agent's clock. Every time in a ledger entry comes from `proposed_time`."""

    def __init__(self, *, store: ObjectStore, clock: Clock, trust: ClockTrust) -> None:
        """`trust` judges the clock where the store has none."""
        self._store = store
        self._clock = clock
        self._trust = trust
        self._checked_s = 0.0
        """The uptime at the last check that believed the clock."""
        self._checked_ms = 0
        """The time of the store's clock at `_checked_s`, or of the machine's where the store has none."""
        self._valid_until_s = -math.inf
        """The uptime until which that check holds; -inf while the clock is not believed."""
        self._offset_ms = 0
        """How far the clock was ahead of the store's at the last check; 0 where the store has none."""
        self.verdict = BELIEVED
        """The verdict of the last check, where the store has no clock."""

    def publish(self, metrics: Metrics) -> None:
        """Let the metrics read the verdict whenever they are scraped."""
        metrics.clock_checked.set_function(lambda: self.proposed_time() is not None)
        metrics.clock_offset_seconds.set_function(lambda: self._offset_ms / 1000)
        metrics.clock_step_seconds.set_function(lambda: self.verdict.ahead_ms / 1000)
        metrics.clock_confirmation_seconds.set_function(lambda: _seconds_left(self.verdict))

    def proposed_time(self) -> Milliseconds | None:
        """The time for a ledger entry; None while the clock is unchecked or wrong."""
        now_s, now_ms = self._clock.uptime_s(), self._clock.now_ms()
        if now_s >= self._valid_until_s:
            return None
        # The clock may have been set since the check: the uptime shows it.
        expected_ms = self._checked_ms + round((now_s - self._checked_s) * 1000)
        return now_ms if abs(now_ms - expected_ms) <= CLOCK_SKEW_MS_MAX else None

    async def check(self) -> None:
        """Compare once. A wrong clock is not believed until a later check finds it right. Raises `StoreError`."""
        # Taken before the request, which may take long: the check is valid from its beginning.
        began_s = self._clock.uptime_s()
        store_ms = await self._store.server_time_ms()
        now_ms = self._clock.now_ms()
        if store_ms is None and not self._judge(now_ms).is_believed:
            self._valid_until_s = -math.inf
            return
        self._offset_ms = 0 if store_ms is None else now_ms - store_ms
        skew_ms = abs(self._offset_ms)
        if skew_ms > CLOCK_SKEW_MS_MAX:
            self._valid_until_s = -math.inf
            log.error(
                "this machine's clock differs from the object store's: time-based maintenance is paused until it is "
                "set right",
                extra={"skew_ms": skew_ms, "allowed_ms": CLOCK_SKEW_MS_MAX},
            )
            return
        self._checked_s = self._clock.uptime_s()
        self._checked_ms = now_ms if store_ms is None else store_ms
        self._valid_until_s = began_s + CLOCK_CHECK_VALID_S

    def _judge(self, now_ms: Milliseconds) -> ClockVerdict:
        """The verdict on the clock without a store's clock, which becomes `verdict`. A change is logged (S21)."""
        before, verdict = self.verdict, self._trust.judge(now_ms, self._clock.uptime_s())
        self.verdict = verdict
        # A verdict without an end needs an operator, one with an end only time: the change is worth a line.
        is_other_remedy = (before.believed_in_s is None) != (verdict.believed_in_s is None)
        if verdict.is_believed and not before.is_believed:
            log.warning("this machine's clock is believed again: retention and garbage collection go on")
        elif not verdict.is_believed and (before.is_believed or is_other_remedy):
            log.error(f"{verdict_text(verdict, now_ms)} ({REMEDY})", extra={"ahead_seconds": verdict.ahead_ms // 1000})
        return verdict

    async def check_or_report(self) -> None:
        """Compare once. An error of the store is logged, and the last check stays valid for as long as it was."""
        try:
            await self.check()
        except StoreError as error:
            log.warning(
                "this machine's clock could not be compared with the object store's; it is tried again",
                extra={"reason": str(error)},
            )

    @property
    def job(self) -> PeriodicJob:
        """Further checks; the caller has checked once."""
        return PeriodicJob(name="clock check", interval_s=CLOCK_CHECK_RETRY_S, run_once=self._check_if_due)

    async def _check_if_due(self) -> None:
        """Check the clock if its last check is old, or if it is not believed: the store was away, or it is wrong."""
        is_due = self._clock.uptime_s() - self._checked_s >= CLOCK_CHECK_INTERVAL_S
        if is_due or self.proposed_time() is None:
            await self.check_or_report()


def verdict_text(verdict: ClockVerdict, now_ms: Milliseconds) -> str:
    """A sentence on a clock that is not believed: what is wrong, what it stops, and what ends it."""
    waiting = "no record, offset, producer or garbage expires"
    if verdict.ahead_ms < 0:
        return (
            f"this machine's clock is behind the ledger's last time and is never believed: {waiting} until it is set "
            "right; if it is right the ledger is ahead: stop, and run `penstock recover --time`"
        )
    if verdict.believed_in_s is None:
        return (
            f"this machine's clock is too far ahead of what the ledger knows to be believed: {waiting} until it comes "
            "back, or, if it is right, until a start with --accept-time"
        )
    believed_at = datetime.fromtimestamp(now_ms / 1000 + verdict.believed_in_s, UTC)
    return (
        f"this machine's clock is ahead of the ledger's last time: {waiting} before it is believed, at "
        f"{believed_at:%Y-%m-%d %H:%M:%S} UTC by this clock if it goes on evenly, or at once by a start with "
        "--accept-time"
    )


def _seconds_left(verdict: ClockVerdict) -> float:
    """The seconds until the clock is believed; infinite where only an operator can help."""
    return math.inf if verdict.believed_in_s is None else verdict.believed_in_s
