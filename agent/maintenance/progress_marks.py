"""Records the ledger's progress in the bucket, to detect a ledger that was restored from a backup (safety rule S9).

A mark names a position that an agent has applied. A ledger that ends below it is not the ledger of the bucket
(`agent.bucket.cluster_identity.check_reached`).
"""

import contextlib
import logging
from collections.abc import Sequence

import msgspec

from agent.bucket.failed_deletions import UNDELETABLE
from agent.bucket.strangers import Strangers
from agent.ledger.ledger_client import LedgerClient
from agent.maintenance.leader import MaintenanceLeader
from agent.runtime.clock import Clock
from agent.runtime.periodic_job import PeriodicJob
from coordinator.state.state import NO_POSITION, ClusterState
from protocol.limits import REACHED_MARK_INTERVAL_S, STOP_SECONDS_MAX
from storage.object_store import ObjectsNotDeleted, ObjectStore, StoreError
from storage.refs import REACHED_PREFIX, position_of_key, reached_key

log = logging.getLogger(__name__)


class ProgressMarks:
    """Every agent has one; only the maintenance leader's works."""

    def __init__(self, *, store: ObjectStore, ledger: LedgerClient, maintenance_leader: MaintenanceLeader) -> None:
        self._store = store
        self._ledger = ledger
        self._maintenance_leader = maintenance_leader
        self._position = NO_POSITION
        self._epoch = -1
        self._strangers = Strangers()

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(
            name="progress marks", interval_s=REACHED_MARK_INTERVAL_S, run_once=self.mark, is_for_leader=True
        )

    async def mark(self) -> None:
        """Write a mark of the current position, unless it exists, and delete the older marks."""
        state = self._ledger.state
        position, older = state.position, self._position
        if position == older:
            return
        key = reached_key(position)
        await _put(self._store, state)  # before the deletion, so that there is always a mark
        if self._epoch == self._maintenance_leader.epoch:
            await self._drop([reached_key(older)])
        else:
            # The first mark as leader: older marks are of another agent, or of an earlier process. A mark that cannot
            # be read is deleted by its name (safety rule S20).
            listed = [meta async for meta in self._store.list(REACHED_PREFIX)]
            self._strangers.report_those_of(listed)
            await self._drop([old.key for old in listed if position_of_key(old.key) is not None and old.key < key])
            self._epoch = self._maintenance_leader.epoch
        self._position = position

    async def _drop(self, keys: Sequence[str]) -> None:
        """Delete marks. One that stays does no harm, since a mark is a lower bound; the next leader tries again."""
        try:
            await self._store.delete(keys)
        except ObjectsNotDeleted as error:
            log.error(f"the store did not delete older progress marks ({UNDELETABLE})", extra={"reason": str(error)})


async def leave_mark(store: ObjectStore, state: ClusterState, clock: Clock) -> None:
    """Write the mark of an agent that exits because its ledger is not the same as before. Ignores store errors.

    Agents that start later have not seen the entries that it saw, and find the contradiction by its mark.
    """
    with contextlib.suppress(StoreError, TimeoutError):
        async with clock.timeout(STOP_SECONDS_MAX):
            await _put(store, state)


async def _put(store: ObjectStore, state: ClusterState) -> None:
    content = msgspec.json.encode({"cluster_id": state.cluster_id, "position": state.position})
    await store.put(reached_key(state.position), [content])
