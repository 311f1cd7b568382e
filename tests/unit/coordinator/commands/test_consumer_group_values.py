"""The rows of a consumer group: what replaying them makes of it, and which of them no coordinator can have made."""

from dataclasses import replace
from functools import partial

import pytest

from coordinator.codec.consumer_group_wire import consumer_group_to_wire
from coordinator.commands.commands import Proposal
from coordinator.commands.consumer_group_values import (
    NEW_MEMBER,
    AssignmentRow,
    ConsumerGroup,
    ConsumerGroupChange,
    ConsumerMember,
    GroupPhase,
    MemberAssignment,
    MemberState,
    rejection,
    replay,
)
from coordinator.commands.group import WriteConsumerGroup
from tests.support.commands.entries import decode, encode
from tests.support.groups.consumer_groups import Coordinated, beat, owned

ASSIGNMENT = MemberAssignment(epoch=2, previous_epoch=0, state=MemberState.STABLE, assigned=(), revoking=())
ROW = AssignmentRow.of("a", ASSIGNMENT)


def member(member_id: str) -> ConsumerMember:
    return ConsumerMember(
        member_id=member_id,
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=1,
        subscribed_names=("t",),
        subscribed_regex="",
        server_assignor=None,
    )


change = partial(ConsumerGroupChange, epoch=2, target_epoch=2, topics_hash=b"h")


def group_of_a() -> ConsumerGroup:
    rows = change(
        is_new=True,
        members=(member("a"),),
        assignments=(ROW,),
        targets=(("a", owned(t=[0])),),
        regexes=(("x", ("t",)),),
    )
    assert rejection(None, rows) is None
    return replay(None, rows)


class TestReplay:
    def test_rows_are_put_where_they_belong(self) -> None:
        group = group_of_a()
        assert (group.epoch, group.target_epoch, group.topics_hash) == (2, 2, b"h")
        assert (group.members, group.assignments) == ({"a": member("a")}, {"a": ASSIGNMENT})
        assert (group.targets, group.regexes) == ({"a": owned(t=[0])}, {"x": ("t",)})

    def test_the_group_itself_is_changed(self) -> None:
        group = group_of_a()
        assert replay(group, change(epoch=3)) is group
        assert (group.epoch, group.target_epoch, list(group.members)) == (3, 2, ["a"])

    def test_an_empty_target_is_none(self) -> None:
        group = replay(group_of_a(), change(targets=(("a", ()),)))
        assert group.targets == {}

    def test_a_member_goes_with_all_that_is_its(self) -> None:
        group = replay(group_of_a(), change(epoch=3, removed=("a", "nobody"), regexes_removed=("x",)))
        assert (group.members, group.assignments, group.targets, group.regexes) == ({}, {}, {}, {})

    def test_a_group_that_begins_anew_keeps_nothing(self) -> None:
        group = replay(group_of_a(), change(is_new=True))
        assert (group.members, group.regexes, group.epoch) == ({}, {}, 2)


class TestRefusal:
    def test_without_a_group_one_has_to_begin(self) -> None:
        assert rejection(None, change()) is not None
        assert rejection(None, change(is_new=True)) is None

    @pytest.mark.parametrize(("epoch", "target_epoch"), [(1, 1), (2, 1), (2, 3), (0, 0)])
    def test_epochs_never_go_backwards_and_the_target_is_not_ahead(self, epoch: int, target_epoch: int) -> None:
        assert rejection(group_of_a(), change(epoch=epoch, target_epoch=target_epoch)) is not None

    def test_rows_are_for_members(self) -> None:
        group = group_of_a()
        row = AssignmentRow.of("b", ASSIGNMENT)
        assert rejection(group, change(assignments=(row,))) == "a row for 'b', which is no member"
        assert rejection(group, change(targets=(("b", ()),))) is not None
        assert rejection(group, change(assignments=(row,), members=(member("b"),))) is None
        assert rejection(group, change(assignments=(ROW,), removed=("a",))) is not None
        assert rejection(group, change(assignments=(ROW,))) is None


def test_a_member_without_a_row_stands_at_the_beginning() -> None:
    assert ConsumerGroup().assignment("a") is NEW_MEMBER


def test_a_copy_changes_by_itself() -> None:
    group = group_of_a()
    copy = group.copy()
    assert copy == group
    replay(copy, change(epoch=3, removed=("a",)))
    assert list(group.members) == ["a"]


class TestPhases:
    """Source: ConsumerGroup.maybeUpdateGroupState."""

    def test_they_follow_members_and_epochs(self) -> None:
        group = ConsumerGroup()
        assert group.phase() is GroupPhase.EMPTY
        group = group_of_a()
        assert group.phase() is GroupPhase.STABLE
        group.epoch = 3
        assert group.phase() is GroupPhase.ASSIGNING
        group.target_epoch = 3
        assert group.phase() is GroupPhase.RECONCILING
        group.assignments["a"] = replace(ASSIGNMENT, epoch=3, state=MemberState.UNRELEASED_PARTITIONS)
        assert group.phase() is GroupPhase.RECONCILING


class TestWire:
    def test_a_group_comes_back_from_a_snapshots_shape(self) -> None:
        group = Coordinated({"t": 4})
        group.say(beat("b", instance="i", rack="r", assignor="range"))
        group.say(beat("a", regex="x"))
        group.resolve({"x": ("t",)}, now_s=1.0)
        group.say(beat("b", 2, instance="i"))
        assert consumer_group_to_wire(group.group).group() == group.group

    def test_rows_come_back_from_an_entry(self) -> None:
        rows = change(
            is_new=True,
            removed=("z",),
            members=(member("a"),),
            assignments=(ROW,),
            targets=(("a", owned(t=[0])),),
            regexes=(("x", ("t",)),),
            regexes_removed=("y",),
        )
        command = WriteConsumerGroup(group_id="g", claim_epoch=1, version=1, change=rows)
        assert decode(encode(Proposal(time_ms=None, command=command))).command == command

    def test_equal_groups_have_equal_shapes_whatever_was_first(self) -> None:
        one, other = group_of_a(), group_of_a()
        replay(one, change(members=(member("b"), member("c"))))
        replay(other, change(members=(member("c"), member("b"))))
        assert consumer_group_to_wire(one) == consumer_group_to_wire(other)
