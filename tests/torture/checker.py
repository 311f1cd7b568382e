"""Judges a run: what was acknowledged against what is there and what readers saw.

Rule: the definitions are Jepsen's (workload "kafka"), for producers whose values are unique and readers that began at
offset 0 and never moved: without transactions and retention the offsets of a partition have no gaps. Every anomaly
names the record.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.torture.history import UNKNOWN_OFFSET, Consumed, Produced, Read, Value

SHOWN_MAX = 5
HIDING_ERRORS = ("OFFSET_OUT_OF_RANGE", "OffsetOutOfRange", "_AUTO_OFFSET_RESET", "NoOffsetForPartition", "DATA_LOSS")
"""A reader that asked for an offset below the end was told that it does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """What a client must never see.

    `kind`: lost, hidden, duplicated, reordered, inconsistent offset, spurious offset 0, phantom, skipped, read again,
    out of range, given up; the runner adds what became of processes and of time.
    """

    kind: str
    text: str


def check(produced: Produced, finals: Mapping[str, Sequence[Read]], readers: Mapping[str, Consumed]) -> list[Anomaly]:
    """Every anomaly of a run that is over.

    `finals`: all records, read at the end from offset 0 to the log end through each agent. `readers`: what the
    clients saw while the faults lasted.
    """
    anomalies = [
        *_given_up(produced),
        *_inconsistent(produced, finals, readers),
        *_missing(produced, finals),
        *_phantoms(produced, finals, readers),
    ]
    for name, reads in finals.items():
        anomalies += [*_duplicated(name, reads), *_reordered(name, reads), *_steps(f"agent {name}", reads)]
    for name, consumed in readers.items():
        anomalies += [*_steps(f"reader {name}", consumed.reads), *_out_of_range(name, consumed)]
        anomalies += _unread(name, consumed, produced)
    return anomalies


def _given_up(produced: Produced) -> Iterable[Anomaly]:
    """Producers that go on for minutes must not be told that a record failed, for no fault lasts as long."""
    for value, error in produced.given_up.items():
        yield Anomaly(kind="given up", text=f"{value}: {error}")


def _inconsistent(
    produced: Produced, finals: Mapping[str, Sequence[Read]], readers: Mapping[str, Consumed]
) -> Iterable[Anomaly]:
    """Two values at one offset: told to a producer, read by a reader or in the end."""
    seen: dict[tuple[int, int], set[Value]] = defaultdict(set)
    for reads in (*finals.values(), *(consumed.reads for consumed in readers.values())):
        for read in reads:
            seen[read.partition, read.offset].add(read.value)
    for value, offset in produced.acknowledged.items():
        if offset == UNKNOWN_OFFSET:
            continue
        there = seen[value.partition, offset]
        if offset < 0 or (there and value not in there):
            kind = "spurious offset 0" if offset == 0 else "inconsistent offset"
            yield Anomaly(kind=kind, text=f"{value} was told offset {offset}, where {_some(there)} stands")
    for (partition, offset), values in seen.items():
        if len(values) > 1:
            yield Anomaly(kind="inconsistent offset", text=f"partition {partition} offset {offset}: {_some(values)}")


def _missing(produced: Produced, finals: Mapping[str, Sequence[Read]]) -> Iterable[Anomaly]:
    """Acknowledged and nowhere is lost; acknowledged and not readable through some agent is hidden."""
    found = {name: {read.value for read in reads} for name, reads in finals.items()}
    anywhere = set[Value]().union(*found.values())
    for value, offset in produced.acknowledged.items():
        if value not in anywhere:
            yield Anomaly(kind="lost", text=f"{value}, acknowledged at offset {offset}")
            continue
        for name, values in found.items():
            if value not in values:
                yield Anomaly(kind="hidden", text=f"{value}, acknowledged at offset {offset}, through agent {name}")


def _phantoms(
    produced: Produced, finals: Mapping[str, Sequence[Read]], readers: Mapping[str, Consumed]
) -> Iterable[Anomaly]:
    for reads in (*finals.values(), *(consumed.reads for consumed in readers.values())):
        for read in reads:
            if read.value not in produced.sent or read.value.partition != read.partition:
                yield Anomaly(kind="phantom", text=f"{read.value} in partition {read.partition}, which nobody sent")


def _duplicated(name: str, reads: Sequence[Read]) -> Iterable[Anomaly]:
    offsets: dict[Value, set[int]] = defaultdict(set)
    for read in reads:
        offsets[read.value].add(read.offset)
    for value, places in offsets.items():
        if len(places) > 1:
            yield Anomaly(kind="duplicated", text=f"{value} at offsets {sorted(places)}, through agent {name}")


def _reordered(name: str, reads: Sequence[Read]) -> Iterable[Anomaly]:
    """One producer's values of one partition come in the order in which they were sent."""
    last: dict[tuple[str, int], Read] = {}
    for read in sorted(reads, key=lambda each: (each.partition, each.offset)):
        key = (read.value.producer, read.partition)
        before = last.get(key)
        if before is not None and before.value.counter > read.value.counter:
            text = f"{read.value} at offset {read.offset} after {before.value} at {before.offset}, through agent {name}"
            yield Anomaly(kind="reordered", text=text)
        last[key] = read


def _steps(name: str, reads: Sequence[Read]) -> Iterable[Anomaly]:
    """A reader's next offset is its last one plus one."""
    position: dict[int, int] = defaultdict(int)
    for read in reads:
        wanted = position[read.partition]
        if read.offset != wanted:
            kind = "skipped" if read.offset > wanted else "read again"
            text = f"{name}, partition {read.partition}: offset {read.offset} came where {wanted} was next"
            yield Anomaly(kind=kind, text=text)
        position[read.partition] = read.offset + 1


def _out_of_range(name: str, consumed: Consumed) -> Iterable[Anomaly]:
    for error, count in consumed.errors.items():
        if any(hiding in error for hiding in HIDING_ERRORS):
            yield Anomaly(kind="out of range", text=f"reader {name} was told {error} {count} times")


def _unread(name: str, consumed: Consumed, produced: Produced) -> Iterable[Anomaly]:
    """Jepsen's "unseen": what a reader that could go on to the end did not see."""
    seen = {read.value for read in consumed.reads}
    for value, offset in produced.acknowledged.items():
        if value not in seen:
            yield Anomaly(kind="hidden", text=f"{value}, acknowledged at offset {offset}, from reader {name}")


def _some(values: Iterable[Value]) -> str:
    return ", ".join(sorted(map(str, values))[:SHOWN_MAX])
