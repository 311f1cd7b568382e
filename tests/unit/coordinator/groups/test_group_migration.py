"""What a group becomes when its members change the protocol: from classic to consumer, and back.

Source: ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup (Kafka 4.3).
"""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from msgspec import structs

from coordinator.commands.consumer_group_values import ClassicProtocols, ConsumerGroup, GroupPhase, MemberState
from coordinator.commands.group_values import ClassicGroup, ClassicMember
from coordinator.groups.classic_group import LiveClassicGroup
from coordinator.groups.classic_messages import GroupLimits
from coordinator.groups.classic_states import ClassicGroupState
from coordinator.groups.group_migration import (
    NotMigratable,
    by_id,
    downgraded,
    is_classic_but_for,
    upgraded,
)
from protocol.consumer_protocol import read_assignment, write_assignment
from protocol.limits import CLASSIC_MEMBERS_BYTES_MAX, LEDGER_ENTRY_BYTES_MAX
from protocol.types import TopicId
from tests.support.groups.consumer_groups import Coordinated, owned, subscription, topic_id

TOPICS = Coordinated({"t": 4, "u": 2})


def name_of(found: TopicId) -> str | None:
    return next((name for name in TOPICS.topics if topic_id(name) == found), None)


def member(member_id: str, partitions: list[int], **other: object) -> ClassicMember:
    return structs.replace(
        ClassicMember(
            member_id=member_id,
            group_instance_id=None,
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=60_000,
            session_timeout_ms=10_000,
            protocols=(("range", subscription("t", "gone")), ("sticky", subscription("t"))),
            assignment=write_assignment({"t": partitions}, 1),
        ),
        **other,
    )


def classic(*members: ClassicMember, **other: object) -> ClassicGroup:
    return structs.replace(
        ClassicGroup(
            generation=7, protocol_type="consumer", protocol="range", leader="a", members=members, is_synced=True
        ),
        **other,
    )


BOTH = classic(member("a", [0, 1]), member("b", [2, 3], group_instance_id="i"))


class TestUpgrading:
    def test_members_stay_with_what_they_have(self) -> None:
        group = upgraded(BOTH, TOPICS.find_topic)
        assert (group.epoch, group.target_epoch, group.phase()) == (7, 7, GroupPhase.STABLE)
        assert group.targets == {"a": owned(t=[0, 1]), "b": owned(t=[2, 3])}
        found = group.members["b"]
        assert (found.instance_id, found.subscribed_names, found.rebalance_timeout_ms) == ("i", ("gone", "t"), 60_000)
        assert found.classic is not None
        assert found.classic.session_timeout_ms == 10_000

    def test_what_is_not_synced_yet_is_nobodys(self) -> None:
        group = upgraded(structs.replace(BOTH, is_synced=False), TOPICS.find_topic)
        assert group.targets == {}

    def test_what_a_cooperative_member_kept_in_a_rebalance_stays_its_own(self) -> None:
        """It reads on until it is asked for it: another member that was given it meanwhile would read it, too."""
        kept = (("range", subscription("t", has={"t": [1, 2], "gone": [0]})), ("sticky", subscription("t")))
        also = (("range", subscription("t", has={"t": [2, 3]})), ("sticky", subscription("t")))
        group = upgraded(
            classic(
                member("a", [], protocols=kept, assignment=b""),
                member("b", [], protocols=also, assignment=b""),
                is_synced=False,
            ),
            TOPICS.find_topic,
        )
        assert group.targets == {"a": owned(t=[1, 2]), "b": owned(t=[3])}
        assert group.assignment("a").state is MemberState.STABLE

    def test_of_two_claims_that_of_the_newer_generation_is_right(self) -> None:
        def said(generation: int, indexes: list[int]) -> bytes:
            with_owned = subscription("t", has={"t": indexes})
            return b"\0\2" + with_owned[2:] + generation.to_bytes(4, "big", signed=True)

        members = [
            member(name, [], protocols=(("range", said(generation, [1, 99])), ("sticky", subscription("t"))))
            for name, generation in (("a", 4), ("b", 9))
        ]
        group = upgraded(classic(*members, is_synced=False), TOPICS.find_topic)
        assert group.targets == {"b": owned(t=[1])}

    def test_topics_that_are_gone_are_left_out(self) -> None:
        assignment = write_assignment({"gone": [1], "t": [3]}, 1)
        group = upgraded(classic(member("a", [], assignment=assignment)), TOPICS.find_topic)
        assert group.targets == {"a": owned(t=[3])}

    @pytest.mark.parametrize(
        "group",
        [
            classic(member("a", []), protocol_type="connect"),
            classic(member("a", [], assignment=b"part")),
            classic(member("a", [], protocols=(("range", b"x"),))),
            classic(member("a", [], protocols=(("range", subscription("t")), ("sticky", b"x")))),
            classic(member("a", [], protocols=(("sticky", subscription("t")),))),
            classic(member("a", [], assignment=write_assignment({}, 0)[:-4] + b"\0\0\0\1x")),
            classic(member("a", [0]), member("b", [0])),
            classic(member("a", [0], assignment=write_assignment({"t": [0]}, 1) + bytes(CLASSIC_MEMBERS_BYTES_MAX))),
        ],
    )
    def test_what_would_lose_something_stays_as_it_is(self, group: ClassicGroup) -> None:
        with pytest.raises(NotMigratable):
            upgraded(group, TOPICS.find_topic)


