"""The verdict on this machine's wall clock where the store has no clock of its own (safety rule S21).

A step of the clock must not destroy records: retention, garbage collection and expiry use believed times only.

- While the agent runs, a time more than an hour beyond (the last believed one + the elapsed time) is not believed
  until the clock comes back.
- At a start nothing is known of the time since the ledger's last entry. A clock that is ahead of it by more than an
  hour is believed after an hour in which it keeps step with the machine's uptime. One that is ahead by more than seven
  days is not.
- `--accept-time` believes a clock that is ahead at once, at the start for which it is given.
- A clock behind the ledger's last time is never believed: `penstock recover --time` heals a ledger that is ahead.

Pure: readings come in, a verdict goes out. Elapsed time includes the machine's sleep (`Clock.uptime_s`); without it
every laptop that wakes up would look like a clock that was set.
"""

from collections.abc import Callable
from dataclasses import dataclass

from protocol.limits import (
    CLOCK_CONFIRMATION_SECONDS,
    CLOCK_CONFIRMED_AHEAD_MS_MAX,
    CLOCK_DRIFT_RATIO_MAX,
    CLOCK_SKEW_MS_MAX,
    CLOCK_STEP_MS_MAX,
    CLOCK_STEPS_WINDOW_SECONDS,
)
from protocol.types import Milliseconds

NO_LEDGER_TIME = 0
"""The time of a ledger without any time: every clock is believed, as there are no records to destroy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockVerdict:
    """The verdict on the newest reading of the wall clock."""

    is_believed: bool
    ahead_ms: int = 0
    """How far the clock is ahead of the expected time; negative where it is behind the ledger; 0 if believed."""
    believed_in_s: float | None = 0.0
    """Seconds until it is believed, if it keeps step; None where only an operator can help."""


BELIEVED = ClockVerdict(is_believed=True)


@dataclass(frozen=True, slots=True)
class _ClockReading:
    wall_ms: int
    uptime_s: float

    def wall_at(self, uptime_s: float) -> int:
        """The time at `uptime_s` by a clock that was right at this reading."""
        return self.wall_ms + round((uptime_s - self.uptime_s) * 1000)


class ClockTrust:
    """Judges readings of the wall clock, one after the other."""

    def __init__(self, *, ledger_ms: Callable[[], Milliseconds], is_accepted: bool) -> None:
        """`ledger_ms`: the ledger's last time. `is_accepted`: `--accept-time` was given at this start."""
        self._ledger_ms = ledger_ms
        self._is_accepted = is_accepted
        self._base: _ClockReading | None = None
        """The last believed reading; before the first one the ledger's time at the start."""
        self._was_believed = False
        self._agreeing_since: _ClockReading | None = None
        """The reading since which the clock keeps step with the uptime, while it waits to be believed."""
        self._steps_ms = 0
        """The sum of the forward steps that were believed since `_steps_since_s`."""
        self._steps_since_s = 0.0

    def judge(self, wall_ms: Milliseconds, uptime_s: float) -> ClockVerdict:
        """The verdict on a reading; later ones are compared with one that is believed."""
        ledger_ms = self._ledger_ms()
        now = _ClockReading(wall_ms, uptime_s)
        is_start = self._base is None
        if self._base is None:
            self._base = now if ledger_ms == NO_LEDGER_TIME else _ClockReading(ledger_ms, uptime_s)
        if wall_ms < ledger_ms - CLOCK_SKEW_MS_MAX:
            self._agreeing_since = None
            return ClockVerdict(is_believed=False, ahead_ms=wall_ms - ledger_ms, believed_in_s=None)
        if is_start and self._is_accepted:
            return self._believe(now)
        if uptime_s - self._steps_since_s >= CLOCK_STEPS_WINDOW_SECONDS:
            self._steps_ms, self._steps_since_s = 0, uptime_s
        expected_ms = max(self._base.wall_at(uptime_s), ledger_ms)
        ahead_ms = wall_ms - expected_ms
        # Believed steps count together: else a clock could run away by an hour at a time.
        if ahead_ms <= CLOCK_STEP_MS_MAX - self._steps_ms:
            if self._was_believed and ahead_ms > CLOCK_SKEW_MS_MAX:
                self._steps_ms += ahead_ms
            return self._believe(now)
        return self._wait(now, ahead_ms)

    def _believe(self, now: _ClockReading) -> ClockVerdict:
        self._base, self._was_believed, self._agreeing_since = now, True, None
        return BELIEVED

    def _wait(self, now: _ClockReading, ahead_ms: int) -> ClockVerdict:
        """The verdict on a clock that is too far ahead.

        It becomes believed by waiting only at a start: one that was believed before was set while the agent ran.
        """
        if self._was_believed or ahead_ms > CLOCK_CONFIRMED_AHEAD_MS_MAX:
            self._agreeing_since = None
            return ClockVerdict(is_believed=False, ahead_ms=ahead_ms, believed_in_s=None)
        since = self._agreeing_since
        if since is None or not _keeps_step(since, now):
            since = self._agreeing_since = now
        remaining_s = CLOCK_CONFIRMATION_SECONDS - (now.uptime_s - since.uptime_s)
        if remaining_s <= 0:
            return self._believe(now)
        return ClockVerdict(is_believed=False, ahead_ms=ahead_ms, believed_in_s=remaining_s)


def _keeps_step(since: _ClockReading, now: _ClockReading) -> bool:
    """Whether wall clock and uptime have drifted apart by no more than CLOCK_DRIFT_RATIO_MAX, and a second at first."""
    drift_s = abs(now.wall_ms - since.wall_at(now.uptime_s)) / 1000
    return drift_s <= max(1.0, (now.uptime_s - since.uptime_s) * CLOCK_DRIFT_RATIO_MAX)
