"""Groups and their committed offsets. Called by `coordinator.apply.apply`.

Rule: a group is changed by its coordinator alone: the session that claimed it last, under that claim's epoch, and a
claim is given only to the session that rendezvous hashing names over the live sessions at that position, zones ignored
(safety rule S13). Whether members may do what they ask for was judged by the coordinator before; that what it judged by
is still so, is judged here, by claim and version. A group that is nothing but a claim is there for its coordinator
alone, and counts for nothing: any client can have one claimed. There is room for so many of these, the newest.
"""

from typing import assert_never

from coordinator.commands.commands import Done, Outcome, Rejected
from coordinator.commands.consumer_group_values import ConsumerGroup, rejection, replay
from coordinator.commands.group import (
    ClaimGroups,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    GroupCommand,
    GroupsClaimed,
    OffsetsCommitted,
    WriteClassicGroup,
    WriteConsumerGroup,
)
from coordinator.commands.group_values import (
    NO_GROUP,
    ClassicGroup,
    CommittedOffset,
    GroupState,
    generation_of,
    group_key,
)
from coordinator.groups.offset_expiry import due_offsets
from coordinator.state.rendezvous import owners_of
from coordinator.state.state import NO_TIME, ClusterState
from protocol.errors import ErrorCode
from protocol.limits import GROUPS_MAX, VACANT_GROUPS_MAX
from protocol.types import Milliseconds, Offset, PartitionIndex, SessionId, TopicId
from txn.transaction import Ending

NO_EPOCH = -1
NO_ERROR = int(ErrorCode.none)


def apply_group_command(state: ClusterState, session_id: SessionId, command: GroupCommand) -> Outcome:
    """The part of `coordinator.apply.apply` that is about groups."""
    match command:
        case ClaimGroups():
            return claim_groups(state, session_id, command)
        case WriteClassicGroup():
            return write_classic_group(state, session_id, command)
        case WriteConsumerGroup():
            return write_consumer_group(state, session_id, command)
        case CommitOffsets():
            return commit_offsets(state, session_id, command)
        case DeleteOffsets():
            return delete_offsets(state, session_id, command)
        case DeleteGroup():
            return delete_group(state, session_id, command)
        case ExpireOffsets():
            return expire_offsets(state, command)
        case _:
            assert_never(command)


def claim_groups(state: ClusterState, session_id: SessionId, command: ClaimGroups) -> Outcome:
    """Let the session coordinate those of the groups that are its own to coordinate."""
    epochs: list[int] = []
    error_codes: list[int] = []
    owners = owners_of([group_key(group_id) for group_id in command.group_ids], state.sessions)
    for group_id, owner in zip(command.group_ids, owners, strict=True):
        error_code = _claim_error(state, session_id, group_id, owner)
        epochs.append(_claim(state, session_id, group_id) if error_code is ErrorCode.none else NO_EPOCH)
        error_codes.append(int(error_code))
    return GroupsClaimed(claim_epochs=tuple(epochs), error_codes=tuple(error_codes))


def _claim_error(state: ClusterState, session_id: SessionId, group_id: str, owner: SessionId | None) -> ErrorCode:
    if owner != session_id:
        return ErrorCode.not_coordinator
    if group_id not in state.groups and len(state.groups) - len(state.vacant_groups) >= GROUPS_MAX:
        return ErrorCode.group_max_size_reached
    return ErrorCode.none


def _claim(state: ClusterState, session_id: SessionId, group_id: str) -> int:
    state.group_claims_count += 1
    epoch = state.group_claims_count
    group = state.groups.get(group_id)
    if group is None:
        group = state.groups[group_id] = GroupState(group_id=group_id, claim_epoch=epoch, claimed_by=session_id)
    else:
        group.claim_epoch, group.claimed_by = epoch, session_id
    if group.is_vacant:
        state.vacant_groups.pop(group_id, None)
        state.vacant_groups[group_id] = None
        if len(state.vacant_groups) > VACANT_GROUPS_MAX:
            _forget(state, next(iter(state.vacant_groups)))
    return epoch


def _forget(state: ClusterState, group_id: str) -> None:
    del state.groups[group_id]
    state.vacant_groups.pop(group_id, None)


