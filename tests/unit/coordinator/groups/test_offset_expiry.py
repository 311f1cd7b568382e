"""Which committed offsets a group need not keep, by what kind of group it is and who subscribes to what (KIP-211)."""

import pytest

from coordinator.commands.consumer_group_values import ConsumerGroup, ConsumerMember
from coordinator.commands.group_values import ClassicGroup, ClassicMember, CommittedOffset, GroupState
from coordinator.groups.offset_expiry import due_offsets, subscribed_topics
from protocol.types import Milliseconds, Offset, PartitionIndex, ProducerId, SessionId, TopicId

T = TopicId(bytes(15) + b"\1")
U = TopicId(bytes(15) + b"\2")
NAMES = {T: "t", U: "u"}
T_0, U_0 = (T, PartitionIndex(0)), (U, PartitionIndex(0))
RETENTION_MS = 1_000
SUBSCRIBED_TO_T = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"


def committed(commit_ms: int, retention_ms: int | None = None) -> CommittedOffset:
    return CommittedOffset(
        offset=Offset(5), leader_epoch=-1, metadata="", commit_ms=Milliseconds(commit_ms), retention_ms=retention_ms
    )


def group(
    value: ClassicGroup | ConsumerGroup | None = None, *offsets: CommittedOffset, empty_since: int | None = None
) -> GroupState:
    """A group with offsets in `t` and `u`, in this order."""
    return GroupState(
        group_id="g",
        claim_epoch=1,
        claimed_by=SessionId(1),
        value=value,
        offsets={topic_id: {PartitionIndex(0): found} for topic_id, found in zip((T, U), offsets, strict=False)},
        empty_since_ms=None if empty_since is None else Milliseconds(empty_since),
    )


def classic(*metadata: bytes, kind: str = "consumer", is_synced: bool = True) -> ClassicGroup:
    """A group whose members have this metadata for its protocol, `range`."""
    members = tuple(
        ClassicMember(
            member_id=f"m{number}",
            group_instance_id=None,
            client_id="",
            client_host="",
            rebalance_timeout_ms=1,
            session_timeout_ms=1,
            protocols=(("sticky", b""), ("range", each)),
        )
        for number, each in enumerate(metadata)
    )
    return ClassicGroup(
        generation=1,
        protocol_type=kind,
        protocol="range" if members else None,
        leader="m0" if members else None,
        members=members,
        is_synced=is_synced,
    )


def consumers(*subscribed: str, regex: str = "") -> ConsumerGroup:
    member = ConsumerMember(
        member_id="m",
        instance_id=None,
        rack_id=None,
        client_id="",
        client_host="",
        rebalance_timeout_ms=1,
        subscribed_names=subscribed,
        subscribed_regex=regex,
        server_assignor=None,
    )
    return ConsumerGroup(members={"m": member}, regexes={"u.*": ("u", "uu")})


def due(found: GroupState, now_ms: int) -> list[tuple[TopicId, PartitionIndex]]:
    return due_offsets(found, NAMES, Milliseconds(now_ms), RETENTION_MS)


class TestWithoutMembers:
    def test_where_nobody_ever_joined_an_offset_counts_from_its_commit(self) -> None:
        found = group(None, committed(100), committed(200))
        assert due(found, 1_099) == []
        assert due(found, 1_100) == [T_0]
        assert due(found, 1_200) == [T_0, U_0]

    def test_where_all_left_everything_counts_from_then(self) -> None:
        found = group(classic(), committed(100), committed(900), empty_since=500)
        assert due(found, 1_499) == []
        assert due(found, 1_500) == [T_0, U_0]

    def test_without_a_protocol_type_a_group_counts_as_never_joined(self) -> None:
        assert due(group(classic(kind=""), committed(100), committed(600), empty_since=500), 1_500) == [T_0]

    def test_of_other_protocols_the_same_holds(self) -> None:
        assert due(group(classic(kind="connect"), committed(100), empty_since=500), 1_500) == [T_0]

    def test_a_consumer_group_that_all_left_counts_from_each_commit(self) -> None:
        assert due(group(ConsumerGroup(), committed(100), committed(600), empty_since=500), 1_500) == [T_0]


class TestWithMembers:
    def test_what_a_consumer_subscribes_to_stays_and_the_rest_goes_by_its_commit(self) -> None:
        found = group(classic(SUBSCRIBED_TO_T), committed(0), committed(100))
        assert due(found, 1_099) == []
        assert due(found, 5_000) == [U_0]

    @pytest.mark.parametrize(
        "value",
        [
            classic(SUBSCRIBED_TO_T, is_synced=False),
            classic(SUBSCRIBED_TO_T, kind="connect"),
            classic(SUBSCRIBED_TO_T, b"?"),
        ],
        ids=["before the assignment", "another protocol", "metadata that nobody can read"],
    )
    def test_nothing_goes_where_it_is_not_known_what_is_wanted(self, value: ClassicGroup) -> None:
        assert due(group(value, committed(0), committed(0)), 1_000_000) == []

    def test_not_even_what_says_itself_how_long_it_is_kept(self) -> None:
        assert due(group(classic(SUBSCRIBED_TO_T, is_synced=False), committed(0, 1)), 1_000_000) == []

    def test_of_a_consumer_group_what_nobody_subscribes_to_goes_by_its_commit(self) -> None:
        assert due(group(consumers("t"), committed(0), committed(100)), 1_100) == [U_0]
        assert due(group(consumers("t"), committed(0), committed(100)), 1_099) == []
        assert due(group(consumers("x", regex="u.*"), committed(0), committed(0)), 1_100) == [T_0]


def test_an_offset_that_says_itself_how_long_it_is_kept_goes_by_that() -> None:
    found = group(classic(), committed(100, 50), committed(100, 5_000), empty_since=100)
    assert due(found, 149) == []
    assert due(found, 150) == [T_0]
    assert due(found, 4_000) == [T_0]
    assert due(found, 5_100) == [T_0, U_0]


class TestSubscriptions:
    def test_those_of_all_members_count(self) -> None:
        both = classic(SUBSCRIBED_TO_T, SUBSCRIBED_TO_T.replace(b"t", b"u"))
        assert subscribed_topics(both) == {"t", "u"}
        assert subscribed_topics(consumers("t", "v", regex="u.*")) == {"t", "v", "u", "uu"}

    @pytest.mark.parametrize("value", [None, classic(), classic(kind="connect"), ConsumerGroup()])
    def test_where_nobody_is_there_is_none(self, value: ClassicGroup | ConsumerGroup | None) -> None:
        assert subscribed_topics(value) == frozenset()

    def test_what_other_protocols_say_is_not_known(self) -> None:
        assert subscribed_topics(classic(SUBSCRIBED_TO_T, kind="connect")) is None

    def test_a_member_without_the_groups_protocol_makes_them_unknown(self) -> None:
        value = classic(SUBSCRIBED_TO_T)
        unknown = ClassicGroup(
            generation=1,
            protocol_type="consumer",
            protocol="roundrobin",
            leader="m0",
            members=value.members,
            is_synced=True,
        )
        assert subscribed_topics(unknown) is None


def test_what_an_open_transaction_may_replace_is_kept() -> None:
    found = group(None, committed(0), committed(0))
    found.pending = {ProducerId(7): {T: {PartitionIndex(0): committed(0)}}}
    assert due_offsets(found, NAMES, Milliseconds(RETENTION_MS), RETENTION_MS) == [U_0]
