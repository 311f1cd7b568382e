"""A store that remembers what it read, up to a bound in bytes.

Rule: keys are never written twice with other bytes, so nothing grows stale; the least recently used goes first. Reads
of the same range at the same time share one request; when its caller is cancelled, another of those who wait asks.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from storage.object_store import Buffer, ObjectMeta, ObjectStore, StoreError

_Span = tuple[str, int, int]
"""Key, first byte, count of bytes; a count of -1 stands for the whole object."""
_WHOLE = -1


class CachingStore:
    """An `ObjectStore` over another one. Its reads may outlive a delete: what was cached stays readable for a while."""

    def __init__(self, inner: ObjectStore, *, bytes_max: int) -> None:
        self._inner = inner
        self._bytes_max = bytes_max
        self._cached: OrderedDict[_Span, bytes] = OrderedDict()
        self._spans: dict[str, set[_Span]] = {}
        self._flights: dict[_Span, asyncio.Future[bytes | None]] = {}
        self.bytes_held = 0
        self.hits_count = 0
        self.misses_count = 0

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        await self._inner.put(key, parts, if_absent=if_absent)

    async def get(self, key: str) -> bytes:
        return await self._read((key, 0, _WHOLE), lambda: self._inner.get(key))

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        return await self._read(
            (key, byte_first, byte_count), lambda: self._inner.get_range(key, byte_first, byte_count)
        )

    async def head(self, key: str) -> ObjectMeta:
        return await self._inner.head(key)

    def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        return self._inner.list(prefix, after=after)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            for span in tuple(self._spans.get(key, ())):
                self._drop(span)
        await self._inner.delete(keys)

    async def server_time_ms(self) -> int | None:
        return await self._inner.server_time_ms()

    async def close(self) -> None:
        await self._inner.close()

    async def _read(self, span: _Span, ask: Callable[[], Awaitable[bytes]]) -> bytes:
        while True:
            found = self._find(span)
            if found is not None:
                self.hits_count += 1
                return found
            flight = self._flights.get(span)
            if flight is None:
                return await self._ask(span, ask)
            landed = await asyncio.shield(flight)
            if landed is not None:
                self.hits_count += 1
                return landed

    async def _ask(self, span: _Span, ask: Callable[[], Awaitable[bytes]]) -> bytes:
        """Read from the inner store for everybody who waits. They get None where this caller was cancelled."""
        flight: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._flights[span] = flight
        self.misses_count += 1
        try:
            found = await ask()
        except StoreError as error:
            flight.set_exception(error)
            flight.exception()  # seen, even where nobody waits
            raise
        else:
            flight.set_result(found)
            self._keep(span, found)
            return found
        finally:
            del self._flights[span]
            if not flight.done():
                flight.set_result(None)

    def _find(self, wanted: _Span) -> bytes | None:
        """The bytes of `wanted`, from a span that holds them."""
        key, byte_first, byte_count = wanted
        for span in self._spans.get(key, ()):
            payload = self._cached[span]
            if span == wanted:
                self._cached.move_to_end(span)
                return payload
            start = byte_first - span[1]
            if byte_count != _WHOLE and start >= 0 and start + byte_count <= len(payload):
                self._cached.move_to_end(span)
                return payload[start : start + byte_count]
        return None

    def _keep(self, span: _Span, payload: bytes) -> None:
        if len(payload) > self._bytes_max or span in self._cached:
            return
        self._cached[span] = payload
        self._spans.setdefault(span[0], set()).add(span)
        self.bytes_held += len(payload)
        while self.bytes_held > self._bytes_max:
            self._drop(next(iter(self._cached)))

    def _drop(self, span: _Span) -> None:
        self.bytes_held -= len(self._cached.pop(span))
        spans = self._spans[span[0]]
        spans.remove(span)
        if not spans:
            del self._spans[span[0]]
