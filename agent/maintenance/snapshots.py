"""Writes snapshots of the state, so that an agent starts fast and the ledger stays short.

Rule: object first, then the pointer by compare-and-set, then the trim: a crash in between leaves an object that nobody
refers to and the next snapshot removes, never a pointer to nothing. The pointer carries the state's digest (safety rule
S3), and the state is one that all live agents were asked about and that nobody, or too few, computed otherwise
(`agent.maintenance.corruption_check`): the ledger is trimmed behind it, so a wrong one would be the truth from then on.
An object is written once: agents of two versions may write one state in other bytes, and the pointer of one must not
lead to the object of the other. The snapshot before the newest is kept until there is another, so that a recovery has
one to fall back on.

The maintenance leader takes them; where two agents believe that they are it, the pointer is one's, and the other looks
it up.
"""

import asyncio
import logging
from collections.abc import Sequence

from agent.bucket.failed_deletions import UNDELETABLE
from agent.bucket.strangers import Strangers
from agent.ledger.apply_loop import ApplyLoop
from agent.maintenance.corruption_check import CorruptionCheck
from agent.maintenance.leader import MaintenanceLeader
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.runtime.threads import run_in_thread
from coordinator.codec.codec import decode
from coordinator.commands.commands import DEFINITIONS
from coordinator.ledger.port import Ledger, LedgerStart, SnapshotPointer
from coordinator.state.state import NO_TIME
from protocol.limits import (
    LEDGER_KEPT_DIVISOR,
    LEDGER_KEPT_POSITIONS_MAX,
    LEDGER_PRESSURE_HIGH,
    SNAPSHOT_CHECK_INTERVAL_S,
    SNAPSHOT_EARLY_INTERVAL_S,
)
from protocol.types import Milliseconds, Position
from storage.object_store import ObjectExists, ObjectMissing, ObjectsNotDeleted, ObjectStore
from storage.refs import SNAPSHOT_PREFIX, position_of_key, snapshot_key

log = logging.getLogger(__name__)


