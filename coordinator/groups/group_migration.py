"""A group with members that changes its protocol: from classic to consumer, and back (KIP-848, online migration).

Rule: pure; what a group becomes. Upward, when the first member of the consumer protocol joins: every classic member
stays a member, with what it was assigned. Downward, when the last such member is gone: those that stay form a classic
group and rebalance. Generations and group epochs go on from each other, and never backwards.
Source: ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup, ConsumerGroupMigrationPolicy, Kafka 4.3.
"""

from collections.abc import Callable, Iterable

from coordinator.commands.consumer_group_values import (
    ClassicProtocols,
    ConsumerGroup,
    ConsumerMember,
    MemberAssignment,
    MemberState,
    Partitions,
    is_reconciled,
    owned,
    partitions,
    without_epochs,
)
from coordinator.commands.group_values import ClassicGroup, ClassicMember
from coordinator.groups.consumer_group_copy import FindTopic
from coordinator.groups.consumer_group_size import classic_fits
from protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerSubscription,
    NotConsumerProtocol,
    TopicPartitions,
    read_assignment,
    read_subscription,
    write_assignment,
)
from protocol.limits import CLASSIC_MEMBERS_BYTES_MAX
from protocol.types import PartitionIndex, TopicId

UPGRADING = ("bidirectional", "upgrade")
DOWNGRADING = ("bidirectional", "downgrade")
"""Values of group.consumer.migration.policy that let a group change."""


class NotMigratable(Exception):
    """The group cannot change; the message says why."""


def upgraded(group: ClassicGroup, find_topic: FindTopic) -> ConsumerGroup:
    """The group as one of the consumer protocol, before anybody else has joined it. Raises `NotMigratable`.

    Its members are where their generation was. Where that has no assignments yet, each has what it owned when it joined
    the generation: a cooperative member goes on with that until it has to give it up, one of the eager protocol owned
    nothing. Differs from Kafka, where each has its last assignment.
    """
    if group.protocol_type != PROTOCOL_TYPE:
        raise NotMigratable(f"its members are no consumers, but speak {group.protocol_type!r}")
    _check_size(group.members)
    consumer_group = ConsumerGroup(epoch=max(1, group.generation), target_epoch=max(1, group.generation))
    try:
        claims = {} if group.is_synced else _claims(group, find_topic)
        for member in group.members:
            _upgrade_member(consumer_group, group, member, claims.get(member.member_id), find_topic)
    except NotConsumerProtocol as error:
        raise NotMigratable(f"what its members say cannot be read: {error}") from error
    had = [
        (topic_id, index) for target in consumer_group.targets.values() for topic_id, rows in target for index in rows
    ]
    if len(had) != len(set(had)):
        raise NotMigratable("its assignor gave a partition to two members")
    return consumer_group


def _upgrade_member(
    consumer_group: ConsumerGroup,
    group: ClassicGroup,
    member: ClassicMember,
    claimed: Partitions | None,
    find_topic: FindTopic,
) -> None:
    """`claimed`: what the member goes on reading, where the generation has no assignments yet."""
    subscription = _subscription(group, member)
    has = claimed
    if has is None:
        assignment = read_assignment(member.assignment)
        if assignment.user_data:
            raise NotMigratable("an assignor of its own keeps data in the assignment, which would be lost")
        has = by_id(assignment.partitions, find_topic)
    epoch = consumer_group.epoch
    consumer_group.members[member.member_id] = ConsumerMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscribed_names=tuple(sorted(set(subscription.topics))),
        subscribed_regex="",
        server_assignor=None,
        classic=ClassicProtocols(session_timeout_ms=member.session_timeout_ms, protocols=member.protocols),
    )
    consumer_group.assignments[member.member_id] = MemberAssignment(
        epoch=epoch,
        previous_epoch=epoch,
        state=MemberState.STABLE,
        assigned=owned({topic_id: dict.fromkeys(indexes, epoch) for topic_id, indexes in has}),
        revoking=(),
    )
    if has:
        consumer_group.targets[member.member_id] = has


def _subscription(group: ClassicGroup, member: ClassicMember) -> ConsumerSubscription:
    subscriptions = {name: read_subscription(metadata) for name, metadata in member.protocols}
    subscription = subscriptions.get(group.protocol or "")
    if subscription is None:
        raise NotMigratable(f"member {member.member_id!r} does not support {group.protocol!r}")
    return subscription


