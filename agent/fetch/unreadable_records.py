"""Counts and logs fetches that meet records whose object is gone from the bucket, is damaged, or is refused.

Rule: consumers ask for such records many times a second, so the log is written once for a damaged object, every
`MISSING_OBJECT_LOG_INTERVAL_S` where objects are gone, and as `RefusedReads` does where the store refuses them.
"""

import logging

from agent.fetch.chunk_plan import chunks_from
from agent.fetch.damaged_objects import DamagedObjects
from agent.fetch.pending_fetch import ReadablePartition
from agent.fetch.refused_reads import RefusedReads
from agent.ledger.apply_loop import ApplyLoop
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from protocol.limits import MISSING_OBJECT_LOG_INTERVAL_S
from storage.object_store import ObjectDamaged, StoreError

log = logging.getLogger(__name__)


class UnreadableRecords:
    """Every `FetchPath` has one."""

    def __init__(self, *, metadata: ApplyLoop, damaged: DamagedObjects, clock: Clock, metrics: Metrics) -> None:
        self._metadata = metadata
        self._damaged = damaged
        self._clock = clock
        self._fetches_lost = metrics.fetch_missing_objects
        self._fetches_damaged = metrics.fetch_damaged_objects
        self._refused = RefusedReads(clock=clock)
        self._lost_logged_s = -MISSING_OBJECT_LOG_INTERVAL_S

    def lost(self, found: ReadablePartition | None, offset: int) -> None:
        """Each time that it was planned, from a barrier on, an object that a fetch needs was not in the bucket."""
        self._fetches_lost.inc()
        now_s = self._clock.monotonic_s()
        if found is None or now_s < self._lost_logged_s + MISSING_OBJECT_LOG_INTERVAL_S:
            return
        self._lost_logged_s = now_s
        log.error(
            "records are lost: an object that the ledger refers to is not in the bucket, and its consumers go no "
            "further; put it back, or run `penstock audit` to learn what else is missing: "
            'docs/operations/damage.md, "Objects are missing"',
            extra={
                "topic": found.topic.name,
                "partition": found.number,
                "offset": offset,
                "key": self._object_key(found, offset),
            },
        )

    def damaged(self, found: ReadablePartition | None, offset: int, error: ObjectDamaged) -> None:
        """The object that a fetch needs does not hold what the ledger says (safety rule S20)."""
        self._fetches_damaged.inc()
        key = None if found is None else self._object_key(found, offset)
        if found is not None and key is not None:
            self._damaged.report(key, error, topic=found.topic.name, partition=found.number, offset=offset)

    def refused(self, found: ReadablePartition, offset: int, error: StoreError) -> None:
        """The store does not give the object that a fetch needs, and says so."""
        where = {"topic": found.topic.name, "partition": found.number, "offset": offset}
        self._refused.report(error, **where, key=self._object_key(found, offset))

    def _object_key(self, found: ReadablePartition, offset: int) -> str | None:
        """The object that a partition's record of that offset lies in."""
        chunk = next(iter(chunks_from(found.partition, offset, 0)), None)
        stored = None if chunk is None else self._metadata.state.objects.get(chunk.object_id)
        return None if stored is None else stored.key
