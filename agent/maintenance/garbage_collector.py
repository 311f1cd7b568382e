"""Deletes what nobody refers to any more (safety rule S6): released objects after a grace, and what dead sessions left.

Rule: what may be deleted is decided by `storage.gc_plan` from the state alone; here it is carried out, and the state is
told what is gone. Time is the state's: while garbage waits, this loop keeps the state's time moving. An agent that may
have lost its session deletes nothing: the ledger may be another one by now, in which its garbage is in use (S9). So it
may be where the bucket was recovered under another ledger's name: the bucket is asked whose it is before each step.

While no clock is believed, sessions end at the ledger's last time, long before they did. So after a step of that time
leftovers of sessions stay for another grace, by the monotonic clock (safety rule S21); what was released has a time of
its own (`coordinator.apply.objects`).

An object that the store does not delete holds up no other one: it goes to the end (`agent.bucket.failed_deletions`). It
stays in the state until it is gone, and so does the session that wrote it.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from agent.bucket.failed_deletions import FailedDeletions
from agent.bucket.strangers import Strangers
from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.ledger_writer import LedgerWriter
from agent.maintenance.leader import MaintenanceLeader
from agent.maintenance.snapshots import Snapshots
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
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
from storage.object_store import ObjectMeta, ObjectsNotDeleted, ObjectStore, StoreError
from storage.refs import INTAKE_PREFIX, LAKE_PREFIX

log = logging.getLogger(__name__)

PREFIXES = (INTAKE_PREFIX, LAKE_PREFIX)


class NotMaintenanceLeader(Exception):
    """The role is another agent's, or the ledger has not confirmed the session for a lease's time, or the bucket does
    not say whose it is.
    """


class GarbageCollector:
    """Every agent has one; the maintenance leader's works."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        metadata: ApplyLoop,
        writer: LedgerWriter,
        maintenance_leader: MaintenanceLeader,
        snapshots: Snapshots,
        is_bucket_ours: Callable[[], Awaitable[bool]],
        clock: Clock,
        metrics: Metrics,
        grace_ms: int,
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._writer = writer
        self._maintenance_leader = maintenance_leader
        self._snapshots = snapshots
        self._is_bucket_ours = is_bucket_ours
        self._clock = clock
        self._metrics = metrics
        self._grace_ms = grace_ms
        self._time_ms, self._time_seen_s = metadata.state.time_ms, clock.monotonic_s()
        """The state's time, and when it was looked at."""
        self._stepped_s = float("-inf")
        """When that time was last seen to have taken a step."""
        self._sessions_listed: set[SessionId] = set()
        self._strangers = Strangers()
        self._failed = FailedDeletions(monotonic_s=clock.monotonic_s)
        metrics.gc_undeletable_objects.set_function(lambda: len(self._failed))

    @property
    def failed_deletions(self) -> Mapping[str, str]:
        """Why the store did not delete what is garbage, by key, as far as this agent tried."""
        return self._failed.reasons

    async def run(self) -> None:
        """Clean again and again, for ever."""
        while True:
            self._watch_time()
            if self._maintenance_leader.is_leader:
                try:
                    await self.clean()
                except NotMaintenanceLeader as stopped:
                    log.info("stopped cleaning", extra={"reason": str(stopped)})
            else:
                self._failed.forget(self._failed.reasons)
            await self._clock.sleep(min(GC_CHECK_INTERVAL_S, max(self._grace_ms / 1000, 1.0)))

    async def clean(self) -> int:
        """Delete everything that may go now, and return how many objects that were.

        Raises `NotMaintenanceLeader` as soon as it is not this agent's work any more.
        """
        state = self._metadata.state
        if state.released or state.sessions_ended:
            await self._writer.propose(ReportTime())
        count = await self._delete_released()
        self._watch_time()
        if self._clock.monotonic_s() - self._stepped_s < self._grace_ms / 1000:
            return count
        # One time for all of it: a step while the bucket is listed would end the grace of what ended before it.
        time_ms = self._time_ms
        return count + await self._retry_leftovers(time_ms) + await self._delete_leftovers(time_ms)

    def _watch_time(self) -> None:
        """Note a step of the state's time: more than this machine saw pass, or passed while none of it ran."""
        time_ms, now_s = self._metadata.state.time_ms, self._clock.monotonic_s()
        unseen_ms = time_ms - self._time_ms - (now_s - self._time_seen_s) * 1000
        if self._time_ms != NO_TIME and unseen_ms > CLOCK_STEP_MS_MAX:
            self._stepped_s = now_s
        self._time_ms, self._time_seen_s = time_ms, now_s

    async def _delete_released(self) -> int:
        count = 0
        while True:
            state = self._metadata.state
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
                if not deleted:  # perhaps everything is refused: the next step waits for the next time
                    return count
                await self._writer.propose(ForgetObjects(object_keys=tuple(deleted)))
                count += len(deleted)
            elif not plan.is_snapshot_wanted or not await self._snapshots.cover(interval_s=self._snapshot_interval_s):
                return count

    async def _retry_leftovers(self, time_ms: Milliseconds) -> int:
        """Try again what could not be deleted of ended sessions; released objects come by their own plan."""
        due = [key for key in self._failed.retriable if key not in self._metadata.state.released]
        keys = due[:GC_DELETIONS_PER_STEP_MAX]
        if not keys:
            return 0
        await self._metadata.barrier()
        verdict = self._judge(keys, time_ms)
        self._failed.forget(set(keys) - set(verdict.deletable))  # another agent, or a recovery, has settled these
        return len(await self._delete(verdict.deletable)) if verdict.deletable else 0

    async def _delete_leftovers(self, time_ms: Milliseconds) -> int:
        """List the bucket for what ended sessions left behind, each session twice."""
        state = self._metadata.state
        self._sessions_listed.intersection_update(state.sessions_ended)
        plan = plan_sessions(
            state.sessions_ended,
            time_ms=time_ms,
            grace_ms=self._grace_ms,
            already_listed=self._sessions_listed,
            kept=self._failed.sessions,
        )
        if self._failed.is_full or (not plan.first and not plan.last):
            return 0
        await self._metadata.barrier()
        count = strange_count = 0
        strange_first: ObjectMeta | None = None
        is_complete = True
        for prefix in PREFIXES:
            async for page in _pages(self._store.list(prefix)):
                # A name is enough: what cannot be looked at is garbage, or is not, as if it could.
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
        self._strangers.report(strange_count, strange_first)
        self._sessions_listed.update(plan.first)
        # What is left of a session that is forgotten would stay indefinitely. So all wait while a folder cannot be
        # listed: something of any of them may lie there. Links to folders hold nothing of them: no put made one.
        kept = self._failed.sessions
        gone = tuple(session for session in plan.last if session not in kept and is_complete)
        if gone:
            await self._writer.propose(ForgetSessions(sessions=gone))
        return count

    @property
    def _snapshot_interval_s(self) -> float:
        return max(SNAPSHOT_FOR_GARBAGE_INTERVAL_S_MIN, self._grace_ms / 1000 / SNAPSHOTS_PER_GRACE)

    def _judge(self, keys: Sequence[str], time_ms: Milliseconds) -> ListedVerdict:
        """By the state of now, which is no older than the listing's, and by a time of before."""
        state = self._metadata.state
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
        """Delete what can be deleted, and return it.

        The last moment to find that a recovery may have begun, of this ledger, which waits until no session lives, or
        onto another one (safety rule S9).
        """
        if not await self._is_bucket_ours():
            raise NotMaintenanceLeader("the bucket does not say whose it is")
        if not self._maintenance_leader.is_leader:
            raise NotMaintenanceLeader("this agent is not the maintenance leader")
        if not self._writer.is_confirmed:
            raise NotMaintenanceLeader("the ledger has not confirmed this agent's session for a lease's time")
        reasons: Mapping[str, StoreError] = {}
        try:
            await self._store.delete(keys)
        except ObjectsNotDeleted as error:
            reasons = error.reasons
        self._failed.settle(keys, reasons)
        deleted = [key for key in keys if key not in reasons]
        if deleted:
            self._metrics.gc_deleted_objects.inc(len(deleted))
            log.info("deleted objects that nobody refers to", extra={"count": len(deleted), "first": deleted[0]})
        return deleted


async def _pages(listing: AsyncIterator[ObjectMeta]) -> AsyncIterator[list[ObjectMeta]]:
    """A listing, some at a time: a bucket holds more than fits into memory."""
    page: list[ObjectMeta] = []
    async for meta in listing:
        page.append(meta)
        if len(page) == GC_DELETIONS_PER_STEP_MAX:
            yield page
            page = []
    if page:
        yield page
