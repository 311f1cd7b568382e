"""Deletes unreferenced objects: released objects after a grace, and the leftovers of ended sessions (safety rule S6).

`storage.gc_plan` decides from the state alone; this module lists, deletes, and proposes `ForgetObjects` and
`ForgetSessions` afterwards. All times are the state's (safety rule S2).
"""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence

from agent.bucket.failed_deletions import FailedDeletions
from agent.bucket.strangers import Strangers
from agent.context import AgentContext
from agent.maintenance.leader import MaintenanceLeader
from agent.maintenance.snapshots import Snapshots
from agent.runtime.periodic_job import PeriodicJob
from coordinator.commands.commands import ForgetObjects, ForgetSessions, ReportTime
from coordinator.state.state import NO_TIME
from protocol.limits import (
    CLOCK_STEP_MS_MAX,
    GC_CHECK_INTERVAL_S,
    GC_DELETIONS_PER_STEP_MAX,
    SNAPSHOT_FOR_GARBAGE_INTERVAL_S_MIN,
    SNAPSHOTS_PER_GRACE,
)
from protocol.types import Milliseconds, SessionId
from storage.gc_plan import ListedVerdict, judge_listed, plan_released, plan_sessions
from storage.object_store import ObjectMeta, ObjectsNotDeleted, StoreError
from storage.refs import INTAKE_PREFIX, LAKE_PREFIX

log = logging.getLogger(__name__)

PREFIXES = (INTAKE_PREFIX, LAKE_PREFIX)


class NotMaintenanceLeader(Exception):
    """This agent must not delete: it is not the maintenance leader, its session is not confirmed, or the bucket does
    not name this cluster.
    """


