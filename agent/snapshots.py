"""Writes snapshots of the state, so that an agent starts fast and the ledger stays short.

Rule: object first, then the pointer by compare-and-set, then the trim: a crash in between leaves an object that nobody
refers to and the next snapshot removes, never a pointer to nothing. The pointer carries the state's digest (safety rule
S3).
"""

import logging

from agent.clock import Clock
from agent.metadata_loop import MetadataLoop
from agent.metrics import Metrics
from coordinator.log import Ledger, LedgerStart, SnapshotPointer
from coordinator.snapshot import encode_with_digest
from storage.object_store import ObjectStore
from storage.refs import SNAPSHOT_PREFIX, snapshot_key

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 5.0


class Snapshots:
    """The role that one agent has: today's only one."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        store: ObjectStore,
        metadata: MetadataLoop,
        clock: Clock,
        metrics: Metrics,
        start: LedgerStart,
        entries_interval: int,
        bytes_interval: int,
    ) -> None:
        self._ledger = ledger
        self._store = store
        self._metadata = metadata
        self._clock = clock
        self._metrics = metrics
        self._pointer = start.pointer
        self._entries_interval = entries_interval
        self._bytes_interval = bytes_interval
        # What the ledger held above its pointer at the start counts too, or short lives would never take a snapshot.
        self._entries_covered = metadata.entries_applied_count - len(start.records)
        self._bytes_covered = metadata.entry_bytes_applied - sum(len(record.payload) for record in start.records)

    async def run(self) -> None:
        """Take a snapshot whenever enough entries, or bytes of them, were applied since the last, for ever."""
        while True:
            await self._clock.sleep(CHECK_INTERVAL_S)
            if self._is_due:
                await self.take()

    @property
    def _is_due(self) -> bool:
        entries = self._metadata.entries_applied_count - self._entries_covered
        entry_bytes = self._metadata.entry_bytes_applied - self._bytes_covered
        return entries >= self._entries_interval or entry_bytes >= self._bytes_interval

    async def take(self) -> SnapshotPointer:
        """Write a snapshot of the state as it is now, move the pointer, trim the ledger, drop the older snapshots."""
        state = self._metadata.state
        entries_covered, bytes_covered = self._metadata.entries_applied_count, self._metadata.entry_bytes_applied
        # On the loop, not in a thread: the state must not change while it is written out.
        content, state_digest = encode_with_digest(state)
        pointer = SnapshotPointer(
            position=state.position,
            object_key=snapshot_key(state.position),
            appends_count=state.appends_count,
            digest=state_digest,
        )
        await self._store.put(pointer.object_key, [content])
        previous = self._pointer
        if not await self._ledger.set_snapshot(previous, pointer):
            log.warning("another agent moved the snapshot pointer first", extra={"position": pointer.position})
            self._pointer = (await self._ledger.load()).pointer
            return pointer
        self._pointer = pointer
        self._entries_covered, self._bytes_covered = entries_covered, bytes_covered
        await self._ledger.trim(pointer.position)
        # Keys sort by position: the older ones are the previous snapshot, and what crashes left.
        older = [meta.key async for meta in self._store.list(SNAPSHOT_PREFIX) if meta.key < pointer.object_key]
        if older:
            await self._store.delete(older)
        self._metrics.snapshots.inc()
        log.info("wrote a snapshot", extra={"position": pointer.position, "bytes": len(content)})
        return pointer
