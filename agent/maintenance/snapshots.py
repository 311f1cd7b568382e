"""Writes snapshots of the state, so that agents start fast and the ledger can be trimmed.

The maintenance leader writes them. The ledger's pointer names the newest one, and carries its digest (safety rule S3).
"""

import asyncio
import logging
from collections.abc import Sequence

from agent.bucket.failed_deletions import UNDELETABLE
from agent.bucket.strangers import Strangers
from agent.context import AgentContext
from agent.maintenance.corruption_check import CorruptionCheck
from agent.maintenance.leader import MaintenanceLeader
from agent.runtime.periodic_job import PeriodicJob
from agent.runtime.threads import run_in_thread
from coordinator.codec.codec import decode
from coordinator.commands.commands import DEFINITIONS
from coordinator.ledger.port import LedgerStart, SnapshotPointer
from coordinator.state.state import NO_TIME
from protocol.limits import (
    LEDGER_KEPT_DIVISOR,
    LEDGER_KEPT_POSITIONS_MAX,
    LEDGER_PRESSURE_HIGH,
    SNAPSHOT_CHECK_INTERVAL_S,
    SNAPSHOT_EARLY_INTERVAL_S,
)
from protocol.types import Milliseconds, Position
from storage.object_store import ObjectExists, ObjectMissing, ObjectsNotDeleted
from storage.refs import SNAPSHOT_PREFIX, position_of_key, snapshot_key

log = logging.getLogger(__name__)


