"""What is wrong with the records of a topic, after a load: pure, so that it can be tested without a cluster."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

Position = tuple[int, int]
"""Partition and offset of a record."""
SHOWN_MAX = 5


@dataclass(slots=True)
class TopicHistory:
    """What clients saw of a topic. Values are unique in it."""

    topic: str
    sent: set[str] = field(default_factory=set)
    acknowledged: dict[Position, str] = field(default_factory=dict)
    """Only records of committed transactions, where there are transactions."""
    without_offset: set[str] = field(default_factory=set)
    """Acknowledged values of old repeats, whose positions no answer says."""
    aborted: set[str] = field(default_factory=set)
    stored: dict[Position, str] = field(default_factory=dict)
    """All that is there at the end, for a reader of committed records."""
    reads: list[Position] = field(default_factory=list)
    """Those of all members of the group."""
    rebalances: int = 0
    """How often a partition was taken away from a member before the end."""


def problems(history: TopicHistory) -> list[str]:
    """Every way in which a topic does not have each acknowledged record once. A group's members may read a record
    again after a rebalance, and at no other time.
    """
    stored = history.stored
    copies = Counter(stored.values())
    reads = Counter(history.reads)
    found: dict[str, Sequence[object]] = {
        "acknowledged, and lost": [
            f"{value} at {position}"
            for position, value in history.acknowledged.items()
            if stored.get(position) != value
        ],
        "acknowledged without an offset, and lost": sorted(history.without_offset - copies.keys()),
        "stored more than once": [value for value, count in copies.items() if count > 1],
        "aborted, and shown": sorted(history.aborted & copies.keys()),
        "stored, and never sent": sorted(copies.keys() - history.sent),
        "acknowledged, and not read by the group": sorted(history.acknowledged.keys() - reads.keys()),
        "read twice without a rebalance": [
            position for position, count in reads.items() if count > 1 and history.rebalances == 0
        ],
    }
    return [_line(history.topic, what, rows) for what, rows in found.items() if rows]


def _line(topic: str, what: str, rows: Sequence[object]) -> str:
    return f"{topic}: {len(rows)} {what}: {', '.join(str(row) for row in islice(rows, SHOWN_MAX))}"
