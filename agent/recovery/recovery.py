"""Begins a cluster's next incarnation from what its bucket holds, where the ledger is lost (safety rule S9).

Rule: first the bucket is watched: agents that serve it under another ledger's name are not stopped by the fence. Then
the ledger is fenced, then everything is read, then the new snapshot is put, the ledger restarted, and last
`cluster.json` written. So nothing is acknowledged once the reading began; and after a crash in between no agent starts,
for the ledger is fenced, or bucket and ledger disagree, and the same is done again. An incarnation is higher than
everything that the bucket names, so no key is written twice; one that neither `cluster.json` nor the ledger knows never
began, and its snapshot counts for nothing. What cannot be read is a loss that somebody must accept. Nothing is deleted.
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
from coordinator.recovery import (
    Bridge,
    FoundObject,
    StateRecovery,
    TopicRecovered,
    is_bridge_session,
    read_object,
    sessions_ended_unseen,
)
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
    """The parts of the state that came back, and those that could not."""

    cluster_id: str
    incarnation: int
    """The one that begins, or would."""
    snapshot_key: str
    """Empty where no snapshot could be read: then everything comes from the intake."""
    snapshot_checked_by: str = ""
    """The proof that the snapshot is as it was written."""
    position: int
    """Of the snapshot."""
    entries: int = 0
    """Of the ledger, applied to the snapshot: those that the ledger still has whole."""
    is_carried_out: bool = False
    seconds_ahead: int = 0
    """How far the ledger's time is, or was, ahead of now; negative behind it."""
    sessions_ended: int = 0
    transactions_aborted: int = 0
    """Open as far as is known. They may have been committed by entries that are lost."""
    objects_known: int = 0
    """Objects that the snapshot refers to, and which are in the bucket."""
    objects_committed: int = 0
    objects_left: int = 0
    """Objects of ended sessions, in no state: for the garbage collector."""
    topics: list[TopicRecovered] = field(default_factory=list[TopicRecovered])
    missing: list[str] = field(default_factory=list[str])
    """Objects that the snapshot refers to, and which are not in the bucket: their records are lost."""
    damaged: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Snapshots, intake objects and files of the store that cannot be read, and why."""
    passed_over: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Other contents of the bucket: no objects of Penstock, or such as a recovery does not read, and why. No loss."""

    @property
    def has_losses(self) -> bool:
        """Whether something was acknowledged, as far as one can tell, and does not come back."""
        of_transactions = sum(topic.of_transactions for topic in self.topics)
        return bool(self.missing or self.damaged or self.transactions_aborted or of_transactions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """The permissions that the caller gives a recovery."""

    is_dry_run: bool = False
    """Change nothing, and fence nothing."""
    is_loss_accepted: bool = False
    """Go on without what is missing, or cannot be read."""
    is_forced: bool = False
    """Go on although agents could simply be started."""
    is_time_reset: bool = False
    """Set the time back to now, where a wrong clock had moved the ledger's ahead; agents may be startable then."""


class RecoveryNeedless(LedgerError):
    """Ledger and bucket agree: start the agents."""


class BucketInUse(LedgerError):
    """Somebody writes into the bucket: stop the agents that do."""


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

    `store_timeout_s`: how long a request of an agent to the store takes at most. `unlisted`: files of the store that
    may hold objects which no listing names, and why: they count as damaged. With losses that are not accepted the
    report comes back with nothing carried out, and the ledger stays fenced. Raises `SessionHeld` while agents live on
    the ledger, `BucketInUse` while others write into the bucket, `RecoveryNeedless` where agents could be started, and
    `LedgerCorrupt` where the bucket names no cluster, or the ledger is in use by another one or with another bucket.
    """
    names = await ledger.live_names()
    if names:
        raise SessionHeld(
            f"agents run on this ledger: {', '.join(names)}. Stop them first; one that was killed counts until its "
            "lease has run out, a few seconds later. Nothing was changed"
        )
    cluster = await _cluster_file(store)
    await _check_ledger(ledger, cluster)
    if not permissions.is_forced:
        if not permissions.is_time_reset:
            await _check_needed(ledger, store)
        await _check_unused(store, clock)
    if not permissions.is_dry_run:
        await ledger.fence()
        # A maintenance leader that was cut off deletes until its lease is over, and its last request may land later
        # still.
        await clock.sleep(LEDGER_SESSION_SECONDS + store_timeout_s)
    return await _RecoveryRun(ledger, store, clock, cluster).run(permissions, unlisted)


async def _check_ledger(ledger: Ledger, cluster: ClusterFile) -> None:
    """Raise `LedgerCorrupt` where another cluster uses the ledger, or this one with another bucket."""
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
    """Whether something was written into it, which need not be readable."""
    if (await ledger.head()).appends_count > 0:
        return True
    try:
        return await ledger.pointer() is not None
    except LedgerCorrupt:
        return True


async def _check_unused(store: ObjectStore, clock: Clock) -> None:
    """Raise `BucketInUse` where something comes or goes while nobody should write (safety rule S9).

    Agents that live on a ledger of another name than the one that was given show here alone.
    """
    before = await keys_of_agents(store)
    await clock.sleep(RECOVERY_WATCH_S)
    changed = sorted(before ^ await keys_of_agents(store))
    if changed:
        raise BucketInUse(
            f"somebody uses the bucket: {changed[-1]} came or went while it was watched for {RECOVERY_WATCH_S:.0f} s, "
            "and no agent lives on this ledger. Is the ledger's name right? The last part of --ledger, /CLUSTER, may "
            "be mistyped, and the agents live on the right one. Else stop all agents of this bucket first: what they "
            "acknowledge while it is recovered would be lost. If you know that this was no agent, or the last "
            "request of one that has ended, run it again, or give --force. Nothing was changed"
        )


async def _check_needed(ledger: Ledger, store: ObjectStore) -> None:
    """Raise `RecoveryNeedless` where nothing keeps agents from starting, but perhaps the fence."""
    try:
        await check_bucket(store, await ledger.identity(), appends_count=1)
        await check_reached(store, ledger)
        await load_state(ledger, store)
    except LedgerCorrupt:
        return
    raise RecoveryNeedless(
        "ledger and bucket agree, so there is nothing to recover: start the agents. If the ledger was restored from a "
        "backup all the same, or agents say that it is being recovered, or objects are missing, give "
        "--force: another incarnation begins then, with all entries of the ledger. Nothing was changed"
    )


class _RecoveryRun:
    """One recovery of a ledger that is fenced, or a dry run of it; `run` once."""

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
        """Whether an object is gone: then its records are forgotten. One that could not be looked at, or may lie in a
        folder that could not be listed, or behind a link, is asked for. Raises `StoreUnavailable`, and
        `StoreMisconfigured` where that is not allowed.
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
        incarnations = [self._cluster.incarnation, identity.incarnation, state.incarnation]
        incarnations += [_incarnation_of(position) for position in (*bucket.positions, *bucket.sessions)]
        return max(incarnations) + 1

    async def _set_time(self, recovery: StateRecovery, ledger_ms: Milliseconds, *, is_reset: bool) -> None:
        """Let the state's time be that of the store, which no machine of ours can set wrong.

        Where the store has none, this machine's clock is not believed far ahead of `ledger_ms`, the time before the
        intake was looked at, or an agent that starts afterwards would find the two in step, and drop records (safety
        rule S21). A reset is a person's word for it.
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
            # Later than every session ended before, by which another recovery tells those apart that end now.
            reset_time(state, Milliseconds(ledger_ms + 1))

    async def _newest_state(self, identity: LedgerIdentity) -> ClusterState:
        """The state of the newest snapshot that can be read, the beginning where there is none; and what the ledger
        still has of the entries that follow.
        """
        is_mine = identity.cluster_id == self._cluster.cluster_id
        begun = max(self._cluster.incarnation, identity.incarnation if is_mine else 0)
        found = await newest_snapshot(
            self._store,
            self._clock,
            self._ledger,
            self._cluster.cluster_id,
            is_counted=lambda position: _incarnation_of(position) <= begun,  # else its recovery was never completed
            damaged=self._report.damaged,
        )
        self._report.snapshot_key, self._report.position = found.key, found.position
        self._report.snapshot_checked_by = found.checked_by
        return await self._with_entries(identity, found)

    async def _with_entries(self, identity: LedgerIdentity, snapshot: FoundSnapshot) -> ClusterState:
        """The snapshot's state, and what the ledger's entries make of it where they follow without a gap.

        Names, configs and deletions of the time since stay then.
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
            log.warning("the ledger's entries do not follow its snapshot", extra={"reason": str(error)})
            self._report.entries = 0
            return self._state_of(snapshot)  # untouched
        return follower.state

    def _state_of(self, snapshot: FoundSnapshot) -> ClusterState:
        return snapshot.state(self._cluster.cluster_id, self._cluster.incarnation)

    async def _commit_intake(self, recovery: StateRecovery, bucket: BucketContents) -> None:
        """Commit every intake object that the state does not know, as they were written, but for one whose batches
        would come before others of their producer: an agent writes several objects at a time, and a producer may send
        through several agents. Objects without a place in that order wait as long as others of the first
        `RECOVERY_OBJECTS_AHEAD_MAX` have one.

        A session that had ended by then left nothing that was acknowledged, but for one that a recovery ended.
        """
        ended = recovery.state.sessions_ended.keys() - sessions_ended_unseen(recovery.state)
        pending: list[FoundObject] = []  # of each object the columns of its batches, no records
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
        """The objects of a session that the state does not know, in their order."""
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
        """The object, read again where something of it is damaged: perhaps only its way here did that. In words why
        nothing of it can be read.
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
        """The object's bytes, right or wrong, for each chunk has a checksum. Of a part the store checks nothing."""
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
            f"the bucket has no {CLUSTER_KEY}, so it belongs to no cluster: is it the right one? Nothing was changed"
        )
    return found


def _incarnation_of(position: int) -> int:
    """The incarnation that a position, or a session, is of."""
    return (position >> POSITION_REVISION_BITS) + 1


async def _begin(
    ledger: Ledger, store: ObjectStore, state: ClusterState, bridge: Bridge | None, *, bucket_id: str
) -> None:
    """Let the incarnation begin: it has, and for good, once the ledger is restarted."""
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
            f"another recovery began incarnation {state.incarnation} meanwhile: let one of them finish, and look what "
            "it says. The ledger was fenced, nothing else changed"
        ) from error
    await ledger.restart(identity, pointer)
    await store.put(CLUSTER_KEY, [msgspec.json.encode(ClusterFile.of(identity))])
    log.info("began an incarnation", extra={"cluster": state.cluster_id, "incarnation": state.incarnation})


def report_rows(report: RecoveryReport) -> Mapping[str, object]:
    """The report as names and values, without its lists."""
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
