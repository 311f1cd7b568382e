"""Static members of a classic group (KIP-345), and leaders that need not assign again (KIP-814).

Source: GroupMetadataManager.classicGroupJoinNewStaticMember, updateStaticMemberThenRebalanceOrCompleteJoin,
ClassicGroup.replaceStaticMember and validateMember (Kafka 4.3).
"""

import pytest

from coordinator.groups.classic_messages import Leaver
from coordinator.groups.classic_states import ClassicGroupState
from protocol.errors import ErrorCode
from tests.support.groups.classic_group import DELAY_MS, REBALANCE_MS, SESSION_MS, Room

DELAY_S, SESSION_S, REBALANCE_S = DELAY_MS / 1000, SESSION_MS / 1000, REBALANCE_MS / 1000


def completing_static(*names: str) -> Room:
    """Generation 1 of static members: "a" has the instance id "i-a"."""
    room = Room()
    for name in names:
        room.join(new=name, instance=f"i-{name}", version=5)
    while room.is_in(ClassicGroupState.PREPARING):
        room.wait(DELAY_S)
    return room


def stable_static(*names: str) -> Room:
    room = completing_static(*names)
    for name in names:
        room.sync(name, *((name, name.encode()) for name in names), instance=f"i-{name}")
    assert room.is_in(ClassicGroupState.STABLE)
    return room


def test_a_static_member_needs_no_id_to_join() -> None:
    room = completing_static("a")
    assert room.written[-1].members[0].group_instance_id == "i-a"
    assert room.group.members.joined("range") == (("a", "i-a", b"topics"),)


class TestComingBack:
    def test_it_takes_its_place_with_its_assignment_and_without_a_rebalance(self) -> None:
        room = stable_static("a", "b")
        told = room.joined[room.join(new="b2", instance="i-b", version=5)]
        assert (told.error_code, told.member_id, told.generation, told.leader) == (ErrorCode.none, "b2", 1, "a")
        assert room.is_in(ClassicGroupState.STABLE)
        assert [member.member_id for member in room.written[-1].members] == ["a", "b2"]
        assert room.written[-1].members[1].assignment == b"b"
        assert room.assigned(room.sync("b2", instance="i-b")) == b"b"

    def test_whom_it_replaces_is_fenced(self) -> None:
        room = stable_static("a", "b")
        room.join(new="b2", instance="i-b", version=5)
        assert room.heartbeat("b", instance="i-b") is ErrorCode.fenced_instance_id
        assert room.error(room.sync("b", instance="i-b")) is ErrorCode.fenced_instance_id
        assert room.commit("b", instance="i-b") is ErrorCode.fenced_instance_id
        assert room.error(room.join("b", instance="i-b")) is ErrorCode.fenced_instance_id
        assert room.leave(Leaver("b", "i-b")) == (ErrorCode.fenced_instance_id,)
        assert room.heartbeat("b") is ErrorCode.unknown_member_id

    def test_a_leader_of_an_old_version_is_told_that_its_predecessor_leads_so_that_it_does_not_assign(self) -> None:
        room = stable_static("a", "b")
        told = room.joined[room.join(new="a2", instance="i-a", version=8)]
        assert (told.leader, told.members, told.skip_assignment) == ("a", (), False)
        assert room.group.members.leader == "a2"

    def test_a_leader_is_told_to_skip_the_assignment(self) -> None:
        room = stable_static("a", "b")
        told = room.joined[room.join(new="a2", instance="i-a", version=9)]
        assert (told.leader, told.skip_assignment) == ("a2", True)
        assert {member.member_id for member in told.members} == {"a2", "b"}

    def test_a_follower_has_nothing_to_skip(self) -> None:
        room = stable_static("a", "b")
        told = room.joined[room.join(new="b2", instance="i-b", version=9)]
        assert (told.leader, told.skip_assignment, told.members) == ("a", False, ())

    def test_where_the_protocol_would_change_all_join_again(self) -> None:
        room = Room()
        room.join(new="a", instance="i-a", version=5, protocols=(("range", b""), ("sticky", b"")))
        room.wait(DELAY_S)
        room.sync("a", ("a", b"one"))
        ticket = room.join(new="a2", instance="i-a", version=5, protocols=(("sticky", b""),))
        assert room.joined[ticket].generation == 2
        assert room.joined[ticket].protocol == "sticky"

    def test_before_the_assignment_all_join_again(self) -> None:
        room = completing_static("a", "b")
        waiting = room.sync("a", instance="i-a") if room.group.members.leader != "a" else room.sync("b", instance="i-b")
        ticket = room.join(new="b2", instance="i-b", version=5)
        assert room.is_in(ClassicGroupState.PREPARING)
        assert room.error(waiting) is ErrorCode.fenced_instance_id
        assert room.error(ticket) is None
        room.join("a", instance="i-a")
        assert room.joined[ticket].generation == 2

    def test_during_a_rebalance_it_counts_as_having_joined(self) -> None:
        room = stable_static("a", "b")
        first = room.join("a", instance="i-a")
        second = room.join(new="b2", instance="i-b", version=5)
        assert room.joined[first].generation == 2
        assert room.joined[second].member_id == "b2"

    def test_who_waits_in_a_rebalance_is_fenced_by_its_successor(self) -> None:
        room = stable_static("a", "b")
        first = room.join("a", instance="i-a")
        second = room.join(new="a2", instance="i-a", version=5)
        assert room.joined[first].error_code is ErrorCode.fenced_instance_id
        assert room.joined[first].member_id == "a"
        assert room.error(second) is None

    def test_it_has_a_whole_session_timeout(self) -> None:
        room = stable_static("a")
        room.wait(SESSION_S - 1)
        room.join(new="a2", instance="i-a", version=5, session_ms=20_000)
        room.wait(19)
        assert room.heartbeat("a2", instance="i-a") is ErrorCode.none


