"""The join phase of a classic group without static members: who is taken in, when it ends, and what is agreed on.

Every rule is that of the named method of org.apache.kafka.coordinator.group.GroupMetadataManager (Kafka 4.3), or of the
named KIP.
"""

import pytest

from coordinator.groups.classic_messages import JoinAnswer, JoinedMember
from coordinator.groups.classic_states import ClassicGroupState
from protocol.errors import ErrorCode
from protocol.limits import (
    CLASSIC_JOIN_SECONDS_MAX,
    CLASSIC_PENDING_MEMBERS_MAX,
)
from tests.support.groups.classic_group import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    Room,
    completing,
    preparing,
    stable,
)

DELAY_S, SESSION_S, REBALANCE_S = DELAY_MS / 1000, SESSION_MS / 1000, REBALANCE_MS / 1000


class TestFirstRebalance:
    """classicGroupJoinNewDynamicMember, prepareRebalance, tryCompleteInitialRebalanceElseSchedule; KIP-134."""

    def test_the_first_member_waits_for_others_and_leads(self) -> None:
        room = Room()
        ticket = room.join(new="a")
        assert room.is_in(ClassicGroupState.PREPARING)
        assert room.error(ticket) is None
        room.wait(DELAY_S)
        assert room.joined[ticket] == JoinAnswer(
            error_code=ErrorCode.none,
            member_id="a",
            generation=1,
            protocol_type="consumer",
            protocol="range",
            leader="a",
            members=(JoinedMember("a", None, b"topics"),),
        )

    def test_followers_are_not_told_of_the_members(self) -> None:
        room = preparing("a")
        ticket = room.join(new="b")
        room.wait(2 * DELAY_S)
        assert room.joined[ticket].leader == "a"
        assert room.joined[ticket].members == ()

    def test_whoever_comes_makes_the_wait_longer(self) -> None:
        room = preparing("a")
        room.wait(DELAY_S - 1)
        room.join(new="b")
        room.wait(2)
        assert room.is_in(ClassicGroupState.PREPARING)
        room.wait(DELAY_S)
        assert room.is_in(ClassicGroupState.COMPLETING)

    def test_without_a_delay_the_generation_begins_at_once(self) -> None:
        room = Room(delay_ms=0)
        ticket = room.join(new="a")
        room.wait(0)
        assert room.joined[ticket].generation == 1

    def test_the_generation_is_written_without_assignments_before_it_is_told(self) -> None:
        room = completing("a", "b")
        (written,) = room.written
        assert (written.generation, written.protocol, written.leader) == (1, "range", "a")
        assert not written.is_synced
        assert [(member.member_id, member.assignment) for member in written.members] == [("a", b""), ("b", b"")]

    def test_members_that_left_meanwhile_leave_an_empty_group(self) -> None:
        room = preparing("a")
        assert room.leave("a") == (ErrorCode.none,)
        room.wait(DELAY_S)
        assert room.is_in(ClassicGroupState.EMPTY)
        assert room.written[-1].generation == 1
        assert room.written[-1].protocol is None
        assert room.written[-1].protocol_type == "consumer"

    def test_a_new_member_whose_client_is_gone_does_not_hold_the_group_up_indefinitely(self) -> None:
        room = Room(delay_ms=10 * 60_000)
        ticket = room.join(new="a", rebalance_ms=0)
        room.wait(CLASSIC_JOIN_SECONDS_MAX)
        assert room.error(ticket) is ErrorCode.unknown_member_id
        assert room.joined[ticket].member_id == ""


