"""Two stores that look like one: keys below a prefix lie in the first, all others in the second.

Rule: which store a key belongs to follows from the key alone.
"""

from collections.abc import AsyncIterator, Sequence

from storage.keys import check_key
from storage.object_store import Buffer, ObjectMeta, ObjectsNotDeleted, ObjectStore, StoreError


class RoutedStore:
    """An `ObjectStore` over `below`, which has the keys that begin with `prefix` (it ends with `/`), and `others`."""

    def __init__(self, prefix: str, below: ObjectStore, others: ObjectStore) -> None:
        self._prefix = prefix
        self._below = below
        self._others = others

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        await self._store(key).put(key, parts, if_absent=if_absent)

    async def get(self, key: str) -> bytes:
        return await self._store(key).get(key)

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        return await self._store(key).get_range(key, byte_first, byte_count)

    async def head(self, key: str) -> ObjectMeta:
        return await self._store(key).head(key)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        if prefix.startswith(self._prefix):
            async for meta in self._below.list(prefix, after=after):
                yield meta
            return
        is_listed = not self._prefix.startswith(prefix)
        async for other in self._others.list(prefix, after=after):
            if not is_listed and other.key > self._prefix:
                is_listed = True
                async for meta in self._below.list(self._prefix, after=after):
                    yield meta
            yield other
        if not is_listed:
            async for meta in self._below.list(self._prefix, after=after):
                yield meta

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:  # what is no key is the caller's mistake, before anything is deleted
            check_key(key)
        reasons: dict[str, StoreError] = {}
        for store in (self._below, self._others):
            own = [key for key in keys if self._store(key) is store]
            if not own:
                continue
            try:
                await store.delete(own)
            except ObjectsNotDeleted as error:
                reasons |= error.reasons
            except StoreError as error:  # the other store's keys are independent of this one's
                reasons |= dict.fromkeys(own, error)
        if reasons:
            raise ObjectsNotDeleted(reasons)

    async def server_time_ms(self) -> int | None:
        return await self._others.server_time_ms()

    async def close(self) -> None:
        try:
            await self._below.close()
        finally:
            await self._others.close()

    def _store(self, key: str) -> ObjectStore:
        return self._below if key.startswith(self._prefix) else self._others
