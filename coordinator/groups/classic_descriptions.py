"""Descriptions of a classic group, from its coordinator's memory or from the ledger alone.

Rule: pure; a description is a copy, which later changes of the group leave as it is. It has metadata and assignments
only while the assignment is settled.
Source: org.apache.kafka.coordinator.group.GroupMetadataManager.describeGroups, classic.ClassicGroup.describe (Kafka
4.3).
"""

from collections.abc import Iterable

from coordinator.commands.group_values import ClassicGroup, ClassicMember
from coordinator.groups.classic_members import LiveMember
from coordinator.groups.classic_messages import NO_ASSIGNMENT, DescribedMember, Description
from coordinator.groups.classic_states import ClassicGroupState


def describe(
    state: ClassicGroupState, protocol_type: str, protocol: str | None, members: Iterable[LiveMember | ClassicMember]
) -> Description:
    """A group in that state, whose members agreed on that protocol last."""
    is_settled = state is ClassicGroupState.STABLE
    return Description(
        state=state.value,
        protocol_type=protocol_type,
        protocol=(protocol or "") if is_settled else "",
        members=tuple(_described(member, protocol if is_settled else None) for member in members),
    )


def describe_kept(group: ClassicGroup) -> Description:
    """A group as the ledger has it: in the state that its next coordinator takes it up in."""
    return describe(_state_of(group), group.protocol_type, group.protocol, group.members)


def _state_of(group: ClassicGroup) -> ClassicGroupState:
    if not group.members:
        return ClassicGroupState.EMPTY
    if group.is_rebalance_due:
        return ClassicGroupState.PREPARING
    return ClassicGroupState.STABLE if group.is_synced else ClassicGroupState.COMPLETING


def _described(member: LiveMember | ClassicMember, protocol: str | None) -> DescribedMember:
    metadata = b""
    for name, subscription in member.protocols:
        if name == protocol:
            metadata = subscription
            break
    return DescribedMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        metadata,
        NO_ASSIGNMENT if protocol is None else member.assignment,
    )
