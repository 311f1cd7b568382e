"""A store that asks again.

Rule: only `StoreUnavailable` is asked again, with a jittered pause that doubles, until a deadline. Every operation of
the port may be repeated: keys are written once, so a repeated put writes the same bytes, and a conditional put that
finds its own bytes after an unknown outcome has succeeded. Time, pauses and chance are passed in.
Source of the jitter: "Exponential Backoff And Jitter", AWS Architecture Blog ("full jitter").
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from storage.object_store import Buffer, ObjectExists, ObjectMeta, ObjectMissing, ObjectStore, StoreUnavailable

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long to go on, and how to pause. Seconds."""

    deadline_s: float = 60.0
    """No try begins later than this after the first one."""
    pause_first_s: float = 0.05
    pause_s_max: float = 5.0

    def pause_s(self, tries: int, elapsed_s: float, chance: float) -> float | None:
        """How long to pause after `tries` failed tries; None to give up. `chance` is uniform in [0, 1)."""
        bound_s = min(self.pause_s_max, self.pause_first_s * 2.0 ** min(tries - 1, 30))
        pause_s = bound_s * chance
        return pause_s if elapsed_s + pause_s <= self.deadline_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPorts:
    """The world, as this module needs it."""

    monotonic_s: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    chance: Callable[[], float]
    """Uniform in [0, 1)."""


class RetryingStore:
    """An `ObjectStore` over another one. Raises what the last try raised."""

    def __init__(self, inner: ObjectStore, *, policy: RetryPolicy, ports: RetryPorts) -> None:
        self._inner = inner
        self._policy = policy
        self._ports = ports

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        if not if_absent:
            await self._retry(lambda: self._inner.put(key, parts))
            return
        is_unknown = False

        async def put_if_absent() -> None:
            nonlocal is_unknown
            try:
                await self._inner.put(key, parts, if_absent=True)
            except StoreUnavailable:
                is_unknown = True
                raise
            except ObjectExists:
                if not is_unknown or not await self._is_ours(key, parts):
                    raise

        await self._retry(put_if_absent)

    async def get(self, key: str) -> bytes:
        return await self._retry(lambda: self._inner.get(key))

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        return await self._retry(lambda: self._inner.get_range(key, byte_first, byte_count))

    async def head(self, key: str) -> ObjectMeta:
        return await self._retry(lambda: self._inner.head(key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        """A list that breaks off is begun again; what was given already is not given twice."""
        last = ""
        tries = 0
        begun_s = self._ports.monotonic_s()
        while True:
            try:
                async for meta in self._inner.list(prefix):
                    if meta.key > last:
                        last = meta.key
                        yield meta
            except StoreUnavailable as error:
                tries += 1
                await self._pause(tries, begun_s, error)
            else:
                return

    async def delete(self, keys: Sequence[str]) -> None:
        await self._retry(lambda: self._inner.delete(keys))

    async def server_time_ms(self) -> int | None:
        """Asked once: an answer after pauses would be judged against the wrong moment."""
        return await self._inner.server_time_ms()

    async def close(self) -> None:
        await self._inner.close()

    async def _retry(self, operation: Callable[[], Awaitable[_Result]]) -> _Result:
        tries = 0
        begun_s = self._ports.monotonic_s()
        while True:
            try:
                return await operation()
            except StoreUnavailable as error:
                tries += 1
                await self._pause(tries, begun_s, error)

    async def _pause(self, tries: int, begun_s: float, error: StoreUnavailable) -> None:
        pause_s = self._policy.pause_s(tries, self._ports.monotonic_s() - begun_s, self._ports.chance())
        if pause_s is None:
            raise error
        await self._ports.sleep(pause_s)

    async def _is_ours(self, key: str, parts: Sequence[Buffer]) -> bool:
        """Whether the object holds the bytes that an earlier try of unknown outcome may have put."""
        try:
            return (await self._inner.head(key)).size_bytes == sum(map(len, parts)) and (
                await self._inner.get(key) == b"".join(parts)
            )
        except ObjectMissing:
            return False
