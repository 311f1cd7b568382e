"""Two stores that look like one: the newer one takes what is put, the former one is read until it is empty.

Rule: a key is in the newer store, or in the former one, or in none; what is put again is looked for in the newer one
first, and a deletion deletes it in both.
"""

import heapq
from collections.abc import AsyncIterator, Callable, Sequence

from storage.decorators.wrapped_store import WrappedStore
from storage.object_store import (
    Buffer,
    ObjectExists,
    ObjectMeta,
    ObjectMissing,
    ObjectsNotDeleted,
    ObjectStore,
    StoreError,
)


class SucceededStore(WrappedStore):
    """An `ObjectStore` over `newer` and `former`. `is_newer` says whether an object is in the newer one."""

    def __init__(self, newer: ObjectStore, former: ObjectStore, *, is_newer: Callable[[str], bool]) -> None:
        super().__init__(newer)
        self._former = former
        self._is_newer = is_newer

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        if if_absent and not self._is_newer(key) and await self._is_former(key):
            raise ObjectExists(f"{key} exists")
        await self._inner.put(key, parts, if_absent=if_absent)

    async def get(self, key: str) -> bytes:
        if not self._is_newer(key):
            try:
                return await self._former.get(key)
            except ObjectMissing:
                pass  # the newer store knows whether it may be what cannot be read there
        return await self._inner.get(key)

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        if not self._is_newer(key):
            try:
                return await self._former.get_range(key, byte_first, byte_count)
            except ObjectMissing:
                pass
        return await self._inner.get_range(key, byte_first, byte_count)

    async def head(self, key: str) -> ObjectMeta:
        if not self._is_newer(key):
            try:
                return await self._former.head(key)
            except ObjectMissing:
                pass
        return await self._inner.head(key)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        """Objects that are put or deleted meanwhile may be missing."""
        newer = [meta async for meta in self._inner.list(prefix, after=after)]
        former = [meta async for meta in self._former.list(prefix, after=after) if not self._is_newer(meta.key)]
        for meta in heapq.merge(newer, former, key=lambda meta: meta.key):
            yield meta

    async def delete(self, keys: Sequence[str]) -> None:
        reasons: dict[str, StoreError] = {}
        for store in (self._inner, self._former):
            try:
                await store.delete(keys)
            except ObjectsNotDeleted as error:
                reasons |= error.reasons
        if reasons:
            raise ObjectsNotDeleted(reasons)

    async def close(self) -> None:
        try:
            await self._inner.close()
        finally:
            await self._former.close()

    async def _is_former(self, key: str) -> bool:
        try:
            await self._former.head(key)
        except ObjectMissing:
            return False
        return True