class Snapshots:
    """Every agent has one; only the maintenance leader's works."""

    def __init__(
        self,
        context: AgentContext,
        *,
        maintenance_leader: MaintenanceLeader,
        digests: CorruptionCheck,
        entries_interval: int,
        bytes_interval: int,
    ) -> None:
        self._ledger = context.ledger
        self._apply_loop = context.ledger.apply_loop
        self._store = context.store
        self._maintenance_leader = maintenance_leader
        self._digests = digests
        self._clock = context.clock
        self._metrics = context.metrics
        self._entries_interval = entries_interval
        self._bytes_interval = bytes_interval
        self._taking = asyncio.Lock()
        self._pointer: SnapshotPointer | None = None
        self._pointer_epoch = -1  # the epoch of the maintenance leader at which the pointer was read
        self._entries_covered = self._bytes_covered = 0
        self._definitions_covered = 0
        self._taken_s: float | None = None
        self._is_undeleted_reported = False
        self._strangers = Strangers()
        self.covered_ms: Milliseconds = NO_TIME
        """A time that the newest durable snapshot covers: it knows everything that was released before.

        It only grows. It is `NO_TIME` until this agent has written a snapshot.
        """

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(
            name="snapshots", interval_s=SNAPSHOT_CHECK_INTERVAL_S, run_once=self._take_if_due, is_for_leader=True
        )

    async def _take_if_due(self) -> None:
        """Write a snapshot after every `entries_interval` entries or `bytes_interval` bytes of them."""
        if await self._is_due():
            await self.take()

    async def cover(self, *, interval_s: float) -> bool:
        """Write a snapshot that covers the present, unless the last one is younger than `interval_s`.

        Returns whether the present is covered. False also where this agent is not the maintenance leader any more.
        """
        if not self._maintenance_leader.is_leader:
            return False
        now_s = self._clock.monotonic_s()
        if self._taken_s is not None and now_s - self._taken_s < interval_s:
            return False
        return await self.take()

    async def _is_due(self) -> bool:
        await self._read_pointer_once()
        comparison = self._ledger.state.comparison
        # The digest reports for the last snapshot come after it, and are no reason for another one.
        report_count = 0 if comparison is None else len(comparison.digests)
        entries = self._apply_loop.entries_applied_count - self._entries_covered - report_count
        entry_bytes = self._apply_loop.entry_bytes_applied - self._bytes_covered
        if entries >= self._entries_interval or entry_bytes >= self._bytes_interval:
            return True
        now_s = self._clock.monotonic_s()
        if self._taken_s is not None and now_s - self._taken_s < SNAPSHOT_EARLY_INTERVAL_S:
            return False
        # Early snapshots, at most once in `SNAPSHOT_EARLY_INTERVAL_S`. A definition (a new topic, configs, partition
        # counts, quotas) is in no intake object, so if the ledger is lost a recovery has it from a snapshot only
        # (safety rule S9). Under pressure the ledger needs a trim, which only a snapshot allows (safety rule S10).
        has_definitions = self._apply_loop.definitions_count > self._definitions_covered
        return has_definitions or (entries > 0 and (await self._ledger.backend.size()).pressure >= LEDGER_PRESSURE_HIGH)

    async def _read_pointer_once(self) -> None:
        """Read the pointer of the previous maintenance leader, once for each epoch."""
        if self._pointer_epoch != self._maintenance_leader.epoch:
            epoch = self._maintenance_leader.epoch
            self._count_from(await self._ledger.backend.load())
            self._pointer_epoch = epoch

    def _count_from(self, start: LedgerStart) -> None:
        """Count the entries above the ledger's pointer as not covered.

        Otherwise agents that live for a short time would never reach the interval.
        """
        self._pointer = start.pointer
        self._entries_covered = self._apply_loop.entries_applied_count - len(start.records)
        self._bytes_covered = self._apply_loop.entry_bytes_applied - sum(
            len(record.payload) for record in start.records
        )
        definitions = sum(isinstance(decode(record).command, DEFINITIONS) for record in start.records)
        self._definitions_covered = self._apply_loop.definitions_count - definitions

    async def take(self) -> bool:
        """Write a snapshot of the current state, move the pointer, trim the ledger, and delete older snapshots.

        False where another agent moved the pointer meanwhile or is about to, and where the agents do not agree on the
        state.
        """
        async with self._taking:
            return await self._take()

    async def _take(self) -> bool:
        await self._read_pointer_once()
        state, previous = self._ledger.state, self._pointer
        time_ms, began_s = state.time_ms, self._clock.monotonic_s()
        definitions_covered = self._apply_loop.definitions_count
        if previous is not None and previous.position >= state.position:
            self.covered_ms = max(self.covered_ms, time_ms)
            self._definitions_covered = definitions_covered
            return previous.position == state.position
        # Only a state that the agents agree on: the entries before a snapshot are trimmed, so a wrong one would become
        # the state of every agent that starts later (safety rule S3).
        agreed = await self._digests.agreed()
        if agreed is None:
            log.warning(
                "no snapshot was written: the agents did not agree on the state in time; the next check tries again",
                extra={"position": state.position},
            )
            return False
        frozen = agreed.frozen
        content, state_digest = await run_in_thread(frozen.encode_with_digest)
        pointer = SnapshotPointer(
            position=frozen.position,
            object_key=snapshot_key(frozen.position),
            appends_count=frozen.appends_count,
            digest=state_digest,
        )
        # The order matters: object, pointer, trim. A crash in between leaves an object without a pointer, which the
        # next snapshot deletes, and never a pointer without an object, or a trim without a pointer.
        if not await self._put_once(pointer.object_key, content):
            log.warning(
                "another agent has written this snapshot with other bytes; its snapshot stays",
                extra={"key": pointer.object_key},
            )
            self._count_from(await self._ledger.backend.load())
            return False
        if not await self._ledger.backend.set_snapshot(previous, pointer):
            log.warning(
                "another agent moved the snapshot pointer first; its snapshot stays",
                extra={"position": pointer.position},
            )
            self._count_from(await self._ledger.backend.load())
            return False
        self._pointer, self._taken_s = pointer, began_s
        self._entries_covered, self._bytes_covered = agreed.entries_applied_count, agreed.entry_bytes_applied
        self._definitions_covered = definitions_covered
        self.covered_ms = max(self.covered_ms, time_ms)
        await self._ledger.backend.trim(Position(max(pointer.position - await self._retained_count(), 0)))
        # The previous snapshot stays until the next one: a recovery falls back on it if the newest one is damaged.
        await self._drop_older(pointer, [] if previous is None else [previous.object_key])
        self._metrics.snapshots.inc()
        log.info("wrote a snapshot", extra={"position": pointer.position, "bytes": len(content)})
        return True

    async def _retained_count(self) -> int:
        """The number of positions below the snapshot whose entries stay, only for `penstock inspect ledger`.

        None stay while the ledger is under pressure (safety rule S10).
        """
        count = min(self._entries_interval // LEDGER_KEPT_DIVISOR, LEDGER_KEPT_POSITIONS_MAX)
        if count == 0 or (await self._ledger.backend.size()).pressure >= LEDGER_PRESSURE_HIGH:
            return 0
        return count

    async def _put_once(self, key: str, content: bytes) -> bool:
        """Put `content` under a free key. Returns whether the bucket has exactly this content now."""
        # Never overwritten: two versions of this program may encode one state in different bytes, and the pointer of
        # one agent, with its digest, must not lead to the object of another (safety rule S3).
        try:
            await self._store.put(key, [content], if_absent=True)
        except ObjectExists:
            try:
                return await self._store.get(key) == content
            except ObjectMissing:
                return False
        return True

    async def _drop_older(self, pointer: SnapshotPointer, retained_keys: Sequence[str]) -> None:
        """Delete the snapshots below the pointer, those that a crash left too, except `retained_keys`."""
        listed = [meta async for meta in self._store.list(SNAPSHOT_PREFIX)]
        self._strangers.report_those_of(listed)
        # Keys sort by position. A snapshot that cannot be read is deleted by its name; other files stay (safety rule
        # S20).
        older = [
            meta.key
            for meta in listed
            if position_of_key(meta.key) is not None and meta.key < pointer.object_key and meta.key not in retained_keys
        ]
        if not older:
            return
        try:
            await self._store.delete(older)
        except ObjectsNotDeleted as error:  # the next snapshot, which is valid anyway, tries again
            self._report_undeleted(error)
        else:
            self._is_undeleted_reported = False

    def _report_undeleted(self, error: ObjectsNotDeleted) -> None:
        """Log failed deletions once, until one succeeds for all."""
        if not self._is_undeleted_reported:
            log.error(f"the store did not delete older snapshots ({UNDELETABLE})", extra={"reason": str(error)})
        self._is_undeleted_reported = True