class TestBeingAway:
    def test_it_keeps_its_place_in_a_rebalance_that_it_misses(self) -> None:
        room = stable_static("a", "b")
        room.group.members.by_id["b"].rebalance_timeout_ms = 5_000
        ticket = room.join("a", instance="i-a", rebalance_ms=5_000)
        room.wait(5)
        assert {member.member_id for member in room.joined[ticket].members} == {"a", "b"}

    def test_it_goes_when_its_session_ends(self) -> None:
        room = stable_static("a", "b")
        room.wait(SESSION_S - 1)
        room.heartbeat("b", instance="i-b")
        room.wait(1)
        assert room.heartbeat("a", instance="i-a") is ErrorCode.unknown_member_id

    def test_a_rebalance_that_nobody_joins_waits_until_somebody_does(self) -> None:
        """maybeElectNewJoinedLeader finds nobody: the join phase is longer by a rebalance time-out."""
        room = Room()
        for name in ("a", "b"):
            room.join(new=name, instance=f"i-{name}", version=5, session_ms=600_000, rebalance_ms=1_000)
        room.wait(DELAY_S)
        room.sync("a", ("a", b"one"))
        room.sync("b")
        room.leave(Leaver("b", "i-b"))
        room.wait(10)
        assert room.is_in(ClassicGroupState.PREPARING)
        ticket = room.join("a", instance="i-a")
        assert room.joined[ticket].generation == 2


class TestLeaving:
    def test_an_administrator_names_the_instance(self) -> None:
        room = stable_static("a", "b")
        assert room.leave(Leaver("", "i-b"), Leaver("", "nobody"), Leaver("", None)) == (
            ErrorCode.none,
            ErrorCode.unknown_member_id,
            ErrorCode.unknown_member_id,
        )
        assert room.heartbeat("b", instance="i-b") is ErrorCode.unknown_member_id

    def test_another_member_cannot_leave_for_it(self) -> None:
        room = stable_static("a", "b")
        assert room.leave(Leaver("a", "i-b")) == (ErrorCode.fenced_instance_id,)
        assert room.leave(Leaver("nobody", "i-b")) == (ErrorCode.fenced_instance_id,)
        assert room.is_in(ClassicGroupState.STABLE)


@pytest.mark.parametrize("member_id", ["a", "nobody"])
def test_an_instance_that_the_group_does_not_know_is_unknown(member_id: str) -> None:
    room = stable_static("a")
    assert room.heartbeat(member_id, instance="nobody") is ErrorCode.unknown_member_id
    assert room.error(room.join(member_id, instance="nobody")) is ErrorCode.unknown_member_id


def test_the_next_coordinator_knows_the_instances_and_begins_again_when_one_comes_back() -> None:
    """It gave partitions up, perhaps, for a rebalance that the last coordinator had begun, and asked for it in vain."""
    room = Room(stable_static("a", "b").written[-1])
    assert room.heartbeat("b", instance="i-a") is ErrorCode.fenced_instance_id
    waiting = room.join(new="b2", instance="i-b", version=5)
    assert room.is_in(ClassicGroupState.PREPARING)
    room.join("a", instance="i-a")
    assert (room.joined[waiting].generation, room.joined[waiting].member_id) == (2, "b2")
    room.sync("a", ("a", b"a"), ("b2", b"b"), generation=2, instance="i-a")
    room.join(new="b3", instance="i-b", version=5)
    assert room.is_in(ClassicGroupState.STABLE)
