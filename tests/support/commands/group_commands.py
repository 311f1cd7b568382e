"""Groups and their commands as tests write them."""

from coordinator.commands.consumer_group_values import ConsumerGroupChange, ConsumerMember
from coordinator.commands.group import CommitOffsets
from coordinator.commands.group_values import ClassicGroup, ClassicMember
from protocol.types import TopicId
from tests.support.commands.commands import TOPIC


def member(member_id: str = "m1") -> ClassicMember:
    return ClassicMember(
        member_id=member_id,
        group_instance_id=None,
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=45_000,
        protocols=(("range", b"topics"),),
        assignment=b"mine",
    )


def generation(number: int, *members: ClassicMember) -> ClassicGroup:
    return ClassicGroup(
        generation=number,
        protocol_type="consumer",
        protocol="range" if members else None,
        leader=members[0].member_id if members else None,
        members=members,
        is_synced=True,
    )


GENERATION = generation(1, member())


def offsets(
    group: tuple[str, int], offset: int, *, partition: int = 0, topic_id: TopicId = TOPIC, retention_ms: int = -1
) -> CommitOffsets:
    return CommitOffsets(
        groups=(group,),
        topic_ids=(topic_id,),
        group=[0],
        topic=[0],
        partition=[partition],
        offset=[offset],
        leader_epoch=[-1],
        retention_ms=[retention_ms],
        metadata=("text",),
    )


JOINED = ConsumerGroupChange(
    epoch=2,
    target_epoch=1,
    topics_hash=b"",
    is_new=True,
    members=(
        ConsumerMember(
            member_id="m1",
            instance_id=None,
            rack_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=1_000,
            subscribed_names=("t",),
            subscribed_regex="",
            server_assignor=None,
        ),
    ),
)
