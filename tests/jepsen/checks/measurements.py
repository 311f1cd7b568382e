"""What is measured and is no error: how often a consumer got a record, how far consumers lag behind.

Source: Jepsen, jepsen.tests.kafka (consume-counts, realtime-lag).
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.jepsen.graph.evidence import Evidence

NOTHING = -1
"""The offset read last of a key of which nothing was read: auto.offset.reset is earliest."""


@dataclass(frozen=True, slots=True)
class Consumed:
    """A record that a process got more than once from ok calls while it was subscribed; exactly once would be 1."""

    process: int
    key: str
    value: int
    count: int


@dataclass(frozen=True, slots=True)
class Lag:
    """For how long, when a poll began, a record had been there for certain that its process had not read before the
    poll ended."""

    process: int
    key: str
    lag_ns: int
    time_ns: int


def consumed_again(evidence: Evidence) -> list[Consumed]:
    """The records that were consumed more than once, most often first. A rebalance may be the reason."""
    subscribed: set[int] = set()
    counts: Counter[tuple[int, str, int]] = Counter()
    for number, reads in enumerate(evidence.reads):
        op = evidence.calls[number].completed
        if op.type != "ok":
            continue
        if op.f == "subscribe":
            subscribed.add(op.process)
        elif op.f == "assign":
            subscribed.discard(op.process)
        elif op.process in subscribed:
            for key, pairs in reads.items():
                counts.update((op.process, key, value) for _, value in pairs)
    again = [Consumed(*record, count) for record, count in counts.items() if count > 1]
    return sorted(again, key=lambda each: (-each.count, each.process, each.key, each.value))


def worst_lags(evidence: Evidence) -> list[Lag]:
    """By process and key the worst lag, worst of all first; only where there was any."""
    known = _known_offsets(evidence)
    worst: dict[tuple[int, str], Lag] = {}
    read_until: dict[int, dict[str, int]] = defaultdict(dict)
    for number in range(len(evidence.calls)):
        call = evidence.calls[number]
        op = call.completed
        if op.type != "ok":
            continue
        positions = read_until[op.process]
        if op.f == "assign":
            kept = {} if op.final else positions
            read_until[op.process] = {key: kept.get(key, NOTHING) for key in op.keys}
        elif op.f == "subscribe":
            read_until[op.process] = {}
        elif op.f in {"poll", "txn"}:
            for key, offset in _highest_offsets(evidence, number):
                positions[key] = max(offset, positions.get(key, NOTHING))
            for key, position in positions.items():
                lag_ns = known[key].lag_ns(position, call.invoked.time_ns) if key in known else 0
                before = worst.get((op.process, key))
                if lag_ns > (before.lag_ns if before else 0):
                    worst[op.process, key] = Lag(op.process, key, lag_ns, call.invoked.time_ns)
    return sorted(worst.values(), key=lambda lag: -lag.lag_ns)


class _Known:
    """The offsets of a key that were certain to exist, each with the time from which on."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._times_ns: list[int] = []

    def add(self, offset: int, time_ns: int) -> None:
        if not self._offsets or offset > self._offsets[-1]:
            self._offsets.append(offset)
            self._times_ns.append(time_ns)

    def lag_ns(self, offset: int, time_ns: int) -> int:
        """For how long by this time something behind this offset had existed; at least 0."""
        if not self._offsets or self._offsets[-1] <= offset:
            return 0
        return max(0, time_ns - self._times_ns[bisect_right(self._offsets, offset)])


def _known_offsets(evidence: Evidence) -> Mapping[str, _Known]:
    known: dict[str, _Known] = defaultdict(_Known)
    for number, call in enumerate(evidence.calls):
        if call.completed.type in {"ok", "info"}:
            for key, offset in _highest_offsets(evidence, number):
                known[key].add(offset, call.completed.time_ns)
    return known


def _highest_offsets(evidence: Evidence, number: int) -> Iterator[tuple[str, int]]:
    """Of each key the highest offset that a call read, or wrote if it must have been committed."""
    for key, pairs in evidence.reads[number].items():
        if pairs:
            yield key, max(offset for offset, _ in pairs)
    if evidence.took_place[number]:
        for key, sends in evidence.writes[number].items():
            offsets = [send.offset for send in sends if send.offset is not None]
            if offsets:
                yield key, max(offsets)
