"""The check that a store supports conditional puts, on an object of its own before anything relies on them.

Three operations rely on a put with `if_absent` (If-None-Match): the claim of a bucket by `cluster.json`
(`agent.bucket.cluster_identity`), snapshots, which two agents may write in different bytes
(`agent.maintenance.snapshots`), and the beginning of an incarnation (`agent.recovery.recovery`). A store or a proxy
that ignores the condition answers success and overwrites. No later answer shows that, so it is tried first (safety rule
S9).
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

FIRST, SECOND = b"first", b"second, which must be rejected"
"""Different bytes: a retry that finds its own bytes under the key reports its put as successful."""
OVERWRITTEN = "it was overwritten"
REMEDY = (
    "two clusters could claim one bucket, and snapshots could overwrite each other. Upgrade the store, or the proxy "
    "before it, to a version that rejects such a put with 412 (Amazon S3, MinIO and Ceph do), or use another store "
    '(docs/operations/bucket.md, "The store ignores conditional puts")'
)


async def check_before_claim(store: ObjectStore, ledger: Ledger, *, name: str, is_shared: bool) -> None:
    """Check the store before `cluster.json` is read or put: a shared one at every start, else at the first.

    Raises as `check_conditional_puts` does, and `LedgerUnavailable`.
    """
    if is_shared or (await ledger.head()).appends_count == 0:
        await check_conditional_puts(store, name=name)


async def check_conditional_puts(store: ObjectStore, *, name: str) -> None:
    """Return if the store rejects a second put with `if_absent`. `name` is random: no other check has it.

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
            f"the store ignores If-None-Match: it accepted a conditional put of {key}, which existed; {REMEDY}"
        )
    finally:
        with contextlib.suppress(ObjectsNotDeleted):  # `permissions` checks deletion, and the object costs little
            await store.delete([key])


async def _check_kept(store: ObjectStore, key: str) -> None:
    """Return if the object is as it was before the rejected put. Raises as `check_conditional_puts` does."""
    result = ""
    for _ in range(STORE_CHECK_READS_MAX):  # one answer may be damaged on its way
        try:
            content = await store.get(key)
        except (ObjectDamaged, ObjectMissing) as error:
            result = str(error)
            continue
        if content == FIRST:
            return
        result = OVERWRITTEN if content == SECOND else f"{key} has other bytes than either put ({len(content)} bytes)"
    if result == OVERWRITTEN:
        raise StoreMisconfigured(
            f"the store rejected a conditional put of {key}, and overwrote the object all the same; {REMEDY}"
        )
    # Other bytes than both puts show no fault of conditional puts: the caller tries again, as when the store is away.
    raise StoreUnavailable(
        f"the store rejected a conditional put of {key}, and then did not return the bytes of the first put: {result}. "
        "Something changes bytes in transit (a proxy, the network, memory), or the store is damaged"
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