def write_classic_group(state: ClusterState, session_id: SessionId, command: WriteClassicGroup) -> Outcome:
    """Begin or complete a generation. Generations of a group never go backwards."""
    group = claimed(state, session_id, command.group_id, command.claim_epoch, version=command.version)
    if isinstance(group, Rejected):
        return group
    rejected = _check_generation(group, command.group.generation)
    if rejected is not None:
        return rejected
    _written(state, group, command.group, had_members=group.value is None or group.has_members)
    return Done()


def write_consumer_group(state: ClusterState, session_id: SessionId, command: WriteConsumerGroup) -> Outcome:
    """Change a consumer group's members and assignments, as its coordinator worked out (KIP-848)."""
    group = claimed(state, session_id, command.group_id, command.claim_epoch, version=command.version)
    if isinstance(group, Rejected):
        return group
    rejected = _check_generation(group, command.change.epoch)
    if rejected is not None:
        return rejected
    before = group.value if isinstance(group.value, ConsumerGroup) else None
    reason = rejection(before, command.change)
    if reason is not None:
        return Rejected(error_code=ErrorCode.not_coordinator, reason=f"group {group.group_id!r}: {reason}")
    had_members = group.value is None or group.has_members
    _written(state, group, replay(before, command.change), had_members=had_members)
    return Done()


def _check_generation(group: GroupState, generation: int) -> Rejected | None:
    """Generations, and group epochs, of one group never go backwards, whatever kind it is of before and after."""
    before = 0 if group.value is None else generation_of(group.value)
    if generation >= before:
        return None
    return Rejected(
        error_code=ErrorCode.illegal_generation,
        reason=f"generation {generation} of group {group.group_id!r} after {before}",
    )


def _written(state: ClusterState, group: GroupState, value: ClassicGroup | ConsumerGroup, *, had_members: bool) -> None:
    """The group's members are what `value` says; a group that never had any counts as having had some."""
    state.vacant_groups.pop(group.group_id, None)
    group.value = value
    group.version += 1
    if group.has_members:
        group.empty_since_ms = None
    elif had_members:
        group.empty_since_ms = state.known_time_ms


def commit_offsets(state: ClusterState, session_id: SessionId, command: CommitOffsets) -> Outcome:
    """Remember how far groups have come. A partition that is gone, or a claim that is over, is its row's error."""
    groups = [claimed(state, session_id, group_id, epoch) for group_id, epoch in command.groups]
    topics = [state.topics.get(topic_id) for topic_id in command.topic_ids]
    now_ms = state.known_time_ms
    error_codes: list[int] = []
    places = zip(command.group, command.topic, command.partition, strict=True)
    notes = command.metadata or ("",) * len(command.group)
    values = zip(command.offset, command.leader_epoch, command.retention_ms, notes, strict=True)
    for (group_row, topic_row, index), (offset, leader_epoch, retention_ms, note) in zip(places, values, strict=True):
        group, topic = groups[group_row], topics[topic_row]
        if isinstance(group, Rejected):
            error_codes.append(int(group.error_code))
        elif topic is None or index >= len(topic.partitions):
            error_codes.append(int(ErrorCode.unknown_topic_or_partition))
        else:
            state.vacant_groups.pop(group.group_id, None)
            group.commits_count += 1
            kept_ms = None if retention_ms < 0 else retention_ms
            group.offsets.setdefault(topic.topic_id, {})[PartitionIndex(index)] = CommittedOffset(
                Offset(offset), leader_epoch, note, now_ms, kept_ms, group.commits_count
            )
            error_codes.append(NO_ERROR)
    return OffsetsCommitted(error_codes=error_codes)


def delete_offsets(state: ClusterState, session_id: SessionId, command: DeleteOffsets) -> Outcome:
    """Forget committed offsets of a group, those too that would become true with open transactions, as in Kafka."""
    group = claimed(state, session_id, command.group_id, command.claim_epoch)
    if isinstance(group, Rejected):
        return group
    had_offsets = bool(group.offsets or group.pending)
    for topic_id, partition in command.partitions:
        _drop(group.offsets, topic_id, partition)
        for producer_id, pending in list(group.pending.items()):
            _drop(pending, topic_id, partition)
            if not pending:
                del group.pending[producer_id]
    if had_offsets:
        _stay(state, group)
    return Done()


def _stay(state: ClusterState, group: GroupState) -> None:
    """A group that lost its last offset is there until it expires: without members it is a classic one, as in Kafka."""
    if group.is_vacant:
        group.value, group.empty_since_ms = NO_GROUP, state.known_time_ms


