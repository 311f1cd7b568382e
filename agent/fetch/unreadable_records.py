"""Counts and logs fetches of records whose object is missing, is damaged, or cannot be read.

Consumers repeat such a fetch many times a second. A damaged object is logged once, missing objects every
MISSING_OBJECT_LOG_INTERVAL_S, and rejected reads as `RejectedReads` does.
"""

import logging

from agent.fetch.damaged_objects import DamagedObjects
from agent.fetch.partition_read import UnreadableRead
from agent.fetch.rejected_reads import RejectedReads
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from protocol.limits import MISSING_OBJECT_LOG_INTERVAL_S
from storage.object_store import ObjectDamaged, ObjectMissing

log = logging.getLogger(__name__)


class UnreadableRecords:
    """The counters and log lines of one `FetchPath`."""

    def __init__(self, *, damaged: DamagedObjects, clock: Clock, metrics: Metrics) -> None:
        self._damaged = damaged
        self._clock = clock
        self._fetches_missing = metrics.fetch_missing_objects
        self._fetches_damaged = metrics.fetch_damaged_objects
        self._rejected = RejectedReads(clock=clock)
        self._missing_logged_s = -MISSING_OBJECT_LOG_INTERVAL_S

    def report(self, read: UnreadableRead) -> None:
        """Count and log a partition of a fetch that cannot be read."""
        where: dict[str, object] = {"topic": read.topic, "partition": read.partition, "offset": read.offset}
        if isinstance(read.error, ObjectMissing):
            self._report_missing(read, where)
        elif isinstance(read.error, ObjectDamaged):
            self._fetches_damaged.inc()
            if read.key is not None:
                self._damaged.report(read.key, read.error, **where)
        else:
            self._rejected.report(read.error, **where, key=read.key)

    def _report_missing(self, read: UnreadableRead, where: dict[str, object]) -> None:
        """Report an object that was missing in the bucket at each of READ_PLANS_MAX plans, each before a barrier."""
        self._fetches_missing.inc()
        now_s = self._clock.monotonic_s()
        if read.topic is None or now_s < self._missing_logged_s + MISSING_OBJECT_LOG_INTERVAL_S:
            return
        self._missing_logged_s = now_s
        log.error(
            "records are lost: an object that the ledger refers to is not in the bucket, and consumers cannot get past "
            "it. Put it back, or run `penstock audit` to see what else is missing: docs/operations/damage.md, "
            '"Objects are missing"',
            extra={**where, "key": read.key},
        )
