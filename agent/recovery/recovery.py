"""Recovers a cluster whose ledger is lost: begins its next incarnation from the bucket (safety rule S9).

1. Watch the bucket: the fence does not stop agents that use the bucket with another ledger's name.
2. Fence the ledger, so that nothing is acknowledged from here on.
3. Read everything.
4. Put the new snapshot, restart the ledger, and write `cluster.json`, in this order.

After a crash in between no agent starts: the ledger is fenced, or bucket and ledger disagree. The recovery is run
again then. An operator has to accept each loss. Nothing is deleted.
"""

import logging
from collections.abc import Sequence

import msgspec

from agent.bucket.cluster_file import CLUSTER_KEY, ClusterFile
from agent.recovery.bucket_listing import BucketContents, list_bucket
from agent.recovery.intake_commits import IntakeCommits
from agent.recovery.number_gaps import number_gaps
from agent.recovery.preconditions import Permissions, check_preconditions
from agent.recovery.report import RecoveryReport
from agent.recovery.snapshot_choice import FoundSnapshot, newest_snapshot
from agent.runtime.clock import Clock
from coordinator.apply.objects import is_key_known
from coordinator.follower import Follower
from coordinator.invariants import check
from coordinator.ledger.port import (
    POSITION_REVISION_BITS,
    Ledger,
    LedgerCorrupt,
    LedgerIdentity,
    NewerRules,
    SnapshotPointer,
)
from coordinator.recovery.lost_objects import Bridge
from coordinator.recovery.state_recovery import StateRecovery
from coordinator.snapshot import encode_with_digest
from coordinator.state.state import NO_TIME, ClusterState
from coordinator.state.time_reset import reset_time
from protocol.limits import CLOCK_STEP_MS_MAX, LEDGER_SESSION_SECONDS
from protocol.types import Milliseconds
from storage.object_store import ObjectDamaged, ObjectExists, ObjectMissing, ObjectStore
from storage.refs import session_of_key, snapshot_key

log = logging.getLogger(__name__)


async def recover(
    ledger: Ledger,
    store: ObjectStore,
    clock: Clock,
    permissions: Permissions,
    *,
    store_timeout_s: float = 0.0,
    unlisted: Sequence[tuple[str, str]] = (),
) -> RecoveryReport:
    """Recover the cluster that the bucket belongs to onto the ledger.

    `store_timeout_s`: the longest time of an agent's request to the store. `unlisted`: files of the store that may hold
    objects missing from the listing, with the reasons; they count as damaged. If losses are not accepted, the report
    comes back with nothing carried out, and the ledger stays fenced.

    Raises `SessionHeld` while agents live on the ledger, `BucketInUse` while agents write into the bucket,
    `RecoveryNeedless` where agents could be started, `NewerRules` where this program is too old, and `LedgerCorrupt`
    where the bucket names no cluster, or the ledger belongs to another cluster or another bucket.
    """
    cluster = await check_preconditions(ledger, store, clock, permissions)
    if not permissions.is_dry_run:
        # Before the fence, which stops the agents of a newer program, too, and which only a recovery ends.
        await _RecoveryRun(ledger, store, clock, cluster).check_rules()
        await ledger.fence()
        # A maintenance leader that was cut off may delete until its lease ends, and its last request may land later by
        # the store's time-out.
        await clock.sleep(LEDGER_SESSION_SECONDS + store_timeout_s)
    return await _RecoveryRun(ledger, store, clock, cluster).run(permissions, unlisted)