def delete_group(state: ClusterState, session_id: SessionId, command: DeleteGroup) -> Outcome:
    """Forget a group, unless it has members."""
    group = claimed(state, session_id, command.group_id, command.claim_epoch)
    if isinstance(group, Rejected):
        return group
    if group.has_members:
        return Rejected(error_code=ErrorCode.non_empty_group, reason=f"group {group.group_id!r} has members")
    _forget(state, command.group_id)
    return Done()


def expire_offsets(state: ClusterState, command: ExpireOffsets) -> Outcome:
    """Forget old offsets, and groups of which nothing is left; a time ahead of the state's counts as that (S2).

    Offsets that were written without a time are as old as this entry. Where this entry has no time either, because its
    agent's clock was found wrong after the proposal, they keep `NO_TIME`.
    """
    now_ms = Milliseconds(min(command.now_ms, state.known_time_ms))
    for group_id in command.group_ids:
        group = state.groups.get(group_id)
        if group is None:
            continue
        _stamp_untimed(group, now_ms)
        names = {topic_id: state.topics[topic_id].name for topic_id in group.offsets if topic_id in state.topics}
        for topic_id, partition in due_offsets(group, names, now_ms, command.retention_ms):
            _drop(group.offsets, topic_id, partition)
        if not group.offsets and not group.pending and not group.has_members:
            _forget(state, group_id)
    return Done()


def _stamp_untimed(group: GroupState, now_ms: Milliseconds) -> None:
    if group.empty_since_ms == NO_TIME:
        group.empty_since_ms = now_ms
    for partitions in group.offsets.values():
        for partition, offset in partitions.items():
            if offset.commit_ms == NO_TIME:
                partitions[partition] = offset._replace(commit_ms=now_ms)


def forget_topic(state: ClusterState, topic_id: TopicId) -> None:
    """The topic is deleted, and with it what groups committed for it."""
    for group in state.groups.values():
        had_offsets = bool(group.offsets or group.pending)
        group.offsets.pop(topic_id, None)
        for producer_id, pending in list(group.pending.items()):
            pending.pop(topic_id, None)
            if not pending:
                del group.pending[producer_id]
        if had_offsets:
            _stay(state, group)


def end_pending_offsets(state: ClusterState, group: GroupState, ending: Ending) -> None:
    """A transaction ended: what it committed for the group becomes true, as of now, or is forgotten.

    What was committed after that, outside of it or in a transaction that ended before, stays as it is.
    Source: org.apache.kafka.coordinator.group.OffsetMetadataManager.replayEndTransactionMarker (Kafka 4.3).
    """
    pending = group.pending.pop(ending.producer_id, None)
    if pending is None:
        return
    if ending.is_commit:
        for topic_id, partitions in pending.items():
            committed = group.offsets.setdefault(topic_id, {})
            for partition, pending_offset in partitions.items():
                before = committed.get(partition)
                if before is None or before.number < pending_offset.number:
                    committed[partition] = pending_offset._replace(commit_ms=state.known_time_ms)
    _stay(state, group)


def _drop(
    offsets: dict[TopicId, dict[PartitionIndex, CommittedOffset]], topic_id: TopicId, partition: PartitionIndex
) -> None:
    partitions = offsets.get(topic_id)
    if partitions is not None:
        partitions.pop(partition, None)
        if not partitions:
            del offsets[topic_id]


def claimed(
    state: ClusterState, session_id: SessionId, group_id: str, claim_epoch: int, *, version: int | None = None
) -> GroupState | Rejected:
    """The group, if the session may change it under this claim, and it is of this version (safety rule S13)."""
    group = state.groups.get(group_id)
    if group is None or (group.claimed_by, group.claim_epoch) != (session_id, claim_epoch):
        holder = "no session" if group is None else f"session {group.claimed_by} by claim {group.claim_epoch}"
        return Rejected(
            error_code=ErrorCode.not_coordinator,
            reason=f"group {group_id!r} is coordinated by {holder}, not by session {session_id} by claim {claim_epoch}",
        )
    if version is not None and version != group.version:
        return Rejected(
            error_code=ErrorCode.not_coordinator,
            reason=f"a change of version {version} of group {group_id!r}, which is at {group.version}",
        )
    return group
