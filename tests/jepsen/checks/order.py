"""Whether a client reads and writes a key in the order of its log, without leaving anything out.

Rule: a distance that is not known (a value whose offset nobody told) counts as one step, so it accuses nobody.

Source: Jepsen, jepsen.tests.kafka (int-poll-skip, int-nonmonotonic-poll, poll-skip, nonmonotonic-poll, int-send-skip,
int-nonmonotonic-send, nonmonotonic-send).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from tests.jepsen.checks.anomaly import Anomaly, Kind
from tests.jepsen.graph.evidence import Evidence
from tests.jepsen.graph.version_order import EMPTY, VersionOrder
from tests.jepsen.history.history import Op

SHOWN_MAX = 5


def internal_polls(evidence: Evidence, orders: Mapping[str, VersionOrder]) -> Iterator[Anomaly]:
    """Two values of a key that one call read after each other and that do not follow each other.

    Keys that were assigned or revoked during the call are exempt: positions are taken again there.
    """
    for number, reads in enumerate(evidence.reads):
        exempt = evidence.calls[number].completed.rebalance_log
        for key, pairs in reads.items():
            if key not in exempt:
                values = [value for _, value in pairs]
                steps = _wrong_steps(orders.get(key, EMPTY), values)
                for before, after, delta in steps:
                    kind: Kind = "int-poll-skip" if delta > 1 else "int-nonmonotonic-poll"
                    yield _step(kind, "read", evidence, orders, key, (before, after), (number,))


def internal_sends(evidence: Evidence, orders: Mapping[str, VersionOrder]) -> Iterator[Anomaly]:
    """Two values that one call sent to a key after each other and that do not follow each other."""
    for number, writes in enumerate(evidence.writes):
        for key, sends in writes.items():
            if len(sends) > 1:
                steps = _wrong_steps(orders.get(key, EMPTY), [send.value for send in sends])
                for before, after, delta in steps:
                    kind: Kind = "int-send-skip" if delta > 1 else "int-nonmonotonic-send"
                    yield _step(kind, "sent", evidence, orders, key, (before, after), (number,))


def external_polls(evidence: Evidence, orders: Mapping[str, VersionOrder]) -> Iterator[Anomaly]:
    """Where a process went on reading a key somewhere else than behind its last ok call's last value.

    Calls that failed, or may have, do not move the position; an assign or subscribe forgets that of every key that it
    does not name; one of the final read forgets all, for that begins again.
    """
    lasts: dict[int, dict[str, tuple[int, int]]] = defaultdict(dict)
    for number, reads in enumerate(evidence.reads):
        op = evidence.calls[number].completed
        last = lasts[op.process]
        if op.f in {"assign", "subscribe"} and op.type != "fail":
            lasts[op.process] = {key: place for key, place in last.items() if _is_kept(op, key)}
        for key, pairs in reads.items():
            if not pairs:
                continue
            if key in last:
                caller, before = last[key]
                after = pairs[0][1]
                delta = orders.get(key, EMPTY).delta(before, after)
                if delta != 1:
                    kind: Kind = "poll-skip" if delta > 1 else "nonmonotonic-poll"
                    yield _step(kind, "read", evidence, orders, key, (before, after), (caller, number))
            if op.type == "ok":
                last[key] = number, pairs[-1][1]


def external_sends(evidence: Evidence, orders: Mapping[str, VersionOrder]) -> Iterator[Anomaly]:
    """Where what a process sent to a key stands before what it sent there earlier; of calls that did not fail."""
    lasts: dict[int, dict[str, tuple[int, int]]] = defaultdict(dict)
    for number, writes in enumerate(evidence.writes):
        op = evidence.calls[number].completed
        if op.type == "fail":
            continue
        last = lasts[op.process]
        for key, sends in writes.items():
            if key in last:
                caller, before = last[key]
                after = sends[0].value
                if orders.get(key, EMPTY).delta(before, after) < 1:
                    calls = caller, number
                    yield _step("nonmonotonic-send", "sent", evidence, orders, key, (before, after), calls)
            last[key] = number, sends[-1].value


def _is_kept(op: Op, key: str) -> bool:
    """Whether an assign (of keys) or a subscribe (of topics) leaves the position in this key as it is."""
    return not op.final and (key in op.keys or key.rpartition("-")[0] in op.keys)


def _wrong_steps(order: VersionOrder, values: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """Neighbours that are not one step apart: both, and their distance."""
    indexes = order.indexes
    for before, after in pairwise(values):
        first, second = indexes.get(before), indexes.get(after)
        if first is not None and second is not None and second - first != 1:
            yield before, after, second - first


def _step(
    kind: Kind,
    did: str,
    evidence: Evidence,
    orders: Mapping[str, VersionOrder],
    key: str,
    values: tuple[int, int],
    calls: tuple[int, ...],
) -> Anomaly:
    """The anomaly of a step from one value to another."""
    order = orders[key]
    before, after = values
    delta = order.delta(before, after)
    who = " and ".join(evidence.name(call) for call in calls)
    text = f"{who} {did} value {before} of {key}, then {after}"
    if delta > 1:
        skipped = order.between(before, after)
        more = "" if len(skipped) <= SHOWN_MAX else f" and {len(skipped) - SHOWN_MAX} more"
        text += f"; between them stand {', '.join(map(str, skipped[:SHOWN_MAX]))}{more}"
    elif delta < 0:
        text += f", which stands {-delta} before it"
    offsets = tuple(order.offsets[order.indexes[value]] for value in values)
    return Anomaly(kind=kind, text=text, key=key, values=values, offsets=offsets, calls=calls, delta=delta)
