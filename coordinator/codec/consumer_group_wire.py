"""The shape of consumer groups (KIP-848) in ledger entries and snapshots. Part of `coordinator.codec.group_wire`.

Rule: as in `coordinator.codec.command_wire`: fields are only ever added at the end, with a default. In a snapshot
everything is in order of names and ids, so that equal groups give equal bytes. Partitions are a topic's id with indexes
in order.
"""

from typing import Annotated

from msgspec import Meta

from coordinator.commands.consumer_group_values import (
    ClassicProtocols,
    ConsumerGroup,
    ConsumerGroupChange,
    ConsumerMember,
    MemberAssignment,
    MemberState,
    OwnedPartitions,
    Partitions,
)
from coordinator.commands.field_types import Index, Signed32, Uuid
from coordinator.commands.forms import WireStruct
from protocol.types import PartitionIndex, TopicId

TopicsHash = Annotated[bytes, Meta(max_length=32)]
_WirePartitions = list[tuple[Uuid, list[Index]]]
_WireOwned = list[tuple[Uuid, list[tuple[Index, Index]]]]
"""Each index with the epoch at which it was assigned."""


class WireConsumerMember(WireStruct, frozen=True):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: Signed32
    subscribed_names: list[str]
    subscribed_regex: str
    server_assignor: str | None
    classic: tuple[Signed32, list[tuple[str, bytes]]] | None = None
    """Session time-out, and names of protocols with their metadata."""

    def member(self) -> ConsumerMember:
        classic = None
        if self.classic is not None:
            session_timeout_ms, protocols = self.classic
            classic = ClassicProtocols(session_timeout_ms=session_timeout_ms, protocols=tuple(protocols))
        return ConsumerMember(
            member_id=self.member_id,
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            subscribed_names=tuple(self.subscribed_names),
            subscribed_regex=self.subscribed_regex,
            server_assignor=self.server_assignor,
            classic=classic,
        )


class WireMemberAssignment(WireStruct, frozen=True):
    member_id: str
    epoch: Signed32
    previous_epoch: Signed32
    state: Annotated[int, Meta(ge=0, le=2)]
    assigned: _WireOwned
    revoking: _WireOwned

    def assignment(self) -> MemberAssignment:
        return MemberAssignment(
            epoch=self.epoch,
            previous_epoch=self.previous_epoch,
            state=MemberState(self.state),
            assigned=_to_owned(self.assigned),
            revoking=_to_owned(self.revoking),
        )


class WireConsumerGroupChange(WireStruct, frozen=True):
    epoch: Index
    target_epoch: Index
    topics_hash: TopicsHash
    is_new: bool
    removed: list[str]
    members: list[WireConsumerMember]
    assignments: list[WireMemberAssignment]
    targets: list[tuple[str, _WirePartitions]]
    regexes: list[tuple[str, list[str]]]
    regexes_removed: list[str]

    def change(self) -> ConsumerGroupChange:
        return ConsumerGroupChange(
            epoch=self.epoch,
            target_epoch=self.target_epoch,
            topics_hash=self.topics_hash,
            is_new=self.is_new,
            removed=tuple(self.removed),
            members=tuple(member.member() for member in self.members),
            assignments=tuple((row.member_id, row.assignment()) for row in self.assignments),
            targets=tuple((member_id, _to_partitions(target)) for member_id, target in self.targets),
            regexes=tuple((regex, tuple(names)) for regex, names in self.regexes),
            regexes_removed=tuple(self.regexes_removed),
        )


class WireConsumerGroup(WireStruct, frozen=True):
    """A group in a snapshot."""

    epoch: Index
    target_epoch: Index
    topics_hash: TopicsHash
    members: list[WireConsumerMember]
    assignments: list[WireMemberAssignment]
    targets: list[tuple[str, _WirePartitions]]
    regexes: list[tuple[str, list[str]]]

    def group(self) -> ConsumerGroup:
        return ConsumerGroup(
            epoch=self.epoch,
            target_epoch=self.target_epoch,
            topics_hash=self.topics_hash,
            members={member.member_id: member.member() for member in self.members},
            assignments={row.member_id: row.assignment() for row in self.assignments},
            targets={member_id: _to_partitions(target) for member_id, target in self.targets},
            regexes={regex: tuple(names) for regex, names in self.regexes},
        )


def change_to_wire(change: ConsumerGroupChange) -> WireConsumerGroupChange:
    """The rows in their ledger shape."""
    return WireConsumerGroupChange(
        epoch=change.epoch,
        target_epoch=change.target_epoch,
        topics_hash=change.topics_hash,
        is_new=change.is_new,
        removed=list(change.removed),
        members=[_member_to_wire(member) for member in change.members],
        assignments=[_assignment_to_wire(member_id, row) for member_id, row in change.assignments],
        targets=[(member_id, _from_partitions(target)) for member_id, target in change.targets],
        regexes=[(regex, list(names)) for regex, names in change.regexes],
        regexes_removed=list(change.regexes_removed),
    )


def consumer_group_to_wire(group: ConsumerGroup) -> WireConsumerGroup:
    """The group in the shape of a snapshot."""
    return WireConsumerGroup(
        epoch=group.epoch,
        target_epoch=group.target_epoch,
        topics_hash=group.topics_hash,
        members=[_member_to_wire(member) for _, member in sorted(group.members.items())],
        assignments=[_assignment_to_wire(member_id, row) for member_id, row in sorted(group.assignments.items())],
        targets=[(member_id, _from_partitions(target)) for member_id, target in sorted(group.targets.items())],
        regexes=[(regex, list(names)) for regex, names in sorted(group.regexes.items())],
    )


def _member_to_wire(member: ConsumerMember) -> WireConsumerMember:
    classic = member.classic
    return WireConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscribed_names=list(member.subscribed_names),
        subscribed_regex=member.subscribed_regex,
        server_assignor=member.server_assignor,
        classic=None if classic is None else (classic.session_timeout_ms, list(classic.protocols)),
    )


def _assignment_to_wire(member_id: str, row: MemberAssignment) -> WireMemberAssignment:
    return WireMemberAssignment(
        member_id=member_id,
        epoch=row.epoch,
        previous_epoch=row.previous_epoch,
        state=row.state,
        assigned=[(topic_id, list(owned)) for topic_id, owned in row.assigned],
        revoking=[(topic_id, list(owned)) for topic_id, owned in row.revoking],
    )


def _from_partitions(found: Partitions) -> _WirePartitions:
    return [(topic_id, list(indexes)) for topic_id, indexes in found]


def _to_partitions(rows: _WirePartitions) -> Partitions:
    return tuple((TopicId(topic_id), tuple(map(PartitionIndex, indexes))) for topic_id, indexes in rows)


def _to_owned(rows: _WireOwned) -> OwnedPartitions:
    return tuple(
        (TopicId(topic_id), tuple((PartitionIndex(index), epoch) for index, epoch in owned)) for topic_id, owned in rows
    )