class _RecoveryRun:
    """One recovery of a fenced ledger, or its dry run; call `run` once, or `check_rules` alone."""

    def __init__(self, ledger: Ledger, store: ObjectStore, clock: Clock, cluster: ClusterFile) -> None:
        self._ledger = ledger
        self._store = store
        self._clock = clock
        self._cluster = cluster
        self._report = RecoveryReport(cluster_id=cluster.cluster_id, incarnation=0, snapshot_key="", position=0)

    async def check_rules(self) -> None:
        """Raise `NewerRules` where this program is too old for the newest snapshot, or for entries after it (S3)."""
        await self._newest_state(await self._ledger.identity())

    async def run(self, permissions: Permissions, unlisted: Sequence[tuple[str, str]]) -> RecoveryReport:
        store, report = self._store, self._report
        report.damaged += unlisted
        identity = await self._ledger.identity()
        bucket = await list_bucket(store)
        state = await self._newest_state(identity)
        report.incarnation = self._incarnation(identity, state, bucket)
        report.acls, report.scram_credentials = len(state.acls), len(state.scram)
        report.security_known_ms = state.time_ms
        recovery = StateRecovery(state, bucket.topic_names)
        recovery.abort_transactions()
        report.transactions_aborted = recovery.transactions_aborted_count
        report.damaged += bucket.hidden_intake
        report.passed_over = bucket.passed_over
        unfound = [known.key for known in state.objects.values() if not bucket.has(known.key)]
        report.missing = sorted([key for key in unfound if await self._is_missing(bucket, key)])
        bridge = recovery.forget_lost(set(report.missing), report.incarnation) if report.missing else None
        report.objects_known = len(state.objects) - (bridge is not None)
        strangers = {session_of_key(key) for key in bucket.sizes if not is_key_known(state, key)}
        ledger_ms = state.time_ms
        report.number_gaps = number_gaps(state, bucket)
        await IntakeCommits(store, self._clock, report).commit_all(recovery, bucket)
        await self._set_time(recovery, ledger_ms, is_reset=permissions.is_time_reset)
        recovery.end_sessions({session for session in strangers if session is not None})
        if not permissions.are_acls_confirmed:
            recovery.doubt_acls()
        report.are_acls_confirmed = state.is_acls_confirmed
        report.delegation_tokens = len(state.tokens)
        report.delegation_tokens_removed = recovery.tokens_removed_count
        recovery.finish(report.incarnation)
        report.sessions_ended = recovery.sessions_ended_count
        report.topics = sorted(recovery.topics.values(), key=lambda topic: topic.topic)
        report.objects_left = sum(
            not is_key_known(state, key) for key in bucket.sizes if session_of_key(key) is not None
        )
        faults = check(state)
        if faults:
            raise LedgerCorrupt(f"the recovered state contradicts itself ({'; '.join(faults)}); nothing was changed")
        if not permissions.is_dry_run and (permissions.is_loss_accepted or not report.has_losses):
            await _begin(self._ledger, store, state, bridge, bucket_id=self._cluster.bucket_id)
            report.is_carried_out = True
        return report

    async def _is_missing(self, bucket: BucketContents, key: str) -> bool:
        """Whether an object does not exist: its records are forgotten then.

        An object that may be in an unlisted folder or behind a link is requested from the store (safety rule S20).
        Raises `StoreUnavailable`, and `StoreMisconfigured` where the store rejects the request.
        """
        if bucket.lacks(key):
            return True
        try:
            await self._store.head(key)
        except ObjectMissing:
            return True
        except ObjectDamaged:
            return False
        return False

    def _incarnation(self, identity: LedgerIdentity, state: ClusterState, bucket: BucketContents) -> int:
        # Higher than every incarnation that the bucket names, also those of recoveries that did not finish: no key is
        # written twice.
        incarnations = [self._cluster.incarnation, identity.incarnation, state.incarnation]
        incarnations += [_incarnation_of(position) for position in (*bucket.positions, *bucket.sessions)]
        return max(incarnations) + 1

    async def _set_time(self, recovery: StateRecovery, ledger_ms: Milliseconds, *, is_reset: bool) -> None:
        """Set the state's time to the store's, which a wrong clock of this machine cannot affect.

        If the store has no clock, this machine's clock counts unless it is more than `CLOCK_STEP_MS_MAX` ahead of
        `ledger_ms`, the time before the intake was read (safety rule S21). A reset is the operator's confirmation.
        """
        state, store_ms = recovery.state, await self._store.server_time_ms()
        now_ms = self._clock.now_ms() if store_ms is None else Milliseconds(store_ms)
        newest_ms = max(now_ms, state.time_ms)
        self._report.seconds_ahead = (state.time_ms - now_ms) // 1000
        if is_reset:
            reset_time(state, now_ms)
        elif store_ms is not None or ledger_ms == NO_TIME or newest_ms - ledger_ms <= CLOCK_STEP_MS_MAX:
            recovery.advance_time(now_ms)
        else:
            # Trusting the clock would let an agent that starts afterwards delete records by it. One millisecond later
            # than all sessions ended before: another recovery can distinguish the sessions that end now.
            reset_time(state, Milliseconds(ledger_ms + 1))

    async def _newest_state(self, identity: LedgerIdentity) -> ClusterState:
        """The state of the newest intact snapshot, or an empty one, with the entries that the ledger still has."""
        is_mine = identity.cluster_id == self._cluster.cluster_id
        begun = max(self._cluster.incarnation, identity.incarnation if is_mine else 0)
        snapshot = await newest_snapshot(
            self._store,
            self._clock,
            self._ledger,
            self._cluster.cluster_id,
            is_counted=lambda position: _incarnation_of(position) <= begun,  # a later one was never completed
            damaged=self._report.damaged,
        )
        self._report.snapshot_key, self._report.position = snapshot.key, snapshot.position
        self._report.snapshot_checked_by = snapshot.checked_by
        return await self._with_entries(identity, snapshot)

    async def _with_entries(self, identity: LedgerIdentity, snapshot: FoundSnapshot) -> ClusterState:
        """The snapshot's state after the ledger's entries, if these follow it without a gap.

        Then names, configs and deletions since the snapshot are not lost.
        """
        state = self._state_of(snapshot)
        if (identity.cluster_id, identity.incarnation) != (state.cluster_id, state.incarnation):
            return state
        follower = Follower(identity)
        follower.state = state
        try:
            start = await self._ledger.load()
            if start.pointer is not None and start.pointer.position > state.position:
                return state
            self._report.entries = len(follower.receive(start.records))
            follower.check_head(start.head)
        except NewerRules:
            raise
        except LedgerCorrupt as error:
            log.warning(
                "the ledger's entries do not follow its snapshot; they are ignored", extra={"reason": str(error)}
            )
            self._report.entries = 0
            return self._state_of(snapshot)  # a new copy, without the entries
        return follower.state

    def _state_of(self, snapshot: FoundSnapshot) -> ClusterState:
        return snapshot.state(self._cluster.cluster_id, self._cluster.incarnation)


