"""A step of the clock is confirmed before it destroys anything (safety rule S21)."""

import pytest

from agent.ledger.clock_trust import ClockTrust, ClockVerdict
from protocol.limits import (
    CLOCK_CHECK_RETRY_S,
    CLOCK_CONFIRMATION_SECONDS,
    CLOCK_SKEW_MS_MAX,
    CLOCK_STEPS_WINDOW_SECONDS,
)
from protocol.types import Milliseconds

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
LEDGER_MS = 1_700_000_000_000


class Machine:
    """A wall clock and an uptime, and the trust in them. The ledger's time follows what is believed."""

    def __init__(self, ahead_ms: int, *, ledger_ms: int = LEDGER_MS, is_accepted: bool = False) -> None:
        self.wall_ms = LEDGER_MS + ahead_ms
        self.uptime_s = 7_000.0
        self.ledger_ms = ledger_ms
        self.trust = ClockTrust(ledger_ms=lambda: Milliseconds(self.ledger_ms), is_accepted=is_accepted)

    def judge(self) -> ClockVerdict:
        verdict = self.trust.judge(Milliseconds(self.wall_ms), self.uptime_s)
        if verdict.is_believed:
            self.ledger_ms = max(self.ledger_ms, self.wall_ms)
        return verdict

    def run(self, seconds: float, *, wall_ratio: float = 1.0) -> ClockVerdict:
        """Time passes, and the clock is judged as often as an agent does that doubts it."""
        verdict = self.judge()
        for _ in range(int(seconds / CLOCK_CHECK_RETRY_S)):
            self.uptime_s += CLOCK_CHECK_RETRY_S
            self.wall_ms += int(CLOCK_CHECK_RETRY_S * 1000 * wall_ratio)
            verdict = self.judge()
        return verdict


class TestStart:
    def test_a_new_ledger_has_no_time_so_every_clock_is_believed(self) -> None:
        assert Machine(500 * DAY_MS, ledger_ms=0).judge().is_believed

    @pytest.mark.parametrize("ahead_ms", [-CLOCK_SKEW_MS_MAX, 0, SECOND_MS, HOUR_MS])
    def test_s21_a_clock_up_to_an_hour_ahead_is_believed_at_once(self, ahead_ms: int) -> None:
        assert Machine(ahead_ms).judge().is_believed

    @pytest.mark.parametrize("ahead_ms", [HOUR_MS + 1, 2 * DAY_MS, 7 * DAY_MS])
    def test_s21_one_that_is_further_ahead_is_believed_after_an_hour_of_running_evenly(self, ahead_ms: int) -> None:
        machine = Machine(ahead_ms)
        verdict = machine.judge()
        assert verdict == ClockVerdict(is_believed=False, ahead_ms=ahead_ms, believed_in_s=CLOCK_CONFIRMATION_SECONDS)
        verdict = machine.run(CLOCK_CONFIRMATION_SECONDS - CLOCK_CHECK_RETRY_S)
        assert (verdict.is_believed, verdict.believed_in_s) == (False, CLOCK_CHECK_RETRY_S)
        assert machine.run(CLOCK_CHECK_RETRY_S).is_believed

    def test_s21_one_that_is_more_than_seven_days_ahead_is_not_believed_by_waiting(self) -> None:
        machine = Machine(7 * DAY_MS + 1)
        verdict = machine.run(5 * CLOCK_CONFIRMATION_SECONDS)
        assert verdict == ClockVerdict(is_believed=False, ahead_ms=7 * DAY_MS + 1, believed_in_s=None)

    def test_s21_a_person_s_word_is_enough(self) -> None:
        assert Machine(30 * DAY_MS, is_accepted=True).judge().is_believed

    @pytest.mark.parametrize("is_accepted", [False, True])
    def test_s21_a_clock_behind_the_ledger_is_never_believed(self, *, is_accepted: bool) -> None:
        machine = Machine(-30 * DAY_MS, is_accepted=is_accepted)
        verdict = machine.run(2 * CLOCK_CONFIRMATION_SECONDS)
        assert (verdict.is_believed, verdict.believed_in_s) == (False, None)
        assert verdict.ahead_ms < -29 * DAY_MS

    def test_a_clock_behind_that_is_set_right_is_believed(self) -> None:
        machine = Machine(-30 * DAY_MS)
        machine.run(60)
        machine.wall_ms = LEDGER_MS + 5 * MINUTE_MS
        assert machine.judge().is_believed

    def test_s21_a_clock_that_runs_unevenly_begins_the_hour_again(self) -> None:
        machine = Machine(2 * DAY_MS)
        machine.run(CLOCK_CONFIRMATION_SECONDS - 600)
        machine.wall_ms += 2 * MINUTE_MS
        verdict = machine.judge()
        assert verdict.believed_in_s == CLOCK_CONFIRMATION_SECONDS
        assert not machine.run(CLOCK_CONFIRMATION_SECONDS - CLOCK_CHECK_RETRY_S).is_believed
        assert machine.run(CLOCK_CHECK_RETRY_S).is_believed

    @pytest.mark.parametrize(
        ("wall_ratio", "is_believed"), [(1.016, True), (0.984, True), (1.05, False), (0.95, False)]
    )
    def test_s21_a_clock_that_is_a_second_a_minute_off_is_even_enough(
        self, wall_ratio: float, *, is_believed: bool
    ) -> None:
        assert Machine(2 * DAY_MS).run(CLOCK_CONFIRMATION_SECONDS, wall_ratio=wall_ratio).is_believed is is_believed

    def test_a_clock_that_is_set_right_while_it_waits_is_believed_at_once(self) -> None:
        machine = Machine(30 * DAY_MS)
        machine.run(60)
        machine.wall_ms = LEDGER_MS + 60 * SECOND_MS
        assert machine.judge().is_believed


