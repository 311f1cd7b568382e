"""Which members of a consumer group (KIP-848) may commit which offsets.

Rule: pure; judged by the group as its coordinator has it.
Source: ConsumerGroup.validateOffsetCommit, createAssignmentEpochValidator (KIP-1251), and for transactions
OffsetMetadataManager.validateTransactionalOffsetCommit, Kafka 4.3.
"""

from collections.abc import Iterable

from coordinator.commands.consumer_group_values import ConsumerGroup, MemberAssignment
from coordinator.groups.classic_messages import is_without_member
from protocol.errors import ErrorCode
from protocol.types import PartitionIndex, TopicId

COMMIT_VERSION_MIN = 9
"""The first version of OffsetCommit for members that speak the consumer protocol."""


def commit_error(
    group: ConsumerGroup,
    *,
    member_id: str,
    group_instance_id: str | None = None,
    epoch: int,
    api_version: int,
    partitions: Iterable[tuple[TopicId, PartitionIndex]],
    is_transactional: bool = False,
) -> ErrorCode:
    """Whether a member may commit offsets of these partitions.

    One of the consumer protocol may at an older epoch, as long as that is not older than the one at which it was given
    each of them (KIP-1251). In a transaction (TxnOffsetCommit) a request that names no member may as well, and a wrong
    epoch gets the error of a wrong generation: the API is older than epochs.
    """
    if epoch < 0 and not group.members:
        return ErrorCode.none
    if is_transactional and is_without_member(member_id, group_instance_id, epoch):
        return ErrorCode.none
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.unknown_member_id
    if member.classic is None and api_version < COMMIT_VERSION_MIN and not is_transactional:
        return ErrorCode.unsupported_version
    standing = group.assignment(member_id)
    if member.classic is not None:
        return ErrorCode.none if epoch == standing.epoch else ErrorCode.illegal_generation
    if epoch == standing.epoch or (epoch < standing.epoch and _had_all(standing, epoch, partitions)):
        return ErrorCode.none
    return ErrorCode.illegal_generation if is_transactional else ErrorCode.stale_member_epoch


def _had_all(standing: MemberAssignment, epoch: int, partitions: Iterable[tuple[TopicId, PartitionIndex]]) -> bool:
    """Whether the member owns them now, or has yet to give them up, and did so at that epoch already."""
    given = {
        (topic_id, index): given_at
        for topic_id, rows in (*standing.revoking, *standing.assigned)
        for index, given_at in rows
    }
    return all(given.get(each, epoch + 1) <= epoch for each in partitions)
