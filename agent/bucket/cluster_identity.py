"""The identity of ledger and bucket: each names the other, or the agent does not start (safety rule S9).

`cluster.json` is put once, by a conditional put, before the ledger's first entry; only a recovery changes it. The
ledger takes the bucket's id from it once (`Ledger.claim_bucket`). Where the two do not match, both are left exactly as
they are, and the error says what to do. A running agent goes on checking (`agent.bucket.bucket_watch`).
"""

from dataclasses import replace

import msgspec

from agent.bucket.cluster_file import (
    CLUSTER_KEY,
    REMEDY_CLUSTER_FILE,
    ClusterFile,
    expected_content,
    read_own_cluster_file,
)
from coordinator.ledger.port import POSITION_REVISION_BITS, Ledger, LedgerCorrupt, LedgerIdentity
from protocol.types import Position, SessionId
from storage.object_store import ObjectExists, ObjectStore
from storage.refs import (
    INTAKE_PREFIX,
    REACHED_PREFIX,
    SNAPSHOT_PREFIX,
    intake_session_prefix,
    position_of_key,
    session_of_key,
)

REMEDY = (
    "If etcd or its data was wiped, or restored from a backup, stop all agents and run `penstock recover`: it brings "
    'back what the bucket holds (docs/operations/recovery.md, "etcd was wiped or restored from a backup"); nothing was '
    "changed"
)
REMEDY_DISAGREEMENT = 'docs/operations/bucket.md, "Ledger and bucket disagree"'
MISTYPED = (
    "is the ledger's name right? The last part of --ledger, /CLUSTER, or --data-dir may be mistyped: the ledger of "
    "that name is new and empty; "
)


class AnotherBucket(LedgerCorrupt):
    """The bucket is not this ledger's, or not any more: nothing may be written into it."""


async def claim_bucket(store: ObjectStore, ledger: Ledger, *, new_bucket_id: str) -> LedgerIdentity:
    """Let a new ledger and an empty bucket name each other, or check that they do; returns the ledger's identity.

    `new_bucket_id` is for a bucket without one. Raises `LedgerCorrupt` as `check_bucket` does, and for a bucket that is
    not the ledger's.
    """
    identity, head = await ledger.identity(), await ledger.head()
    # The bucket names the ledger first, so that a bucket that a ledger names always has its file. After a crash in
    # between the next start goes on here.
    file = await check_bucket(store, identity, appends_count=head.appends_count, new_bucket_id=new_bucket_id)
    if not file.bucket_id:
        return identity
    # Once: of two agents that start on one new ledger with two new buckets, the second one's bucket is another.
    identity = await ledger.claim_bucket(file.bucket_id)
    _check_bucket_id(identity, file)
    return identity


async def check_bucket(
    store: ObjectStore, identity: LedgerIdentity, *, appends_count: int = 0, new_bucket_id: str = ""
) -> ClusterFile:
    """Claim an empty bucket for the ledger's cluster, or check that it is the cluster's; returns its `cluster.json`.

    `appends_count` is that of the ledger's head. Raises `LedgerCorrupt` where the two do not belong together: give the
    agent the right bucket or ledger.
    """
    # A ledger that has entries or names a bucket has its bucket already: an empty one is another, or lost its objects.
    if appends_count == 0 and not identity.bucket_id:
        claim = ClusterFile.of(replace(identity, bucket_id=new_bucket_id))
        try:
            await store.put(CLUSTER_KEY, [msgspec.json.encode(claim)], if_absent=True)
        except ObjectExists:
            pass
        else:
            return claim
    try:
        file = await read_own_cluster_file(store, identity)
    except LedgerCorrupt as error:
        if not identity.bucket_id:
            raise
        raise LedgerCorrupt(f"{error}; for this ledger it would be {expected_content(identity)}") from error
    return check_match(identity, file, is_new=appends_count == 0)


def check_match(identity: LedgerIdentity, file: ClusterFile | None, *, is_new: bool) -> ClusterFile:
    """Return the bucket's file if it names the ledger. `is_new`: the ledger has no entries.

    Raises `LedgerCorrupt` as `check_bucket` does.
    """
    if file is None:
        raise _missing_file_error(identity, is_new=is_new)
    if not file.identity.is_incarnation_of(identity):
        raise _other_cluster_error(identity, file, is_new=is_new)
    if identity.bucket_id:
        _check_bucket_id(identity, file)
    return file


async def check_together(store: ObjectStore, ledger: Ledger) -> None:
    """Return if ledger and bucket name each other, or both are new; nothing is changed. Raises `LedgerCorrupt`."""
    identity, head = await ledger.identity(), await ledger.head()
    file = await read_own_cluster_file(store, identity)
    is_new = head.appends_count == 0
    if file is not None or identity.bucket_id or not is_new:
        check_match(identity, file, is_new=is_new)
    await check_reached(store, ledger)


