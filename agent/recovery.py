"""Begins a cluster's next incarnation from what its bucket holds, where the ledger is lost (safety rule S9).

Rule: nothing is deleted, and nothing is written before everything was read. Then: the new snapshot, `cluster.json`, the
ledger, in this order. After a crash in between no agent starts, for ledger and bucket disagree, and the same is done
again: an incarnation is higher than everything that the bucket names, so no key is written twice.
"""

import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

import msgspec

from agent.cluster_identity import CLUSTER_KEY, ClusterFile
from coordinator.apply_objects import is_key_known
from coordinator.invariants import check
from coordinator.log import POSITION_REVISION_BITS, Ledger, LedgerCorrupt, LedgerIdentity, SessionHeld, SnapshotPointer
from coordinator.recovery import FoundObject, Recovery, TopicRecovered, read_object
from coordinator.snapshot import decode_snapshot, encode_with_digest
from coordinator.state import ClusterState
from protocol.types import SessionId, TopicId
from storage.chunk_format import ChunkFormatError
from storage.object_store import ObjectMeta, ObjectMissing, ObjectStore
from storage.refs import (
    INTAKE_PREFIX,
    LAKE_PREFIX,
    REACHED_PREFIX,
    SNAPSHOT_PREFIX,
    number_of_intake_key,
    position_of_key,
    session_of_key,
    snapshot_key,
    topic_of_parquet_key,
)

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class RecoveryReport:
    """What came back, and what could not."""

    cluster_id: str
    incarnation: int
    """The one that begins, or would."""
    snapshot_key: str
    """Empty where no snapshot could be read: then everything comes from the intake."""
    position: int
    """Of the snapshot."""
    is_carried_out: bool = False
    sessions_ended: int = 0
    objects_known: int = 0
    """Objects that the snapshot refers to, and which are in the bucket."""
    objects_committed: int = 0
    objects_left: int = 0
    """Of ended sessions, in no state: for the cleaner."""
    topics: list[TopicRecovered] = field(default_factory=list[TopicRecovered])
    missing: list[str] = field(default_factory=list[str])
    """Objects that the snapshot refers to, and which are not in the bucket: their records are lost."""
    damaged: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Snapshots and intake objects that cannot be read, and why."""


@dataclass(slots=True)
class _Bucket:
    """What a listing of the whole bucket found."""

    sizes: dict[str, int] = field(default_factory=dict[str, int])
    intake: dict[SessionId, deque[ObjectMeta]] = field(default_factory=dict[SessionId, deque[ObjectMeta]])
    sessions: set[SessionId] = field(default_factory=set[SessionId])
    topic_names: dict[TopicId, str] = field(default_factory=dict[TopicId, str])
    positions: list[int] = field(default_factory=list[int])


async def recover(ledger: Ledger, store: ObjectStore, *, is_dry_run: bool) -> RecoveryReport:
    """Recover the cluster that the bucket belongs to onto the ledger, whatever that holds.

    Raises `SessionHeld` while agents live on the ledger, `LedgerCorrupt` where the bucket names no cluster.
    """
    names = await ledger.live_names()
    if names:
        raise SessionHeld(
            f"agents run on this ledger: {', '.join(names)}. Stop them first; one that was killed counts until its "
            "lease has run out, a few seconds later. Nothing was changed"
        )
    cluster = await _cluster_file(store)
    bucket = await _list(store)
    report = RecoveryReport(cluster_id=cluster.cluster_id, incarnation=0, snapshot_key="", position=0)
    state = await _newest_state(store, cluster, report)
    recovery = Recovery(state, bucket.topic_names)
    report.missing = sorted(known.key for known in state.objects.values() if known.key not in bucket.sizes)
    report.objects_known = len(state.objects) - len(report.missing)
    strangers = {session_of_key(key) for key in bucket.sizes if not is_key_known(state, key)}
    await _commit_intake(store, recovery, bucket, report)
    recovery.end_sessions({session for session in strangers if session is not None})
    told = [cluster.incarnation, (await ledger.identity()).incarnation, state.incarnation]
    told += [(position >> POSITION_REVISION_BITS) + 1 for position in (*bucket.positions, *bucket.sessions)]
    report.incarnation = max(told) + 1
    recovery.finish(report.incarnation)
    report.sessions_ended = recovery.sessions_ended_count
    report.topics = sorted(recovery.topics.values(), key=lambda topic: topic.topic)
    report.objects_left = sum(not is_key_known(state, key) for key in bucket.sizes if session_of_key(key) is not None)
    faults = check(state)
    if faults:
        raise LedgerCorrupt(f"the recovered state contradicts itself ({'; '.join(faults)}); nothing was changed")
    if not is_dry_run:
        await _begin(ledger, store, state)
        report.is_carried_out = True
    return report


async def _cluster_file(store: ObjectStore) -> ClusterFile:
    try:
        return msgspec.json.decode(await store.get(CLUSTER_KEY), type=ClusterFile)
    except ObjectMissing as error:
        raise LedgerCorrupt(
            f"the bucket has no {CLUSTER_KEY}, so it belongs to no cluster: is it the right one? Nothing was changed"
        ) from error
    except msgspec.DecodeError as error:
        raise LedgerCorrupt(f"{CLUSTER_KEY} in the bucket cannot be read: {error}. Nothing was changed") from error


async def _list(store: ObjectStore) -> _Bucket:
    bucket = _Bucket()
    async for meta in store.list(INTAKE_PREFIX):
        session = session_of_key(meta.key)
        if session is not None:
            bucket.sizes[meta.key] = meta.size_bytes
            bucket.sessions.add(session)
            bucket.intake.setdefault(session, deque()).append(meta)
    async for meta in store.list(LAKE_PREFIX):
        session, topic_id = session_of_key(meta.key), topic_of_parquet_key(meta.key)
        if session is not None and topic_id is not None:
            bucket.sizes[meta.key] = meta.size_bytes
            bucket.sessions.add(session)
            bucket.topic_names[topic_id] = meta.key.split("/")[1].removesuffix(f"-{topic_id.hex()}")
    for prefix in (SNAPSHOT_PREFIX, REACHED_PREFIX):
        bucket.positions += [position_of_key(meta.key) or 0 async for meta in store.list(prefix)]
    return bucket


async def _newest_state(store: ObjectStore, cluster: ClusterFile, report: RecoveryReport) -> ClusterState:
    """The state of the newest snapshot that can be read; the beginning where there is none."""
    for key in sorted([meta.key async for meta in store.list(SNAPSHOT_PREFIX)], reverse=True):
        try:
            state = decode_snapshot(await store.get(key))
        except LedgerCorrupt as error:
            report.damaged.append((key, str(error)))
            continue
        if state.cluster_id != cluster.cluster_id:
            report.damaged.append((key, f"it is of cluster {state.cluster_id}"))
            continue
        report.snapshot_key, report.position = key, state.position
        return state
    return ClusterState.empty(cluster.cluster_id, cluster.incarnation)


async def _commit_intake(store: ObjectStore, recovery: Recovery, bucket: _Bucket, report: RecoveryReport) -> None:
    """Commit every intake object that the state does not know: those of a session in their order, sessions as their
    objects were written, but for one whose batches would come before others of their producer.
    """
    heads: dict[SessionId, FoundObject] = {}
    readers = {session: _read(store, recovery.state, metas, report) for session, metas in bucket.intake.items()}
    for session, reader in readers.items():
        await _advance(session, reader, heads)
    while heads:
        waiting = sorted(heads.items(), key=lambda head: (head[1].modified_ms, head[0]))
        session, found = next((head for head in waiting if recovery.is_in_order(head[1])), waiting[0])
        recovery.commit(found)
        report.objects_committed += 1
        report.damaged += [(found.key, fault) for fault in found.faults]
        await _advance(session, readers[session], heads)


async def _advance(session: SessionId, reader: AsyncIterator[FoundObject], heads: dict[SessionId, FoundObject]) -> None:
    heads.pop(session, None)
    async for found in reader:
        heads[session] = found
        return


async def _read(
    store: ObjectStore, state: ClusterState, metas: "deque[ObjectMeta]", report: RecoveryReport
) -> AsyncIterator[FoundObject]:
    """What of a session's objects the state does not know, in their order."""
    for meta in metas:
        session, number = session_of_key(meta.key), number_of_intake_key(meta.key)
        if session is None or number is None or is_key_known(state, meta.key):
            continue
        try:
            content = await store.get(meta.key)
            yield read_object(meta.key, content, session=session, number=number, modified_ms=meta.modified_ms)
        except ChunkFormatError as error:
            report.damaged.append((meta.key, str(error)))


