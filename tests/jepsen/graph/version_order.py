"""The order of the values of a key: what stood at which offset, by everything that clients were told.

Rule: polls of every call count, also of those that failed, for a consumer that reads committed records may only ever be
given safe ones; sends count if their transaction must have been committed. Offsets may have gaps (markers of
transactions take offsets); the index of a value is its rank among the offsets that are not empty.

Source: Jepsen, jepsen.tests.kafka, version orders.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.jepsen.graph.evidence import Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionOrder:
    """What is known of one key.

    `offsets` and `values`: by index; where an offset was seen with several values, the first that was seen.
    `indexes`: value -> index; of a value that stands at several, the last. `conflicts`: index -> all values that were
    seen there, where these are several.
    """

    offsets: Sequence[int]
    values: Sequence[int]
    indexes: Mapping[int, int]
    conflicts: Mapping[int, frozenset[int]]

    def delta(self, before: int, after: int) -> int:
        """How far the second value stands behind the first: 1 if it follows, or if that is not known."""
        first, second = self.indexes.get(before), self.indexes.get(after)
        return 1 if first is None or second is None else second - first

    def between(self, before: int, after: int) -> Sequence[int]:
        """The values behind the first and before the second."""
        return self.values[self.indexes[before] + 1 : self.indexes[after]]

    def placed(self) -> Iterator[tuple[int, int]]:
        """Every index with every value that was seen there, in order."""
        for index, value in enumerate(self.values):
            for each in self.conflicts.get(index, (value,)):
                yield index, each


EMPTY = VersionOrder(offsets=(), values=(), indexes={}, conflicts={})
"""Of a key of which nothing is known."""


def version_orders(evidence: Evidence) -> Mapping[str, VersionOrder]:
    """By key, the order of its values."""
    logs: dict[str, dict[int, int]] = defaultdict(dict)
    conflicts: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for number, reads in enumerate(evidence.reads):
        for key, pairs in reads.items():
            log = logs[key]
            for offset, value in pairs:
                if log.setdefault(offset, value) != value:
                    conflicts[key][offset].add(value)
        if evidence.took_place[number]:
            for key, sends in evidence.writes[number].items():
                log = logs[key]
                for send in sends:
                    if send.offset is not None and log.setdefault(send.offset, send.value) != send.value:
                        conflicts[key][send.offset].add(send.value)
    return {key: _version_order(log, conflicts.get(key, {})) for key, log in logs.items()}


def _version_order(log: Mapping[int, int], conflicts: Mapping[int, set[int]]) -> VersionOrder:
    offsets = sorted(log)
    values = [log[offset] for offset in offsets]
    return VersionOrder(
        offsets=offsets,
        values=values,
        indexes={value: index for index, value in enumerate(values)},
        conflicts={
            index: frozenset({values[index], *conflicts[offset]})
            for index, offset in enumerate(offsets)
            if offset in conflicts
        },
    )
