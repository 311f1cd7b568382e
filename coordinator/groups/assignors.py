"""Server-side assignors of consumer groups (KIP-848): which member is to have which partitions.

Rule: pure and deterministic: the same members, topics and previous assignment give the same assignment, in every
process. Each partition of a subscribed topic is given to exactly one of the topic's subscribers.

`uniform` balances before it keeps: members of one subscription differ by one partition at most; where subscriptions
differ, no partition can be moved from a member to a subscriber that has two fewer. Of all that is balanced, it keeps
with each member as much as it can of what it had. `range` gives members, static ones first, runs of each topic's
partitions: topics with as many partitions and the same subscribers are split alike.

Source of the rules: org.apache.kafka.coordinator.group.assignor.UniformAssignor and RangeAssignor, Kafka 4.3.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import chain
from typing import Final

from coordinator.commands.consumer_group_values import Partitions, partitions
from protocol.limits import BALANCING_ROUNDS_MAX
from protocol.types import TopicId

UNIFORM = "uniform"
RANGE = "range"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    instance_id: str | None
    topics: frozenset[TopicId]
    """The subscribed topics that exist."""


_Owned = dict[str, dict[TopicId, list[int]]]
Assignor = Callable[[Mapping[str, Subscriber], Mapping[TopicId, int], Mapping[str, Partitions]], dict[str, Partitions]]
"""Subscribers by member id, partition counts of their topics, and the assignment before; gives who has any what."""


def assign_range(
    subscribers: Mapping[str, Subscriber], counts: Mapping[TopicId, int], _: Mapping[str, Partitions]
) -> dict[str, Partitions]:
    """Runs of each topic, in the order of instance ids, then of the member ids of the others."""
    order = sorted(subscribers, key=lambda member_id: _range_key(member_id, subscribers[member_id].instance_id))
    owned: _Owned = {member_id: {} for member_id in order}
    for members, topics in _by_subscribers(order, subscribers):
        for topic_id in topics:
            quota, extra = divmod(counts[topic_id], len(members))
            first = 0
            for place, member_id in enumerate(members if quota else members[:extra]):
                end = first + quota + (place < extra)
                owned[member_id][topic_id] = list(range(first, end))
                first = end
    return _result(owned)


def _by_subscribers(
    order: Iterable[str], subscribers: Mapping[str, Subscriber]
) -> list[tuple[tuple[str, ...], list[TopicId]]]:
    """Topics in order of their ids, by the members that subscribe to them, which stand in the given order.

    Members that subscribe to the same topics, nearly all of most groups, are looked at once for all of them.
    """
    alike: dict[frozenset[TopicId], list[str]] = {}
    for member_id in order:
        alike.setdefault(subscribers[member_id].topics, []).append(member_id)
    kinds: dict[TopicId, list[int]] = {}
    for kind, topics in enumerate(alike):
        for topic_id in topics:
            kinds.setdefault(topic_id, []).append(kind)
    topics_of: dict[tuple[int, ...], list[TopicId]] = {}
    for topic_id in sorted(kinds):
        topics_of.setdefault(tuple(kinds[topic_id]), []).append(topic_id)
    members_of_kind = list(alike.values())
    places = {member_id: place for place, member_id in enumerate(order)}
    return [
        (
            tuple(sorted(chain.from_iterable(members_of_kind[kind] for kind in subscribed), key=places.__getitem__)),
            topics,
        )
        for subscribed, topics in topics_of.items()
    ]


def _range_key(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return instance_id is None, member_id if instance_id is None else instance_id


def assign_uniform(
    subscribers: Mapping[str, Subscriber], counts: Mapping[TopicId, int], previous: Mapping[str, Partitions]
) -> dict[str, Partitions]:
    """The assignment that is as even as the subscriptions allow, and of those the closest to `previous`."""
    order = sorted(subscribers)
    if not order:
        return {}
    topics = subscribers[order[0]].topics
    # Most often it is one object: comparing it with itself would look at each topic.
    if all(subscribers[member_id].topics is topics or subscribers[member_id].topics == topics for member_id in order):
        return _assign_alike(order, topics, counts, previous)
    return _assign_unlike(order, subscribers, counts, previous)


ASSIGNORS: Final[dict[str, Assignor]] = {UNIFORM: assign_uniform, RANGE: assign_range}
"""Kafka's group.consumer.assignors: the first is taken where members name none."""


