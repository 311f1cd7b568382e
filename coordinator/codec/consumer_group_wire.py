"""The shape of a consumer group (KIP-848) in snapshots. Entries hold `ConsumerGroupChange` itself.

Rule: everything is in order of names and ids, so that equal groups give equal bytes. Partitions are a topic's id with
indexes in order.
"""

from coordinator.commands.consumer_group_values import (
    AssignmentRow,
    ConsumerGroup,
    ConsumerMember,
    Partitions,
    TopicsHash,
)
from coordinator.commands.field_types import Index
from coordinator.commands.forms import WireStruct


class WireConsumerGroup(WireStruct, frozen=True):
    """A group in a snapshot."""

    epoch: Index
    target_epoch: Index
    topics_hash: TopicsHash
    members: list[ConsumerMember]
    assignments: list[AssignmentRow]
    targets: list[tuple[str, Partitions]]
    regexes: list[tuple[str, tuple[str, ...]]]

    def group(self) -> ConsumerGroup:
        return ConsumerGroup(
            epoch=self.epoch,
            target_epoch=self.target_epoch,
            topics_hash=self.topics_hash,
            members={member.member_id: member for member in self.members},
            assignments={row.member_id: row.assignment for row in self.assignments},
            targets=dict(self.targets),
            regexes=dict(self.regexes),
        )


def consumer_group_to_wire(group: ConsumerGroup) -> WireConsumerGroup:
    """The group in the shape of a snapshot."""
    return WireConsumerGroup(
        epoch=group.epoch,
        target_epoch=group.target_epoch,
        topics_hash=group.topics_hash,
        members=[member for _, member in sorted(group.members.items())],
        assignments=[AssignmentRow.of(*item) for item in sorted(group.assignments.items())],
        targets=sorted(group.targets.items()),
        regexes=sorted(group.regexes.items()),
    )
