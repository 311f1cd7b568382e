"""Whether what was committed is seen, all of it, and nothing else: aborted and precommitted reads, lost writes.

Source: Jepsen, jepsen.tests.kafka (G1a, precommitted-read, lost-write, unseen); Adya, "Weak Consistency" (G1a).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.jepsen.checks.anomaly import Anomaly
from tests.jepsen.graph.evidence import Evidence
from tests.jepsen.graph.version_order import VersionOrder


def aborted_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """Values that an ok call read though the call that sent them failed."""
    for number, reads in enumerate(evidence.reads):
        if evidence.calls[number].completed.type != "ok":
            continue
        for key, pairs in reads.items():
            writers = evidence.writers.get(key, {})
            for offset, value in pairs:
                writer = writers.get(value)
                if writer is not None and evidence.calls[writer].completed.type == "fail":
                    text = f"{evidence.name(number)} read value {value} of {key}, sent by {evidence.name(writer)}"
                    calls = (writer, number)
                    yield Anomaly(kind="G1a", text=text, key=key, values=(value,), offsets=(offset,), calls=calls)


def precommitted_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """Values that a call both sent and read, however it ended."""
    for number, (reads, writes) in enumerate(zip(evidence.reads, evidence.writes, strict=True)):
        if not reads:
            continue
        for key, sends in writes.items():
            sent = {send.value for send in sends}
            for offset, value in reads.get(key, ()):
                if value in sent:
                    text = f"{evidence.name(number)} sent value {value} to {key} and read it, at offset {offset}"
                    calls, offsets = (number,), (offset,)
                    yield Anomaly(
                        kind="precommitted-read", text=text, key=key, values=(value,), offsets=offsets, calls=calls
                    )


def lost_writes(evidence: Evidence, orders: Mapping[str, VersionOrder]) -> Iterator[Anomaly]:
    """Values that no ok call read, though an ok call read what stands behind them.

    A value that stands at several offsets bounds by its first and is due by its last. Only those are lost whose
    transaction must have been committed: an info of which one value was read owes all the others.
    """
    for key, order in orders.items():
        readers = evidence.readers.get(key)
        if not readers:
            continue
        firsts: dict[int, int] = {}
        lasts: dict[int, int] = {}
        for index, value in order.placed():
            firsts.setdefault(value, index)
            lasts[value] = index
        bounding = max(readers, key=firsts.__getitem__)
        bound, reader = firsts[bounding], readers[bounding]
        for value, index in lasts.items():
            writer = evidence.writers.get(key, {}).get(value)
            if index > bound or value in readers or writer is None or not evidence.took_place[writer]:
                continue
            text = (
                f"{evidence.name(writer)} sent value {value} to {key}; nobody read it, "
                f"but {evidence.name(reader)} read value {bounding}, {bound - index} behind it"
            )
            offsets = (order.offsets[index], order.offsets[bound])
            yield Anomaly(
                kind="lost-write",
                text=text,
                key=key,
                values=(value, bounding),
                offsets=offsets,
                calls=(writer, reader),
            )


def torn_transactions(
    evidence: Evidence, orders: Mapping[str, VersionOrder], lost: Sequence[Anomaly], aborted: Sequence[Anomaly]
) -> Iterator[Anomaly]:
    """Transactions of which one value was read and another is not there.

    That is a lost write of a transaction of which something was read, or an aborted read from a failed transaction
    another value of which was not read although something behind its offset was.
    """
    missing: dict[int, tuple[str, int]] = {each.calls[0]: (each.key, each.values[0]) for each in lost}
    for writer in {each.calls[0] for each in aborted}:
        for key, sends in evidence.writes[writer].items():
            for send in sends:
                if not evidence.is_read(key, send.value) and _is_passed(evidence, orders, key, send.offset):
                    missing[writer] = (key, send.value)
    for writer, (key, value) in missing.items():
        sent = ((each, send.value) for each, sends in evidence.writes[writer].items() for send in sends)
        seen = next((place for place in sent if evidence.is_read(*place)), None)
        if seen is not None:
            text = f"of {evidence.name(writer)} value {seen[1]} of {seen[0]} was read, value {value} of {key} is lost"
            calls = (writer, evidence.readers[seen[0]][seen[1]])
            yield Anomaly(kind="torn-transaction", text=text, key=key, values=(value,), calls=calls)


def unseen(evidence: Evidence) -> Iterator[Anomaly]:
    """Values of calls that took place, acknowledged or half read, that no ok call read until the history ended.

    Weaker than a lost write: nobody read anything behind them, so they may only be late. A history that ends by
    reading everything leaves no such excuse.
    """
    left: dict[str, list[int]] = defaultdict(list)
    for number, writes in enumerate(evidence.writes):
        if evidence.took_place[number]:
            for key, sends in writes.items():
                left[key] += [send.value for send in sends if not evidence.is_read(key, send.value)]
    has_final_read = any(call.completed.final and call.completed.type == "ok" for call in evidence.calls)
    note = "" if has_final_read else " (the history does not end with a read of everything)"
    for key, values in left.items():
        for value in values:
            writer = evidence.writers[key][value]
            text = f"{evidence.name(writer)} sent value {value} to {key}; nobody has read it{note}"
            yield Anomaly(kind="unseen", text=text, key=key, values=(value,), calls=(writer,))


def _is_passed(evidence: Evidence, orders: Mapping[str, VersionOrder], key: str, offset: int | None) -> bool:
    """Whether an ok call read a value that stands behind this offset."""
    order = orders.get(key)
    if offset is None or order is None:
        return False
    readers = evidence.readers.get(key, {})
    return any(order.offsets[index] > offset and value in readers for index, value in order.placed())
