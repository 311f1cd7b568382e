"""Recovers a cluster whose ledger is lost: begins its next incarnation from the bucket (safety rule S9).

1. Watch the bucket: the fence does not stop agents that use the bucket with another ledger's name.
2. Fence the ledger, so that nothing is acknowledged from here on.
3. Read everything.
4. Put the new snapshot, restart the ledger, and write `cluster.json`, in this order.

After a crash in between no agent starts: the ledger is fenced, or bucket and ledger disagree. The recovery is run
again then. An operator has to accept each loss. Nothing is deleted.
"""

import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from agent.bucket.cluster_identity import CLUSTER_KEY, ClusterFile, check_bucket, check_reached, read_cluster_file
from agent.ledger.bootstrap import load_state
from agent.recovery.bucket_listing import BucketContents, keys_of_agents, list_bucket
from agent.recovery.snapshot_choice import FoundSnapshot, newest_snapshot
from agent.runtime.clock import Clock
from coordinator.apply.objects import is_key_known
from coordinator.follower import Follower
from coordinator.invariants import check
from coordinator.ledger.port import (
    POSITION_REVISION_BITS,
    Ledger,
    LedgerCorrupt,
    LedgerError,
    LedgerIdentity,
    SessionHeld,
    SnapshotPointer,
)
from coordinator.recovery.intake_objects import FoundObject, read_object
from coordinator.recovery.lost_objects import Bridge, is_bridge_session
from coordinator.recovery.recovered_topics import TopicRecovered
from coordinator.recovery.state_recovery import StateRecovery, sessions_ended_unseen
from coordinator.snapshot import encode_with_digest
from coordinator.state.state import NO_TIME, ClusterState
from coordinator.state.time_reset import reset_time
from protocol.limits import (
    CLOCK_STEP_MS_MAX,
    LEDGER_SESSION_SECONDS,
    RECOVERY_OBJECTS_AHEAD_MAX,
    RECOVERY_READ_RETRY_S,
    RECOVERY_READS_MAX,
    RECOVERY_WATCH_S,
)
from protocol.types import Milliseconds, ObjectNumber, SessionId
from storage.chunk_format import HEADER_BYTES, ChunkFormatError
from storage.object_store import ObjectDamaged, ObjectExists, ObjectMeta, ObjectMissing, ObjectStore
from storage.refs import (
    number_of_intake_key,
    session_of_key,
    snapshot_key,
)

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class RecoveryReport:
    """The result of a recovery: what came back, and what is lost."""

    cluster_id: str
    incarnation: int
    """The incarnation that begins, or would begin."""
    snapshot_key: str
    """Empty where no snapshot can be read: then everything comes from the intake."""
    snapshot_checked_by: str = ""
    """The checks that the snapshot passed, in words."""
    position: int
    """The position of the snapshot."""
    entries: int = 0
    """The ledger entries that were applied to the snapshot: those that the ledger still has without a gap."""
    is_carried_out: bool = False
    seconds_ahead: int = 0
    """How far the ledger's time is ahead of the current time; negative where it is behind."""
    sessions_ended: int = 0
    transactions_aborted: int = 0
    """Transactions that were open in the known state. Lost entries may have committed them."""
    objects_known: int = 0
    """Objects of the snapshot that are in the bucket."""
    objects_committed: int = 0
    objects_left: int = 0
    """Objects of ended sessions that the state does not know: for the garbage collector."""
    topics: list[TopicRecovered] = field(default_factory=list[TopicRecovered])
    missing: list[str] = field(default_factory=list[str])
    """Objects of the snapshot that are not in the bucket: their records are lost."""
    damaged: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Unreadable snapshots, intake objects and files of the store, with the reasons."""
    passed_over: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Other names in the bucket: not of Penstock, or not needed for a recovery, with the reasons. No loss."""

    @property
    def has_losses(self) -> bool:
        """Whether anything that may have been acknowledged does not come back."""
        of_transactions = sum(topic.of_transactions for topic in self.topics)
        return bool(self.missing or self.damaged or self.transactions_aborted or of_transactions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """The permissions that the operator gives a recovery."""

    is_dry_run: bool = False
    """Change nothing, and fence nothing."""
    is_loss_accepted: bool = False
    """Recover although objects are missing or unreadable."""
    is_forced: bool = False
    """Recover although agents could simply be started, and do not watch the bucket."""
    is_time_reset: bool = False
    """Set the ledger's time back to the current time, after a wrong clock moved it ahead."""


class RecoveryNeedless(LedgerError):
    """Ledger and bucket agree: start the agents."""


class BucketInUse(LedgerError):
    """Agents write into the bucket: stop them."""


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
    `RecoveryNeedless` where agents could be started, and `LedgerCorrupt` where the bucket names no cluster, or the
    ledger belongs to another cluster or another bucket.
    """
    names = await ledger.live_names()
    if names:
        raise SessionHeld(
            f"agents run on this ledger: {', '.join(names)}. Stop them first; a killed agent counts until its lease "
            "ends, a few seconds later. Nothing was changed"
        )
    cluster = await _cluster_file(store)
    await _check_ledger(ledger, cluster)
    if not permissions.is_forced:
        if not permissions.is_time_reset:
            await _check_needed(ledger, store)
        await _check_unused(store, clock)
    if not permissions.is_dry_run:
        await ledger.fence()
        # A maintenance leader that was cut off may delete until its lease ends, and its last request may land later by
        # the store's time-out.
        await clock.sleep(LEDGER_SESSION_SECONDS + store_timeout_s)
    return await _RecoveryRun(ledger, store, clock, cluster).run(permissions, unlisted)


async def _check_ledger(ledger: Ledger, cluster: ClusterFile) -> None:
    """Raise `LedgerCorrupt` where the ledger belongs to another cluster, or to this one with another bucket."""
    if not await _is_used(ledger):
        return
    identity = await ledger.identity()
    if identity.cluster_id != cluster.cluster_id:
        raise LedgerCorrupt(
            "is the ledger's name right? The last part of --ledger, /CLUSTER, may be mistyped: the ledger of that name "
            f"is in use by cluster {identity.cluster_id}, and the bucket belongs to {cluster.cluster_id}. Name the "
            "ledger and the bucket of one cluster, or a ledger that is not in use. Nothing was changed"
        )
    if identity.bucket_id and identity.bucket_id != cluster.bucket_id:
        raise LedgerCorrupt(
            f"the ledger is in use with the bucket {identity.bucket_id}, and this is the bucket "
            f"{cluster.bucket_id or 'without an id'}, although both name the cluster {cluster.cluster_id}: give the "
            "--store that its agents have. Nothing was changed"
        )


async def _is_used(ledger: Ledger) -> bool:
    """Whether the ledger has any content, readable or not."""
    if (await ledger.head()).appends_count > 0:
        return True
    try:
        return await ledger.pointer() is not None
    except LedgerCorrupt:
        return True


async def _check_unused(store: ObjectStore, clock: Clock) -> None:
    """Raise `BucketInUse` where keys of agents appear or disappear for a while (safety rule S9).

    Only this check finds agents that use the bucket with another ledger's name: the fence does not stop them.
    """
    before = await keys_of_agents(store)
    await clock.sleep(RECOVERY_WATCH_S)
    changed = sorted(before ^ await keys_of_agents(store))
    if changed:
        raise BucketInUse(
            f"agents use the bucket: {changed[-1]} appeared or disappeared within {RECOVERY_WATCH_S:.0f} s, "
            "and no agent lives on this ledger. Is the ledger's name right? The last part of --ledger, /CLUSTER, may "
            "be mistyped, and the agents use the right one. Otherwise stop all agents of this bucket first: records "
            "that they acknowledge during the recovery would be lost. If it was not an agent, or the last request of a "
            "stopped one, run the recovery again, or with --force. Nothing was changed"
        )


async def _check_needed(ledger: Ledger, store: ObjectStore) -> None:
    """Raise `RecoveryNeedless` where nothing except perhaps the fence keeps agents from starting."""
    try:
        await check_bucket(store, await ledger.identity(), appends_count=1)
        await check_reached(store, ledger)
        await load_state(ledger, store)
    except LedgerCorrupt:
        return
    raise RecoveryNeedless(
        "ledger and bucket agree, so there is nothing to recover: start the agents. If the ledger was restored from a "
        "backup, agents report that it is being recovered, or objects are missing, run this again with --force: it "
        "begins another incarnation with all entries of the ledger. Nothing was changed"
    )


class _RecoveryRun:
    """One recovery of a fenced ledger, or its dry run; call `run` once."""

    def __init__(self, ledger: Ledger, store: ObjectStore, clock: Clock, cluster: ClusterFile) -> None:
        self._ledger = ledger
        self._store = store
        self._clock = clock
        self._cluster = cluster
        self._report = RecoveryReport(cluster_id=cluster.cluster_id, incarnation=0, snapshot_key="", position=0)

    async def run(self, permissions: Permissions, unlisted: Sequence[tuple[str, str]]) -> RecoveryReport:
        store, report = self._store, self._report
        report.damaged += unlisted
        identity = await self._ledger.identity()
        bucket = await list_bucket(store)
        state = await self._newest_state(identity)
        report.incarnation = self._incarnation(identity, state, bucket)
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
        await self._commit_intake(recovery, bucket)
        await self._set_time(recovery, ledger_ms, is_reset=permissions.is_time_reset)
        recovery.end_sessions({session for session in strangers if session is not None})
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
        found = await newest_snapshot(
            self._store,
            self._clock,
            self._ledger,
            self._cluster.cluster_id,
            is_counted=lambda position: _incarnation_of(position) <= begun,  # a later one was never completed
            damaged=self._report.damaged,
        )
        self._report.snapshot_key, self._report.position = found.key, found.position
        self._report.snapshot_checked_by = found.checked_by
        return await self._with_entries(identity, found)

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
        except LedgerCorrupt as error:
            log.warning(
                "the ledger's entries do not follow its snapshot; they are ignored", extra={"reason": str(error)}
            )
            self._report.entries = 0
            return self._state_of(snapshot)  # a new copy, without the entries
        return follower.state

    def _state_of(self, snapshot: FoundSnapshot) -> ClusterState:
        return snapshot.state(self._cluster.cluster_id, self._cluster.incarnation)

    async def _commit_intake(self, recovery: StateRecovery, bucket: BucketContents) -> None:
        """Commit every intake object that the state does not know, in the order of their modification times.

        An object whose batches would be out of their producer's sequence waits, while any of the first
        `RECOVERY_OBJECTS_AHEAD_MAX` objects is in sequence: an agent writes several objects at a time, and a producer
        may send through several agents (safety rule S8).
        """
        # Unknown objects of a session that ended in the ledger were never acknowledged. A session that a recovery ended
        # may have acknowledged objects after the snapshot.
        ended = recovery.state.sessions_ended.keys() - sessions_ended_unseen(recovery.state)
        pending: list[FoundObject] = []  # with the columns of their batches, without records
        for session, metas in bucket.intake.items():
            if session not in ended and not is_bridge_session(session):
                pending += [found async for found in self._read(recovery.state, metas)]
        pending.sort(key=lambda found: (found.modified_ms, found.command.object_session, found.command.object_number))
        for found in pending:
            recovery.expect(found)
        while pending:
            ahead = enumerate(pending[:RECOVERY_OBJECTS_AHEAD_MAX])
            found = pending.pop(next((row for row, found in ahead if recovery.is_in_order(found)), 0))
            recovery.commit(found)
            self._report.objects_committed += 1

    async def _read(self, state: ClusterState, metas: "deque[ObjectMeta]") -> AsyncIterator[FoundObject]:
        """The objects of a session that the state does not know, in order of their numbers."""
        for meta in metas:
            session, number = session_of_key(meta.key), number_of_intake_key(meta.key)
            if session is None or number is None or is_key_known(state, meta.key):
                continue
            found = await self._object(meta, session, number)
            if isinstance(found, str):
                self._report.damaged.append((meta.key, found))
            else:
                self._report.damaged += [(found.key, fault) for fault in found.faults]
                yield found

    async def _object(self, meta: ObjectMeta, session: SessionId, number: ObjectNumber) -> FoundObject | str:
        """The object; the reason as text where nothing of it can be read.

        A damaged object is read again: it may have been damaged in transit only.
        """
        found: FoundObject | str = ""
        for attempt in range(RECOVERY_READS_MAX):
            await self._clock.sleep(RECOVERY_READ_RETRY_S if attempt else 0)
            try:
                content = await self._content(meta)
                found = read_object(meta.key, content, session=session, number=number, modified_ms=meta.modified_ms)
            except (ChunkFormatError, ObjectDamaged, ObjectMissing) as error:
                found = str(error) if isinstance(found, str) else found
                continue
            if not found.faults:
                break
        return found

    async def _content(self, meta: ObjectMeta) -> bytes:
        """The object's bytes, even if the store reports damage: each chunk has a checksum of its own.

        The store checks whole objects only, so reads of its parts return the bytes.
        """
        try:
            return await self._store.get(meta.key)
        except ObjectDamaged:
            if meta.fault:  # its size is not known
                raise
            header = await self._store.get_range(meta.key, 0, HEADER_BYTES)
            return header + await self._store.get_range(meta.key, HEADER_BYTES, meta.size_bytes - HEADER_BYTES)


async def _cluster_file(store: ObjectStore) -> ClusterFile:
    found = await read_cluster_file(store)
    if found is None:
        raise LedgerCorrupt(
            f"the bucket has no {CLUSTER_KEY}, so it belongs to no cluster: check --store. Nothing was changed"
        )
    return found


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


def report_rows(report: RecoveryReport) -> Mapping[str, object]:
    """The report's values by name, without its lists."""
    return {
        "cluster": report.cluster_id,
        "incarnation": report.incarnation,
        "snapshot": report.snapshot_key or "none could be read",
        "snapshot_checked_by": report.snapshot_checked_by or "nothing",
        "position": report.position,
        "ledger_entries": report.entries,
        "seconds_ahead": report.seconds_ahead,
        "sessions_ended": report.sessions_ended,
        "transactions_aborted": report.transactions_aborted,
        "objects_known": report.objects_known,
        "intake_objects_committed": report.objects_committed,
        "objects_left_for_the_cleaner": report.objects_left,
        "objects_missing": len(report.missing),
        "objects_damaged": len({key for key, _ in report.damaged}),
        "entries_passed_over": len(report.passed_over),
    }
