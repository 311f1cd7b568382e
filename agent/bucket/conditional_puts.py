"""Whether a store keeps the promise of conditional puts, tried on an object of its own before anything relies on it.

Three things rely on a put with `if_absent` (If-None-Match): `cluster.json`, by which a bucket belongs to one ledger
(`agent.bucket.cluster_identity`); snapshots, of which two agents may write one in different bytes
(`agent.maintenance.snapshots`); and the beginning of an incarnation (`agent.recovery.recovery`). A store or a proxy
that ignores the condition answers success, and overwrites. Nothing that it answers later tells that apart, so it is
tried first (safety rule S9).
"""

import contextlib

from agent.bucket.permissions import CHECKS_PREFIX
from coordinator.ledger.port import Ledger
from protocol.limits import STORE_CHECK_READS_MAX
from storage.object_store import (
    ObjectDamaged,
    ObjectExists,
    ObjectMissing,
    ObjectsNotDeleted,
    ObjectStore,
    StoreDenied,
    StoreMisconfigured,
    StoreUnavailable,
)

FIRST, SECOND = b"first", b"second, which must be refused"
"""In different bytes: a retry that finds its own bytes under the key takes its put for successful."""
OVERWRITTEN = "it was overwritten"
REMEDY = (
    "two clusters could claim one bucket, and snapshots overwrite each other. Upgrade the store, or the proxy before "
    "it, to one that refuses such a put with 412 (Amazon S3, MinIO and Ceph do), or use another store "
    '(docs/operations/bucket.md, "The store ignores conditional puts")'
)


async def check_before_claim(store: ObjectStore, ledger: Ledger, *, name: str, is_shared: bool) -> None:
    """Try the store before `cluster.json` is believed or put: a shared one at every start, another one at the first.

    Raises as `check_conditional_puts` does, and `LedgerUnavailable`.
    """
    if is_shared or (await ledger.head()).appends_count == 0:
        await check_conditional_puts(store, name=name)


async def check_conditional_puts(store: ObjectStore, *, name: str) -> None:
    """Pass if the store refuses a second put with `if_absent`. `name` is random: no other check has it.

    The object is deleted afterwards. Raises `StoreMisconfigured` where the store must not be used, and other
    `StoreError`s; `StoreUnavailable` also where the object cannot be read afterwards.
    """
    key = f"{CHECKS_PREFIX}conditional-{name}"
    try:
        await _put(store, key, FIRST)
        try:
            await _put(store, key, SECOND)
        except ObjectExists:
            await _check_kept(store, key)
            return
        raise StoreMisconfigured(
            f"the store ignores If-None-Match: it took a conditional put of {key}, which was there already; {REMEDY}"
        )
    finally:
        with contextlib.suppress(ObjectsNotDeleted):  # it costs nothing; what may not be deleted is another check's
            await store.delete([key])


async def _check_kept(store: ObjectStore, key: str) -> None:
    """Pass if the object is as it was before the put that was refused.

    One answer may be damaged on its way, so it is looked at again before the store is accused; and an answer that is
    neither of the two objects accuses it of nothing: the check is to be made again, as when the store is away.
    """
    found = ""
    for _ in range(STORE_CHECK_READS_MAX):
        try:
            content = await store.get(key)
        except (ObjectDamaged, ObjectMissing) as error:
            found = str(error)
            continue
        if content == FIRST:
            return
        found = OVERWRITTEN if content == SECOND else f"{key} holds other bytes than either put ({len(content)} bytes)"
    if found == OVERWRITTEN:
        raise StoreMisconfigured(
            f"the store refused a conditional put of {key}, and overwrote the object all the same; {REMEDY}"
        )
    raise StoreUnavailable(
        f"the store refused a conditional put of {key}, and then did not give back what had been put before: {found}. "
        "Something changes bytes on their way (a proxy, the network, memory), or the store is damaged"
    )


async def _put(store: ObjectStore, key: str, content: bytes) -> None:
    try:
        await store.put(key, [content], if_absent=True)
    except StoreDenied:
        raise
    except StoreMisconfigured as error:
        # S3's answer to a header that it does not know is 501 NotImplemented.
        if "NotImplemented" in str(error):
            raise StoreMisconfigured(f"the store has no conditional puts: {error}; {REMEDY}") from error
        raise