class TestDowngrading:
    def test_it_is_what_was_upgraded(self) -> None:
        group = upgraded(BOTH, TOPICS.find_topic)
        assert is_classic_but_for(group, ())
        back = downgraded(group, (), name_of)
        assert (back.generation, back.leader, back.protocol, back.is_synced) == (7, "a", "range", True)
        assert [read_assignment(each.assignment).partitions for each in back.members] == [
            (("t", (0, 1)),),
            (("t", (2, 3)),),
        ]
        assert [each.protocols for each in back.members] == [each.protocols for each in BOTH.members]

    def test_who_leaves_is_not_in_it(self) -> None:
        group = upgraded(BOTH, TOPICS.find_topic)
        group.members["b"] = structs.replace(group.members["b"], classic=None)
        assert not is_classic_but_for(group, ())
        assert is_classic_but_for(group, ["b"])
        assert [each.member_id for each in downgraded(group, ["b"], name_of).members] == ["a"]

    def test_the_protocol_is_one_that_all_support(self) -> None:
        group = upgraded(BOTH, TOPICS.find_topic)
        found = group.members["b"]
        assert found.classic is not None
        group.members["b"] = structs.replace(
            found, classic=structs.replace(found.classic, protocols=found.classic.protocols[1:])
        )
        assert downgraded(group, (), name_of).protocol == "sticky"

    def test_topics_that_are_gone_are_left_out(self) -> None:
        group = upgraded(classic(member("a", [0])), TOPICS.find_topic)
        (found,) = downgraded(group, (), lambda _: None).members
        assert read_assignment(found.assignment).partitions == ()

    def test_a_subscription_that_nobody_can_read_ends_nothing(self) -> None:
        group = upgraded(classic(member("a", [0])), TOPICS.find_topic)
        found = group.members["a"]
        assert found.classic is not None
        group.members["a"] = structs.replace(
            found, classic=structs.replace(found.classic, protocols=(("range", b"\xff"),))
        )
        (found_back,) = downgraded(group, (), name_of).members
        assert found_back.assignment == write_assignment({"t": [0]}, 0)

    def test_whether_they_have_to_rebalance_is_part_of_it(self) -> None:
        group = upgraded(BOTH, TOPICS.find_topic)
        assert not downgraded(group, (), name_of).is_rebalance_due
        due = downgraded(group, (), name_of, is_rebalance_due=True)
        assert due.is_rebalance_due
        limits = GroupLimits(initial_rebalance_delay_ms=0, members_max=2)
        restored = LiveClassicGroup(due, limits, 1.0)
        assert (restored.state, restored.deadline_s) == (ClassicGroupState.PREPARING, 11.0)
        assert not restored.value().is_rebalance_due
        assert (
            LiveClassicGroup(structs.replace(due, is_rebalance_due=False), limits, 1.0).state
            is ClassicGroupState.STABLE
        )

    @pytest.mark.parametrize(
        "other",
        [
            {"state": MemberState.UNRELEASED_PARTITIONS, "assigned": ()},
            {"state": MemberState.UNREVOKED_PARTITIONS},
            {"epoch": 6},
        ],
    )
    def test_so_they_have_where_one_does_not_have_what_it_is_to_have(self, other: dict[str, Any]) -> None:
        group = upgraded(BOTH, TOPICS.find_topic)
        group.assignments["b"] = replace(group.assignments["b"], **other)
        assert downgraded(group, (), name_of).is_rebalance_due
        assert not downgraded(group, ["b"], name_of).is_rebalance_due

    def test_what_no_entry_takes_stays_as_it_is(self) -> None:
        group = upgraded(BOTH, TOPICS.find_topic)
        for member_id in ("a", "b"):
            found = group.members[member_id]
            assert found.classic is not None
            protocols = (*found.classic.protocols, ("large", bytes(CLASSIC_MEMBERS_BYTES_MAX // 2)))
            group.members[member_id] = structs.replace(
                found, classic=structs.replace(found.classic, protocols=protocols)
            )
        with pytest.raises(NotMigratable, match="more than one entry takes"):
            downgraded(group, (), name_of)

    def test_it_is_what_is_written_that_counts(self) -> None:
        group = upgraded(classic(member("a", [0])), TOPICS.find_topic)
        found = group.members["a"]
        assert found.classic is not None
        own = found.classic.protocols

        def with_metadata(metadata: bytes) -> ConsumerGroup:
            protocols = (*own, ("large", metadata))
            changed = group.copy()
            changed.members["a"] = structs.replace(
                found, classic=ClassicProtocols(session_timeout_ms=1, protocols=protocols)
            )
            return changed

        assert downgraded(with_metadata(bytes(LEDGER_ENTRY_BYTES_MAX)), (), name_of).members
        with pytest.raises(NotMigratable, match="do not fit"):
            downgraded(with_metadata(Random(7).randbytes(LEDGER_ENTRY_BYTES_MAX)), (), name_of)

    def test_nobody_is_no_group(self) -> None:
        assert not is_classic_but_for(ConsumerGroup(), ())


def test_partitions_are_found_by_name() -> None:
    assert by_id((("u", (1, 1, -1)), ("gone", (0,)), ("t", (0,))), TOPICS.find_topic) == owned(t=[0], u=[1])
