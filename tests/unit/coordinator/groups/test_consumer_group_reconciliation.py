"""One step of a member towards its target, for every state and whatever the member says.

Source of the table: org.apache.kafka.coordinator.group.modern.consumer.CurrentAssignmentBuilder (Kafka 4.3).
"""

from collections.abc import Iterable, Mapping

import pytest

from coordinator.commands.consumer_group_values import MemberAssignment, MemberState, OwnedPartitions, Partitions
from coordinator.commands.consumer_group_values import owned as with_epochs
from coordinator.groups.consumer_group_reconciliation import Aim, has_only, reconcile
from protocol.types import PartitionIndex, TopicId
from tests.support.groups.consumer_groups import owned, topic_id

STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS
T = topic_id("t")


def epochs(found: Mapping[int, int], topic: TopicId = T) -> OwnedPartitions:
    """Partitions of a topic with their epochs."""
    return with_epochs({topic: {PartitionIndex(index): epoch for index, epoch in found.items()}})


def standing(
    state: MemberState, epoch: int, assigned: Mapping[int, int], revoking: Mapping[int, int] | None = None
) -> MemberAssignment:
    return MemberAssignment(
        epoch=epoch, previous_epoch=epoch - 1, state=state, assigned=epochs(assigned), revoking=epochs(revoking or {})
    )


def aim(
    epoch: int,
    target: Iterable[int],
    *,
    taken: Iterable[int] = (),
    subscribed: Iterable[str] = ("t",),
    has_changed: bool = False,
) -> Aim:
    """A target of the topic `t`, of which others have what is `taken`."""
    topics = frozenset(map(topic_id, subscribed))
    others = set(taken)
    return Aim(
        epoch=epoch,
        target=owned(t=target),
        subscribed=lambda: topics,
        has_changed=has_changed,
        is_free=lambda topic, index: topic != T or index not in others,
    )


SAYINGS: Mapping[str, Partitions | None] = {"nothing": None, "has none": (), "has 1": owned(t=[1])}


class TestStable:
    def test_at_the_target_epoch_nothing_is_done(self) -> None:
        before = standing(STABLE, 5, {1: 4})
        for said in SAYINGS.values():
            assert reconcile(before, aim(5, [1, 2]), said) is before

    def test_partitions_that_are_free_are_taken_in_the_targets_epoch(self) -> None:
        after = reconcile(standing(STABLE, 5, {1: 4}), aim(6, [1, 2]), None)
        assert after == MemberAssignment(
            epoch=6, previous_epoch=5, state=STABLE, assigned=epochs({1: 4, 2: 6}), revoking=()
        )

    def test_what_others_still_have_is_waited_for_in_the_targets_epoch(self) -> None:
        after = reconcile(standing(STABLE, 5, {}), aim(6, [1, 2], taken=[2]), None)
        assert (after.epoch, after.state, after.assigned) == (6, UNRELEASED, epochs({1: 6}))

    def test_nothing_but_what_others_have_is_waited_for_too(self) -> None:
        after = reconcile(standing(STABLE, 5, {}), aim(6, [2], taken=[2]), None)
        assert (after.epoch, after.state, after.assigned) == (6, UNRELEASED, ())

    @pytest.mark.parametrize("saying", ["nothing", "has 1"])
    def test_what_is_to_go_is_given_up_first_in_the_old_epoch(self, saying: str) -> None:
        after = reconcile(standing(STABLE, 5, {1: 4, 2: 5}), aim(6, [2, 3]), SAYINGS[saying])
        assert after == MemberAssignment(
            epoch=5, previous_epoch=4, state=UNREVOKED, assigned=epochs({2: 5}), revoking=epochs({1: 4})
        )

    def test_what_the_member_does_not_have_any_more_need_not_be_given_up(self) -> None:
        after = reconcile(standing(STABLE, 5, {1: 4, 2: 5}), aim(6, [2, 3]), ())
        assert (after.epoch, after.state, after.assigned) == (6, STABLE, epochs({2: 5, 3: 6}))

    def test_a_target_of_topics_that_it_does_not_subscribe_to_is_none(self) -> None:
        after = reconcile(standing(STABLE, 5, {}), aim(6, [1], subscribed=["u"]), None)
        assert (after.epoch, after.state, after.assigned) == (6, STABLE, ())


