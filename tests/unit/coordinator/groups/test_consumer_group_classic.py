"""Members of the classic protocol in a consumer group: what they are told when they join, sync, report and leave.

Source: GroupMetadataManager.classicGroup*ToConsumerGroup (Kafka 4.3).
"""

from dataclasses import replace
from random import Random

import pytest

from coordinator.groups.classic_messages import Join, Leaver
from coordinator.groups.consumer_group_messages import GroupRejection
from protocol.consumer_protocol import read_assignment
from protocol.errors import ErrorCode
from protocol.limits import CONSUMER_GROUP_MEMBER_BYTES_MAX
from tests.support.groups.consumer_groups import CONFIG, beat, owned, subscription
from tests.support.groups.mixed_group import Mixed, ask


def mixed() -> Mixed:
    """The consumer `a`, and the classic member `b`, with two partitions of `t` each."""
    group = Mixed({"t": 4, "u": 2})
    group.say(beat("a"))
    assert group.join(ask("b")).generation == 3
    group.say(beat("a", 2, said=owned(t=[0, 1])))
    assert group.report("b", 3) is ErrorCode.rebalance_in_progress
    assert group.join(ask("b")).generation == 3
    assert (group.has("a"), group.has("b")) == (owned(t=[0, 1]), owned(t=[2, 3]))
    return group


