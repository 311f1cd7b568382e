"""Holds ledger and bucket together: both name the cluster, or the agent does not start (safety rule S9).

Rule: `cluster.json` is written once, by a conditional put, before the ledger's first entry, and changed by a recovery
alone. A ledger and a bucket that name different clusters, or different incarnations of one, are left exactly as they
are, and so is a bucket without a name where the ledger has entries: the objects that they refer to lie elsewhere. So is
a ledger that has not come as far as the bucket says it had: it was restored from a backup, and what followed is lost to
it, while its objects are there. Of what was acknowledged then the cleaner would see leftovers of sessions.
"""

import msgspec

from coordinator.log import Ledger, LedgerCorrupt, LedgerIdentity
from protocol.types import Position, SessionId
from storage.object_store import ObjectExists, ObjectMissing, ObjectStore
from storage.refs import (
    INTAKE_PREFIX,
    REACHED_PREFIX,
    SNAPSHOT_PREFIX,
    intake_session_prefix,
    position_of_key,
    session_of_key,
)

CLUSTER_KEY = "cluster.json"
REMEDY = (
    "If etcd or its data was wiped, or restored from a backup, stop all agents and run `penstock recover`: it brings "
    "back what the bucket holds; nothing was changed"
)


class ClusterFile(msgspec.Struct, frozen=True, kw_only=True):
    """What the bucket says of the cluster."""

    cluster_id: str
    incarnation: int
    format_version: int = 1


async def check_bucket(store: ObjectStore, identity: LedgerIdentity, *, appends_count: int = 0) -> None:
    """Claim an empty bucket for the ledger's cluster, or find that it is the same one.

    `appends_count`: of the ledger's head. A ledger that holds entries has a bucket already, so an empty one is either
    not its own or has lost everything: it is not claimed. Raises `LedgerCorrupt` where the two do not belong together:
    point the agent at the right bucket or ledger.
    """
    mine = ClusterFile(cluster_id=identity.cluster_id, incarnation=identity.incarnation)
    if appends_count == 0:
        try:
            await store.put(CLUSTER_KEY, [msgspec.json.encode(mine)], if_absent=True)
        except ObjectExists:
            pass
        else:
            return
    found = await _read(store, mine)
    if (found.cluster_id, found.incarnation) != (mine.cluster_id, mine.incarnation):
        raise LedgerCorrupt(
            f"the bucket belongs to cluster {found.cluster_id}, incarnation {found.incarnation}, but the ledger to "
            f"{mine.cluster_id}, incarnation {mine.incarnation}: give the agent the ledger and the bucket of one "
            f"cluster. {REMEDY}"
        )


async def check_reached(store: ObjectStore, ledger: Ledger) -> None:
    """Pass if the ledger has come as far as the bucket says. Raises `LedgerCorrupt` where it was further once.

    The bucket is listed first, and the head read then: whatever is in the bucket was in the ledger before.
    """
    hint = await ledger.head()
    keys: list[str] = []
    for prefix in (SNAPSHOT_PREFIX, REACHED_PREFIX):
        keys += [meta.key async for meta in store.list(prefix)]
    # Keys sort by session, and a session is a position: what younger ones wrote, which is little.
    keys += [
        meta.key async for meta in store.list(INTAKE_PREFIX, after=intake_session_prefix(SessionId(hint.position)))
    ]
    head = await ledger.head()
    for key in keys:
        told = position_of_key(key) or session_of_key(key) or Position(0)
        if told > head.position:
            raise LedgerCorrupt(
                f"the bucket holds {key}, written when the ledger was at {told} or further, but the ledger ends at "
                f"{head.position}: it is an older copy of the cluster's ledger. {REMEDY}"
            )


async def _read(store: ObjectStore, mine: ClusterFile) -> ClusterFile:
    try:
        content = await store.get(CLUSTER_KEY)
    except ObjectMissing as error:
        raise LedgerCorrupt(
            f"the ledger of cluster {mine.cluster_id} is in use, but its bucket has no {CLUSTER_KEY}: what the "
            "entries refer to lies in another bucket, or was deleted. Give the agent the bucket that it had, or begin "
            "with a new ledger (another --data-dir); nothing was changed"
        ) from error
    try:
        return msgspec.json.decode(content, type=ClusterFile)
    except msgspec.DecodeError as error:
        raise LedgerCorrupt(f"{CLUSTER_KEY} in the bucket cannot be read: {error}") from error
