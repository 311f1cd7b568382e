"""Holds ledger and bucket together: both name the cluster, or the agent does not start (safety rule S9).

Rule: `cluster.json` is written once, by a conditional put, and never changed here. A ledger and a bucket that name
different clusters, or different incarnations of one, are left exactly as they are.
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


async def check_bucket(store: ObjectStore, identity: LedgerIdentity) -> None:
    """Claim an empty bucket for the ledger's cluster, or find that it is the same one.

    Raises `LedgerCorrupt` where it is not: point the agent at the right bucket or ledger.
    """
    mine = ClusterFile(cluster_id=identity.cluster_id, incarnation=identity.incarnation)
    try:
        await store.put(CLUSTER_KEY, [msgspec.json.encode(mine)], if_absent=True)
    except ObjectExists:
        found = await _read(store)
        if (found.cluster_id, found.incarnation) != (mine.cluster_id, mine.incarnation):
            raise LedgerCorrupt(
                f"the bucket belongs to cluster {found.cluster_id}, incarnation {found.incarnation}, but the ledger to "
                f"{mine.cluster_id}, incarnation {mine.incarnation}: give the agent the ledger and the bucket of one "
                "cluster; nothing was changed"
            ) from None


async def _read(store: ObjectStore) -> ClusterFile:
    try:
        content = await store.get(CLUSTER_KEY)
    except ObjectMissing as error:
        raise LedgerCorrupt(f"{CLUSTER_KEY} was there and is gone: is somebody deleting from the bucket?") from error
    try:
        return msgspec.json.decode(content, type=ClusterFile)
    except msgspec.DecodeError as error:
        raise LedgerCorrupt(f"{CLUSTER_KEY} in the bucket cannot be read: {error}") from error
