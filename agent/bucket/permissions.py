"""Whether a bucket lets an agent do what it has to: put, get, list, delete.

Rule: each is tried once, on one small object under a key of its own, before anything depends on it; an agent that could
put but not delete would fill the bucket unseen. What is denied is told for each operation; any other mistake, such as
a missing bucket, is one for all of them. The object holds the same bytes whoever writes it, so agents that start at the
same time do not disturb each other, and the next start removes what a crash left.
"""

from collections.abc import Awaitable, Callable

from protocol.limits import STORE_CHECK_READS_MAX
from storage.object_store import ObjectMissing, ObjectsNotDeleted, ObjectStore, StoreDenied, StoreMisconfigured

CHECKS_PREFIX = "checks/"
CHECK_KEY = CHECKS_PREFIX + "access"
CONTENT = b"penstock was here"


async def denied_operations(store: ObjectStore) -> list[StoreDenied]:
    """The permissions that the bucket denies, one error for each operation.

    Raises `StoreMisconfigured` for what concerns them all, `StoreUnavailable` while the store is away.
    """
    operations: tuple[Callable[[ObjectStore], Awaitable[None]], ...] = (_put, _get, _list, _delete)
    denied: list[StoreDenied] = []
    for operation in operations:
        try:
            await operation(store)
        except StoreDenied as error:
            denied.append(error)
    return denied


async def check_access(store: ObjectStore) -> None:
    """Raises `StoreMisconfigured` that names everything the bucket denies, `StoreUnavailable`."""
    denied = await denied_operations(store)
    if denied:
        reasons = "; ".join(map(str, denied))
        raise StoreMisconfigured(f'{reasons} (docs/operations/bucket.md, "The bucket is denied, or does not answer")')


async def _put(store: ObjectStore) -> None:
    await store.put(CHECK_KEY, [CONTENT])


async def _get(store: ObjectStore) -> None:
    """Missing is an answer: another agent that starts has deleted it, or the put was denied. One answer may be damaged
    on its way, so it is looked at again before the store is accused."""
    for _ in range(STORE_CHECK_READS_MAX):
        try:
            found = await store.get(CHECK_KEY)
        except ObjectMissing:
            return
        if found == CONTENT:
            return
    else:
        raise StoreMisconfigured(f"{CHECK_KEY} does not hold what was written there: do not use this store")


async def _list(store: ObjectStore) -> None:
    async for _ in store.list(CHECKS_PREFIX):
        pass


async def _delete(store: ObjectStore) -> None:
    try:
        await store.delete([CHECK_KEY])
    except ObjectsNotDeleted as error:
        raise error.reasons[CHECK_KEY] from error
