"""Members that a classic group accepts or rejects when they join."""

import pytest

from coordinator.groups.classic_messages import GroupLimits
from coordinator.groups.classic_states import ClassicGroupState
from protocol.errors import ErrorCode
from protocol.limits import (
    CLASSIC_MEMBERS_BYTES_MAX,
    CLASSIC_PROTOCOL_BYTES,
)
from tests.support.groups.classic_group import (
    DELAY_MS,
    RANGE,
    Room,
    completing,
    preparing,
    stable,
)

TOO_MUCH = (("range", bytes(CLASSIC_MEMBERS_BYTES_MAX)),)
DELAY_S = DELAY_MS / 1000


class TestAdmission:
    """acceptJoiningMember, ClassicGroup.supportsProtocols."""

    def test_a_member_that_the_group_does_not_know_is_unknown(self) -> None:
        for room in (Room(), preparing("a"), completing("a"), stable("a")):
            told = room.joined[room.join("nobody")]
            assert (told.error_code, told.member_id) == (ErrorCode.unknown_member_id, "nobody")

    @pytest.mark.parametrize(("kind", "protocols"), [("", RANGE), ("consumer", ())])
    def test_a_member_without_protocols_cannot_join(self, kind: str, protocols: tuple[tuple[str, bytes], ...]) -> None:
        for room in (Room(), stable("a")):
            ticket = room.join(kind=kind, protocols=protocols)
            assert room.error(ticket) is ErrorCode.inconsistent_group_protocol

    @pytest.mark.parametrize(
        ("kind", "protocols"), [("connect", RANGE), ("consumer", (("sticky", b""), ("roundrobin", b"")))]
    )
    def test_a_member_with_nothing_in_common_with_the_others_cannot_join(
        self, kind: str, protocols: tuple[tuple[str, bytes], ...]
    ) -> None:
        for room in (preparing("a"), completing("a"), stable("a")):
            ticket = room.join(kind=kind, protocols=protocols)
            assert room.error(ticket) is ErrorCode.inconsistent_group_protocol

    def test_an_empty_group_takes_a_member_of_another_type(self) -> None:
        room = stable("a")
        room.leave("a")
        room.join(new="b", kind="connect", protocols=(("sessioned", b""),))
        room.wait(DELAY_S)
        assert room.written[-1].protocol_type == "connect"
        assert room.written[-1].protocol == "sessioned"

    def test_a_full_group_takes_nobody_in(self) -> None:
        for room in (completing("a", "b", members_max=2), stable("a", "b", members_max=2)):
            told = room.joined[room.join(new="c")]
            assert (told.error_code, told.member_id) == (ErrorCode.group_max_size_reached, "")

    def test_members_of_a_full_group_may_join_again(self) -> None:
        room = stable("a", "b", members_max=2)
        assert room.error(room.join("a")) is None

    def test_a_full_group_in_a_rebalance_drops_those_who_come_last(self) -> None:
        room = stable("a", "b", members_max=1_000)
        room.group._limits = GroupLimits(initial_rebalance_delay_ms=0, members_max=1)
        first = room.join("a")
        assert room.error(room.join("b")) is ErrorCode.group_max_size_reached
        assert [member.member_id for member in room.joined[first].members] == ["a"]

    def test_whoever_waits_in_a_full_group_may_repeat_itself(self) -> None:
        room = stable("a", "b", members_max=2)
        first = room.join("a")
        second = room.join("a")
        assert room.error(first) is ErrorCode.rebalance_in_progress
        assert room.error(second) is None

    def test_what_members_tell_of_themselves_has_a_bound(self) -> None:
        half = (("range", bytes(CLASSIC_MEMBERS_BYTES_MAX // 2 - 100)),)
        more = (("range", bytes(CLASSIC_MEMBERS_BYTES_MAX // 2)),)
        room = Room()
        room.join(new="a", protocols=half)
        assert room.error(room.join(new="b", protocols=more)) is ErrorCode.group_max_size_reached
        assert room.error(room.join("a", protocols=half)) is None

    def test_protocols_of_which_nothing_is_reported_have_a_bound_too(self) -> None:
        nothing = (("", b""),) * (CLASSIC_MEMBERS_BYTES_MAX // CLASSIC_PROTOCOL_BYTES)
        room = Room()
        assert room.error(room.join(protocols=nothing)) is ErrorCode.group_max_size_reached
        assert room.error(room.join(protocols=nothing[:1_000])) is None

    def test_a_member_for_which_there_is_no_room_any_more_goes_like_one_that_leaves(self) -> None:
        room = stable("a", "b")
        assert room.error(room.join("b", protocols=TOO_MUCH)) is ErrorCode.group_max_size_reached
        assert room.is_in(ClassicGroupState.PREPARING)
        assert room.heartbeat("a") is ErrorCode.rebalance_in_progress
        assert room.heartbeat("b") is ErrorCode.unknown_member_id
        assert room.joined[room.join("a")].generation == 2
        assert [member.member_id for member in room.written[-1].members] == ["a"]

    def test_the_last_member_for_which_there_is_no_room_any_more_leaves_an_empty_group(self) -> None:
        room = stable("a")
        assert room.error(room.join("a", protocols=TOO_MUCH)) is ErrorCode.group_max_size_reached
        assert room.is_in(ClassicGroupState.EMPTY)
        assert (room.written[-1].generation, room.written[-1].members) == (2, ())

    def test_a_member_that_waits_is_answered_when_there_is_no_room_for_it_any_more(self) -> None:
        room = stable("a", "b")
        waiting = room.join("a")
        assert room.error(room.join("a", protocols=TOO_MUCH)) is ErrorCode.group_max_size_reached
        assert room.error(waiting) is ErrorCode.unknown_member_id
        assert room.joined[room.join("b")].generation == 2

    def test_an_id_for_which_there_is_no_room_is_waited_for_no_more(self) -> None:
        room = stable("a")
        room.join(new="b", version=4)
        waiting = room.join("a")
        assert room.error(waiting) is None
        assert room.error(room.join("b", protocols=TOO_MUCH, version=4)) is ErrorCode.group_max_size_reached
        assert room.joined[waiting].generation == 2

    def test_who_speaks_for_another_member_does_not_send_it_away_by_its_size(self) -> None:
        room = stable("a")
        told = room.join("a", instance="nobody", protocols=TOO_MUCH)
        assert room.error(told) is ErrorCode.group_max_size_reached
        assert room.heartbeat("a") is ErrorCode.none

    def test_a_static_member_that_comes_back_is_counted_once(self) -> None:
        most = (("range", bytes(CLASSIC_MEMBERS_BYTES_MAX // 2 + 1)),)
        room = Room(members_max=1)
        room.join(new="a", instance="i", protocols=most)
        room.wait(DELAY_S)
        room.sync("a", ("a", b"part"))
        assert room.error(room.join(new="b", instance="i", protocols=most)) is ErrorCode.none
        assert room.error(room.join(new="c", instance="j")) is ErrorCode.group_max_size_reached
        assert list(room.group.members.by_id) == ["b"]
