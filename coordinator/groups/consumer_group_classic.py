"""Members of the classic protocol in a consumer group (KIP-848, online migration): JoinGroup and what follows it.

Rule: pure; to such a member its member epoch is a generation. JoinGroup answers with the epoch at once, SyncGroup with
the partitions that it may use. Heartbeat answers REBALANCE_IN_PROGRESS whenever there is a step to take: the group's
epoch rose, the member has to give partitions up, or all that it waits for is free. No member leads: the coordinator
assigns. A request that cannot be met is an error, and leaves the group as it was.
Source: GroupMetadataManager.classicGroupJoinToConsumerGroup and its siblings for sync, heartbeat and leave, Kafka 4.3.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from coordinator.commands.consumer_group_values import (
    NEW_MEMBER,
    ClassicProtocols,
    ConsumerGroup,
    ConsumerGroupChange,
    ConsumerMember,
    MemberAssignment,
    MemberState,
)
from coordinator.groups.classic_messages import NO_MEMBER_ID, Join, JoinAnswer, Leaver, Sync, SyncAnswer
from coordinator.groups.consumer_group import LiveConsumerGroup
from coordinator.groups.consumer_group_copy import FindTopic
from coordinator.groups.consumer_group_messages import ConsumerGroupConfig, GroupRejection
from coordinator.groups.group_migration import assigned_bytes, by_id
from protocol.consumer_protocol import PROTOCOL_TYPE, ConsumerSubscription, NotConsumerProtocol, read_subscription
from protocol.errors import ErrorCode
from protocol.limits import CONSUMER_GROUP_MEMBER_BYTES_MAX
from protocol.types import TopicId


def join(
    live: LiveConsumerGroup, request: Join, config: ConsumerGroupConfig, find_topic: FindTopic, now_s: float
) -> tuple[JoinAnswer, ConsumerGroupChange | None]:
    """The answer, and the rows that must be in the ledger first. Raises `GroupRejection`."""
    is_unknown = request.member_id == NO_MEMBER_ID
    member_id = request.member_id_new if is_unknown else request.member_id
    live.check_room(member_id, config)
    if sum(len(metadata) for _, metadata in request.protocols) > CONSUMER_GROUP_MEMBER_BYTES_MAX:
        raise GroupRejection(
            ErrorCode.group_max_size_reached,
            f"a member's subscriptions may take {CONSUMER_GROUP_MEMBER_BYTES_MAX} bytes in all its protocols together",
        )
    subscription = _subscription(live.group, request)
    if is_unknown and request.needs_known_id and request.group_instance_id is None:
        return JoinAnswer(error_code=ErrorCode.member_id_required, member_id=member_id), None
    before, standing, replaced = _find(live, request, member_id)
    member = ConsumerMember(
        member_id=member_id,
        instance_id=request.group_instance_id,
        rack_id=subscription.rack if before is None or subscription.rack is not None else before.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_names=tuple(sorted(set(subscription.topics))),
        subscribed_regex="",
        server_assignor=None if before is None else before.server_assignor,
        classic=ClassicProtocols(session_timeout_ms=request.session_timeout_ms, protocols=request.protocols),
    )
    said = by_id(subscription.owned, find_topic)
    after = live.admit(before, member, standing, replaced, said, config, find_topic, now_s)
    live.reset_session(member_id, request.session_timeout_ms, now_s)
    live.await_sync(member, now_s)
    answer = JoinAnswer(
        error_code=ErrorCode.none,
        member_id=member_id,
        generation=after.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol=request.protocols[0][0],
    )
    return answer, live.take_change()


def _subscription(group: ConsumerGroup, request: Join) -> ConsumerSubscription:
    """The member's subscription. Raises where it shares no protocol with the others: supportsClassicProtocols in Kafka.

    Differs from Kafka, which reads the first protocol alone: another one may be that of the group if it is downgraded.
    """
    names = {name for name, _ in request.protocols}
    others = [member.classic for member in group.members.values() if member.classic is not None]
    supported = [{name for name, _ in classic.protocols} for classic in others]
    has_common = any(all(name in theirs for theirs in supported) for name in names)
    try:
        if request.protocol_type == PROTOCOL_TYPE and has_common:
            first, *_ = [read_subscription(metadata) for _, metadata in request.protocols]
            return first
    except NotConsumerProtocol as error:
        raise GroupRejection(ErrorCode.inconsistent_group_protocol, str(error)) from error
    raise GroupRejection(
        ErrorCode.inconsistent_group_protocol, f"no member supports {sorted(names)} of type {request.protocol_type!r}"
    )


def _find(
    live: LiveConsumerGroup, request: Join, member_id: str
) -> tuple[ConsumerMember | None, MemberAssignment, ConsumerMember | None]:
    """The member as it was, where it stands, and the static member in whose place it comes."""
    instance_id = request.group_instance_id
    if instance_id is None:
        return live.group.members.get(member_id), live.group.assignment(member_id), None
    if request.member_id != NO_MEMBER_ID:
        member = live.static_member(instance_id, member_id)
        return member, live.group.assignment(member_id), None
    existing = live.copy.static_member(instance_id)
    if existing is None:
        return None, NEW_MEMBER, None
    standing = replace(live.group.assignment(existing.member_id), epoch=0, previous_epoch=0)
    return existing, standing, existing


def sync(live: LiveConsumerGroup, request: Sync, name_of: Callable[[TopicId], str | None], now_s: float) -> SyncAnswer:
    """The partitions that the member may use, or an error."""
    member, error_code = _member(live, request.member_id, request.group_instance_id)
    if member is None or member.classic is None:
        return SyncAnswer(error_code=error_code)
    standing = live.group.assignment(member.member_id)
    name, metadata = member.classic.protocols[0]
    if request.generation != standing.epoch:
        return SyncAnswer(error_code=ErrorCode.illegal_generation)
    if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol not in (None, name):
        return SyncAnswer(error_code=ErrorCode.inconsistent_group_protocol)
    if standing.epoch < live.group.epoch and standing.state is not MemberState.UNREVOKED_PARTITIONS:
        live.await_join(member, now_s)
        return SyncAnswer(error_code=ErrorCode.rebalance_in_progress)
    live.syncs.pop(member.member_id, None)
    live.reset_session(member.member_id, member.classic.session_timeout_ms, now_s)
    return SyncAnswer(
        error_code=ErrorCode.none,
        protocol_type=request.protocol_type,
        protocol=request.protocol,
        assignment=assigned_bytes(standing, metadata, name_of),
    )


def heartbeat(
    live: LiveConsumerGroup, member_id: str, group_instance_id: str | None, generation: int, now_s: float
) -> ErrorCode:
    """NONE, or why the member has to join again."""
    member, error_code = _member(live, member_id, group_instance_id)
    if member is None or member.classic is None:
        return error_code
    standing = live.group.assignment(member_id)
    if generation != standing.epoch:
        return ErrorCode.illegal_generation
    live.reset_session(member_id, member.classic.session_timeout_ms, now_s)
    is_free = standing.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(live, member_id)
    if standing.epoch < live.group.epoch or standing.state is MemberState.UNREVOKED_PARTITIONS or is_free:
        live.await_join(member, now_s)
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def _waits_for_others(live: LiveConsumerGroup, member_id: str) -> bool:
    """Whether others have any of what it is to have. Source: ConsumerGroup.waitingOnUnreleasedPartition."""
    target = live.group.targets.get(member_id, ())
    return any(
        live.copy.owner(topic_id, index) not in (None, member_id) for topic_id, indexes in target for index in indexes
    )


def leave(
    live: LiveConsumerGroup, leavers: Sequence[Leaver], find_topic: FindTopic
) -> tuple[tuple[ErrorCode, ...], ConsumerGroupChange | None]:
    """An error for each, and the rows that must be in the ledger before the answer. Raises `GroupRejection`."""
    gone: list[str] = []
    error_codes: list[ErrorCode] = []
    for leaver in leavers:
        member, error_code = _leaver(live, leaver)
        if member is not None and member.member_id not in gone:
            gone.append(member.member_id)
        elif member is not None:
            error_code = ErrorCode.unknown_member_id
        error_codes.append(error_code)
    return tuple(error_codes), live.fence(gone, find_topic) if gone else None


def _leaver(live: LiveConsumerGroup, leaver: Leaver) -> tuple[ConsumerMember | None, ErrorCode]:
    if leaver.group_instance_id is None or leaver.member_id != NO_MEMBER_ID:
        return _member(live, leaver.member_id, leaver.group_instance_id)
    member = live.copy.static_member(leaver.group_instance_id)
    is_classic = member is not None and member.classic is not None
    return (member, ErrorCode.none) if is_classic else (None, ErrorCode.unknown_member_id)


def _member(
    live: LiveConsumerGroup, member_id: str, group_instance_id: str | None
) -> tuple[ConsumerMember | None, ErrorCode]:
    """The member that speaks; None with an error where it is none, or not one of the classic protocol."""
    try:
        if group_instance_id is not None:
            member: ConsumerMember | None = live.static_member(group_instance_id, member_id)
        else:
            member = live.group.members.get(member_id)
    except GroupRejection as rejection:
        return None, rejection.error_code
    is_classic = member is not None and member.classic is not None
    return (member, ErrorCode.none) if is_classic else (None, ErrorCode.unknown_member_id)
