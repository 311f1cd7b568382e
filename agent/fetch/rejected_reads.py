"""Logs reads that the store rejects, such as for a missing permission.

Mostly all reads are rejected for the same reason, and consumers repeat them many times a second. So there is one line
in OUTAGE_REMINDER_SECONDS, with one of the reads and the number since the line before.
"""

import logging
import math

from agent.runtime.clock import Clock
from protocol.limits import OUTAGE_REMINDER_SECONDS
from storage.object_store import StoreError

log = logging.getLogger(__name__)


class RejectedReads:
    """Logs rejected reads of all partitions together, at most one line in an interval."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._logged_s = -math.inf
        self._count = 0

    def report(self, error: StoreError, **where: object) -> None:
        """Count a rejected read, and log it where the last line is old enough. `where`: its topic and offset."""
        self._count += 1
        now_s = self._clock.monotonic_s()
        if now_s < self._logged_s + OUTAGE_REMINDER_SECONDS:
            return
        log.error(
            "records cannot be read: the store rejects the reads, and consumers get KAFKA_STORAGE_ERROR until it "
            'accepts them (docs/operations/bucket.md, "The bucket is denied, or does not answer")',
            extra={"reason": f"{type(error).__name__}: {error}", "rejected": self._count, **where},
        )
        self._logged_s, self._count = now_s, 0
