"""The durable part of a group of the consumer protocol (KIP-848), and the rows by which an entry changes it.

Rule: values are frozen and compared by content; only `replay` changes a `ConsumerGroup`, the same way in the state and
in a coordinator's copy of it. Partitions stand in order of topic id and index, so that equal values are equal tuples.
Bytes: `coordinator.codec.consumer_group_wire`. What is done with them: `coordinator.groups.consumer_group`.

Source: KIP-848; the records of org.apache.kafka.coordinator.group (ConsumerGroupMetadataValue and its siblings), Kafka
4.3; epochs of assigned partitions: KIP-1251.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Self

from msgspec import Meta

from coordinator.commands.field_types import Index, PartitionField, Signed32, TopicIdField
from coordinator.commands.forms import WireStruct
from protocol.types import PartitionIndex, TopicId

Partitions = tuple[tuple[TopicIdField, tuple[PartitionField, ...]], ...]
"""Topics in order of their ids, each with its partitions in order; no topic without partitions."""
OwnedPartitions = tuple[tuple[TopicIdField, tuple[tuple[PartitionField, Index], ...]], ...]
"""The same, each partition with the member epoch at which it was assigned (KIP-1251)."""
TopicsHash = Annotated[bytes, Meta(max_length=32)]

NO_TOPICS_HASH = b""
"""The hash of a group without subscribed topics."""
GROUP_EPOCH_FIRST = 1
"""The epoch of a group that has had no member yet: the first one to join is given 2, as Kafka 4.3 does."""
LEAVE_EPOCH = -1
"""Kafka's LEAVE_GROUP_MEMBER_EPOCH."""
LEAVE_STATIC_EPOCH = -2
"""Kafka's LEAVE_GROUP_STATIC_MEMBER_EPOCH: a static member that is away and may come back."""
JOIN_EPOCH = 0


class MemberState(IntEnum):
    """How far a member is with its target assignment. Source: org.apache.kafka...modern.MemberState."""

    STABLE = 0
    """It has what the target assignment of its epoch gives it."""
    UNREVOKED_PARTITIONS = 1
    """It has to give partitions up, and has not said that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members still have."""


class GroupPhase(IntEnum):
    """The group's state as tools show it. Source: ConsumerGroup.ConsumerGroupState."""

    EMPTY = 0
    ASSIGNING = 1
    RECONCILING = 2
    STABLE = 3


class ClassicProtocols(WireStruct, frozen=True, kw_only=True):
    """The protocols and time-out of a member that still speaks JoinGroup in a consumer group."""

    session_timeout_ms: Signed32
    protocols: tuple[tuple[str, bytes], ...]
    """Name and metadata, in the member's order of preference."""


class ConsumerMember(WireStruct, frozen=True, kw_only=True):
    """Who a member is and what it subscribes to."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: Signed32
    subscribed_names: tuple[str, ...]
    """In order, each once."""
    subscribed_regex: str
    """RE2 syntax; empty where there is none."""
    server_assignor: str | None
    classic: ClassicProtocols | None = None
    """None where the member speaks the consumer protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAssignment:
    """Where a member stands: its epoch, and what it owns or has yet to give up."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: OwnedPartitions
    revoking: OwnedPartitions
    """To be revoked: still the member's until it says that it let go."""


class AssignmentRow(WireStruct, frozen=True, kw_only=True):
    """Where one member stands, as entries and snapshots say it."""

    member_id: str
    epoch: Signed32
    previous_epoch: Signed32
    state: MemberState
    assigned: OwnedPartitions
    revoking: OwnedPartitions

    @classmethod
    def of(cls, member_id: str, assignment: MemberAssignment) -> Self:
        return cls(
            member_id=member_id,
            epoch=assignment.epoch,
            previous_epoch=assignment.previous_epoch,
            state=assignment.state,
            assigned=assignment.assigned,
            revoking=assignment.revoking,
        )

    @property
    def assignment(self) -> MemberAssignment:
        return MemberAssignment(
            epoch=self.epoch,
            previous_epoch=self.previous_epoch,
            state=self.state,
            assigned=self.assigned,
            revoking=self.revoking,
        )


NEW_MEMBER = MemberAssignment(epoch=0, previous_epoch=0, state=MemberState.STABLE, assigned=(), revoking=())


