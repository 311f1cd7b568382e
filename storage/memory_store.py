"""A bucket in memory: the reference that the other adapters are held to, for tests and simulation.

Rule: deterministic; time enters through the clock that is passed in, and nothing yields to the loop but where a test or
a decorator says so.
"""

from collections.abc import AsyncIterator, Callable, Sequence

from storage.keys import check_key, check_prefix
from storage.object_store import Buffer, ObjectExists, ObjectMeta, ObjectMissing, cut_short


def _epoch() -> int:
    return 0


class MemoryStore:
    """An `ObjectStore`. `now_ms` gives objects their time, and is the store's own clock where `has_clock`."""

    def __init__(self, *, now_ms: Callable[[], int] = _epoch, has_clock: bool = False) -> None:
        self._objects: dict[str, tuple[bytes, int]] = {}
        self._now_ms = now_ms
        self._has_clock = has_clock

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        check_key(key)
        if if_absent and key in self._objects:
            raise ObjectExists(f"{key} exists")
        self._objects[key] = (b"".join(parts), self._now_ms())

    async def get(self, key: str) -> bytes:
        return self._find(key)[0]

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        content = self._find(key)[0][byte_first : byte_first + byte_count]
        if len(content) != byte_count:
            raise cut_short(key, len(content), byte_first, byte_count)
        return content

    async def head(self, key: str) -> ObjectMeta:
        payload, modified_ms = self._find(key)
        return ObjectMeta(key=key, size_bytes=len(payload), modified_ms=modified_ms)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        """Objects put while the list is read may be missing from it; none is given twice."""
        check_prefix(prefix)
        for key in sorted(key for key in self._objects if key.startswith(prefix) and key > after):
            stored = self._objects.get(key)
            if stored is not None:
                yield ObjectMeta(key=key, size_bytes=len(stored[0]), modified_ms=stored[1])

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
            self._objects.pop(key, None)

    async def server_time_ms(self) -> int | None:
        return self._now_ms() if self._has_clock else None

    async def close(self) -> None:
        """Nothing is held open."""

    def _find(self, key: str) -> tuple[bytes, int]:
        check_key(key)
        stored = self._objects.get(key)
        if stored is None:
            raise ObjectMissing(f"{key} does not exist")
        return stored
