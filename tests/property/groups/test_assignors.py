"""Whatever members, topics and former assignments: each partition has one owner, shares are even, little moves."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.commands.consumer_group_values import Partitions
from coordinator.groups.assignors import ASSIGNORS, RANGE, UNIFORM, Subscriber
from protocol.types import TopicId
from tests.support.groups.consumer_groups import topic_id

TOPICS = tuple(topic_id(name) for name in "tuvw")
MEMBERS = tuple("abcdefg")

subscriptions = st.dictionaries(st.sampled_from(MEMBERS), st.frozensets(st.sampled_from(TOPICS)), max_size=7)
same_subscriptions = st.builds(
    dict.fromkeys, st.lists(st.sampled_from(MEMBERS), unique=True, max_size=7), st.frozensets(st.sampled_from(TOPICS))
)
topic_counts = st.fixed_dictionaries({found: st.integers(1, 9) for found in TOPICS})
names = st.sampled_from(sorted(ASSIGNORS))


def assign(
    name: str,
    topics_of: Mapping[str, frozenset[TopicId]],
    counts: Mapping[TopicId, int],
    previous: Mapping[str, Partitions] | None = None,
) -> dict[str, Partitions]:
    subscribers = {
        member_id: Subscriber(instance_id=member_id if member_id < "c" else None, topics=topics)
        for member_id, topics in topics_of.items()
    }
    return ASSIGNORS[name](subscribers, counts, previous or {})


def pairs(targets: Mapping[str, Partitions]) -> list[tuple[TopicId, int]]:
    return [(found, index) for rows in targets.values() for found, indexes in rows for index in indexes]


def load(targets: Mapping[str, Partitions], member_id: str) -> int:
    return sum(len(indexes) for _, indexes in targets.get(member_id, ()))


@given(names, subscriptions | same_subscriptions, topic_counts, subscriptions, topic_counts)
def test_each_partition_that_somebody_wants_is_one_subscribers(
    name: str,
    topics_of: Mapping[str, frozenset[TopicId]],
    counts: Mapping[TopicId, int],
    former: Mapping[str, frozenset[TopicId]],
    former_counts: Mapping[TopicId, int],
) -> None:
    previous = assign(name, former, former_counts)
    targets = assign(name, topics_of, counts, previous)
    wanted = frozenset[TopicId]().union(*topics_of.values())
    assert sorted(pairs(targets)) == sorted((found, index) for found in wanted for index in range(counts[found]))
    for member_id, rows in targets.items():
        assert rows
        assert {found for found, _ in rows} <= topics_of[member_id]
        assert list(rows) == sorted((found, tuple(sorted(indexes))) for found, indexes in rows)


@given(same_subscriptions, topic_counts, same_subscriptions, topic_counts)
def test_uniform_gives_members_of_one_subscription_the_same_but_for_one(
    topics_of: Mapping[str, frozenset[TopicId]],
    counts: Mapping[TopicId, int],
    former: Mapping[str, frozenset[TopicId]],
    former_counts: Mapping[TopicId, int],
) -> None:
    targets = assign(UNIFORM, topics_of, counts, assign(UNIFORM, former, former_counts))
    loads = [load(targets, member_id) for member_id in topics_of]
    assert max(loads, default=0) - min(loads, default=0) <= 1


@given(subscriptions, topic_counts, subscriptions, topic_counts)
def test_uniform_leaves_nothing_that_one_move_would_balance(
    topics_of: Mapping[str, frozenset[TopicId]],
    counts: Mapping[TopicId, int],
    former: Mapping[str, frozenset[TopicId]],
    former_counts: Mapping[TopicId, int],
) -> None:
    targets = assign(UNIFORM, topics_of, counts, assign(UNIFORM, former, former_counts))
    for giver, rows in targets.items():
        for found, _ in rows:
            for taker, topics in topics_of.items():
                assert found not in topics or load(targets, giver) - load(targets, taker) < 2


@given(same_subscriptions, topic_counts, st.sampled_from(MEMBERS))
def test_uniform_moves_nothing_between_members_that_stay(
    topics_of: Mapping[str, frozenset[TopicId]], counts: Mapping[TopicId, int], leaver: str
) -> None:
    before = assign(UNIFORM, topics_of, counts)
    staying = {member_id: topics for member_id, topics in topics_of.items() if member_id != leaver}
    after = assign(UNIFORM, staying, counts, before)
    for member_id in staying:
        assert set(pairs({"": before.get(member_id, ())})) <= set(pairs({"": after.get(member_id, ())}))


@given(same_subscriptions, topic_counts, st.sampled_from(MEMBERS))
def test_uniform_gives_a_member_that_comes_its_share_and_moves_nothing_else(
    topics_of: Mapping[str, frozenset[TopicId]], counts: Mapping[TopicId, int], comer: str
) -> None:
    topics = next(iter(topics_of.values()), frozenset[TopicId]())
    there = {member_id: topics for member_id in topics_of if member_id != comer}
    before = assign(UNIFORM, there, counts)
    after = assign(UNIFORM, {**there, comer: topics}, counts, before)
    for member_id in there:
        assert set(pairs({"": after.get(member_id, ())})) <= set(pairs({"": before.get(member_id, ())}))


@given(names, subscriptions | same_subscriptions, topic_counts)
def test_an_assignment_that_is_made_again_stays_as_it_is(
    name: str, topics_of: Mapping[str, frozenset[TopicId]], counts: Mapping[TopicId, int]
) -> None:
    once = assign(name, topics_of, counts)
    assert assign(name, topics_of, counts, once) == once
    backwards = dict(reversed(list(topics_of.items())))
    assert assign(name, backwards, counts, once) == once


@given(same_subscriptions, st.integers(1, 9))
def test_range_gives_a_member_the_same_of_topics_that_are_alike(
    topics_of: Mapping[str, frozenset[TopicId]], count: int
) -> None:
    targets = assign(RANGE, topics_of, dict.fromkeys(TOPICS, count))
    for rows in targets.values():
        assert len({indexes for _, indexes in rows}) == 1
        assert all(indexes == tuple(range(indexes[0], indexes[-1] + 1)) for _, indexes in rows)


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_a_thousand_members_and_ten_thousand_partitions_are_assigned(name: str) -> None:
    topics = frozenset(TOPICS)
    counts = dict.fromkeys(TOPICS, 2_500)
    members = {f"member-{number}": topics for number in range(1_000)}
    before = assign(name, members, counts)
    members["one more"] = topics
    after = assign(name, members, counts, before)
    assert len(pairs(after)) == 10_000
    assert load(after, "one more") in (9, 10, 8, 12)