@dataclass(slots=True, kw_only=True)
class ConsumerGroup:
    """A group. A member without a row in `assignments` is at `NEW_MEMBER`; one without a target is assigned nothing."""

    epoch: int = GROUP_EPOCH_FIRST
    """Raised by whatever asks for another target assignment."""
    target_epoch: int = GROUP_EPOCH_FIRST
    """The group epoch that the target assignment was made for."""
    topics_hash: bytes = NO_TOPICS_HASH
    """The hash of the subscribed topics when the group epoch was last raised."""
    members: dict[str, ConsumerMember] = field(default_factory=dict[str, ConsumerMember])
    assignments: dict[str, MemberAssignment] = field(default_factory=dict[str, MemberAssignment])
    targets: dict[str, Partitions] = field(default_factory=dict[str, Partitions])
    regexes: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Topics that each subscribed expression was last found to match, in order of names."""

    def copy(self) -> "ConsumerGroup":
        """Another group that changes by itself; the values in it are shared."""
        return ConsumerGroup(
            epoch=self.epoch,
            target_epoch=self.target_epoch,
            topics_hash=self.topics_hash,
            members=dict(self.members),
            assignments=dict(self.assignments),
            targets=dict(self.targets),
            regexes=dict(self.regexes),
        )

    def assignment(self, member_id: str) -> MemberAssignment:
        return self.assignments.get(member_id, NEW_MEMBER)

    def phase(self) -> GroupPhase:
        """Source: ConsumerGroup.maybeUpdateGroupState, ModernGroupMember.isReconciledTo."""
        if not self.members:
            return GroupPhase.EMPTY
        if self.epoch > self.target_epoch:
            return GroupPhase.ASSIGNING
        if all(is_reconciled(self.assignment(member_id), self.target_epoch) for member_id in self.members):
            return GroupPhase.STABLE
        return GroupPhase.RECONCILING


class ConsumerGroupChange(WireStruct, frozen=True, kw_only=True):
    """The rows of one entry: what they do not name stays as it is, but for the three numbers in front.

    Members are removed first, with all that belongs to them; a row for an id that is no member then rejects all.
    """

    epoch: Index
    target_epoch: Index
    topics_hash: TopicsHash
    is_new: bool = False
    """The group is created: there was none, or one of another kind, which this replaces."""
    removed: tuple[str, ...] = ()
    members: tuple[ConsumerMember, ...] = ()
    assignments: tuple[AssignmentRow, ...] = ()
    targets: tuple[tuple[str, Partitions], ...] = ()
    regexes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    regexes_removed: tuple[str, ...] = ()


def rejection(group: ConsumerGroup | None, change: ConsumerGroupChange) -> str | None:
    """Why a coordinator that knew the group cannot have made the change; None where `replay` may carry it out.

    Epochs of a group never go backwards, and its target assignment is never ahead of it.
    """
    before = ConsumerGroup() if change.is_new else group
    if before is None:
        return "a change of a consumer group where there is none"
    if change.epoch < before.epoch or not before.target_epoch <= change.target_epoch <= change.epoch:
        return (
            f"group epoch {change.epoch} and target epoch {change.target_epoch} "
            f"after {before.epoch} and {before.target_epoch}"
        )
    removed = set(change.removed)
    joined = {member.member_id for member in change.members}
    named = [row.member_id for row in change.assignments] + [member_id for member_id, _ in change.targets]
    for member_id in named:
        if member_id not in joined and (member_id in removed or member_id not in before.members):
            return f"a row for {member_id!r}, which is no member"
    return None


def replay(group: ConsumerGroup | None, change: ConsumerGroupChange) -> ConsumerGroup:
    """The group as the change leaves it: `group` itself, changed, or a new one where the change creates it.

    Total, but the group is sound only where `rejection` found nothing.
    """
    if group is None or change.is_new:
        group = ConsumerGroup()
    group.epoch = change.epoch
    group.target_epoch = change.target_epoch
    group.topics_hash = change.topics_hash
    for member_id in change.removed:
        group.members.pop(member_id, None)
        group.assignments.pop(member_id, None)
        group.targets.pop(member_id, None)
    for member in change.members:
        group.members[member.member_id] = member
    group.assignments.update((row.member_id, row.assignment) for row in change.assignments)
    for member_id, target in change.targets:
        if target:
            group.targets[member_id] = target
        else:
            group.targets.pop(member_id, None)
    for regex in change.regexes_removed:
        group.regexes.pop(regex, None)
    group.regexes.update(change.regexes)
    return group


def is_reconciled(assignment: MemberAssignment, target_epoch: int) -> bool:
    """The member has all that the target assignment of this epoch gives it, and nothing else."""
    return assignment.state is MemberState.STABLE and assignment.epoch == target_epoch


def partitions(topics: Mapping[TopicId, Iterable[int]]) -> Partitions:
    """In order, without topics that have none."""
    ordered = ((topic_id, tuple(sorted(map(PartitionIndex, topics[topic_id])))) for topic_id in sorted(topics))
    return tuple((topic_id, indexes) for topic_id, indexes in ordered if indexes)


def owned(topics: Mapping[TopicId, Mapping[PartitionIndex, int]]) -> OwnedPartitions:
    """In order, without topics that have none."""
    return tuple((topic_id, tuple(sorted(topics[topic_id].items()))) for topic_id in sorted(topics) if topics[topic_id])


def without_epochs(assigned: OwnedPartitions) -> Partitions:
    return tuple((topic_id, tuple(index for index, _ in rows)) for topic_id, rows in assigned)