def _incarnation_of(position: int) -> int:
    """The incarnation that a position, or a session, is of."""
    return (position >> POSITION_REVISION_BITS) + 1


async def _begin(
    ledger: Ledger, store: ObjectStore, state: ClusterState, bridge: Bridge | None, *, bucket_id: str
) -> None:
    """Begin the incarnation. The restart of the ledger makes it permanent."""
    content, state_digest = encode_with_digest(state)
    pointer = SnapshotPointer(
        position=state.position, object_key=snapshot_key(state.position), appends_count=0, digest=state_digest
    )
    identity = LedgerIdentity(cluster_id=state.cluster_id, incarnation=state.incarnation, bucket_id=bucket_id)
    try:
        await store.put(pointer.object_key, [content], if_absent=True)
        if bridge is not None:
            await store.put(bridge.key, bridge.parts, if_absent=True)
    except ObjectExists as error:
        raise LedgerCorrupt(
            f"another recovery began incarnation {state.incarnation} meanwhile: let it finish, and read its report. "
            "The ledger was fenced, nothing else was changed"
        ) from error
    await ledger.restart(identity, pointer)
    await store.put(CLUSTER_KEY, [msgspec.json.encode(ClusterFile.of(identity))])
    log.info(
        "began a new incarnation of the cluster", extra={"cluster": state.cluster_id, "incarnation": state.incarnation}
    )