class TestKnownIds:
    """KIP-394: from version 4 on a member is told its id first."""

    def test_a_new_member_is_told_its_id_and_joins_with_it(self) -> None:
        room = Room()
        told = room.joined[room.join(new="a", version=4)]
        assert (told.error_code, told.member_id, told.generation) == (ErrorCode.member_id_required, "a", -1)
        assert room.is_in(ClassicGroupState.EMPTY)
        ticket = room.join("a", version=4)
        room.wait(DELAY_S)
        assert room.joined[ticket].generation == 1

    def test_a_group_that_knows_of_ids_alone_is_not_idle(self) -> None:
        room = Room()
        are_idle = [room.group.is_idle]
        room.join(new="a", version=4)
        are_idle.append(room.group.is_idle)
        room.wait(SESSION_S)
        are_idle.append(room.group.is_idle)
        assert are_idle == [True, False, True]
        assert room.group.deadline_s is None

    def test_an_id_is_good_for_a_session_timeout(self) -> None:
        room = Room()
        room.join(new="a", version=4)
        room.join(new="b", version=4, session_ms=2 * SESSION_MS)
        room.wait(SESSION_S)
        assert room.error(room.join("a", version=4)) is ErrorCode.unknown_member_id
        assert room.error(room.join("b", version=4)) is None

    def test_the_others_wait_for_whom_was_told_an_id_and_no_longer_than_that_is_good(self) -> None:
        room = stable("a")
        room.join(new="b", version=4, session_ms=6_000)
        ticket = room.join("a")
        assert room.is_in(ClassicGroupState.PREPARING)
        room.wait(6)
        assert room.joined[ticket].generation == 2

    def test_who_was_told_an_id_of_an_empty_group_may_leave_with_it(self) -> None:
        room = Room()
        room.join(new="a", version=4)
        assert room.leave("a") == (ErrorCode.none,)
        assert room.is_in(ClassicGroupState.EMPTY)
        assert room.written == []

    def test_who_was_told_an_id_may_leave_with_it(self) -> None:
        room = stable("a")
        room.join(new="b", version=4)
        ticket = room.join("a")
        assert room.leave("b") == (ErrorCode.none,)
        assert room.joined[ticket].generation == 2

    def test_who_was_told_an_id_is_no_static_member(self) -> None:
        room = Room()
        room.join(new="a", version=4)
        assert room.error(room.join("a", instance="i", version=5)) is ErrorCode.unknown_member_id

    def test_ids_that_nobody_joins_with_are_given_out_up_to_a_bound(self) -> None:
        room = Room()
        for number in range(CLASSIC_PENDING_MEMBERS_MAX):
            assert room.error(room.join(new=str(number), version=4)) is ErrorCode.member_id_required
        assert room.error(room.join(new="more", version=4)) is ErrorCode.group_max_size_reached
        room.join("0", version=4)
        assert room.error(room.join(new="more", version=4)) is ErrorCode.member_id_required


class TestJoiningAgain:
    """classicGroupJoinExistingMember."""

    def test_a_leader_of_a_stable_group_that_joins_again_wants_to_assign_again(self) -> None:
        room = stable("a")
        assert room.joined[room.join("a")].generation == 2

    def test_a_follower_that_changed_nothing_is_told_of_the_generation_that_is(self) -> None:
        room = stable("a", "b")
        told = room.joined[room.join("b")]
        assert (told.generation, told.leader, told.members, told.protocol) == (1, "a", (), "range")
        assert room.is_in(ClassicGroupState.STABLE)
        assert len(room.written) == 2

    def test_a_follower_that_changed_asks_all_to_join_again(self) -> None:
        room = stable("a", "b")
        ticket = room.join("b", protocols=(("range", b"other topics"),))
        assert room.error(ticket) is None
        assert room.heartbeat("a") is ErrorCode.rebalance_in_progress
        leader = room.join("a")
        assert room.joined[leader].members == (("a", None, b"topics"), ("b", None, b"other topics"))
        assert room.joined[ticket].generation == 2

    def test_who_did_not_get_the_answer_gets_it_again_before_the_assignment(self) -> None:
        room = completing("a", "b")
        assert [member.member_id for member in room.joined[room.join("a")].members] == ["a", "b"]
        assert room.joined[room.join("b")].members == ()
        assert room.is_in(ClassicGroupState.COMPLETING)

    def test_who_changed_before_the_assignment_begins_another_rebalance(self) -> None:
        room = completing("a", "b")
        waiting = room.sync("b")
        room.join("b", protocols=(("range", b"other topics"),))
        assert room.error(waiting) is ErrorCode.rebalance_in_progress
        assert room.is_in(ClassicGroupState.PREPARING)

    def test_what_a_member_says_again_counts(self) -> None:
        room = stable("a")
        room.join("a", session_ms=20_000, rebalance_ms=30_000)
        assert room.written[-1].members[0].session_timeout_ms == 20_000
        assert room.written[-1].members[0].rebalance_timeout_ms == 30_000

    def test_a_second_join_of_a_waiting_member_takes_the_place_of_the_first(self) -> None:
        room = stable("a", "b")
        first = room.join("a")
        second = room.join("a")
        assert room.error(first) is ErrorCode.rebalance_in_progress
        room.join("b")
        assert room.joined[second].generation == 2


