"""Counts and logs fetches of records whose object is missing, is damaged, or cannot be read.

Consumers repeat such a fetch many times a second. A damaged object is logged once, missing objects every
MISSING_OBJECT_LOG_INTERVAL_S, and rejected reads as `RejectedReads` does.
"""

import logging

from agent.fetch.chunk_plan import chunks_from
from agent.fetch.damaged_objects import DamagedObjects
from agent.fetch.pending_fetch import ReadablePartition
from agent.fetch.rejected_reads import RejectedReads
from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from protocol.limits import MISSING_OBJECT_LOG_INTERVAL_S
from storage.object_store import ObjectDamaged, StoreError

log = logging.getLogger(__name__)


class UnreadableRecords:
    """The counters and log lines of one `FetchPath`."""

    def __init__(self, *, ledger: LedgerClient, damaged: DamagedObjects, clock: Clock, metrics: Metrics) -> None:
        self._ledger = ledger
        self._damaged = damaged
        self._clock = clock
        self._fetches_missing = metrics.fetch_missing_objects
        self._fetches_damaged = metrics.fetch_damaged_objects
        self._rejected = RejectedReads(clock=clock)
        self._missing_logged_s = -MISSING_OBJECT_LOG_INTERVAL_S

    def missing(self, readable: ReadablePartition | None, offset: int) -> None:
        """Report an object that was missing in the bucket at each of READ_PLANS_MAX plans, each after a barrier."""
        self._fetches_missing.inc()
        now_s = self._clock.monotonic_s()
        if readable is None or now_s < self._missing_logged_s + MISSING_OBJECT_LOG_INTERVAL_S:
            return
        self._missing_logged_s = now_s
        log.error(
            "records are lost: an object that the ledger refers to is not in the bucket, and consumers cannot get past "
            "it. Put it back, or run `penstock audit` to see what else is missing: docs/operations/damage.md, "
            '"Objects are missing"',
            extra={
                "topic": readable.topic.name,
                "partition": readable.number,
                "offset": offset,
                "key": self._object_key(readable, offset),
            },
        )

    def damaged(self, readable: ReadablePartition | None, offset: int, error: ObjectDamaged) -> None:
        """Report an object whose bytes do not match the ledger (safety rule S20)."""
        self._fetches_damaged.inc()
        key = None if readable is None else self._object_key(readable, offset)
        if readable is not None and key is not None:
            self._damaged.report(key, error, topic=readable.topic.name, partition=readable.number, offset=offset)

    def rejected(self, readable: ReadablePartition, offset: int, error: StoreError) -> None:
        """Report a read that the store rejected."""
        where = {"topic": readable.topic.name, "partition": readable.number, "offset": offset}
        self._rejected.report(error, **where, key=self._object_key(readable, offset))

    def _object_key(self, readable: ReadablePartition, offset: int) -> str | None:
        """The key of the object that has the partition's record at that offset."""
        chunk = next(iter(chunks_from(readable.partition, offset, 0)), None)
        stored = None if chunk is None else self._ledger.state.objects.get(chunk.object_id)
        return None if stored is None else stored.key