async def _begin(ledger: Ledger, store: ObjectStore, state: ClusterState) -> None:
    content, state_digest = encode_with_digest(state)
    pointer = SnapshotPointer(
        position=state.position, object_key=snapshot_key(state.position), appends_count=0, digest=state_digest
    )
    cluster = ClusterFile(cluster_id=state.cluster_id, incarnation=state.incarnation)
    await store.put(pointer.object_key, [content])
    await store.put(CLUSTER_KEY, [msgspec.json.encode(cluster)])
    await ledger.restart(LedgerIdentity(cluster_id=state.cluster_id, incarnation=state.incarnation), pointer)
    log.info("began an incarnation", extra={"cluster": state.cluster_id, "incarnation": state.incarnation})


def report_rows(report: RecoveryReport) -> Mapping[str, object]:
    """The report as names and values, without its lists."""
    return {
        "cluster": report.cluster_id,
        "incarnation": report.incarnation,
        "snapshot": report.snapshot_key or "none could be read",
        "position": report.position,
        "sessions_ended": report.sessions_ended,
        "objects_known": report.objects_known,
        "intake_objects_committed": report.objects_committed,
        "objects_left_for_the_cleaner": report.objects_left,
        "objects_missing": len(report.missing),
        "objects_damaged": len({key for key, _ in report.damaged}),
    }
