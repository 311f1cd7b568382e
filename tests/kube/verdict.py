"""What is wrong with the records of a topic, after a load: pure, so that it can be tested without a cluster."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import NamedTuple

Position = tuple[int, int]
"""Partition and offset of a record."""
SHOWN_MAX = 5
AGAIN_SECONDS_MAX = 60.0
"""After a rebalance a group reads again what it had not committed: a second's records, and those of an outage."""


class Read(NamedTuple):
    """A record as a member of a group got it."""

    at_s: float
    """Monotonic time."""
    position: Position
    value: str


@dataclass(slots=True)
class TopicHistory:
    """What clients saw of a topic. Values are unique in it."""

    topic: str
    sent: list[str] = field(default_factory=list)
    """In the order in which the producer got them."""
    acknowledged: list[tuple[Position, str]] = field(default_factory=list)
    """Only records of committed transactions, where there are transactions."""
    without_offset: set[str] = field(default_factory=set)
    """Acknowledged values of old repeats, whose positions no answer says."""
    aborted: set[str] = field(default_factory=set)
    stored: dict[Position, str] = field(default_factory=dict)
    """All that is there at the end, for a reader of committed records."""
    reads: list[Sequence[Read]] = field(default_factory=list)
    """Those of each member of the group, in its order."""
    committed: dict[int, int] = field(default_factory=dict)
    """The group's offset of each partition, after its members have left."""
    rebalances: int = 0
    """How often a partition was taken away from a member before the end."""


def problems(history: TopicHistory) -> list[str]:
    """Every way in which a topic does not have each acknowledged record once, in its order. A group's members may read
    a record again after a rebalance, and at no other time.
    """
    stored = history.stored
    copies = Counter(stored.values())
    found: dict[str, Sequence[object]] = {
        "acknowledged, and lost": [
            f"{value} at {position}" for position, value in history.acknowledged if stored.get(position) != value
        ],
        "acknowledged without an offset, and lost": sorted(history.without_offset - copies.keys()),
        "stored more than once": [value for value, count in copies.items() if count > 1],
        "stored out of order": list(_out_of_order(history)),
        "aborted, and shown": sorted(history.aborted & copies.keys()),
        "stored, and never sent": sorted(copies.keys() - set(history.sent)),
        **_problems_of_reads(history),
    }
    return [_line(history.topic, what, rows) for what, rows in found.items() if rows]


def _out_of_order(history: TopicHistory) -> Iterator[str]:
    """Neighbours in a partition of which the second was sent before the first."""
    order = {value: number for number, value in enumerate(history.sent)}
    for (before, first), (after, second) in pairwise(sorted(history.stored.items())):
        if before[0] == after[0] and order.get(second, len(order)) < order.get(first, -1):
            yield f"{second} behind {first} at {after}"


def _problems_of_reads(history: TopicHistory) -> Mapping[str, Sequence[object]]:
    reads = sorted(read for member in history.reads for read in member)
    counts = Counter(read.position for read in reads)
    found: dict[str, Sequence[object]] = {
        "acknowledged, and not read by the group": sorted(
            {position for position, _value in history.acknowledged} - counts.keys()
        ),
        "read by the group, and not stored so": [
            f"{read.value} at {read.position}" for read in reads if history.stored.get(read.position) != read.value
        ],
        "committed at another position than read": list(_wrong_commits(history, reads)),
    }
    if history.rebalances:
        first_s: dict[Position, float] = {}
        return {
            **found,
            f"read again after more than {AGAIN_SECONDS_MAX:.0f} s": [
                read.position
                for read in reads
                if read.at_s - first_s.setdefault(read.position, read.at_s) > AGAIN_SECONDS_MAX
            ],
        }
    return {
        **found,
        "read twice without a rebalance": [position for position, count in counts.items() if count > 1],
        "read out of order": [position for member in history.reads for position in _backwards(member)],
    }


def _backwards(reads: Sequence[Read]) -> Iterator[Position]:
    """Positions that a member read after a later one of their partition."""
    newest: dict[int, int] = {}
    for partition, offset in (read.position for read in reads):
        if offset < newest.get(partition, -1):
            yield partition, offset
        newest[partition] = offset


def _wrong_commits(history: TopicHistory, reads: Sequence[Read]) -> Iterator[str]:
    """Partitions that the next member would begin before or behind the first record that no member has read. What a
    commit passes besides are control records. Rebalances change nothing of it: `load` lets members leave when what they
    read is committed.
    """
    ends = {partition: offset + 1 for partition, offset in sorted(read.position for read in reads)}
    for partition, end in ends.items():
        committed = history.committed.get(partition, 0)
        if committed < end or any((partition, offset) in history.stored for offset in range(end, committed)):
            yield f"partition {partition} at {committed}, read up to {end}"


def _line(topic: str, what: str, rows: Sequence[object]) -> str:
    return f"{topic}: {len(rows)} {what}: {', '.join(str(row) for row in islice(rows, SHOWN_MAX))}"