class TestJoinPhase:
    """completeClassicGroupJoin, maybeElectNewJoinedLeader; KIP-62."""

    def test_it_ends_when_all_have_joined(self) -> None:
        room = stable("a", "b")
        tickets = [room.join("a"), room.join("b")]
        assert [room.joined[ticket].generation for ticket in tickets] == [2, 2]

    def test_it_ends_when_the_longest_rebalance_timeout_is_over_without_who_did_not_come(self) -> None:
        room = stable("a", "b")
        room.join(new="c", rebalance_ms=90_000)
        room.join("a")
        for _ in range(17):
            room.wait(5)
            assert room.heartbeat("b") is ErrorCode.rebalance_in_progress
        assert room.is_in(ClassicGroupState.PREPARING)
        room.wait(5)
        assert room.is_in(ClassicGroupState.COMPLETING)
        assert [member.member_id for member in room.written[-1].members] == ["a", "c"]
        assert room.heartbeat("b") is ErrorCode.unknown_member_id

    def test_a_leader_that_did_not_come_loses_the_lead(self) -> None:
        room = stable("a", "b")
        ticket = room.join("b", protocols=(("range", b"changed"),))
        for _ in range(int(REBALANCE_S / 5)):
            room.heartbeat("a")
            room.wait(5)
        assert room.joined[ticket].leader == "b"
        assert [member.member_id for member in room.joined[ticket].members] == ["b"]

    def test_waiting_for_the_others_counts_as_being_heard_of(self) -> None:
        room = stable("a", "b")
        room.join("a")
        for _ in range(4):
            room.wait(SESSION_S - 1)
            room.heartbeat("b")
        assert room.error(room.join("b")) is ErrorCode.none
        assert len(room.group.members) == 2

    def test_its_end_begins_a_session_for_all(self) -> None:
        room = stable("a", "b")
        room.join("a")
        room.wait(SESSION_S - 1)
        room.join("b")
        room.wait(SESSION_S - 1)
        assert len(room.group.members) == 2
        room.wait(1)
        assert room.is_in(ClassicGroupState.EMPTY)


class TestProtocolChoice:
    """ClassicGroup.selectProtocol."""

    def test_most_members_decide_among_what_all_know(self) -> None:
        room = Room()
        room.join(new="a", protocols=(("sticky", b"s"), ("range", b"a")))
        room.join(new="b", protocols=(("range", b"b"), ("sticky", b"s")))
        room.join(new="c", protocols=(("new", b""), ("range", b"c"), ("sticky", b"s")))
        room.wait(3 * DELAY_S)
        assert room.written[-1].protocol == "range"
        assert [member.metadata for member in room.group.members.joined("range")] == [b"a", b"b", b"c"]

    def test_cooperative_members_and_others_agree_on_what_both_know(self) -> None:
        """KIP-429: the first of two rolling restarts."""
        room = stable("a", "b")
        both = (("cooperative-sticky", b"c"), ("range", b"r"))
        room.join("a", protocols=both)
        room.join("b")
        assert room.written[-1].protocol == "range"
        room.sync("a", ("a", b"1"), ("b", b"2"))
        room.join("b", protocols=both)
        room.join("a", protocols=both)
        assert room.written[-1].protocol == "cooperative-sticky"


def test_a_step_that_no_table_has_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="no way from Empty to Stable"):
        Room().group._move_to(ClassicGroupState.STABLE)
