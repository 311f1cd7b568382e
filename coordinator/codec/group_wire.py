"""The shape of groups in snapshots.

Rule: everything is in order of names and ids, so that equal groups give equal bytes.
"""

from collections.abc import Mapping, Sequence

from coordinator.codec.consumer_group_wire import WireConsumerGroup, consumer_group_to_wire
from coordinator.commands.consumer_group_values import ConsumerGroup
from coordinator.commands.field_types import Index, Natural, Signed32, Timestamp, Uuid
from coordinator.commands.forms import WireStruct
from coordinator.commands.group_values import ClassicGroup, CommittedOffset, GroupState, check_generation
from protocol.types import Milliseconds, Offset, PartitionIndex, ProducerId, SessionId, TopicId


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
    classic: ClassicGroup | None
    consumer: WireConsumerGroup | None
    offsets: list[tuple[Uuid, list[WireOffset]]]
    empty_since_ms: Timestamp | None
    pending: list[tuple[Natural, list[tuple[Uuid, list[WireOffset]]]]] = []
    commits_count: Natural = 0

    def group(self) -> GroupState:
        """Raises `ValueError` for a generation that is none."""
        if self.classic is not None:
            check_generation(self.classic)
        value = self.classic if self.consumer is None else self.consumer.group()
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
        classic=value if isinstance(value, ClassicGroup) else None,
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
        (topic_id, [_offset_to_wire(partition, offset) for partition, offset in sorted(partitions.items())])
        for topic_id, partitions in sorted(offsets.items())
    ]


def _to_offsets(
    wire: Sequence[tuple[bytes, Sequence[WireOffset]]],
) -> dict[TopicId, dict[PartitionIndex, CommittedOffset]]:
    return {
        TopicId(topic_id): {PartitionIndex(row.partition): _to_offset(row) for row in rows} for topic_id, rows in wire
    }


def _offset_to_wire(partition: PartitionIndex, committed: CommittedOffset) -> WireOffset:
    return WireOffset(
        partition,
        committed.offset,
        committed.leader_epoch,
        committed.metadata,
        committed.commit_ms,
        committed.retention_ms,
        committed.number,
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
