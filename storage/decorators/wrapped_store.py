"""A store over another one that passes every request on: what decorators of puts, say, have in common."""

from collections.abc import AsyncIterator, Sequence

from storage.object_store import Buffer, ObjectMeta, ObjectStore


class WrappedStore:
    """An `ObjectStore` that does what `inner` does; subclasses override what they do otherwise. Errors are those of
    `inner`."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        await self._inner.put(key, parts, if_absent=if_absent)

    async def get(self, key: str) -> bytes:
        return await self._inner.get(key)

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        return await self._inner.get_range(key, byte_first, byte_count)

    async def head(self, key: str) -> ObjectMeta:
        return await self._inner.head(key)

    def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        return self._inner.list(prefix, after=after)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._inner.delete(keys)

    async def server_time_ms(self) -> int | None:
        return await self._inner.server_time_ms()

    async def close(self) -> None:
        await self._inner.close()