class TestStableWithAnotherSubscription:
    def test_topics_that_it_left_are_given_up_before_the_target_says_so(self) -> None:
        before = standing(STABLE, 5, {1: 4})
        after = reconcile(before, aim(5, [1], subscribed=["u"], has_changed=True), None)
        assert (after.epoch, after.state, after.assigned, after.revoking) == (5, UNREVOKED, (), epochs({1: 4}))

    def test_what_it_has_let_go_already_is_simply_gone(self) -> None:
        before = standing(STABLE, 5, {1: 4})
        after = reconcile(before, aim(5, [1], subscribed=["u"], has_changed=True), ())
        assert (after.epoch, after.state, after.assigned, after.revoking) == (5, STABLE, (), ())

    def test_while_it_subscribes_to_all_that_it_has_nothing_is_done(self) -> None:
        before = standing(STABLE, 5, {1: 4})
        assert reconcile(before, aim(5, [1], subscribed=["t", "u"], has_changed=True), None) is before


class TestUnrevoked:
    @pytest.mark.parametrize("saying", ["nothing", "has 1"])
    @pytest.mark.parametrize("target_epoch", [5, 6, 9])
    def test_it_waits_while_the_member_has_what_is_to_go(self, saying: str, target_epoch: int) -> None:
        before = standing(UNREVOKED, 5, {2: 5}, {1: 4})
        assert reconcile(before, aim(target_epoch, [2, 3]), SAYINGS[saying]) is before

    def test_once_it_is_gone_the_member_comes_to_the_target(self) -> None:
        after = reconcile(standing(UNREVOKED, 5, {2: 5}, {1: 4}), aim(9, [2, 3]), owned(t=[2]))
        assert after == MemberAssignment(
            epoch=9, previous_epoch=5, state=STABLE, assigned=epochs({2: 5, 3: 9}), revoking=()
        )

    def test_what_it_gave_up_it_may_get_again_at_once(self) -> None:
        after = reconcile(standing(UNREVOKED, 5, {2: 5}, {1: 4}), aim(9, [1, 2]), owned(t=[2]))
        assert (after.epoch, after.state, after.assigned) == (9, STABLE, epochs({1: 9, 2: 5}))

    def test_a_target_that_moved_on_may_want_more_of_it(self) -> None:
        after = reconcile(standing(UNREVOKED, 5, {2: 5}, {1: 4}), aim(9, [3]), owned(t=[2]))
        assert (after.epoch, after.state, after.revoking) == (5, UNREVOKED, epochs({2: 5}))

    def test_another_subscription_adds_to_what_is_to_go(self) -> None:
        before = standing(UNREVOKED, 5, {2: 5}, {1: 4})
        after = reconcile(before, aim(9, [2], subscribed=["u"], has_changed=True), None)
        assert (after.state, after.assigned, after.revoking) == (UNREVOKED, (), epochs({1: 4, 2: 5}))

    def test_another_subscription_to_the_same_topics_adds_nothing(self) -> None:
        before = standing(UNREVOKED, 5, {2: 5}, {1: 4})
        assert reconcile(before, aim(9, [2], subscribed=["t"], has_changed=True), None) is before


class TestUnreleased:
    @pytest.mark.parametrize("saying", sorted(SAYINGS))
    def test_it_takes_what_has_become_free(self, saying: str) -> None:
        after = reconcile(standing(UNRELEASED, 5, {}), aim(5, [1, 2], taken=[2]), SAYINGS[saying])
        assert (after.state, after.assigned) == (UNRELEASED, epochs({1: 5}))
        last = reconcile(after, aim(5, [1, 2]), SAYINGS[saying])
        assert (last.state, last.assigned) == (STABLE, epochs({1: 5, 2: 5}))

    def test_while_nothing_becomes_free_nothing_changes(self) -> None:
        before = standing(UNRELEASED, 5, {1: 5})
        assert reconcile(before, aim(5, [1, 2], taken=[2]), None) == before

    def test_a_later_target_may_take_from_it_first(self) -> None:
        after = reconcile(standing(UNRELEASED, 5, {1: 5}), aim(6, [2], taken=[2]), None)
        assert (after.epoch, after.state, after.revoking) == (5, UNREVOKED, epochs({1: 5}))


class TestWhatAMemberSaysItHas:
    def test_who_says_nothing_may_have_anything(self) -> None:
        assert not has_only(None, epochs({1: 4}))

    def test_less_than_its_own_is_its_own(self) -> None:
        assert has_only((), epochs({1: 4}))
        assert has_only(owned(t=[1]), epochs({1: 4, 2: 4}))

    def test_more_than_its_own_is_not(self) -> None:
        assert not has_only(owned(t=[1, 3]), epochs({1: 4}))
        assert not has_only(owned(u=[1]), epochs({1: 4}))
