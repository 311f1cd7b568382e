"""Which transaction came before which: the graph in which a cycle is an anomaly.

Nodes are calls that end (txn, send, poll), edges say why one precedes another:
- ww: it wrote the value that stands right before one of the other's. With transactions of Kafka writes interleave.
- wr: the other read what it wrote.
- process: the same process did the other later; realtime: it had ended before the other began. Only calls that are ok
  begin such an edge. What is implied by others is left out.
That a transaction did not see another's write is no edge: a consumer may lag behind as long as it likes.

Source: Jepsen, jepsen.tests.kafka (ww, wr) and Elle, elle.core (process, realtime); Adya, "Weak Consistency".
"""

from collections.abc import Mapping

from tests.jepsen.graph.evidence import Evidence
from tests.jepsen.graph.version_order import EMPTY, VersionOrder
from tests.jepsen.history.history import TRANSACTIONS, History

WW, WR, PROCESS, REALTIME = 1, 2, 4, 8


def dependencies(
    history: History, evidence: Evidence, orders: Mapping[str, VersionOrder], *, has_ww: bool
) -> list[dict[int, int]]:
    """By call its successors, with the kinds of each edge."""
    graph: list[dict[int, int]] = [{} for _ in history.calls]
    if has_ww:
        _link_writes(graph, evidence, orders)
    _link_reads(graph, evidence)
    _link_processes(graph, history)
    _link_time(graph, history)
    return graph


def _link_writes(graph: list[dict[int, int]], evidence: Evidence, orders: Mapping[str, VersionOrder]) -> None:
    for key, writers in evidence.writers.items():
        order = orders.get(key, EMPTY)
        for value, writer in writers.items():
            index = order.indexes.get(value, 0)
            before = writers.get(order.values[index - 1], writer) if index > 0 else writer
            if before != writer:
                graph[before][writer] = graph[before].get(writer, 0) | WW


def _link_reads(graph: list[dict[int, int]], evidence: Evidence) -> None:
    for reader, reads in enumerate(evidence.reads):
        for key, pairs in reads.items():
            writers = evidence.writers.get(key, {})
            for _, value in pairs:
                writer = writers.get(value, reader)
                if writer != reader:
                    after = graph[writer]
                    after[reader] = after.get(reader, 0) | WR


def _link_processes(graph: list[dict[int, int]], history: History) -> None:
    last: dict[int, int] = {}
    for number, call in enumerate(history.calls):
        op = call.completed
        if op.type == "ok" and op.f in TRANSACTIONS:
            before = last.get(op.process)
            if before is not None:
                graph[before][number] = graph[before].get(number, 0) | PROCESS
            last[op.process] = number


def _link_time(graph: list[dict[int, int]], history: History) -> None:
    """Each call is linked to what ended before it began and is not linked to it by others.

    `ended`: the ok calls that a call which begins now comes after; one that ends puts those away that it came after.
    """
    number_of = {call.invoked.index: number for number, call in enumerate(history.calls)}
    ended: set[int] = set()
    before: dict[int, set[int]] = {}
    called: dict[int, int] = {}
    for op in history.ops:
        if op.f not in TRANSACTIONS:
            continue
        if op.type == "invoke":
            number = number_of[op.index]
            called[op.process] = number
            before[number] = set(ended)
            for each in ended:
                graph[each][number] = graph[each].get(number, 0) | REALTIME
            continue
        number = called.pop(op.process)
        implied = before.pop(number)
        if op.type == "ok":
            ended -= implied
            ended.add(number)
