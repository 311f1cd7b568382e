"""Logs the outages of services that the agent needs: their beginning, reminders, and their end.

Rule: an outage logs one line at its beginning, then at most one every `OUTAGE_REMINDER_SECONDS`, however many requests
fail and however often it comes back. Its end is logged only if its beginning was. Code that meets such a failure logs
nothing above debug itself.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from protocol.limits import OUTAGE_REMINDER_SECONDS

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageWords:
    """The texts of an outage's log lines."""

    fails: str
    """The fault, its effect on clients, and the remedy."""
    answers: str


class Outage:
    """An outage of one service: from its first failure until every operation that failed was answered.

    Failed operations are tried again within `OUTAGE_REMINDER_SECONDS`. So an operation that has not failed for that
    long no longer delays the end, once another operation is answered.
    """

    __slots__ = ("_began_s", "_failed_s", "_failures_count", "_is_logged", "_logged_s", "_monotonic_s", "_words")

    def __init__(self, words: OutageWords, *, monotonic_s: Callable[[], float]) -> None:
        self._words = words
        self._monotonic_s = monotonic_s
        self._failed_s: dict[str, float] = {}
        """The failing operations, with the monotonic time of each one's last failure."""
        self._began_s = 0.0
        self._failures_count = 0
        self._is_logged = False
        self._logged_s = float("-inf")
        """The time of the last line, except ends. It outlives the outage, so that a flapping service fills no log."""

    def failed(self, operation: str, reason: str, *, key: str | None = None) -> None:
        """`operation` failed; `key` names its object."""
        now_s = self._begin(operation, 0.0)
        self._failures_count += 1
        self._log_failure(operation, reason, key, now_s)

    def silent(self, operation: str, reason: str, *, key: str, silent_s: float) -> None:
        """`operation` has had no answer for `silent_s` seconds while a caller waits for it."""
        self._log_failure(operation, reason, key, self._begin(operation, silent_s))

    def _begin(self, operation: str, silent_s: float) -> float:
        now_s = self._monotonic_s()
        if not self._failed_s:
            self._began_s, self._failures_count, self._is_logged = now_s - silent_s, 0, False
        self._failed_s[operation] = now_s
        return now_s

    def _log_failure(self, operation: str, reason: str, key: str | None, now_s: float) -> None:
        if now_s - self._logged_s < OUTAGE_REMINDER_SECONDS:
            return
        self._logged_s, self._is_logged = now_s, True
        about = {} if key is None else {"key": key}
        log.warning(
            self._words.fails, extra={"operation": operation, **about, "reason": reason, **self._statistics(now_s)}
        )

    def answered(self, operation: str) -> None:
        """`operation` was answered, also with a rejection or a missing object."""
        if not self._failed_s:
            return
        now_s = self._monotonic_s()
        self._failed_s.pop(operation, None)
        if all(now_s - failed_s >= OUTAGE_REMINDER_SECONDS for failed_s in self._failed_s.values()):
            self._failed_s.clear()
            if self._is_logged:
                log.info(self._words.answers, extra={"operation": operation, **self._statistics(now_s)})

    @property
    def seconds(self) -> float:
        """The duration of the outage; 0 without one, and where no operation has failed lately."""
        now_s = self._monotonic_s()
        is_current = any(now_s - failed_s < OUTAGE_REMINDER_SECONDS for failed_s in self._failed_s.values())
        return now_s - self._began_s if is_current else 0.0

    def _statistics(self, now_s: float) -> dict[str, object]:
        return {"failures": self._failures_count, "seconds": round(now_s - self._began_s, 1)}
