"""The check that the bucket permits the agent's operations: put, get, list, delete.

Each operation is tried once at a start, on a small object of its own: an agent that may put and not delete would fill
the bucket unnoticed. Every agent writes the same bytes under the same key, so agents that start at the same time do not
disturb each other, and the next start deletes an object that a crash left.
"""

from collections.abc import Awaitable, Callable

from protocol.limits import STORE_CHECK_READS_MAX
from storage.object_store import ObjectMissing, ObjectsNotDeleted, ObjectStore, StoreDenied, StoreMisconfigured

CHECKS_PREFIX = "checks/"
CHECK_KEY = CHECKS_PREFIX + "access"
CONTENT = b"penstock was here"


async def denied_operations(store: ObjectStore) -> list[StoreDenied]:
    """The permissions that the bucket denies, one error for each operation.

    Raises `StoreMisconfigured` for a fault of all operations, such as a missing bucket, and `StoreUnavailable` while
    the store is away.
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
    """Raise `StoreMisconfigured` with every operation that the bucket denies, or `StoreUnavailable`."""
    denied = await denied_operations(store)
    if denied:
        reasons = "; ".join(map(str, denied))
        raise StoreMisconfigured(f'{reasons} (docs/operations/bucket.md, "The bucket is denied, or does not answer")')


async def _put(store: ObjectStore) -> None:
    await store.put(CHECK_KEY, [CONTENT])


async def _get(store: ObjectStore) -> None:
    for _ in range(STORE_CHECK_READS_MAX):  # one answer may be damaged on its way
        try:
            content = await store.get(CHECK_KEY)
        except ObjectMissing:  # another agent that starts has deleted it, or the put was denied
            return
        if content == CONTENT:
            return
    else:
        raise StoreMisconfigured(f"{CHECK_KEY} does not have the bytes that were written: do not use this store")


async def _list(store: ObjectStore) -> None:
    async for _ in store.list(CHECKS_PREFIX):
        pass


async def _delete(store: ObjectStore) -> None:
    try:
        await store.delete([CHECK_KEY])
    except ObjectsNotDeleted as error:
        raise error.reasons[CHECK_KEY] from error
