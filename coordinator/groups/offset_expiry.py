"""Which committed offsets of a group are no longer kept, and which topics its members have subscribed to.

Rule: pure; the time is given. An offset that says itself how long it is kept goes by that. Otherwise what counts is
- in a classic group without members: since when it has had none; all of them go at once;
- in a group without any member ever, and in a consumer group (KIP-848): the offset's own commit;
- in a classic group of consumers whose assignment is complete: likewise;
- in any other group with members nothing goes, nor does what is committed for a topic that a member subscribes to.
An offset that an open transaction may replace stays until that has ended.
Source: org.apache.kafka.coordinator.group.OffsetExpirationConditionImpl, OffsetMetadataManager.cleanupExpiredOffsets,
classic.ClassicGroup.offsetExpirationCondition, computeSubscribedTopics (Kafka 4.3; KIP-211, KIP-496).
"""

from collections.abc import Mapping
from typing import assert_never

from coordinator.commands.consumer_group_values import ConsumerGroup
from coordinator.commands.group_values import ClassicGroup, CommittedOffset, GroupState
from protocol.consumer_protocol import PROTOCOL_TYPE, NotConsumerProtocol, read_subscribed_topics
from protocol.types import Milliseconds, PartitionIndex, TopicId


def due_offsets(
    group: GroupState, topic_names: Mapping[TopicId, str], now_ms: Milliseconds, retention_ms: int
) -> list[tuple[TopicId, PartitionIndex]]:
    """The partitions whose committed offsets the group need not keep at `now_ms`.

    `topic_names`: of the group's topics at least. `retention_ms`: for offsets that do not say themselves.
    """
    if isinstance(group.value, ClassicGroup) and group.has_members and not _is_settled(group.value):
        return []
    aged = [
        (topic_id, partition)
        for topic_id, partitions in group.offsets.items()
        for partition, offset in partitions.items()
        if _is_aged(offset, _kept_since_ms(group, offset), now_ms, retention_ms)
    ]
    if aged and group.pending:
        pending = group.pending_partitions()
        aged = [each for each in aged if each not in pending]
    if not aged or not group.has_members:
        return aged
    subscribed = subscribed_topics(group.value)
    if subscribed is None:
        return []
    return [(topic_id, partition) for topic_id, partition in aged if topic_names.get(topic_id) not in subscribed]


def subscribed_topics(value: ClassicGroup | ConsumerGroup | None) -> frozenset[str] | None:
    """The names of the topics that members want to read; None where they say so in a way that is not known here."""
    match value:
        case None:
            return frozenset()
        case ClassicGroup():
            return _subscribed_by_classic(value)
        case ConsumerGroup():
            return _subscribed_by_consumers(value)
        case _:
            assert_never(value)


def _is_settled(group: ClassicGroup) -> bool:
    """Members of a kind that is understood have their assignment."""
    return group.protocol_type == PROTOCOL_TYPE and group.is_synced


def _kept_since_ms(group: GroupState, committed: CommittedOffset) -> Milliseconds:
    was_joined = isinstance(group.value, ClassicGroup) and group.value.protocol_type != ""
    if was_joined and group.empty_since_ms is not None:
        return group.empty_since_ms
    return committed.commit_ms


def _is_aged(committed: CommittedOffset, since_ms: Milliseconds, now_ms: Milliseconds, retention_ms: int) -> bool:
    if committed.retention_ms is not None:
        return now_ms - committed.commit_ms >= committed.retention_ms
    return now_ms - since_ms >= retention_ms


def _subscribed_by_classic(group: ClassicGroup) -> frozenset[str] | None:
    if not group.members:
        return frozenset()
    if group.protocol_type != PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    for member in group.members:
        metadata = dict(member.protocols).get(group.protocol or "")
        try:
            topics.update(read_subscribed_topics(b"" if metadata is None else metadata))
        except NotConsumerProtocol:
            return None
    return frozenset(topics)


def _subscribed_by_consumers(group: ConsumerGroup) -> frozenset[str]:
    """By name, or by what their expressions were last found to match."""
    topics: set[str] = set()
    for member in group.members.values():
        topics.update(member.subscribed_names, group.regexes.get(member.subscribed_regex, ()))
    return frozenset(topics)