class TestRunning:
    def test_s21_a_step_of_more_than_an_hour_is_not_believed_until_the_clock_comes_back(self) -> None:
        machine = Machine(0)
        machine.run(600)
        machine.wall_ms += 30 * DAY_MS
        verdict = machine.run(3 * CLOCK_CONFIRMATION_SECONDS)
        assert verdict == ClockVerdict(is_believed=False, ahead_ms=30 * DAY_MS, believed_in_s=None)
        machine.wall_ms -= 30 * DAY_MS
        assert machine.judge().is_believed

    def test_s21_two_days_are_no_better_than_thirty_while_it_runs(self) -> None:
        machine = Machine(0)
        machine.judge()
        machine.wall_ms += 2 * DAY_MS
        assert machine.run(2 * CLOCK_CONFIRMATION_SECONDS).believed_in_s is None

    def test_a_step_of_less_than_an_hour_is_believed(self) -> None:
        machine = Machine(0)
        machine.run(60)
        machine.wall_ms += 59 * MINUTE_MS
        assert machine.judge().is_believed

    def test_s21_several_steps_of_less_than_an_hour_count_together_for_a_day(self) -> None:
        machine = Machine(0)
        machine.run(60)
        machine.wall_ms += 40 * MINUTE_MS
        assert machine.run(60).is_believed
        machine.wall_ms += 40 * MINUTE_MS
        assert not machine.run(60).is_believed
        machine.wall_ms -= 40 * MINUTE_MS
        assert machine.run(CLOCK_STEPS_WINDOW_SECONDS).is_believed
        machine.wall_ms += 40 * MINUTE_MS
        assert machine.run(60).is_believed

    def test_a_machine_that_slept_for_days_is_believed_because_its_uptime_counts_the_sleep(self) -> None:
        machine = Machine(0)
        machine.run(60)
        machine.wall_ms += 9 * DAY_MS
        machine.uptime_s += 9 * 86_400
        assert machine.judge().is_believed

    def test_s21_a_step_back_below_the_ledger_s_time_is_not_believed_until_time_has_caught_up(self) -> None:
        machine = Machine(0)
        machine.run(600)
        machine.wall_ms -= 30 * MINUTE_MS
        assert not machine.run(29 * 60).is_believed
        assert machine.run(2 * 60).is_believed

    def test_small_errors_of_the_clock_are_followed_without_an_end(self) -> None:
        assert Machine(0).run(CLOCK_STEPS_WINDOW_SECONDS, wall_ratio=1.001).is_believed
