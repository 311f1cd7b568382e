"""The server-side assignors: what `uniform` and `range` make of small groups, by hand."""

from collections.abc import Iterable, Mapping

from coordinator.commands.consumer_group_values import Partitions
from coordinator.groups.assignors import ASSIGNORS, Subscriber, assign_range, assign_uniform
from protocol.types import TopicId
from tests.support.groups.consumer_groups import owned, topic_id


def subscribers(**topics: Iterable[str]) -> dict[str, Subscriber]:
    """Dynamic members, each with its topics."""
    return {
        member_id: Subscriber(instance_id=None, topics=frozenset(map(topic_id, names)))
        for member_id, names in topics.items()
    }


def counts(**topics: int) -> dict[TopicId, int]:
    return {topic_id(name): count for name, count in topics.items()}


def sizes(targets: Mapping[str, Partitions]) -> dict[str, int]:
    return {member_id: sum(len(indexes) for _, indexes in found) for member_id, found in targets.items()}


def test_the_default_comes_first() -> None:
    assert list(ASSIGNORS) == ["uniform", "range"]


class TestRange:
    """Source: org.apache.kafka.coordinator.group.assignor.RangeAssignor."""

    def test_each_topic_is_split_into_runs_in_the_order_of_member_ids(self) -> None:
        found = assign_range(subscribers(b="tu", a="tu"), counts(t=3, u=3), {})
        assert found == {"a": owned(t=[0, 1], u=[0, 1]), "b": owned(t=[2], u=[2])}

    def test_static_members_come_first_in_the_order_of_their_instances(self) -> None:
        members = subscribers(a="t", z="t", y="t")
        members["z"] = Subscriber(instance_id="1", topics=members["z"].topics)
        members["y"] = Subscriber(instance_id="2", topics=members["y"].topics)
        found = assign_range(members, counts(t=3), {})
        assert found == {"z": owned(t=[0]), "y": owned(t=[1]), "a": owned(t=[2])}

    def test_members_that_get_nothing_are_left_out(self) -> None:
        assert assign_range(subscribers(a="t", b="t", c=""), counts(t=1), {}) == {"a": owned(t=[0])}

    def test_a_topic_is_split_between_its_subscribers_alone(self) -> None:
        found = assign_range(subscribers(a="t", b="tu"), counts(t=2, u=2), {})
        assert found == {"a": owned(t=[0]), "b": owned(t=[1], u=[0, 1])}


class TestUniformAlike:
    """Source: org.apache.kafka.coordinator.group.assignor.UniformHomogeneousAssignmentBuilder."""

    def test_nobody_gets_nothing(self) -> None:
        assert assign_uniform({}, {}, {}) == {}

    def test_members_differ_by_one_at_most(self) -> None:
        found = assign_uniform(subscribers(a="tu", b="tu", c="tu"), counts(t=5, u=3), {})
        assert sizes(found) == {"a": 3, "b": 3, "c": 2}

    def test_topics_are_spread_over_members(self) -> None:
        found = assign_uniform(subscribers(a="tu", b="tu"), counts(t=2, u=2), {})
        assert found == {"a": owned(t=[0], u=[0]), "b": owned(t=[1], u=[1])}

    def test_a_member_that_comes_takes_no_more_than_its_share(self) -> None:
        before = {"a": owned(t=[0, 1, 2]), "b": owned(t=[3, 4, 5])}
        found = assign_uniform(subscribers(a="t", b="t", c="t"), counts(t=6), before)
        assert found == {"a": owned(t=[0, 1]), "b": owned(t=[3, 4]), "c": owned(t=[2, 5])}

    def test_a_member_that_leaves_is_shared_out_and_nothing_else_moves(self) -> None:
        before = {"a": owned(t=[0, 1]), "b": owned(t=[2, 3]), "c": owned(t=[4, 5])}
        found = assign_uniform(subscribers(a="t", b="t"), counts(t=6), before)
        assert found == {"a": owned(t=[0, 1, 4]), "b": owned(t=[2, 3, 5])}

    def test_who_has_the_larger_share_keeps_it(self) -> None:
        before = {"a": owned(t=[0]), "b": owned(t=[1, 2])}
        assert assign_uniform(subscribers(a="t", b="t"), counts(t=3), before) == before

    def test_what_is_gone_is_not_kept(self) -> None:
        before = {"a": owned(t=[0, 1, 2, 3], gone=[0])}
        found = assign_uniform(subscribers(a="t"), counts(t=2), before)
        assert found == {"a": owned(t=[0, 1])}


class TestUniformUnlike:
    """Source: org.apache.kafka.coordinator.group.assignor.UniformHeterogeneousAssignmentBuilder."""

    def test_who_may_have_more_gets_less_of_what_others_may_have(self) -> None:
        found = assign_uniform(subscribers(a="t", b="tu"), counts(t=4, u=2), {})
        assert found == {"a": owned(t=[0, 1, 2]), "b": owned(t=[3], u=[0, 1])}

    def test_what_cannot_be_balanced_stays_unbalanced(self) -> None:
        found = assign_uniform(subscribers(a="t", b="u"), counts(t=5, u=1), {})
        assert sizes(found) == {"a": 5, "b": 1}

    def test_partitions_move_until_no_subscriber_has_two_fewer(self) -> None:
        before = {"a": owned(t=[0, 1, 2, 3])}
        found = assign_uniform(subscribers(a="t", b="t", c="tu"), counts(t=4, u=2), before)
        assert sizes(found) == {"a": 2, "b": 2, "c": 2}
        assert found["a"] == owned(t=[0, 1])

    def test_a_member_keeps_nothing_of_what_it_does_not_subscribe_to_any_more(self) -> None:
        before = {"a": owned(t=[0], u=[0]), "b": owned(t=[1])}
        found = assign_uniform(subscribers(a="t", b="tu"), counts(t=2, u=1), before)
        assert found == {"a": owned(t=[0]), "b": owned(t=[1], u=[0])}

    def test_what_moves_away_entirely_is_not_moved_again(self) -> None:
        before = {"a": owned(t=[0], u=[0, 1, 2])}
        found = assign_uniform(subscribers(a="tu", b="t", c="u"), counts(t=1, u=3), before)
        assert sizes(found) == {"a": 2, "b": 1, "c": 1} or sizes(found) == {"a": 1, "b": 1, "c": 2}