class TestJoining:
    def test_a_member_without_an_id_is_given_one_to_join_with(self) -> None:
        """Recorded: live.classic-over-live."""
        group = Mixed({"t": 4})
        group.say(beat("a"))
        answer = group.join(ask(""))
        assert (answer.error_code, answer.member_id, answer.generation) == (ErrorCode.member_id_required, "new", -1)
        assert group.join(ask("new")).error_code is ErrorCode.none

    def test_before_ids_were_asked_for_it_joins_at_once(self) -> None:
        group = Mixed({"t": 4})
        group.say(beat("a"))
        answer = group.join(ask("", needs_known_id=False))
        assert (answer.error_code, answer.member_id, answer.generation) == (ErrorCode.none, "new", 3)

    def test_nobody_leads_and_the_epoch_is_the_generation(self) -> None:
        group = Mixed({"t": 4})
        group.say(beat("a"))
        answer = group.join(ask("b"))
        assert (answer.generation, answer.leader, answer.members) == (3, "", ())
        assert (answer.protocol_type, answer.protocol) == ("consumer", "range")

    def test_what_it_says_that_it_has_is_given_up_before_it_goes_on(self) -> None:
        group = mixed()
        group.say(beat("c"))
        assert group.report("b", 3) is ErrorCode.rebalance_in_progress
        assert group.join(ask("b", has={"t": [2, 3]})).generation == 3
        assert read_assignment(group.sync("b", 3).assignment).partitions == (("t", (2,)),)
        assert group.report("b", 3) is ErrorCode.rebalance_in_progress
        assert group.join(ask("b", has={"t": [2]})).generation == 4

    @pytest.mark.parametrize(
        "request_",
        [
            ask("c", protocol_type="connect"),
            ask("c", protocols=()),
            ask("c", protocols=("sticky",)),
            replace(ask("c"), protocols=(("range", b"part"),)),
            replace(ask("c"), protocols=(("range", subscription("t")), ("sticky", b"\xff"))),
        ],
    )
    def test_who_speaks_otherwise_is_not_let_in(self, request_: Join) -> None:
        assert mixed().join_refused(request_) is ErrorCode.inconsistent_group_protocol

    def test_a_full_group_takes_nobody_else_in(self) -> None:
        group = mixed()
        group.config = replace(CONFIG, max_size=2)
        assert group.join_refused(ask("c")) is ErrorCode.group_max_size_reached
        assert group.join(ask("b")).error_code is ErrorCode.none

    def test_a_member_that_says_too_much_is_not_let_in(self) -> None:
        large = ask("c", ["t" * 200 + str(number) for number in range(CONSUMER_GROUP_MEMBER_BYTES_MAX // 200)])
        assert mixed().join_refused(large) is ErrorCode.group_max_size_reached

    def test_a_consumer_member_may_go_on_as_a_classic_one_and_back(self) -> None:
        group = mixed()
        assert group.join(ask("a", has={"t": [0, 1]})).generation == 3
        assert group.group.members["a"].classic is not None
        assert group.say(beat("a")).epoch == 3
        assert group.group.members["a"].classic is None

    def test_another_subscription_raises_the_epoch(self) -> None:
        group = mixed()
        assert group.join(ask("b", "u")).generation == 4
        assert group.has("b") == owned(u=[0, 1])


class TestStaticMembers:
    def test_a_new_instance_joins(self) -> None:
        group = mixed()
        assert group.join(ask("", instance="i")).member_id == "new"

    def test_an_instance_that_comes_without_an_id_takes_the_place_of_its_former_self(self) -> None:
        group = mixed()
        group.join(ask("", instance="i", new_id="c"))
        epoch = group.group.epoch
        answer = group.join(ask("", instance="i", new_id="d"))
        assert (answer.member_id, group.group.epoch) == ("d", epoch)
        assert "c" not in group.group.members

    def test_an_instance_keeps_its_id(self) -> None:
        group = mixed()
        group.join(ask("", instance="i", new_id="c"))
        assert group.join(ask("c", instance="i")).error_code is ErrorCode.none
        assert group.join_refused(ask("d", instance="i")) is ErrorCode.fenced_instance_id
        assert group.join_refused(ask("c", instance="j")) is ErrorCode.unknown_member_id
        assert group.sync("d", 4, group_instance_id="i").error_code is ErrorCode.fenced_instance_id


class TestSyncing:
    def test_a_member_is_told_what_it_may_use(self) -> None:
        answer = mixed().sync("b", 3)
        assert (answer.error_code, answer.protocol_type, answer.protocol) == (ErrorCode.none, "consumer", "range")
        assert read_assignment(answer.assignment).partitions == (("t", (2, 3)),)

    def test_older_versions_name_no_protocol(self) -> None:
        assert mixed().sync("b", 3, protocol_type=None, protocol=None).error_code is ErrorCode.none

    def test_what_does_not_fit_is_an_error(self) -> None:
        group = mixed()
        assert group.sync("b", 2).error_code is ErrorCode.illegal_generation
        assert group.sync("nobody", 3).error_code is ErrorCode.unknown_member_id
        assert group.sync("a", 3).error_code is ErrorCode.unknown_member_id
        assert group.sync("b", 3, protocol="sticky").error_code is ErrorCode.inconsistent_group_protocol
        assert group.sync("b", 3, protocol_type="connect").error_code is ErrorCode.inconsistent_group_protocol

    def test_who_has_to_join_again_is_told_so(self) -> None:
        group = mixed()
        group.say(beat("c"))
        assert group.sync("b", 3).error_code is ErrorCode.rebalance_in_progress

    def test_who_joins_and_never_syncs_is_fenced(self) -> None:
        group = mixed()
        for group.now_s in (9.0, 18.0, 27.0):
            group.report("b", 3)
            group.say(beat("a", 3))
        group.now_s = 30.0
        assert group.expire() == ["b"]


class TestReporting:
    def test_a_member_is_heard_of(self) -> None:
        group = mixed()
        group.sync("b", 3)
        for group.now_s in (9.0, 18.0, 27.0, 36.0):
            assert group.report("b", 3) is ErrorCode.none
            group.say(beat("a", 3))
            assert group.expire() == []
        group.now_s = 46.0
        group.say(beat("a", 3))
        assert group.expire() == ["b"]

    def test_what_does_not_fit_is_an_error(self) -> None:
        group = mixed()
        assert group.report("b", 2) is ErrorCode.illegal_generation
        assert group.report("nobody", 3) is ErrorCode.unknown_member_id
        assert group.report("a", 3) is ErrorCode.unknown_member_id
        assert group.report("b", 3, "i") is ErrorCode.unknown_member_id

    def test_who_is_asked_to_join_again_and_does_not_is_fenced(self) -> None:
        group = mixed()
        group.sync("b", 3)
        group.say(beat("c"))
        for group.now_s in (0.0, 9.0, 18.0, 27.0):
            assert group.report("b", 3) is ErrorCode.rebalance_in_progress
            group.say(beat("a", group.epoch("a")))
            group.say(beat("c", group.epoch("c")))
        group.now_s = 30.0
        assert group.expire() == ["b"]

    def test_who_waits_for_others_is_left_alone_until_they_are_done(self) -> None:
        group = Mixed({"t": 4})
        group.say(beat("a"))
        group.join(ask("b"))
        assert group.report("b", 3) is ErrorCode.none
        group.say(beat("a", 2))
        assert group.report("b", 3) is ErrorCode.none
        group.say(beat("a", 2, said=owned(t=[0, 1])))
        assert group.report("b", 3) is ErrorCode.rebalance_in_progress


class TestLeaving:
    def test_members_leave_together_and_the_epoch_rises_once(self) -> None:
        group = mixed()
        group.join(ask("", instance="i", new_id="c"))
        epoch = group.group.epoch
        assert group.leave(Leaver("b", None), Leaver("", "i")) == (ErrorCode.none, ErrorCode.none)
        assert (list(group.group.members), group.group.epoch) == (["a"], epoch + 1)

    def test_who_is_not_there_or_not_classic_cannot_leave(self) -> None:
        group = mixed()
        group.join(ask("", instance="i", new_id="c"))
        leavers = (Leaver("nobody", None), Leaver("a", None), Leaver("", "j"), Leaver("d", "i"))
        assert group.leave(*leavers) == (
            ErrorCode.unknown_member_id,
            ErrorCode.unknown_member_id,
            ErrorCode.unknown_member_id,
            ErrorCode.fenced_instance_id,
        )
        assert sorted(group.group.members) == ["a", "b", "c"]

    def test_more_than_an_entry_names_do_not_leave_together(self) -> None:
        group = Mixed({"t": 1})
        group.say(beat("a"))
        member_ids = [Random(number).randbytes(16_000).hex() for number in range(40)]
        for member_id in member_ids:
            group.join(ask(member_id))
        leavers = [Leaver(member_id, None) for member_id in member_ids]
        before, sessions, syncs = group.group.copy(), dict(group.live.sessions), dict(group.live.syncs)
        with pytest.raises(GroupRejection) as caught:
            group.leave(*leavers)
        assert caught.value.error_code is ErrorCode.group_max_size_reached
        assert (group.group, group.live.sessions, group.live.syncs) == (before, sessions, syncs)
        assert group.leave(*leavers[:20]) == (ErrorCode.none,) * 20
        assert sorted(group.group.members) == sorted(["a", *member_ids[20:]])

    def test_nobody_leaves_twice(self) -> None:
        assert mixed().leave(Leaver("b", None), Leaver("b", None)) == (ErrorCode.none, ErrorCode.unknown_member_id)