async def check_reached(store: ObjectStore, ledger: Ledger, *, is_recovery_foreign: bool = False) -> None:
    """Return if the ledger reaches every position that objects of the bucket name. Raises `LedgerCorrupt` otherwise.

    A ledger that ends before one of them was restored from a backup. The records behind it are lost to it while their
    objects are in the bucket, and the garbage collector would delete these as leftovers of sessions.
    `is_recovery_foreign`: objects of a later incarnation are of a recovery under another ledger's name, and do not
    count; `cluster.json` names its ledger once it has ended.
    """
    first_head = await ledger.head()
    keys: list[str] = []
    for prefix in (SNAPSHOT_PREFIX, REACHED_PREFIX):
        keys += [meta.key async for meta in store.list(prefix)]
    # Keys sort by session, and a session is a position: objects of sessions behind the head are few.
    sessions_after = intake_session_prefix(SessionId(first_head.position))
    keys += [meta.key async for meta in store.list(INTAKE_PREFIX, after=sessions_after)]
    # After the listings: an object's position was in the ledger before its put.
    head = await ledger.head()
    for key in keys:
        # An object with another name contradicts nothing: it is at position 0.
        position = position_of_key(key) or session_of_key(key) or Position(0)
        # The bits above the revision are the incarnation.
        is_later_incarnation = position >> POSITION_REVISION_BITS > head.position >> POSITION_REVISION_BITS
        if position > head.position and not (is_later_incarnation and is_recovery_foreign):
            raise LedgerCorrupt(
                f"the bucket has {key}, written when the ledger was at {position} or further, but the ledger ends at "
                f"{head.position}: it is an older copy of the cluster's ledger. {REMEDY}"
            )


def _check_bucket_id(identity: LedgerIdentity, file: ClusterFile) -> None:
    """Raise `AnotherBucket` where the ledger names another bucket."""
    if identity.bucket_id != file.bucket_id:
        raise AnotherBucket(
            f"the ledger of cluster {identity.cluster_id} belongs to the bucket {identity.bucket_id or 'without an id'}"
            f", and this is the bucket {file.bucket_id or 'without an id'}, which names the same cluster: were two "
            "agents started on one new ledger with different buckets? Give all of them the same --store. If nothing "
            f"was written into this bucket, delete {CLUSTER_KEY} from it, and it is free ({REMEDY_DISAGREEMENT}); "
            "nothing was changed"
        )


def _missing_file_error(identity: LedgerIdentity, *, is_new: bool) -> LedgerCorrupt:
    if is_new:
        return AnotherBucket(
            f"the ledger of cluster {identity.cluster_id} belongs to the bucket {identity.bucket_id}, and this one has "
            f"no {CLUSTER_KEY}: give all agents the same --store. If the ledger was begun by mistake and is empty, "
            "begin with another one (another /CLUSTER in --ledger, or another --data-dir) "
            f"({REMEDY_DISAGREEMENT}); nothing was changed"
        )
    bucket = f" ({identity.bucket_id})" if identity.bucket_id else ""
    restoring = (
        f"; where only {CLUSTER_KEY} is gone from the bucket, it would be {expected_content(identity)} "
        f"({REMEDY_CLUSTER_FILE})"
        if identity.bucket_id
        else ""
    )
    return AnotherBucket(
        f"the ledger of cluster {identity.cluster_id} is in use, but its bucket has no {CLUSTER_KEY}: the objects that "
        "its entries refer to are in another bucket, or were deleted. Give all agents the same --store, that of the "
        f"ledger's bucket{bucket}, or begin with a new ledger (another --data-dir) ({REMEDY_DISAGREEMENT}){restoring}; "
        "nothing was changed"
    )


def _other_cluster_error(identity: LedgerIdentity, file: ClusterFile, *, is_new: bool) -> LedgerCorrupt:
    mistyped = MISTYPED if is_new and file.cluster_id != identity.cluster_id else ""
    return AnotherBucket(
        f"{mistyped}the bucket belongs to cluster {file.cluster_id}, incarnation {file.incarnation}, but the ledger "
        f"to {identity.cluster_id}, incarnation {identity.incarnation}: give the agent the ledger and the bucket of "
        f"one cluster. {REMEDY}"
    )


def lost_ledger_error(ledger_url: str, file: ClusterFile) -> AnotherBucket:
    """The error where the embedded ledger is missing or empty, and the bucket has a cluster."""
    return AnotherBucket(
        f"there is no ledger {ledger_url}, and the bucket belongs to cluster {file.cluster_id}, incarnation "
        f"{file.incarnation}: is the ledger's name right? The last part of --ledger, or --data-dir, may be mistyped. "
        "If the ledger is lost, stop all agents and run `penstock recover`; nothing was changed"
    )