def _assign_alike(
    order: list[str], topics: Iterable[TopicId], counts: Mapping[TopicId, int], previous: Mapping[str, Partitions]
) -> dict[str, Partitions]:
    """All members subscribe to the same topics."""
    free = {topic_id: set(range(counts[topic_id])) for topic_id in topics}
    quota, extra = divmod(sum(map(len, free.values())), len(order))
    rows_before = {member_id: _still_there(previous.get(member_id, ()), free) for member_id in order}
    # Those who would lose one by it get the larger shares first: every other choice moves more.
    sizes = {member_id: len(rows) for member_id, rows in rows_before.items()}
    larger = set(sorted(order, key=lambda member_id: (sizes[member_id] <= quota, member_id))[:extra])
    owned: _Owned = {}
    room: deque[tuple[str, int]] = deque()
    for member_id in order:
        limit = quota + (member_id in larger)
        owned[member_id] = {}
        for topic_id, index in rows_before[member_id][:limit]:
            owned[member_id].setdefault(topic_id, []).append(index)
            free[topic_id].discard(index)
        if sizes[member_id] < limit:
            room.append((member_id, limit - sizes[member_id]))
    for topic_id in sorted(free):
        for index in sorted(free[topic_id]):
            member_id, capacity = room.popleft()
            owned[member_id].setdefault(topic_id, []).append(index)
            if capacity > 1:
                room.append((member_id, capacity - 1))
    return _result(owned)


def _still_there(before: Partitions, free: Mapping[TopicId, set[int]]) -> list[tuple[TopicId, int]]:
    return [
        (topic_id, index)
        for topic_id, indexes in before
        if topic_id in free
        for index in indexes
        if index in free[topic_id]
    ]


def _assign_unlike(
    order: list[str],
    subscribers: Mapping[str, Subscriber],
    counts: Mapping[TopicId, int],
    previous: Mapping[str, Partitions],
) -> dict[str, Partitions]:
    """Members differ in what they subscribe to."""
    classes = dict(_by_subscribers(order, subscribers))
    free = {topic_id: set(range(counts[topic_id])) for topics in classes.values() for topic_id in topics}
    owned: _Owned = {member_id: {} for member_id in order}
    loads = dict.fromkeys(order, 0)
    for member_id in order:
        for topic_id, index in _still_there(previous.get(member_id, ()), free):
            if topic_id in subscribers[member_id].topics:
                owned[member_id].setdefault(topic_id, []).append(index)
                free[topic_id].discard(index)
                loads[member_id] += 1
    # What few may have comes first; then the rest evens out what that left uneven.
    for members, topics in sorted(classes.items(), key=lambda row: (len(row[0]), row[0])):
        _deal(members, [(topic_id, index) for topic_id in topics for index in sorted(free[topic_id])], owned, loads)
    rounds_count = 0
    moved_count = 1
    while moved_count and rounds_count < BALANCING_ROUNDS_MAX:
        moved_count = sum(_even_out(members, topics, owned, loads) for members, topics in classes.items())
        rounds_count += 1
    return _result(owned)


def _deal(members: Iterable[str], rows: Iterable[tuple[TopicId, int]], owned: _Owned, loads: dict[str, int]) -> None:
    """Give each partition to the member that has the fewest then."""
    heap = [(loads[member_id], member_id) for member_id in members]
    heapify(heap)
    for topic_id, index in rows:
        load, member_id = heap[0]
        owned[member_id].setdefault(topic_id, []).append(index)
        loads[member_id] = load + 1
        heapreplace(heap, (load + 1, member_id))


def _even_out(members: Iterable[str], topics: list[TopicId], owned: _Owned, loads: dict[str, int]) -> bool:
    """Move partitions of these topics, which the members share, until who has some has no two more than another.

    Gives whether any was moved.
    """
    spare = {member_id: [topic_id for topic_id in topics if owned[member_id].get(topic_id)] for member_id in members}
    takers = [(loads[member_id], member_id) for member_id in spare]
    givers = [(-loads[member_id], member_id) for member_id in spare if spare[member_id]]
    heapify(takers)
    heapify(givers)
    has_moved = False
    # A taker never becomes a giver: it had the fewest of all, and has one more than that.
    while givers and -givers[0][0] - takers[0][0] >= 2:
        more, giver = givers[0]
        fewer, taker = takers[0]
        topic_id = spare[giver][-1]
        owned[taker].setdefault(topic_id, []).append(owned[giver][topic_id].pop())
        if not owned[giver][topic_id]:
            spare[giver].pop()
        loads[giver], loads[taker] = -more - 1, fewer + 1
        heapreplace(takers, (fewer + 1, taker))
        if spare[giver]:
            heapreplace(givers, (more + 1, giver))
        else:
            heappop(givers)
        has_moved = True
    return has_moved


def _result(owned: _Owned) -> dict[str, Partitions]:
    targets = {member_id: partitions(topics) for member_id, topics in sorted(owned.items())}
    return {member_id: target for member_id, target in targets.items() if target}
