"""A generation of a classic group: assignments, heartbeats, departures, commits, and the coordinator that comes next.

Every rule is that of the named method of org.apache.kafka.coordinator.group.GroupMetadataManager (Kafka 4.3), or of the
named KIP.
"""

from random import Random

import pytest

from coordinator.commands.group_values import NO_GROUP
from coordinator.groups.classic_group import LiveClassicGroup
from coordinator.groups.classic_messages import GroupLimits
from coordinator.groups.classic_states import ClassicGroupState
from protocol.errors import ErrorCode
from protocol.limits import CLASSIC_ASSIGNMENTS_BYTES_MAX, LEDGER_ENTRY_BYTES_MAX
from tests.support.groups.classic_group import DELAY_MS, REBALANCE_MS, SESSION_MS, Room, completing, preparing, stable

DELAY_S, SESSION_S, REBALANCE_S = DELAY_MS / 1000, SESSION_MS / 1000, REBALANCE_MS / 1000


class TestSync:
    """classicGroupSyncToClassicGroup, validateSyncGroup."""

    def test_followers_wait_for_the_leader(self) -> None:
        room = completing("a", "b")
        waiting = room.sync("b")
        assert room.error(waiting) is None
        leading = room.sync("a", ("a", b"one"), ("b", b"two"), ("nobody", b"three"))
        assert room.assigned(leading) == b"one"
        assert room.assigned(waiting) == b"two"
        assert room.written[-1].is_synced
        assert [member.assignment for member in room.written[-1].members] == [b"one", b"two"]

    def test_what_a_leader_assigns_has_a_bound(self) -> None:
        room = completing("a", "b")
        most = bytes(CLASSIC_ASSIGNMENTS_BYTES_MAX)
        assert room.error(room.sync("a", ("a", most), ("b", b"more"))) is ErrorCode.unknown_server_error
        room = completing("a", "b")
        assert room.assigned(room.sync("a", ("a", most))) == most

    def test_what_no_entry_takes_is_reported_and_costs_the_leader_a_rebalance(self) -> None:
        """classicGroupSyncToClassicGroup: resetAndPropagateAssignmentWithError, and a rebalance."""
        room = completing("a", "b")
        waiting = room.sync("b")
        incompressible = Random(1).randbytes(LEDGER_ENTRY_BYTES_MAX)
        assert room.error(room.sync("a", ("a", incompressible))) is ErrorCode.unknown_server_error
        assert room.error(waiting) is ErrorCode.unknown_server_error
        assert room.is_in(ClassicGroupState.PREPARING)
        assert not any(written.is_synced for written in room.written)
        assert room.error(room.sync("a", ("a", incompressible))) is ErrorCode.rebalance_in_progress
        assert room.heartbeat("b") is ErrorCode.rebalance_in_progress
        room.join("a")
        room.join("b")
        assert room.is_in(ClassicGroupState.COMPLETING)
        assert room.assigned(room.sync("a", ("a", b"less"))) == b"less"

    def test_who_is_assigned_nothing_gets_nothing(self) -> None:
        room = completing("a", "b")
        room.sync("a", ("a", b"one"))
        assert room.assigned(room.sync("b")) == b""

    def test_a_stable_group_tells_the_assignment_as_often_as_it_is_asked(self) -> None:
        room = stable("a", "b")
        assert room.assigned(room.sync("a", ("a", b"other"))) == b"a"
        assert room.assigned(room.sync("b")) == b"b"
        assert len(room.written) == 2

    def test_it_tells_type_and_name_of_the_protocol(self) -> None:
        room = completing("a")
        told = room.synced[room.sync("a", ("a", b"one"), kind="consumer", protocol="range")]
        assert (told.protocol_type, told.protocol) == ("consumer", "range")

    @pytest.mark.parametrize(("kind", "protocol"), [("connect", "range"), ("consumer", "sticky")])
    def test_who_believes_in_another_protocol_is_inconsistent(self, kind: str, protocol: str) -> None:
        """KIP-559."""
        room = stable("a")
        ticket = room.sync("a", kind=kind, protocol=protocol)
        assert room.error(ticket) is ErrorCode.inconsistent_group_protocol

    @pytest.mark.parametrize("generation", [-1, 0, 2])
    def test_another_generation_is_illegal(self, generation: int) -> None:
        for room in (completing("a"), stable("a")):
            assert room.error(room.sync("a", generation=generation)) is ErrorCode.illegal_generation

    def test_nobody_is_assigned_anything_by_whom_the_group_does_not_know(self) -> None:
        for room in (Room(), preparing("a"), completing("a"), stable("a")):
            assert room.error(room.sync("nobody")) is ErrorCode.unknown_member_id

    def test_during_a_rebalance_members_are_asked_to_join_again(self) -> None:
        room = stable("a", "b")
        room.join("a")
        assert room.error(room.sync("b")) is ErrorCode.rebalance_in_progress

    def test_a_second_sync_of_a_waiting_member_takes_the_place_of_the_first(self) -> None:
        room = completing("a", "b")
        first, second = room.sync("b"), room.sync("b")
        assert room.error(first) is ErrorCode.rebalance_in_progress
        room.sync("a", ("b", b"two"))
        assert room.assigned(second) == b"two"

    def test_who_waits_for_the_leader_is_heard_of_as_long_as_it_waits(self) -> None:
        room = completing("a", "b")
        waiting = room.sync("b")
        for _ in range(4):
            room.wait(SESSION_S - 1)
            room.heartbeat("a")
        room.sync("a", ("b", b"two"))
        assert room.assigned(waiting) == b"two"
        room.wait(SESSION_S - 1)
        assert room.heartbeat("b") is ErrorCode.none

    def test_who_does_not_ask_for_its_assignment_within_the_rebalance_timeout_goes(self) -> None:
        """expirePendingSync."""
        room = completing("a", "b")
        room.sync("a", ("a", b"one"), ("b", b"two"))
        for _ in range(int(REBALANCE_S / 5)):
            assert room.heartbeat("a") is ErrorCode.none
            assert room.heartbeat("b") is ErrorCode.none
            room.wait(5)
        assert room.is_in(ClassicGroupState.PREPARING)
        assert room.heartbeat("b") is ErrorCode.unknown_member_id
        assert room.heartbeat("a") is ErrorCode.rebalance_in_progress

    def test_a_leader_that_does_not_assign_goes_and_those_who_waited_join_again(self) -> None:
        room = completing("a", "b")
        waiting = room.sync("b")
        for _ in range(int(REBALANCE_S / 5)):
            room.heartbeat("a")
            room.wait(5)
        assert room.error(waiting) is ErrorCode.rebalance_in_progress
        assert room.joined[room.join("b")].leader == "b"


