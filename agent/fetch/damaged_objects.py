"""Which chunks this agent read and found damaged: each object is logged once, and no chunk read again for a while.

Rule: stored bytes are checked before they are believed (safety rule S20). Consumers of damaged records ask for them
many times a second, and neither the log nor the store is to pay for that. A chunk is read again after
`DAMAGED_CHUNK_REREAD_INTERVAL_S`, so that an object that was put back is served again by itself. A chunk that no
consumer reads for `DAMAGED_CHUNK_REMEMBERED_S` is forgotten: its records may be deleted, or its consumers moved beyond
them. Other chunks of the same object may be intact; those of an archive file without checksums are not cached
meanwhile.
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Container
from typing import NamedTuple

from agent.cache.chunk_cache import ChunkKey
from agent.runtime.clock import Clock
from protocol.limits import DAMAGED_CHUNK_REMEMBERED_S, DAMAGED_CHUNK_REREAD_INTERVAL_S, DAMAGED_CHUNKS_REMEMBERED_MAX
from storage.object_store import ObjectDamaged

log = logging.getLogger(__name__)


class _Damage(NamedTuple):
    object_key: str
    error: ObjectDamaged
    found_s: float


class DamagedObjects:
    """Every agent has one."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._chunks: OrderedDict[ChunkKey, _Damage] = OrderedDict()
        """In the order of `found_s`."""
        self._counts: Counter[str] = Counter()
        """How many of `_chunks` each object has; none without any."""
        self._logged: set[str] = set()
        """Keys of objects, of those in `_counts`."""

    def found(self, object_key: str, chunk: ChunkKey, error: ObjectDamaged) -> None:
        """Note that the chunk was read just now, and is damaged."""
        self._forget_old()
        if self._chunks.pop(chunk, None) is None:
            self._counts[object_key] += 1
        self._chunks[chunk] = _Damage(object_key, error, self._clock.monotonic_s())
        if len(self._chunks) > DAMAGED_CHUNKS_REMEMBERED_MAX:
            self._forget_first()

    def is_known(self, object_key: str) -> bool:
        """Whether chunks of the object were found damaged lately, and not read intact since."""
        self._forget_old()
        return object_key in self._counts

    def is_chunk_known(self, chunk: ChunkKey) -> bool:
        """Whether the chunk itself was."""
        self._forget_old()
        return chunk in self._chunks

    def recent(self, chunk: ChunkKey) -> ObjectDamaged | None:
        """The error of the chunk's last read, where that is too recent to read it again."""
        known = self._chunks.get(chunk)
        if known is None or self._clock.monotonic_s() >= known.found_s + DAMAGED_CHUNK_REREAD_INTERVAL_S:
            return None
        return known.error

    def was_read(self, chunk: ChunkKey) -> None:
        """Forget the chunk: it was read and is whole."""
        known = self._chunks.pop(chunk, None)
        if known is not None:
            self._forget(known.object_key)

    def _forget_old(self) -> None:
        end_s = self._clock.monotonic_s() - DAMAGED_CHUNK_REMEMBERED_S
        while self._chunks and next(iter(self._chunks.values())).found_s <= end_s:
            self._forget_first()

    def _forget_first(self) -> None:
        _, forgotten = self._chunks.popitem(last=False)
        self._forget(forgotten.object_key)

    def _forget(self, object_key: str) -> None:
        """One chunk less of that object is known to be damaged."""
        self._counts[object_key] -= 1
        if not self._counts[object_key]:
            del self._counts[object_key]
            self._logged.discard(object_key)

    def report(self, object_key: str, error: ObjectDamaged, **where: object) -> None:
        """Log the damage of an object, once while it is known. `where`: what the log line says of the records that
        cannot be read."""
        if object_key in self._logged:
            return
        if object_key in self._counts:  # else it was read intact meanwhile, and no chunk of it will be forgotten
            self._logged.add(object_key)
        log.error(
            "an object is damaged: its records are not served, and everything else is; put its bytes back from a copy, "
            'or give its records up: docs/operations/damage.md, "A damaged file"',
            extra={"key": object_key, "reason": str(error).removeprefix(object_key).lstrip(": "), **where},
        )

    def count(self, referenced: Container[str]) -> int:
        """How many objects among `referenced` have chunks that were found damaged lately."""
        self._forget_old()
        return sum(object_key in referenced for object_key in self._counts)
