"""Holds ledger and bucket together: both name the cluster, or the agent does not start (safety rule S9).

Rule: `cluster.json` is written once, by a conditional put, before the ledger's first entry, and never changed here. A
ledger and a bucket that name different clusters, or different incarnations of one, are left exactly as they are, and so
is a bucket without a name where the ledger has entries: the objects that they refer to lie elsewhere.
"""

import msgspec

from coordinator.log import LedgerCorrupt, LedgerIdentity
from storage.object_store import ObjectExists, ObjectMissing, ObjectStore

CLUSTER_KEY = "cluster.json"


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
            "cluster; nothing was changed"
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