class TestHeartbeat:
    """classicGroupHeartbeatToClassicGroup."""

    def test_it_keeps_a_member(self) -> None:
        for room in (completing("a"), stable("a")):
            for _ in range(5):
                room.wait(SESSION_S - 1)
                assert room.heartbeat("a") is ErrorCode.none

    def test_a_silent_member_goes_after_its_session_timeout(self) -> None:
        room = stable("a", "b")
        room.wait(SESSION_S - 1)
        room.heartbeat("b")
        room.wait(1)
        assert room.heartbeat("a") is ErrorCode.unknown_member_id
        assert room.heartbeat("b") is ErrorCode.rebalance_in_progress
        assert room.joined[room.join("b")].generation == 2

    def test_who_may_be_heard_by_the_coordinator_before_has_a_whole_time_to_join_again(self) -> None:
        kept = stable("a", "b").written[-1]
        room = Room(kept, now_s=1_010.0)
        room.now_s = 1_001.0
        room.join("a")
        for _ in range(7):
            room.wait(SESSION_S - 1)
            assert room.heartbeat("b") is ErrorCode.rebalance_in_progress
        room.wait(10 + REBALANCE_S - 1 - 7 * (SESSION_S - 1) - 0.1)
        assert room.is_in(ClassicGroupState.PREPARING)
        room.wait(0.2)
        assert list(room.group.members.by_id) == ["a"]

    def test_the_last_silent_member_leaves_an_empty_group(self) -> None:
        room = stable("a")
        room.wait(SESSION_S)
        assert room.is_in(ClassicGroupState.EMPTY)
        assert room.written[-1].generation == 2
        assert room.written[-1].members == ()
        assert room.written[-1].is_synced

    def test_a_silent_member_does_not_hold_up_those_who_have_joined(self) -> None:
        room = stable("a", "b")
        ticket = room.join("a")
        room.wait(SESSION_S)
        assert [member.member_id for member in room.joined[ticket].members] == ["a"]

    @pytest.mark.parametrize("generation", [-1, 0, 2])
    def test_another_generation_is_illegal(self, generation: int) -> None:
        assert stable("a").heartbeat("a", generation=generation) is ErrorCode.illegal_generation

    def test_whom_the_group_does_not_know_is_told_so(self) -> None:
        for room in (Room(), preparing("a"), completing("a"), stable("a")):
            assert room.heartbeat("nobody") is ErrorCode.unknown_member_id