class GarbageCollector:
    """Every agent has one; only the maintenance leader's works."""

    def __init__(
        self, context: AgentContext, *, maintenance_leader: MaintenanceLeader, snapshots: Snapshots, grace_ms: int
    ) -> None:
        self._store = context.store
        self._ledger = context.ledger
        self._maintenance_leader = maintenance_leader
        self._snapshots = snapshots
        self._is_bucket_ours = context.is_bucket_ours
        self._clock = context.clock
        self._metrics = context.metrics
        self._grace_ms = grace_ms
        self._time_ms, self._time_seen_s = context.ledger.state.time_ms, context.clock.monotonic_s()
        """The state's time, and the monotonic time at which it was read."""
        self._stepped_s = float("-inf")
        """The monotonic time of the last step of the state's time."""
        self._sessions_listed: set[SessionId] = set()
        self._strangers = Strangers()
        self._failed = FailedDeletions(monotonic_s=context.clock.monotonic_s)
        context.metrics.gc_undeletable_objects.set_function(lambda: len(self._failed))

    @property
    def failed_deletions(self) -> Mapping[str, str]:
        """The reasons why the store did not delete garbage, by key, for the keys that this agent tried."""
        return self._failed.reasons

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(
            name="garbage collector",
            interval_s=min(GC_CHECK_INTERVAL_S, max(self._grace_ms / 1000, 1.0)),
            run_once=self._collect_if_leader,
            is_first_at_once=True,
        )

    async def _collect_if_leader(self) -> None:
        self._watch_time()
        if self._maintenance_leader.is_leader:
            try:
                await self.collect()
            except NotMaintenanceLeader as error:
                log.info("garbage collection stopped on this agent", extra={"reason": str(error)})
        else:
            self._failed.forget(self._failed.reasons)  # the new leader meets the undeletable objects itself

    async def collect(self) -> int:
        """Delete all garbage that may be deleted now. Returns the number of deleted objects.

        Raises `NotMaintenanceLeader` as soon as this agent may not delete any more.
        """
        state = self._ledger.state
        # Graces are measured by the state's time, which only entries move (safety rule S2). So while garbage waits, an
        # entry moves it on a quiet cluster too.
        if state.released or state.sessions_ended:
            await self._ledger.propose(ReportTime())
        count = await self._delete_released()
        self._watch_time()
        # Without a trusted clock sessions end at the ledger's last time, long before they really ended. When the time
        # steps forward, their grace would be over at once: it starts again by the monotonic clock (safety rule S21).
        # Released objects need no such pause, for apply gives them a release time (`coordinator.apply.objects`).
        if self._clock.monotonic_s() - self._stepped_s < self._grace_ms / 1000:
            return count
        # One time for the whole listing: a step in the middle would end the grace of sessions that ended before it.
        time_ms = self._time_ms
        return count + await self._retry_leftovers(time_ms) + await self._delete_leftovers(time_ms)

    def _watch_time(self) -> None:
        """Note a step of the state's time: it moved `CLOCK_STEP_MS_MAX` further than the monotonic clock (S21)."""
        time_ms, now_s = self._ledger.state.time_ms, self._clock.monotonic_s()
        unseen_ms = time_ms - self._time_ms - (now_s - self._time_seen_s) * 1000
        if self._time_ms != NO_TIME and unseen_ms > CLOCK_STEP_MS_MAX:
            self._stepped_s = now_s
        self._time_ms, self._time_seen_s = time_ms, now_s

    async def _delete_released(self) -> int:
        count = 0
        while True:
            state = self._ledger.state
            plan = plan_released(
                state.released,
                time_ms=state.time_ms,
                covered_ms=self._snapshots.covered_ms,
                grace_ms=self._grace_ms,
                count_max=GC_DELETIONS_PER_STEP_MAX,
                failed=self._failed,
                postponed=self._failed.postponed,
            )
            if plan.deletable:
                deleted = await self._delete(plan.deletable)
                if not deleted:  # perhaps the store rejects every deletion: the next collection tries again
                    return count
                # After the deletion: a crash in between deletes again, which is no error. The other order would leave
                # objects that the state does not know.
                await self._ledger.propose(ForgetObjects(object_keys=tuple(deleted)))
                count += len(deleted)
            # An object may be deleted only once the newest snapshot knows its release: a recovery begins with that
            # snapshot, and would miss the object (safety rule S9). So garbage asks for a snapshot if one is too old.
            elif not plan.needs_snapshot or not await self._snapshots.cover(interval_s=self._snapshot_interval_s):
                return count

    async def _retry_leftovers(self, time_ms: Milliseconds) -> int:
        """Delete the leftovers again that the store did not delete. Released objects have their own plan."""
        due_keys = [key for key in self._failed.retriable if key not in self._ledger.state.released]
        keys = due_keys[:GC_DELETIONS_PER_STEP_MAX]
        if not keys:
            return 0
        await self._ledger.barrier()
        verdict = self._judge(keys, time_ms)
        # The others are no garbage any more: another agent deleted them, or a recovery refers to them.
        self._failed.forget(set(keys) - set(verdict.deletable))
        return len(await self._delete(verdict.deletable)) if verdict.deletable else 0

    async def _delete_leftovers(self, time_ms: Milliseconds) -> int:
        """List the bucket for the leftovers of ended sessions, twice for each session."""
        state = self._ledger.state
        self._sessions_listed.intersection_update(state.sessions_ended)
        # Twice, because a put that timed out may land after the first listing: a grace after the session's end, and
        # again a day later (`storage.gc_plan.plan_sessions`).
        plan = plan_sessions(
            state.sessions_ended,
            time_ms=time_ms,
            grace_ms=self._grace_ms,
            already_listed=self._sessions_listed,
            kept=self._failed.sessions,
        )
        # While the store rejects very many deletions, a listing would only find more of them (`GC_FAILED_KEYS_MAX`).
        if self._failed.is_full or (not plan.first and not plan.last):
            return 0
        await self._ledger.barrier()  # so that the state is no older than the listing
        await self._check_bucket()
        count = strange_count = 0
        strange_first: ObjectMeta | None = None
        is_complete = True
        for prefix in PREFIXES:
            async for page in _pages(self._store.list(prefix)):
                # The key alone decides whether an object is garbage, also for objects that cannot be read (S20).
                by_key = {meta.key: meta for meta in page if not meta.hides_others}
                verdict = self._judge(list(by_key), time_ms)
                deletable = [key for key in verdict.deletable if key not in self._failed]
                if deletable:
                    count += len(await self._delete(deletable))
                unknown = set(verdict.unknown)
                strange = [meta for meta in page if meta.fault or meta.key in unknown]
                strange_first = strange_first or next(iter(strange), None)
                strange_count += len(strange)
                is_complete &= len(by_key) == len(page)
        await self._check_bucket()  # what another bucket lacks is left in this one
        self._strangers.report(strange_count, strange_first)
        self._sessions_listed.update(plan.first)
        # The leftovers of a forgotten session would stay indefinitely. So no session is forgotten while a folder cannot
        # be listed (safety rule S20), or while the store does not delete its objects.
        undeletable = self._failed.sessions
        cleaned = tuple(session for session in plan.last if session not in undeletable and is_complete)
        if cleaned:
            await self._ledger.propose(ForgetSessions(sessions=cleaned))
        return count

    @property
    def _snapshot_interval_s(self) -> float:
        return max(SNAPSHOT_FOR_GARBAGE_INTERVAL_S_MIN, self._grace_ms / 1000 / SNAPSHOTS_PER_GRACE)

    def _judge(self, keys: Sequence[str], time_ms: Milliseconds) -> ListedVerdict:
        """The verdict by the current state, which is no older than the listing, and an earlier time."""
        state = self._ledger.state
        return judge_listed(
            keys,
            position=state.position,
            referenced=state.object_ids,
            released=state.released,
            sessions_live=state.sessions,
            sessions_ended=state.sessions_ended,
            topics=state.topics,
            time_ms=time_ms,
            grace_ms=self._grace_ms,
        )

    async def _delete(self, keys: Sequence[str]) -> Sequence[str]:
        """Delete objects. Returns the keys that the store deleted. Raises `NotMaintenanceLeader`."""
        # The last check before each step (safety rule S9). A recovery may have given the bucket to another ledger, in
        # which these objects are in use.
        await self._check_bucket()
        if not self._maintenance_leader.is_leader:
            raise NotMaintenanceLeader("this agent is not the maintenance leader")
        # A recovery of this ledger waits until no session lives, so a confirmed session means that none has begun.
        if not self._ledger.is_confirmed:
            raise NotMaintenanceLeader("the ledger has not confirmed this agent's session for a lease's time")
        reasons: Mapping[str, StoreError] = {}
        try:
            await self._store.delete(keys)
        except ObjectsNotDeleted as error:
            reasons = error.reasons
        # Another bucket may have stood in the place of the cluster's own, and has none of them. No listing would find
        # them again where they count as deleted.
        await self._check_bucket()
        self._failed.settle(keys, reasons)
        deleted = [key for key in keys if key not in reasons]
        if deleted:
            self._metrics.gc_deleted_objects.inc(len(deleted))
            log.info("deleted unreferenced objects", extra={"count": len(deleted), "first": deleted[0]})
        return deleted

    async def _check_bucket(self) -> None:
        """Raise `NotMaintenanceLeader` where the bucket does not name this cluster (safety rules S9, S22)."""
        if not await self._is_bucket_ours():
            raise NotMaintenanceLeader("the bucket does not name this cluster")


async def _pages(listing: AsyncIterator[ObjectMeta]) -> AsyncIterator[list[ObjectMeta]]:
    """A listing in pages: a whole bucket's does not fit into memory."""
    page: list[ObjectMeta] = []
    async for meta in listing:
        page.append(meta)
        if len(page) == GC_DELETIONS_PER_STEP_MAX:
            yield page
            page = []
    if page:
        yield page
