"""The names whose rights an agent remembers, of all principals together: the oldest is forgotten beyond a limit.

In: bits by name, in the dict of one principal and resource type. Out: that dict, without the names that are too old.
Rule: one name is forgotten for each that is remembered, so no request pays for many. What is remembered is looked up in
the dict alone, without a note of when: a name that is in use is forgotten in its turn, and worked out again.
"""

from collections import deque


class RememberedNames:
    """The order in which names were remembered. `count_max`: how many there may be."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        # Two queues, since a tuple for each name would be an object of its own to the garbage collector.
        self._dicts: deque[dict[str, int]] = deque()
        self._names: deque[str] = deque()

    def __len__(self) -> int:
        return len(self._names)

    def remember(self, bits_by_name: dict[str, int], name: str, bits: int) -> None:
        """Remember the bits of a name that is not in the dict. The oldest name leaves its own dict for it."""
        bits_by_name[name] = bits
        self._dicts.append(bits_by_name)
        self._names.append(name)
        if len(self._names) > self._count_max:
            del self._dicts.popleft()[self._names.popleft()]
