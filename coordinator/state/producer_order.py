"""Producers' states in the order of their last positions, as a heap whose entries may be out of date.

Rule: an entry is never newer than its state, and a state has at most one. The caller of `pop` compares the
entry with the state's last position, and adds it again where the producer wrote since: once for all its writes.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from protocol.types import PartitionIndex, Position, ProducerId, TopicId

ProducerKey = tuple[TopicId, PartitionIndex, ProducerId]


class ProducerOrder:
    """States by last position; of equal ones by topic, partition and producer id."""

    __slots__ = ("_entries", "_keys")

    def __init__(self, entries: Iterable[tuple[Position, ProducerKey]]) -> None:
        self._entries = list(entries)
        heapify(self._entries)
        self._keys = {key for _, key in self._entries}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, position: Position, key: ProducerKey) -> None:
        """Enter a state, unless an entry of it is there."""
        if key not in self._keys:
            self._keys.add(key)
            heappush(self._entries, (position, key))

    def pop(self) -> tuple[Position, ProducerKey] | None:
        """Take out the oldest entry; None where there is none."""
        if not self._entries:
            return None
        position, key = heappop(self._entries)
        self._keys.remove(key)
        return position, key
