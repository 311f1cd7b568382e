"""Values that the final reads must find, although nobody was told where they stand.

Rule: a call took place if it was ok, or if an ok call read any of its values; then all of them have to be there.
"""

from collections import defaultdict
from collections.abc import Sequence

from tests.jepsen.history.history import MicroPoll, MicroSend, Op


class UnplacedValues:
    """`wanted`: by key, what calls that took place wrote without being told an offset."""

    def __init__(self) -> None:
        self.wanted: dict[str, set[int]] = defaultdict(set)
        self._read: dict[str, set[int]] = defaultdict(set)
        self._unsettled: dict[tuple[str, int], Sequence[MicroSend]] = {}
        """By each of its values, the sends of a call of which nobody knows whether it took place."""

    def completed(self, op: Op) -> None:
        """Take in how a call ended, or that it will not."""
        sends = [micro for micro in op.micros if isinstance(micro, MicroSend)]
        if op.type == "ok" or (op.type == "info" and any(each.value in self._read[each.key] for each in sends)):
            self._want(sends)
        elif op.type == "info":
            self._unsettled |= {(each.key, each.value): sends for each in sends}
        if op.type == "ok":
            for micro in op.micros:
                if isinstance(micro, MicroPoll):
                    self._see(micro)

    def left(self, seen: dict[str, set[int]]) -> bool:
        """Whether there is more than what a reader has seen."""
        return any(values - seen.get(key, set()) for key, values in self.wanted.items())

    def _see(self, poll: MicroPoll) -> None:
        for key, pairs in poll.records.items():
            for _, value in pairs:
                self._read[key].add(value)
                self._want(self._unsettled.pop((key, value), ()))

    def _want(self, sends: Sequence[MicroSend]) -> None:
        for each in sends:
            if each.offset is None:
                self.wanted[each.key].add(each.value)