class TestLeave:
    """classicGroupLeaveToClassicGroup."""

    def test_the_others_join_again(self) -> None:
        room = stable("a", "b")
        assert room.leave("b") == (ErrorCode.none,)
        assert room.heartbeat("a") is ErrorCode.rebalance_in_progress
        assert room.joined[room.join("a")].generation == 2

    def test_each_is_told_whether_it_was_a_member(self) -> None:
        room = stable("a", "b")
        assert room.leave("b", "nobody", "b") == (
            ErrorCode.none,
            ErrorCode.unknown_member_id,
            ErrorCode.unknown_member_id,
        )

    def test_nothing_happens_where_nobody_left(self) -> None:
        room = stable("a")
        assert room.leave("nobody") == (ErrorCode.unknown_member_id,)
        assert room.leave() == ()
        assert room.is_in(ClassicGroupState.STABLE)

    def test_several_that_leave_together_cost_one_rebalance(self) -> None:
        room = stable("a", "b", "c")
        room.leave("a", "b")
        assert room.joined[room.join("c")].generation == 2

    def test_the_leader_is_followed_by_another_member(self) -> None:
        room = stable("a", "b")
        room.leave("a")
        assert room.joined[room.join("b")].leader == "b"

    def test_who_waits_for_the_others_is_told_that_it_left(self) -> None:
        room = stable("a", "b")
        ticket = room.join("a")
        room.leave("a")
        assert room.error(ticket) is ErrorCode.unknown_member_id
        assert room.joined[ticket].member_id == ""

    def test_who_waits_for_its_assignment_is_told_that_it_left(self) -> None:
        room = completing("a", "b")
        ticket = room.sync("b")
        room.leave("b")
        assert room.error(ticket) is ErrorCode.unknown_member_id

    def test_the_last_that_the_others_waited_for_ends_their_wait(self) -> None:
        room = stable("a", "b")
        ticket = room.join("a")
        room.leave("b")
        assert room.joined[ticket].generation == 2

    def test_all_that_leave_leave_an_empty_group(self) -> None:
        room = stable("a", "b")
        room.leave("a", "b")
        assert room.is_in(ClassicGroupState.EMPTY)
        assert room.written[-1].generation == 2
        assert room.group.is_idle
        assert room.group.deadline_s is None


