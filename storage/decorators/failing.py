"""A store that fails on demand, for tests and the simulation.

Rule: deterministic. A fault waits for the next operation it fits, strikes, and is used up; without faults the inner
store answers. Pauses are the caller's callable.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from storage.object_store import (
    Buffer,
    ObjectMeta,
    ObjectsNotDeleted,
    ObjectStore,
    StoreDenied,
    StoreError,
    StoreUnavailable,
)


class StoreOperation(StrEnum):
    PUT = "put"
    GET = "get"
    """Whole objects and ranges."""
    HEAD = "head"
    LIST = "list"
    DELETE = "delete"
    TIME = "time"


class FaultKind(StrEnum):
    BEFORE = "before"
    """`StoreUnavailable`, and nothing happened."""
    AFTER = "after"
    """`StoreUnavailable`, though it happened: of a put, the unknown outcome that succeeded."""
    LATE = "late"
    """Puts only: `StoreUnavailable`, and the object appears at `FailingStore.land_late_puts`."""
    SLOW = "slow"
    """It happens after a pause."""
    TRUNCATED = "truncated"
    """Gets only: a whole object comes cut in half, which the port does not notice; of a range it does."""
    STALE = "stale"
    """Lists only: without the objects put since the last list."""
    CUT = "cut"
    """Lists only: `StoreUnavailable` after the first object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFault:
    """Strikes the next `operation` on a key (or prefix) that begins with `key_prefix`."""

    kind: FaultKind
    operation: StoreOperation
    key_prefix: str = ""
    pause_s: float = 0.0
    """The delay of a SLOW one."""


class FailingStore:
    """An `ObjectStore` over another one, with a script of faults, taken in order."""

    def __init__(self, inner: ObjectStore, *, sleep: Callable[[float], Awaitable[None]] | None = None) -> None:
        self._inner = inner
        self._sleep = sleep
        self._faults: list[InjectedFault] = []
        self._late: list[tuple[str, bytes, bool]] = []
        self._put_since_list: set[str] = set()
        self.struck: list[InjectedFault] = []
        """The faults used up, in order."""
        self.undeletable: set[str] = set()
        """Keys that stay, as if a policy or a lock of the bucket protected them, until they are taken out of here."""
        self.is_conditional = True
        """Whether a taken key rejects a put with `if_absent`; False is a store that ignores If-None-Match."""

    def script(self, *faults: InjectedFault) -> None:
        """Add faults behind those that wait."""
        self._faults.extend(faults)

    async def land_late_puts(self) -> None:
        """Let the puts that were late appear."""
        late, self._late = self._late, []
        for key, payload, if_absent in late:
            await self._inner.put(key, [payload], if_absent=if_absent)

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        kind = await self._begin(StoreOperation.PUT, key)
        if kind is FaultKind.LATE:
            self._late.append((key, b"".join(parts), if_absent))
            raise StoreUnavailable(f"put {key}: no answer")
        await self._inner.put(key, parts, if_absent=if_absent and self.is_conditional)
        self._put_since_list.add(key)
        self._end(kind, f"put {key}")

    async def get(self, key: str) -> bytes:
        kind = await self._begin(StoreOperation.GET, key)
        content = await self._inner.get(key)
        self._end(kind, f"get {key}")
        return content[: len(content) // 2] if kind is FaultKind.TRUNCATED else content

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        kind = await self._begin(StoreOperation.GET, key)
        content = await self._inner.get_range(key, byte_first, byte_count)
        self._end(kind, f"get {key}")
        if kind is FaultKind.TRUNCATED:
            raise StoreUnavailable(f"{key} gave {byte_count // 2} instead of {byte_count} bytes from byte {byte_first}")
        return content

    async def head(self, key: str) -> ObjectMeta:
        kind = await self._begin(StoreOperation.HEAD, key)
        meta = await self._inner.head(key)
        self._end(kind, f"head {key}")
        return meta

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        kind = await self._begin(StoreOperation.LIST, prefix)
        hidden = self._put_since_list if kind is FaultKind.STALE else frozenset[str]()
        self._put_since_list = set()
        async for meta in self._inner.list(prefix, after=after):
            if meta.key not in hidden:
                yield meta
            if kind is FaultKind.CUT:
                break
        self._end(kind, f"list {prefix}")

    async def delete(self, keys: Sequence[str]) -> None:
        kind = await self._begin(StoreOperation.DELETE, keys[0] if keys else "")
        reasons: dict[str, StoreError] = {
            key: StoreDenied(f"delete {key}: AccessDenied") for key in keys if key in self.undeletable
        }
        await self._inner.delete([key for key in keys if key not in reasons])
        self._end(kind, f"delete {len(keys)} keys")
        if reasons:
            raise ObjectsNotDeleted(reasons)

    async def server_time_ms(self) -> int | None:
        kind = await self._begin(StoreOperation.TIME, "")
        time_ms = await self._inner.server_time_ms()
        self._end(kind, "time")
        return time_ms

    async def close(self) -> None:
        await self._inner.close()

    async def _begin(self, operation: StoreOperation, key: str) -> FaultKind | None:
        fits = (f for f in self._faults if f.operation is operation and key.startswith(f.key_prefix))
        fault = next(fits, None)
        if fault is None:
            return None
        self._faults.remove(fault)
        self.struck.append(fault)
        if fault.kind is FaultKind.BEFORE:
            raise StoreUnavailable(f"{operation} {key}: refused")
        if fault.kind is FaultKind.SLOW:
            assert self._sleep is not None, "a slow fault needs a way to pause"
            await self._sleep(fault.pause_s)
        return fault.kind

    @staticmethod
    def _end(kind: FaultKind | None, what: str) -> None:
        if kind in {FaultKind.AFTER, FaultKind.CUT}:
            raise StoreUnavailable(f"{what}: no answer")
