"""A store that asks again.

Rule: only `StoreUnavailable` is asked again, with a jittered pause that doubles, until a deadline. Every operation of
the port may be repeated: keys are written once, so a repeated put writes the same bytes, and a conditional put that
finds its own bytes after an unknown outcome has succeeded. Time, pauses and chance are passed in. So is the observer of
each attempt, which sees an outage before its requests are given up.
Source of the jitter: "Exponential Backoff And Jitter", AWS Architecture Blog ("full jitter").
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeVar

from storage.object_store import (
    Buffer,
    ObjectExists,
    ObjectMeta,
    ObjectMissing,
    ObjectsNotDeleted,
    ObjectStore,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long to go on, and how to pause. Seconds."""

    deadline_s: float = 60.0
    """No try begins later than this after the first one."""
    pause_first_s: float = 0.05
    pause_s_max: float = 2.0

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
    count_retry: Callable[[], None] = lambda: None
    """Called before each further try."""


class TryObserver(Protocol):
    """Observes how each attempt ended; `operation` is put, get, head, list, delete or time."""

    def under_way(self, operation: str, key: str) -> AbstractContextManager[None]:
        """A block that lasts as long as one try has no answer. Lists, which answer bit by bit, and time have none."""
        ...

    def failed(self, operation: str, key: str, error: StoreError) -> None:
        """The store was away, or rejects us; `key` is the key, the prefix or the first of several keys."""
        ...

    def answered(self, operation: str) -> None:
        """The store answered, if only that the object is missing or exists."""
        ...


class Unobserved:
    """A `TryObserver` that ignores everything."""

    def under_way(self, operation: str, key: str) -> AbstractContextManager[None]:
        return nullcontext()

    def failed(self, operation: str, key: str, error: StoreError) -> None:
        pass

    def answered(self, operation: str) -> None:
        pass


class RetryingStore:
    """An `ObjectStore` over another one. Raises what the last try raised."""

    def __init__(
        self, inner: ObjectStore, *, policy: RetryPolicy, ports: RetryPorts, observer: TryObserver | None = None
    ) -> None:
        self._inner = inner
        self._policy = policy
        self._ports = ports
        self._observer = observer or Unobserved()

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        if not if_absent:
            await self._retry("put", key, lambda: self._inner.put(key, parts))
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

        await self._retry("put", key, put_if_absent)

    async def get(self, key: str) -> bytes:
        return await self._retry("get", key, lambda: self._inner.get(key))

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        return await self._retry("get", key, lambda: self._inner.get_range(key, byte_first, byte_count))

    async def head(self, key: str) -> ObjectMeta:
        return await self._retry("head", key, lambda: self._inner.head(key))

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        """A list that breaks off is taken up behind what was given already."""
        last = after
        tries = 0
        begun_s = self._ports.monotonic_s()
        while True:
            try:
                async for meta in self._inner.list(prefix, after=last):
                    last = meta.key
                    yield meta
            except StoreError as error:
                self._report("list", prefix, error)
                tries += 1
                await self._pause(tries, begun_s, error)
            else:
                self._observer.answered("list")
                return

    async def delete(self, keys: Sequence[str]) -> None:
        """Asks again for the keys whose reason may pass; those that are rejected for good are reported at the end."""
        pending, reasons = keys, dict[str, StoreError]()

        async def delete_pending() -> None:
            nonlocal pending
            failed: Mapping[str, StoreError] = {}
            try:
                await self._inner.delete(pending)
            except ObjectsNotDeleted as error:
                failed = error.reasons
            for key in pending:
                reasons.pop(key, None)
            reasons.update(failed)
            pending = [key for key, reason in failed.items() if isinstance(reason, StoreUnavailable)]
            if pending:
                raise failed[pending[0]]

        try:
            await self._retry("delete", keys[0] if keys else "", delete_pending)
        except StoreError:
            if not reasons:
                raise
        if reasons:
            raise ObjectsNotDeleted(reasons)

    async def server_time_ms(self) -> int | None:
        """Asked once: an answer after pauses would be judged against the wrong moment."""
        try:
            time_ms = await self._inner.server_time_ms()
        except StoreError as error:
            self._report("time", "", error)
            raise
        self._observer.answered("time")
        return time_ms

    async def close(self) -> None:
        await self._inner.close()

    async def _retry(self, operation: str, key: str, attempt: Callable[[], Awaitable[_Result]]) -> _Result:
        tries = 0
        begun_s = self._ports.monotonic_s()
        while True:
            try:
                with self._observer.under_way(operation, key):
                    result = await attempt()
            except StoreError as error:
                self._report(operation, key, error)
                tries += 1
                await self._pause(tries, begun_s, error)
            else:
                self._observer.answered(operation)
                return result

    def _report(self, operation: str, key: str, error: StoreError) -> None:
        if isinstance(error, StoreUnavailable | StoreMisconfigured):
            self._observer.failed(operation, key, error)
        else:
            self._observer.answered(operation)

    async def _pause(self, tries: int, begun_s: float, error: StoreError) -> None:
        """Raises `error` where it is final, or the time is over."""
        if not isinstance(error, StoreUnavailable):
            raise error
        pause_s = self._policy.pause_s(tries, self._ports.monotonic_s() - begun_s, self._ports.chance())
        if pause_s is None:
            raise error
        await self._ports.sleep(pause_s)
        self._ports.count_retry()

    async def _is_ours(self, key: str, parts: Sequence[Buffer]) -> bool:
        """Whether the object holds the bytes that an earlier try of unknown outcome may have put."""
        try:
            return (await self._inner.head(key)).size_bytes == sum(map(len, parts)) and (
                await self._inner.get(key) == b"".join(parts)
            )
        except ObjectMissing:
            return False
