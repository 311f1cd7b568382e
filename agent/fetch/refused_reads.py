"""Says in the log that the store refuses to give records, such as for want of a right.

Rule: the refusal of one read is mostly that of all, and consumers ask many times a second, so one line in
`OUTAGE_REMINDER_SECONDS` names one of them, and how many there were since the line before.
"""

import logging
import math

from agent.runtime.clock import Clock
from protocol.limits import OUTAGE_REMINDER_SECONDS
from storage.object_store import StoreError

log = logging.getLogger(__name__)


class RefusedReads:
    """Logs rejected reads of all partitions together, at most one line in an interval."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._logged_s = -math.inf
        self._count = 0

    def report(self, error: StoreError, **where: object) -> None:
        """A read was refused. `where`: of which records."""
        self._count += 1
        now_s = self._clock.monotonic_s()
        if now_s < self._logged_s + OUTAGE_REMINDER_SECONDS:
            return
        log.error(
            "records cannot be read: the store refuses them, and consumers get KAFKA_STORAGE_ERROR until it gives them "
            '(docs/operations/bucket.md, "The bucket is denied, or does not answer")',
            extra={"reason": f"{type(error).__name__}: {error}", "refused": self._count, **where},
        )
        self._logged_s, self._count = now_s, 0
