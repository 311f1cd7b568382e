"""The shape of groups in entries and snapshots. Part of `coordinator.codec.command_wire` and `coordinator.snapshot`.

Rule: as there: tags are never given twice, and fields only ever added at the end, with a default. In a snapshot
everything is in order of names and ids, so that equal groups give equal bytes.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import assert_never

from coordinator.codec.command_columns import offset_columns, read_offsets
from coordinator.codec.consumer_group_wire import (
    WireConsumerGroup,
    WireConsumerGroupChange,
    change_to_wire,
    consumer_group_to_wire,
)
from coordinator.commands.consumer_group_values import ConsumerGroup
from coordinator.commands.field_types import Index, Natural, Signed32, Timestamp, Uuid
from coordinator.commands.forms import WireStruct
from coordinator.commands.group import (
    ClaimGroups,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    GroupCommand,
    WriteClassicGroup,
    WriteConsumerGroup,
)
from coordinator.commands.group_values import ClassicGroup, ClassicMember, CommittedOffset, GroupState
from coordinator.ledger.port import LedgerCorrupt
from protocol.types import Milliseconds, Offset, PartitionIndex, ProducerId, SessionId, TopicId


class WireClaimGroups(WireStruct, frozen=True, tag=19):
    group_ids: list[str]

    def command(self) -> ClaimGroups:
        return ClaimGroups(group_ids=tuple(self.group_ids))


class WireClassicMember(WireStruct, frozen=True):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: Signed32
    session_timeout_ms: Signed32
    protocols: list[tuple[str, bytes]]
    assignment: bytes

    def member(self) -> ClassicMember:
        return ClassicMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            protocols=tuple(self.protocols),
            assignment=self.assignment,
        )


class WireClassicGroup(WireStruct, frozen=True):
    generation: Index
    protocol_type: str
    protocol: str | None
    leader: str | None
    members: list[WireClassicMember]
    is_synced: bool
    is_rebalance_due: bool = False

    def group(self) -> ClassicGroup:
        member_ids = [member.member_id for member in self.members]
        if any(first >= second for first, second in pairwise(member_ids)):
            raise LedgerCorrupt(f"members of a group out of order: {member_ids}")
        is_led = self.leader in member_ids if member_ids else self.leader is None
        if not is_led or (self.protocol is None) != (not member_ids):
            raise LedgerCorrupt(f"{self.leader!r} leads {self.protocol!r} of the members {member_ids}")
        return ClassicGroup(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            members=tuple(member.member() for member in self.members),
            is_synced=self.is_synced,
            is_rebalance_due=self.is_rebalance_due,
        )


class WireWriteClassicGroup(WireStruct, frozen=True, tag=20):
    group_id: str
    claim_epoch: Natural
    version: Natural
    group: WireClassicGroup

    def command(self) -> WriteClassicGroup:
        return WriteClassicGroup(
            group_id=self.group_id, claim_epoch=self.claim_epoch, version=self.version, group=self.group.group()
        )


class WireCommitOffsets(WireStruct, frozen=True, tag=21):
    groups: list[tuple[str, Natural]]
    topic_ids: list[Uuid]
    columns: list[bytes]
    metadata: list[str] = []

    def command(self) -> CommitOffsets:
        columns = read_offsets(self.columns, groups_count=len(self.groups), topics_count=len(self.topic_ids))
        group, topic, partition, offset, leader_epoch, retention_ms = columns
        if self.metadata and len(self.metadata) != len(group):
            raise LedgerCorrupt(f"{len(self.metadata)} texts for {len(group)} committed offsets")
        return CommitOffsets(
            groups=tuple(self.groups),
            topic_ids=tuple(map(TopicId, self.topic_ids)),
            group=group,
            topic=topic,
            partition=partition,
            offset=offset,
            leader_epoch=leader_epoch,
            retention_ms=retention_ms,
            metadata=tuple(self.metadata),
        )


class WireDeleteOffsets(WireStruct, frozen=True, tag=22):
    group_id: str
    claim_epoch: Natural
    partitions: list[tuple[Uuid, Index]]

    def command(self) -> DeleteOffsets:
        return DeleteOffsets(
            group_id=self.group_id,
            claim_epoch=self.claim_epoch,
            partitions=tuple((TopicId(topic_id), PartitionIndex(index)) for topic_id, index in self.partitions),
        )


class WireDeleteGroup(WireStruct, frozen=True, tag=23):
    group_id: str
    claim_epoch: Natural

    def command(self) -> DeleteGroup:
        return DeleteGroup(group_id=self.group_id, claim_epoch=self.claim_epoch)


class WireExpireOffsets(WireStruct, frozen=True, tag=24):
    now_ms: Natural
    retention_ms: Natural
    group_ids: list[str]

    def command(self) -> ExpireOffsets:
        return ExpireOffsets(
            now_ms=Milliseconds(self.now_ms), retention_ms=self.retention_ms, group_ids=tuple(self.group_ids)
        )


class WireWriteConsumerGroup(WireStruct, frozen=True, tag=25):
    group_id: str
    claim_epoch: Natural
    version: Natural
    change: WireConsumerGroupChange

    def command(self) -> WriteConsumerGroup:
        return WriteConsumerGroup(
            group_id=self.group_id, claim_epoch=self.claim_epoch, version=self.version, change=self.change.change()
        )


WireGroupCommand = (
    WireClaimGroups
    | WireWriteClassicGroup
    | WireCommitOffsets
    | WireDeleteOffsets
    | WireDeleteGroup
    | WireExpireOffsets
    | WireWriteConsumerGroup
)


def group_command_to_wire(command: GroupCommand) -> WireGroupCommand:
    """The command in its ledger shape, as `coordinator.codec.command_wire.to_wire` gives it."""
    match command:
        case ClaimGroups():
            return WireClaimGroups(list(command.group_ids))
        case WriteClassicGroup():
            group = _classic_group_to_wire(command.group)
            return WireWriteClassicGroup(command.group_id, command.claim_epoch, command.version, group)
        case WriteConsumerGroup():
            change = change_to_wire(command.change)
            return WireWriteConsumerGroup(command.group_id, command.claim_epoch, command.version, change)
        case CommitOffsets():
            columns = offset_columns(command)
            return WireCommitOffsets(list(command.groups), list(command.topic_ids), columns, list(command.metadata))
        case DeleteOffsets():
            return WireDeleteOffsets(command.group_id, command.claim_epoch, list(command.partitions))
        case DeleteGroup():
            return WireDeleteGroup(command.group_id, command.claim_epoch)
        case ExpireOffsets():
            return WireExpireOffsets(command.now_ms, command.retention_ms, list(command.group_ids))
        case _:
            assert_never(command)


def _classic_group_to_wire(group: ClassicGroup) -> WireClassicGroup:
    members = [
        WireClassicMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            list(member.protocols),
            member.assignment,
        )
        for member in sorted(group.members, key=lambda member: member.member_id)
    ]
    return WireClassicGroup(
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader,
        members,
        group.is_synced,
        group.is_rebalance_due,
    )


class WireOffset(WireStruct, frozen=True):
    partition: Index
    offset: Timestamp
    leader_epoch: Signed32
    metadata: str
    commit_ms: Timestamp
    retention_ms: Natural | None
    number: Natural = 0


class WireGroup(WireStruct, frozen=True):
    """A group in a snapshot. At most one of `classic` and `consumer` is there."""

    group_id: str
    claim_epoch: Natural
    claimed_by: Natural
    version: Natural
    classic: WireClassicGroup | None
    consumer: WireConsumerGroup | None
    offsets: list[tuple[Uuid, list[WireOffset]]]
    empty_since_ms: Timestamp | None
    pending: list[tuple[Natural, list[tuple[Uuid, list[WireOffset]]]]] = []
    commits_count: Natural = 0

    def group(self) -> GroupState:
        value: ClassicGroup | ConsumerGroup | None = None
        if self.classic is not None:
            value = self.classic.group()
        elif self.consumer is not None:
            value = self.consumer.group()
        return GroupState(
            group_id=self.group_id,
            claim_epoch=self.claim_epoch,
            claimed_by=SessionId(self.claimed_by),
            version=self.version,
            value=value,
            offsets=_to_offsets(self.offsets),
            pending={ProducerId(producer_id): _to_offsets(offsets) for producer_id, offsets in self.pending},
            empty_since_ms=None if self.empty_since_ms is None else Milliseconds(self.empty_since_ms),
            commits_count=self.commits_count,
        )


def group_to_wire(group: GroupState) -> WireGroup:
    """A group in the shape of a snapshot."""
    value = group.value
    return WireGroup(
        group_id=group.group_id,
        claim_epoch=group.claim_epoch,
        claimed_by=group.claimed_by,
        version=group.version,
        classic=_classic_group_to_wire(value) if isinstance(value, ClassicGroup) else None,
        consumer=consumer_group_to_wire(value) if isinstance(value, ConsumerGroup) else None,
        offsets=_offsets_to_wire(group.offsets),
        empty_since_ms=group.empty_since_ms,
        pending=[(producer_id, _offsets_to_wire(offsets)) for producer_id, offsets in sorted(group.pending.items())],
        commits_count=group.commits_count,
    )


def _offsets_to_wire(
    offsets: Mapping[TopicId, Mapping[PartitionIndex, CommittedOffset]],
) -> list[tuple[bytes, list[WireOffset]]]:
    return [
        (topic_id, [_offset_to_wire(partition, found) for partition, found in sorted(partitions.items())])
        for topic_id, partitions in sorted(offsets.items())
    ]


def _to_offsets(
    wire: Sequence[tuple[bytes, Sequence[WireOffset]]],
) -> dict[TopicId, dict[PartitionIndex, CommittedOffset]]:
    return {
        TopicId(topic_id): {PartitionIndex(row.partition): _to_offset(row) for row in rows} for topic_id, rows in wire
    }


def _offset_to_wire(partition: PartitionIndex, found: CommittedOffset) -> WireOffset:
    return WireOffset(
        partition,
        found.offset,
        found.leader_epoch,
        found.metadata,
        found.commit_ms,
        found.retention_ms,
        found.number,
    )


def _to_offset(row: WireOffset) -> CommittedOffset:
    return CommittedOffset(
        offset=Offset(row.offset),
        leader_epoch=row.leader_epoch,
        metadata=row.metadata,
        commit_ms=Milliseconds(row.commit_ms),
        retention_ms=row.retention_ms,
        number=row.number,
    )