class Snapshots:
    """Every agent has one; the maintenance leader's works."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        store: ObjectStore,
        metadata: ApplyLoop,
        maintenance_leader: MaintenanceLeader,
        digests: CorruptionCheck,
        clock: Clock,
        metrics: Metrics,
        entries_interval: int,
        bytes_interval: int,
    ) -> None:
        self._ledger = ledger
        self._store = store
        self._metadata = metadata
        self._maintenance_leader = maintenance_leader
        self._digests = digests
        self._clock = clock
        self._metrics = metrics
        self._entries_interval = entries_interval
        self._bytes_interval = bytes_interval
        self._taking = asyncio.Lock()
        self._pointer: SnapshotPointer | None = None
        self._epoch = -1  # of the maintenance leader for whom the pointer was looked up
        self._entries_covered = self._bytes_covered = 0
        self._definitions_covered = 0
        self._taken_s: float | None = None
        self._is_undeleted_reported = False
        self._strangers = Strangers()
        self.covered_ms: Milliseconds = NO_TIME
        """The state's time at a position that the ledger's pointer covers: what is older happened before it. It only
        grows; it is unknown, and therefore the beginning of time, until this agent took a snapshot."""

    async def run(self) -> None:
        """Take a snapshot whenever enough entries, or bytes of them, were applied since the last, for ever.

        Sooner, but not often, where the ledger's room runs out (safety rule S10), and where a topic was created, or
        configs, partition counts or quotas were altered: no intake object tells them, so where the ledger is lost a
        recovery has them from a snapshot alone.
        """
        while True:
            await self._clock.sleep(SNAPSHOT_CHECK_INTERVAL_S)
            if self._maintenance_leader.is_leader and await self._is_due():
                await self.take()

    async def cover(self, *, interval_s: float) -> bool:
        """Take a snapshot for whoever needs the present to be covered, unless the last is younger than `interval_s`.

        False also where this agent is no longer the maintenance leader.
        """
        if not self._maintenance_leader.is_leader:
            return False
        now_s = self._clock.monotonic_s()
        if self._taken_s is not None and now_s - self._taken_s < interval_s:
            return False
        return await self.take()

    async def _is_due(self) -> bool:
        await self._look_up_once()
        comparison = self._metadata.state.comparison
        # What agents said of the last snapshot came after it, and is no reason for another one.
        entries_said = 0 if comparison is None else len(comparison.digests)
        entries = self._metadata.entries_applied_count - self._entries_covered - entries_said
        entry_bytes = self._metadata.entry_bytes_applied - self._bytes_covered
        if entries >= self._entries_interval or entry_bytes >= self._bytes_interval:
            return True
        now_s = self._clock.monotonic_s()
        if self._taken_s is not None and now_s - self._taken_s < SNAPSHOT_EARLY_INTERVAL_S:
            return False
        has_definitions = self._metadata.definitions_count > self._definitions_covered
        return has_definitions or (entries > 0 and await self._ledger.pressure() >= LEDGER_PRESSURE_HIGH)

    async def _look_up_once(self) -> None:
        """Whoever becomes the maintenance leader learns where the last one stopped."""
        if self._epoch != self._maintenance_leader.epoch:
            epoch = self._maintenance_leader.epoch
            self._look_at(await self._ledger.load())
            self._epoch = epoch

    def _look_at(self, start: LedgerStart) -> None:
        """The entries above the ledger's pointer count too, or short lives would never take a snapshot."""
        self._pointer = start.pointer
        self._entries_covered = self._metadata.entries_applied_count - len(start.records)
        self._bytes_covered = self._metadata.entry_bytes_applied - sum(len(record.payload) for record in start.records)
        definitions = sum(isinstance(decode(record).command, DEFINITIONS) for record in start.records)
        self._definitions_covered = self._metadata.definitions_count - definitions

    async def take(self) -> bool:
        """Write a snapshot of the state from now on, move the pointer, trim the ledger, drop the older snapshots.

        False where another agent moved the pointer meanwhile, or is about to: then that is its work; and where agents
        did not agree on the state.
        """
        async with self._taking:
            return await self._take()

    async def _take(self) -> bool:
        await self._look_up_once()
        state, previous = self._metadata.state, self._pointer
        time_ms, began_s = state.time_ms, self._clock.monotonic_s()
        definitions_covered = self._metadata.definitions_count
        if previous is not None and previous.position >= state.position:
            self.covered_ms = max(self.covered_ms, time_ms)
            self._definitions_covered = definitions_covered
            return previous.position == state.position
        agreed = await self._digests.agreed()
        if agreed is None:
            log.warning("no snapshot: agents did not agree on the state in time", extra={"position": state.position})
            return False
        frozen = agreed.frozen
        content, state_digest = await run_in_thread(frozen.encode_with_digest)
        pointer = SnapshotPointer(
            position=frozen.position,
            object_key=snapshot_key(frozen.position),
            appends_count=frozen.appends_count,
            digest=state_digest,
        )
        if not await self._put_once(pointer.object_key, content):
            log.warning("another agent wrote this snapshot in other bytes", extra={"key": pointer.object_key})
            self._look_at(await self._ledger.load())
            return False
        if not await self._ledger.set_snapshot(previous, pointer):
            log.warning("another agent moved the snapshot pointer first", extra={"position": pointer.position})
            self._look_at(await self._ledger.load())
            return False
        self._pointer, self._taken_s = pointer, began_s
        self._entries_covered, self._bytes_covered = agreed.entries_applied_count, agreed.entry_bytes_applied
        self._definitions_covered = definitions_covered
        self.covered_ms = max(self.covered_ms, time_ms)
        await self._ledger.trim(Position(max(pointer.position - await self._kept_count(), 0)))
        await self._drop_older(pointer, [] if previous is None else [previous.object_key])
        self._metrics.snapshots.inc()
        log.info("wrote a snapshot", extra={"position": pointer.position, "bytes": len(content)})
        return True

    async def _kept_count(self) -> int:
        """Positions behind the snapshot whose entries stay for `penstock inspect ledger`: few, and none for want of
        room (safety rule S10). Nothing else reads them.
        """
        count = min(self._entries_interval // LEDGER_KEPT_DIVISOR, LEDGER_KEPT_POSITIONS_MAX)
        if count == 0 or await self._ledger.pressure() >= LEDGER_PRESSURE_HIGH:
            return 0
        return count

    async def _put_once(self, key: str, content: bytes) -> bool:
        """Whether the bucket holds `content` under `key` now. What another one holds already is never replaced."""
        try:
            await self._store.put(key, [content], if_absent=True)
        except ObjectExists:
            try:
                return await self._store.get(key) == content
            except ObjectMissing:
                return False
        return True

    async def _drop_older(self, pointer: SnapshotPointer, kept: Sequence[str]) -> None:
        """Keys sort by position: what is below the pointer is what was kept the last time, and what crashes left. One
        that cannot be looked at is deleted by its name; what is no snapshot stays."""
        found = [meta async for meta in self._store.list(SNAPSHOT_PREFIX)]
        self._strangers.report_those_of(found)
        older = [
            meta.key
            for meta in found
            if position_of_key(meta.key) is not None and meta.key < pointer.object_key and meta.key not in kept
        ]
        if not older:
            return
        try:
            await self._store.delete(older)
        except ObjectsNotDeleted as error:  # they are found again behind the next snapshot, which is valid without this
            self._report_undeleted(error)
        else:
            self._is_undeleted_reported = False

    def _report_undeleted(self, error: ObjectsNotDeleted) -> None:
        """Log once, until all could be deleted."""
        if not self._is_undeleted_reported:
            log.error(f"older snapshots could not be deleted ({UNDELETABLE})", extra={"reason": str(error)})
        self._is_undeleted_reported = True
