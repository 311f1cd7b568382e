"""A store that counts: requests, bytes, failures and seconds, per operation.

Rule: figures leave through a small port, so that no metrics library is known here. An answer of "missing" or "exists"
is no failure; a cancelled request is one, with a reason of its own.
"""

from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from storage.object_store import (
    BucketMissing,
    Buffer,
    ObjectExists,
    ObjectMeta,
    ObjectMissing,
    ObjectStore,
    StoreDenied,
    StoreFull,
    StoreMisconfigured,
    StoreThrottled,
    StoreTimedOut,
)

_REASONS: Final[Sequence[tuple[type[BaseException], str]]] = (
    (StoreThrottled, "throttled"),
    (StoreTimedOut, "timeout"),
    (StoreDenied, "denied"),
    (BucketMissing, "missing"),
    (StoreMisconfigured, "rejected"),
    (StoreFull, "full"),
    (CancelledError, "cancelled"),
)
"""The first class that an error has decides."""


class OperationObserver(Protocol):
    """Takes the figures of one operation."""

    def observe(self, object_bytes: int, seconds: float, *, failure: str | None) -> None:
        """Count one request that moved `object_bytes` and took `seconds`.

        `failure`: why it failed: throttled, timeout, denied, missing, rejected, full, cancelled or other; None where it
        did not.
        """
        ...


class _Request:
    __slots__ = ("object_bytes",)

    def __init__(self, object_bytes: int) -> None:
        self.object_bytes = object_bytes


class MeteredStore:
    """An `ObjectStore` over another one. `observer_of` is asked once for each of put, get, head, list, delete."""

    def __init__(
        self,
        inner: ObjectStore,
        *,
        observer_of: Callable[[str], OperationObserver],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._inner = inner
        self._monotonic_s = monotonic_s
        self._put = observer_of("put")
        self._get = observer_of("get")
        self._head = observer_of("head")
        self._list = observer_of("list")
        self._delete = observer_of("delete")

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        with self._observed(self._put, sum(map(len, parts))):
            await self._inner.put(key, parts, if_absent=if_absent)

    async def get(self, key: str) -> bytes:
        with self._observed(self._get) as request:
            content = await self._inner.get(key)
            request.object_bytes = len(content)
        return content

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        with self._observed(self._get) as request:
            content = await self._inner.get_range(key, byte_first, byte_count)
            request.object_bytes = len(content)
        return content

    async def head(self, key: str) -> ObjectMeta:
        with self._observed(self._head):
            return await self._inner.head(key)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        """Counted as one request, however many pages it takes; its time includes the caller's own between objects."""
        with self._observed(self._list):
            async for meta in self._inner.list(prefix, after=after):
                yield meta

    async def delete(self, keys: Sequence[str]) -> None:
        with self._observed(self._delete):
            await self._inner.delete(keys)

    async def server_time_ms(self) -> int | None:
        with self._observed(self._head):
            return await self._inner.server_time_ms()

    async def close(self) -> None:
        await self._inner.close()

    @contextmanager
    def _observed(self, observer: OperationObserver, object_bytes: int = 0) -> Generator[_Request]:
        request = _Request(object_bytes)
        began_s = self._monotonic_s()
        failure: str | None = None
        try:
            yield request
        except BaseException as error:
            failure = failure_reason(error)
            raise
        finally:
            observer.observe(request.object_bytes, self._monotonic_s() - began_s, failure=failure)


def failure_reason(error: BaseException) -> str | None:
    """Why a request failed, as `OperationObserver` counts it; None for an answer that is none."""
    if isinstance(error, ObjectMissing | ObjectExists | GeneratorExit):
        return None
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), "other")
