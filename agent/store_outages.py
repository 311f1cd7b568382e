"""Says in the log when the object store fails, that it still does, and that it answers again.

Rule: each operation has its own outages, because a full disk fails puts while gets go on. The first failure is told,
then one line at most every `WARNING_INTERVAL_SECONDS`, with the count, however many requests fail and however often
the store comes and goes. An outage's end is told where its beginning was.
"""

import logging
from collections.abc import Callable

from storage.object_store import StoreError

log = logging.getLogger(__name__)

WARNING_INTERVAL_SECONDS = 30.0


class _Outage:
    """Of one operation: from its first failure until it succeeds."""

    __slots__ = ("began_s", "failures_count", "is_told")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.failures_count = 0
        self.is_told = False


class StoreOutages:
    """The observer that `storage.retrying` calls."""

    def __init__(self, *, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._outages: dict[str, _Outage] = {}
        self._told_s: dict[str, float] = {}
        """When an operation's last warning was. It outlives the outage: a store that comes and goes fills no log."""

    def failed(self, operation: str, key: str, error: StoreError) -> None:
        """One try of `operation` on `key` (or prefix) failed."""
        now_s = self._monotonic_s()
        outage = self._outages.get(operation)
        if outage is None:
            outage = self._outages[operation] = _Outage(now_s)
        outage.failures_count += 1
        if now_s - self._told_s.get(operation, float("-inf")) < WARNING_INTERVAL_SECONDS:
            return
        self._told_s[operation] = now_s
        outage.is_told = True
        log.warning(
            "the object store fails: requests are repeated until they succeed or their time is over",
            extra={
                "operation": operation,
                "key": key,
                "reason": str(error),
                "failures": outage.failures_count,
                "seconds": round(now_s - outage.began_s, 1),
            },
        )

    def answered(self, operation: str) -> None:
        """One try of `operation` was answered, if only by "missing"."""
        outage = self._outages.pop(operation, None)
        if outage is not None and outage.is_told:
            log.info(
                "the object store answers again",
                extra={
                    "operation": operation,
                    "failures": outage.failures_count,
                    "seconds": round(self._monotonic_s() - outage.began_s, 1),
                },
            )
