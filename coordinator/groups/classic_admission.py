"""Which joining members a classic group takes: those for whom there is capacity, and who know its protocol.

In: a JoinGroup, and the group's state and members. Out: whether it is accepted. Pure.
Source: org.apache.kafka.coordinator.group.GroupMetadataManager.acceptJoiningMember, ClassicGroup.supportsProtocols
(Kafka 4.3).
"""

from coordinator.groups.classic_members import Members, size_of
from coordinator.groups.classic_messages import NO_MEMBER_ID, Join
from coordinator.groups.classic_states import ClassicGroupState
from protocol.limits import CLASSIC_MEMBERS_BYTES_MAX, CLASSIC_PENDING_MEMBERS_MAX


def has_capacity(join: Join, state: ClassicGroupState, members: Members, members_max: int) -> bool:
    """Whether the group has capacity for the member.

    During a rebalance members that have joined count, so that the last to come are rejected.
    """
    member = members.known(join)
    others_size = members.size - (0 if member is None else size_of(member))
    if others_size + size_of(join) > CLASSIC_MEMBERS_BYTES_MAX:
        return False
    if join.member_id == NO_MEMBER_ID and len(members.pending) >= CLASSIC_PENDING_MEMBERS_MAX:
        return False
    if state is ClassicGroupState.EMPTY:
        return True
    if state is ClassicGroupState.PREPARING:
        has_joined = member is not None and member.is_awaiting_join
        return has_joined or members.awaiting_join_count < members_max
    return member is not None or len(members) < members_max


def is_protocol_supported(join: Join, state: ClassicGroupState, members: Members, protocol_type: str) -> bool:
    """Whether the member and all members of the group know one protocol; an empty group takes any."""
    if state is ClassicGroupState.EMPTY:
        return bool(join.protocol_type and join.protocols)
    return join.protocol_type == protocol_type and members.support(join.protocols)
