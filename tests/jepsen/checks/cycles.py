"""Whether transactions can be put in an order at all: cycles of writes (G0) and of information flow (G1c).

Rule: each part of the graph that has a cycle gives at least one: the shortest, unless that takes too long to find.
Where plain cycles are found, those that the order of a process closes are not looked for; nor, where such are found,
those that the order of time closes.

With ww edges G0 is what transactions of Kafka do all the time (they interleave), and so is a G1c that takes such an
edge: it is told as G1c-ww. A G1c without is never right.

Source: Adya, "Weak Consistency" (G0, G1c); Elle, elle.txn (-process, -realtime); Jepsen, jepsen.tests.kafka.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from tests.jepsen.checks.anomaly import Anomaly, Kind, Step
from tests.jepsen.graph.cycle_search import Graph, components, shortest_cycle
from tests.jepsen.graph.dependencies import PROCESS, REALTIME, WR, WW, dependencies
from tests.jepsen.graph.evidence import Evidence
from tests.jepsen.graph.version_order import EMPTY, VersionOrder
from tests.jepsen.history.history import History

DATA = WW | WR
ALL = DATA | PROCESS | REALTIME
KINDS: dict[tuple[bool, bool, int], Kind] = {
    (True, False, 0): "G0",
    (True, False, PROCESS): "G0-process",
    (True, False, REALTIME): "G0-realtime",
    (False, True, 0): "G1c",
    (False, True, PROCESS): "G1c-process",
    (False, True, REALTIME): "G1c-realtime",
    (True, True, 0): "G1c-ww",
    (True, True, PROCESS): "G1c-ww-process",
    (True, True, REALTIME): "G1c-ww-realtime",
}
"""By whether a cycle has ww edges, whether it has wr edges, and what else closes it."""


def cycles(
    history: History, evidence: Evidence, orders: Mapping[str, VersionOrder], *, has_ww: bool
) -> Iterator[Anomaly]:
    """Cycles of every kind; `has_ww`: also of those that the order of writes makes."""
    graph = dependencies(history, evidence, orders, has_ww=has_ww)
    explained = _Explained(graph, evidence, orders)
    without_ww = ALL & ~WW
    for component in components(graph, range(len(graph)), without_ww):
        yield from explained.cycles_in(component, without_ww)
    if has_ww:
        for component in components(graph, range(len(graph)), ALL):
            for cycle in explained.cycles_in(component, ALL):
                if any(step.relation == "ww" for step in cycle.steps):
                    yield cycle


class _Explained:
    """Finds cycles and says why each of their edges is one."""

    def __init__(self, graph: Graph, evidence: Evidence, orders: Mapping[str, VersionOrder]) -> None:
        self._graph = graph
        self._evidence = evidence
        self._orders = orders

    def cycles_in(self, component: Sequence[int], kinds: int) -> Iterator[Anomaly]:
        """The cycles of a component that is strongly connected by edges of these kinds."""
        found = [*self._closed_by(component, WW & kinds, WW), *self._closed_by(component, DATA & kinds, WR)]
        for closing in (PROCESS, REALTIME):
            if not found:
                found = list(self._closed_by(component, (DATA & kinds) | closing, closing))
        yield from found

    def _closed_by(self, component: Sequence[int], kinds: int, closing: int) -> Iterator[Anomaly]:
        """The shortest cycle of each part that is connected by these kinds, of those with an edge of kind `closing`."""
        for part in components(self._graph, component, kinds):
            nodes = shortest_cycle(self._graph, part, kinds, closing)
            if nodes is not None:
                yield self._anomaly(nodes, kinds, closing)

    def _anomaly(self, nodes: Sequence[int], kinds: int, closing: int) -> Anomaly:
        steps = [self._step(nodes[0], nodes[1], closing)]
        steps += [self._step(a, b, kinds) for a, b in pairwise([*nodes[1:], nodes[0]])]
        relations = {step.relation for step in steps}
        other = closing if closing in {PROCESS, REALTIME} else 0
        return Anomaly(
            kind=KINDS["ww" in relations, "wr" in relations, other],
            text="; ".join(step.text for step in steps),
            calls=tuple(nodes),
            steps=tuple(steps),
        )

    def _step(self, before: int, after: int, kinds: int) -> Step:
        """The edge between two nodes, as one of the kinds: of several that which needs least explanation."""
        kind = self._graph[before][after] & kinds
        a, b = self._evidence.name(before), self._evidence.name(after)
        if kind & WR:
            key, value = self._read(before, after)
            return Step(before, "wr", f"{a} sent value {value} to {key}, which {b} read")
        if kind & WW:
            key, first, second = self._overwritten(before, after)
            return Step(before, "ww", f"{a} sent value {first} to {key}, right before {b}'s {second}")
        if kind & PROCESS:
            return Step(before, "process", f"{a} was done before {b} by the same process")
        ended, began = self._evidence.calls[before].completed, self._evidence.calls[after].invoked
        return Step(before, "realtime", f"{a} ended at line {ended.index}, before {b} began at line {began.index}")

    def _read(self, writer: int, reader: int) -> tuple[str, int]:
        """The key and a value that the one wrote and the other read."""
        for key, pairs in self._evidence.reads[reader].items():
            writers = self._evidence.writers.get(key, {})
            for _, value in pairs:
                if writers.get(value) == writer:
                    return key, value
        raise AssertionError((writer, reader))

    def _overwritten(self, before: int, after: int) -> tuple[str, int, int]:
        """The key and two values of these calls that follow each other."""
        for key, sends in self._evidence.writes[after].items():
            order = self._orders.get(key, EMPTY)
            for send in sends:
                index = order.indexes.get(send.value, 0)
                if index > 0 and self._evidence.writers[key].get(order.values[index - 1]) == before:
                    return key, order.values[index - 1], send.value
        raise AssertionError((before, after))
