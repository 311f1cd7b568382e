"""The checks before a recovery changes anything: no agent runs, the ledger fits the bucket, a recovery is needed.

In: the ledger, the bucket and the operator's permissions. Out: the cluster that the bucket belongs to, or an error that
says what to do; nothing is changed then (safety rule S9).
"""

from dataclasses import dataclass

from agent.bucket.cluster_file import CLUSTER_KEY, ClusterFile, read_cluster_file
from agent.bucket.cluster_identity import check_bucket, check_reached
from agent.ledger.bootstrap import load_state
from agent.recovery.bucket_listing import keys_of_agents
from agent.runtime.clock import Clock
from coordinator.ledger.port import Ledger, LedgerCorrupt, LedgerError, NewerRules, SessionHeld
from protocol.limits import RECOVERY_WATCH_S
from storage.object_store import ObjectStore


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
    are_acls_confirmed: bool = False
    """Serve by the ACLs that come back, although a revocation may be among what is lost."""


class RecoveryNeedless(LedgerError):
    """Ledger and bucket agree: start the agents."""


class BucketInUse(LedgerError):
    """Agents write into the bucket: stop them."""


async def check_preconditions(
    ledger: Ledger, store: ObjectStore, clock: Clock, permissions: Permissions
) -> ClusterFile:
    """Check that a recovery of the bucket onto the ledger may begin. Returns the cluster that the bucket belongs to.

    Raises the errors of `agent.recovery.recovery.recover`.
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
    return cluster


async def _cluster_file(store: ObjectStore) -> ClusterFile:
    cluster_file = await read_cluster_file(store)
    if cluster_file is None:
        raise LedgerCorrupt(
            f"the bucket has no {CLUSTER_KEY}, so it belongs to no cluster: check --store. Nothing was changed"
        )
    return cluster_file


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
    except NewerRules:
        raise
    except LedgerCorrupt:
        return
    raise RecoveryNeedless(
        "ledger and bucket agree, so there is nothing to recover: start the agents. If the ledger was restored from a "
        "backup, agents report that it is being recovered, or objects are missing, run this again with --force: it "
        "begins another incarnation with all entries of the ledger. Nothing was changed"
    )
