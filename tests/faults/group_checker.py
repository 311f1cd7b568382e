"""Judges what consumers of one group told: nothing skipped, nothing repeated beyond what at-least-once allows.

Rule: pure. The committed offset of a partition is taken for a register: commits write it, and whoever is given the
partition reads it, between being given it and processing its first record. A commit that was not acknowledged may take
effect at any time after it was sent; one that was has taken effect when it was acknowledged. A read must give a write
that was sent before the read ended, and that no other write had wholly come after before the read began.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.faults.group_history import Commit, GroupHistory, Processed, Stint
from tests.torture.checker import Anomaly


def check_group(history: GroupHistory, ends: Sequence[int]) -> list[Anomaly]:
    """What is wrong with a group that should have read every partition up to its end."""
    anomalies = [Anomaly(kind="wrong", text=text) for text in history.wrong]
    for partition, end in enumerate(ends):
        stints, commits = history.stints.get(partition, []), history.commits.get(partition, [])
        anomalies += _skipped(partition, stints, end)
        anomalies += _torn(stints)
        anomalies += _begun_elsewhere(stints, commits)
        anomalies += _fenced(stints, commits)
    if history.has_generations:
        anomalies += _given_twice(history)
    return [*anomalies, *_gone_back(history)]


def explains(offset: int, commits: Sequence[Commit], *, began_us: float, ended_us: float) -> bool:
    """Whether a read of the committed offset in this time may give `offset`; 0 is what it gives before any commit."""
    writes: list[tuple[float, float]] = [
        (commit.sent_us, _known_us(commit)) for commit in commits if commit.offset == offset
    ]
    if offset == 0:
        writes.append((-math.inf, -math.inf))
    acknowledged = [commit for commit in commits if commit.acknowledged_us is not None]
    return any(
        sent_us <= ended_us
        and not any(later.sent_us > known_us and _known_us(later) < began_us for later in acknowledged)
        for sent_us, known_us in writes
    )


def processed_again(history: GroupHistory) -> int:
    """How many records were processed more than once, each time but the first."""
    count = 0
    for stints in history.stints.values():
        reached = 0
        for processed in _in_order(stints):
            count += max(0, min(reached, processed.end) - processed.first)
            reached = max(reached, processed.end)
    return count


def _known_us(commit: Commit) -> float:
    """From when on it has surely taken effect, if it ever does."""
    return math.inf if commit.acknowledged_us is None else commit.acknowledged_us


def _in_order(stints: Sequence[Stint]) -> list[Processed]:
    """What all members processed of a partition, in time."""
    return sorted((each for stint in stints for each in stint.processed), key=lambda each: (each.us, each.first))


def _skipped(partition: int, stints: Sequence[Stint], end: int) -> Iterator[Anomaly]:
    reached = 0
    for processed in _in_order(stints):
        if processed.first > reached:
            text = f"partition {partition}: {processed.first} was processed before {reached} was"
            yield Anomaly(kind="skipped", text=text)
        reached = max(reached, processed.end)
    if reached < end:
        yield Anomaly(kind="skipped", text=f"partition {partition}: processed up to {reached}, the end is {end}")


def _torn(stints: Sequence[Stint]) -> Iterator[Anomaly]:
    for stint in stints:
        for before, after in pairwise(stint.processed):
            if after.first != before.end:
                text = f"{_text(stint)}: {after.first} came after {before.end - 1}"
                yield Anomaly(kind="torn", text=text)


def _begun_elsewhere(stints: Sequence[Stint], commits: Sequence[Commit]) -> Iterator[Anomaly]:
    for stint in (stint for stint in stints if stint.processed):
        first = stint.processed[0]
        if not explains(first.first, commits, began_us=stint.began_us, ended_us=first.us):
            known = [commit.offset for commit in commits if _known_us(commit) < stint.began_us]
            text = f"{_text(stint)} began at {first.first}; {known[-3:]} were acknowledged before"
            yield Anomaly(kind="begun elsewhere", text=text)


def _fenced(stints: Sequence[Stint], commits: Sequence[Commit]) -> Iterator[Anomaly]:
    """Commits that count although the partition was in another member's hands already when they were sent."""
    for commit in (commit for commit in commits if commit.acknowledged_us is not None):
        own = commit.stint
        if own is None:
            text = f"{commit.consumer} committed {commit.offset} of partition {commit.partition}, which it had lost"
            yield Anomaly(kind="not fenced", text=text)
            continue
        for other in stints:
            is_other = other.consumer != own.consumer and other.began_us > own.began_us
            if is_other and other.processed and other.processed[0].us < commit.sent_us:
                text = f"{_text(own)} committed {commit.offset} at {commit.sent_us} after {_text(other)} had begun"
                yield Anomaly(kind="not fenced", text=text)


def _given_twice(history: GroupHistory) -> Iterator[Anomaly]:
    """In one generation a partition is one member's."""
    holders: dict[tuple[int, int], str] = {}
    for stint in (stint for stints in history.stints.values() for stint in stints if stint.generation >= 0):
        holder = holders.setdefault((stint.generation, stint.partition), stint.consumer)
        if holder != stint.consumer:
            yield Anomaly(kind="given twice", text=f"{_text(stint)} in generation {stint.generation}, and {holder}")


def _gone_back(history: GroupHistory) -> Iterator[Anomaly]:
    for consumer, generations in history.generations.items():
        for before, after in pairwise(generations):
            if after < before:
                yield Anomaly(kind="generation went back", text=f"{consumer}: {after} after {before}")


def _text(stint: Stint) -> str:
    return f"{stint.consumer} with partition {stint.partition} since {stint.began_us}"
