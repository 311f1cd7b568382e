"""Tells the bucket how far the ledger has come, so that a ledger that was restored from a backup is noticed (S9).

Rule: a mark says no more than what this agent has applied, so a ledger that ends below it is not the one that the
bucket belongs to (`agent.bucket.cluster_identity.check_reached`). The maintenance leader writes it while the ledger
moves; the one before goes once the next is there. An agent that ends because its ledger is not the one that it was
leaves a mark too: whoever starts later has not seen what it saw.
"""

import contextlib
import logging
from collections.abc import Sequence

import msgspec

from agent.bucket.failed_deletions import UNDELETABLE
from agent.bucket.strangers import Strangers
from agent.ledger.apply_loop import ApplyLoop
from agent.maintenance.leader import MaintenanceLeader
from agent.runtime.clock import Clock
from coordinator.state.state import NO_POSITION, ClusterState
from protocol.limits import REACHED_MARK_INTERVAL_S, STOP_SECONDS_MAX
from storage.object_store import ObjectsNotDeleted, ObjectStore, StoreError
from storage.refs import REACHED_PREFIX, position_of_key, reached_key

log = logging.getLogger(__name__)


class ProgressMarks:
    """Every agent has one; the maintenance leader's works."""

    def __init__(
        self, *, store: ObjectStore, metadata: ApplyLoop, maintenance_leader: MaintenanceLeader, clock: Clock
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._maintenance_leader = maintenance_leader
        self._clock = clock
        self._position = NO_POSITION
        self._epoch = -1
        self._strangers = Strangers()

    async def run(self) -> None:
        """Write a mark whenever the ledger has moved, for ever."""
        while True:
            await self._clock.sleep(REACHED_MARK_INTERVAL_S)
            if self._maintenance_leader.is_leader:
                await self.mark()

    async def mark(self) -> None:
        """Write a mark of the present, unless it is there, and drop the older ones."""
        state = self._metadata.state
        position, older = state.position, self._position
        if position == older:
            return
        key = reached_key(position)
        await _put(self._store, state)
        if self._epoch == self._maintenance_leader.epoch:
            await self._drop([reached_key(older)])
        else:  # those of another agent, or of an earlier life; one that cannot be looked at is deleted by its name
            found = [meta async for meta in self._store.list(REACHED_PREFIX)]
            self._strangers.report_those_of(found)
            await self._drop([old.key for old in found if position_of_key(old.key) is not None and old.key < key])
            self._epoch = self._maintenance_leader.epoch
        self._position = position

    async def _drop(self, keys: Sequence[str]) -> None:
        """One that cannot be deleted does no harm: a mark is a lower bound. The next leader finds it again."""
        try:
            await self._store.delete(keys)
        except ObjectsNotDeleted as error:
            log.error(f"older marks of the ledger could not be deleted ({UNDELETABLE})", extra={"reason": str(error)})


async def leave_mark(store: ObjectStore, state: ClusterState, clock: Clock) -> None:
    """Tell the bucket how far an agent has come whose ledger contradicts itself. A store that is away is left alone."""
    with contextlib.suppress(StoreError, TimeoutError):
        async with clock.timeout(STOP_SECONDS_MAX):
            await _put(store, state)


async def _put(store: ObjectStore, state: ClusterState) -> None:
    content = msgspec.json.encode({"cluster_id": state.cluster_id, "position": state.position})
    await store.put(reached_key(state.position), [content])