class TestCommits:
    """ClassicGroup.validateOffsetCommit, OffsetMetadataManager.commitOffset."""

    def test_anybody_may_commit_for_an_empty_group(self) -> None:
        assert Room().commit(generation=-1) is ErrorCode.none
        assert Room().commit("somebody", generation=-1) is ErrorCode.none

    def test_a_generation_that_is_not_there_cannot_commit(self) -> None:
        assert Room().commit("a", generation=0) is ErrorCode.unknown_member_id

    def test_only_members_commit_for_a_group_that_has_some(self) -> None:
        for room in (preparing("a"), stable("a")):
            assert room.commit(generation=-1) is ErrorCode.unknown_member_id
            assert room.commit("nobody") is ErrorCode.unknown_member_id
            assert room.commit("a", generation=7) is ErrorCode.illegal_generation
            assert room.commit("a") is ErrorCode.none

    def test_before_the_assignment_a_member_is_asked_to_wait(self) -> None:
        assert completing("a").commit("a") is ErrorCode.rebalance_in_progress

    def test_in_a_transaction_it_need_not_wait(self) -> None:
        room = completing("a")
        now_s = room.now_s
        assert room.group.check_commit("a", None, 1, now_s, is_pending=True) is ErrorCode.none
        assert room.group.check_commit("a", None, 2, now_s, is_pending=True) is ErrorCode.illegal_generation

    def test_a_commit_keeps_the_member(self) -> None:
        room = stable("a")
        for _ in range(5):
            room.wait(SESSION_S - 1)
            assert room.commit("a") is ErrorCode.none


class TestNextCoordinator:
    """A coordinator that is new goes on from what the ledger has."""

    def test_a_stable_group_goes_on_without_a_rebalance(self) -> None:
        before = stable("a", "b")
        room = Room(before.written[-1])
        assert room.is_in(ClassicGroupState.STABLE)
        assert room.heartbeat("a") is ErrorCode.none
        assert room.assigned(room.sync("b")) == b"b"
        assert room.commit("a") is ErrorCode.none
        assert room.joined[room.join("b")].generation == 1

    def test_every_member_has_a_whole_session_timeout(self) -> None:
        room = Room(stable("a").written[-1], now_s=50_000.0)
        room.wait(SESSION_S - 1)
        assert room.is_in(ClassicGroupState.STABLE)
        room.wait(1)
        assert room.is_in(ClassicGroupState.EMPTY)

    def test_a_generation_without_assignments_goes_on_with_its_leader(self) -> None:
        room = Room(completing("a", "b").written[-1])
        assert room.is_in(ClassicGroupState.COMPLETING)
        waiting = room.sync("b")
        room.sync("a", ("a", b"one"), ("b", b"two"))
        assert room.assigned(waiting) == b"two"

    def test_a_generation_without_assignments_does_not_wait_indefinitely(self) -> None:
        room = Room(completing("a", "b").written[-1])
        for _ in range(int(REBALANCE_S / 5)):
            room.heartbeat("a")
            room.heartbeat("b")
            room.wait(5)
        assert room.is_in(ClassicGroupState.EMPTY)
        assert room.written[-1].generation == 2

    def test_generations_go_on_in_an_empty_group(self) -> None:
        before = stable("a")
        before.leave("a")
        room = Room(before.written[-1])
        assert room.is_in(ClassicGroupState.EMPTY)
        ticket = room.join(new="b")
        room.wait(DELAY_S)
        assert room.joined[ticket].generation == 3


class TestDescription:
    """GroupMetadataManager.describeGroups."""

    def test_a_stable_group_tells_of_metadata_and_assignments(self) -> None:
        told = stable("a").group.describe()
        assert (told.state, told.protocol_type, told.protocol) == ("Stable", "consumer", "range")
        assert told.members == (("a", None, "client", "/127.0.0.1", b"topics", b"a"),)

    def test_any_other_tells_of_its_members_alone(self) -> None:
        told = completing("a").group.describe()
        assert (told.state, told.protocol) == ("CompletingRebalance", "")
        assert told.members == (("a", None, "client", "/127.0.0.1", b"", b""),)

    def test_nothing_is_known_of_a_group_that_nobody_joined(self) -> None:
        told = LiveClassicGroup(NO_GROUP, GroupLimits(initial_rebalance_delay_ms=0, members_max=1), 0.0).describe()
        assert (told.state, told.protocol_type, told.protocol, told.members) == ("Empty", "", "", ())


def test_an_operator_is_told_why_a_group_rebalances() -> None:
    room = stable("a")
    room.leave("a")
    assert room.log_messages[-2:] == ["member a leaves: no reason given", "rebalances from generation 1: left: a"]
