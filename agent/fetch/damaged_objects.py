"""The damaged chunks that this agent has read (safety rule S20).

Consumers request damaged records many times a second. So each damaged object is logged once, and its chunk is read
again only after DAMAGED_CHUNK_REREAD_INTERVAL_S: an object that was put back is then served again. A chunk that no
consumer requests for DAMAGED_CHUNK_REMEMBERED_S is forgotten: its records were deleted, or its consumers went past
them.
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
    """The damaged chunks by object, with the error of each. Bounded by DAMAGED_CHUNKS_REMEMBERED_MAX."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._chunks: OrderedDict[ChunkKey, _Damage] = OrderedDict()
        """In the order of `found_s`."""
        self._counts: Counter[str] = Counter()
        """The number of `_chunks` of each object; objects without any have no entry."""
        self._logged: set[str] = set()
        """Keys of the objects in `_counts` that were logged."""

    def add(self, object_key: str, chunk: ChunkKey, error: ObjectDamaged) -> None:
        """Note that the chunk was read just now, and is damaged."""
        self._forget_old()
        if self._chunks.pop(chunk, None) is None:
            self._counts[object_key] += 1
        self._chunks[chunk] = _Damage(object_key, error, self._clock.monotonic_s())
        if len(self._chunks) > DAMAGED_CHUNKS_REMEMBERED_MAX:
            self._forget_first()

    def is_known(self, object_key: str) -> bool:
        """Whether a chunk of the object was damaged lately, and has not been read intact since."""
        self._forget_old()
        return object_key in self._counts

    def is_chunk_known(self, chunk: ChunkKey) -> bool:
        """Whether the chunk itself was damaged lately, and has not been read intact since."""
        self._forget_old()
        return chunk in self._chunks

    def recent(self, chunk: ChunkKey) -> ObjectDamaged | None:
        """The error of the chunk's last read; None where it may be read again."""
        known = self._chunks.get(chunk)
        if known is None or self._clock.monotonic_s() >= known.found_s + DAMAGED_CHUNK_REREAD_INTERVAL_S:
            return None
        return known.error

    def was_read(self, chunk: ChunkKey) -> None:
        """Forget the chunk: it was read and is intact."""
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
        """Subtract one damaged chunk of the object; after the last one it may be logged again."""
        self._counts[object_key] -= 1
        if not self._counts[object_key]:
            del self._counts[object_key]
            self._logged.discard(object_key)

    def report(self, object_key: str, error: ObjectDamaged, **where: object) -> None:
        """Log the damage of an object, once while it is known. `where`: fields of the log line for its records."""
        if object_key in self._logged:
            return
        # Where it was read intact meanwhile it has no count, and no `_forget` would ever remove it from `_logged`.
        if object_key in self._counts:
            self._logged.add(object_key)
        log.error(
            "an object is damaged: its records are not served, all others are. Put its bytes back from a copy, "
            'or give its records up: docs/operations/damage.md, "A damaged file"',
            extra={"key": object_key, "reason": str(error).removeprefix(object_key).lstrip(": "), **where},
        )

    def count(self, referenced: Container[str]) -> int:
        """The number of objects in `referenced` that had a damaged chunk lately."""
        self._forget_old()
        return sum(object_key in referenced for object_key in self._counts)