def _claims(group: ClassicGroup, find_topic: FindTopic) -> dict[str, Partitions]:
    """The partitions that each member says it owns. Of two claims of one partition the newer generation is right.

    Source: AbstractStickyAssignor of Kafka's clients, which judges them alike.
    """
    said = [(_subscription(group, member), member.member_id) for member in group.members]
    taken: set[tuple[TopicId, PartitionIndex]] = set()
    claims: dict[str, Partitions] = {}
    for subscription, member_id in sorted(said, key=lambda each: -each[0].generation):
        owned_rows = by_id(subscription.owned, find_topic)
        claims[member_id] = partitions(
            {
                topic_id: [index for index in indexes if (topic_id, index) not in taken]
                for topic_id, indexes in owned_rows
            }
        )
        taken |= {(topic_id, index) for topic_id, indexes in owned_rows for index in indexes}
    return claims


def by_id(named: TopicPartitions, find_topic: FindTopic) -> Partitions:
    """The same by the ids of topics, without what does not exist."""
    indexes: dict[TopicId, set[PartitionIndex]] = {}
    for name, rows in named:
        topic = find_topic(name)
        if topic is not None:
            indexes.setdefault(topic[0], set()).update(PartitionIndex(row) for row in rows if 0 <= row < topic[1])
    return partitions(indexes)


def is_classic_but_for(group: ConsumerGroup, leaving: Iterable[str]) -> bool:
    """Whether members stay, and all of them speak the classic protocol."""
    gone = set(leaving)
    staying = [member for member_id, member in group.members.items() if member_id not in gone]
    return bool(staying) and all(member.classic is not None for member in staying)


def downgraded(
    group: ConsumerGroup,
    leaving: Iterable[str],
    name_of: Callable[[TopicId], str | None],
    *,
    is_rebalance_due: bool = False,
) -> ClassicGroup:
    """The group as a classic one of those who stay, all of them members of the classic protocol.

    They keep their target assignment; where one of them does not have it yet, all have to join again. Differs from
    Kafka, where a member that waits for partitions at the group's epoch takes the generation for its own: until the
    next rebalance those partitions are unassigned. Raises `NotMigratable`.
    """
    gone = set(leaving)
    staying = [member for member_id, member in sorted(group.members.items()) if member_id not in gone]
    is_rebalance_due = is_rebalance_due or not all(
        is_reconciled(group.assignment(member.member_id), group.epoch) for member in staying
    )
    protocol = _protocol_of_all(staying)
    members = tuple(
        _downgrade_member(member, group.targets.get(member.member_id, ()), protocol, name_of) for member in staying
    )
    _check_size(members)
    classic_group = ClassicGroup(
        generation=group.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol=protocol,
        leader=staying[0].member_id,
        members=members,
        is_synced=True,
        is_rebalance_due=is_rebalance_due,
    )
    if not classic_fits(classic_group):
        raise NotMigratable("its members and their assignments do not fit into one ledger entry")
    return classic_group


def _check_size(members: Iterable[ClassicMember]) -> None:
    """Raise `NotMigratable` where the members' metadata and assignments do not fit into one entry."""
    size = sum(
        len(member.assignment) + sum(len(name) + len(metadata) for name, metadata in member.protocols)
        for member in members
    )
    if size > CLASSIC_MEMBERS_BYTES_MAX:
        raise NotMigratable(f"its members and their assignments take {size} bytes, more than one entry takes")


def _protocol_of_all(members: Iterable[ConsumerMember]) -> str:
    """The first protocol of the first member that all support; they have one in common, or they had not been let in."""
    names = [[name for name, _ in member.classic.protocols] for member in members if member.classic is not None]
    return next(name for name in names[0] if all(name in others for others in names))


def _downgrade_member(
    member: ConsumerMember, target: Partitions, protocol: str, name_of: Callable[[TopicId], str | None]
) -> ClassicMember:
    assert member.classic is not None, f"member {member.member_id!r} does not speak the classic protocol"
    metadata = next(metadata for name, metadata in member.classic.protocols if name == protocol)
    return ClassicMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=member.classic.protocols,
        assignment=assignment_bytes(target, metadata, name_of),
    )


def assignment_bytes(has: Partitions, metadata: bytes, name_of: Callable[[TopicId], str | None]) -> bytes:
    """The assignment as a classic member reads it, in the version of its subscription.

    It has the first version, which every consumer reads, where the subscription is unreadable: such a member is let in.
    """
    named = {name: indexes for topic_id, indexes in has if (name := name_of(topic_id)) is not None}
    try:
        version = read_subscription(metadata).version
    except NotConsumerProtocol:
        version = 0
    return write_assignment(named, version)


def assigned_bytes(standing: MemberAssignment, metadata: bytes, name_of: Callable[[TopicId], str | None]) -> bytes:
    """The same for what it may use now."""
    return assignment_bytes(without_epochs(standing.assigned), metadata, name_of)
