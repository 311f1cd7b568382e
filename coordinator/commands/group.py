"""Ledger commands about groups, and the outcomes of applying them.

Rule: every command on a group that exists names the claim under which its agent coordinates it; apply rejects one of
another session or of an older claim with NOT_COORDINATOR (safety rule S13). `ExpireOffsets` alone needs none: what it
drops is judged where it is applied.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.commands.consumer_group_values import ConsumerGroupChange
from coordinator.commands.field_types import Natural, NaturalMilliseconds, PartitionField, TopicIdField
from coordinator.commands.forms import WireStruct
from coordinator.commands.group_values import ClassicGroup, check_generation
from protocol.types import TopicId


class ClaimGroups(WireStruct, frozen=True, kw_only=True, tag=19):
    """The session's agent wants to coordinate these groups, whether they exist or not."""

    group_ids: tuple[str, ...]


class WriteClassicGroup(WireStruct, frozen=True, kw_only=True, tag=20):
    """Replace a group's value by a generation of a classic group.

    Raises `ValueError` for what is none, as `check_generation` does.
    """

    group_id: str
    claim_epoch: Natural
    version: Natural
    """The version of the group that the change was computed from; it is rejected if the group has another one."""
    group: ClassicGroup

    def __post_init__(self) -> None:
        check_generation(self.group)


class WriteConsumerGroup(WireStruct, frozen=True, kw_only=True, tag=25):
    """Change members and assignments of a consumer group (KIP-848)."""

    group_id: str
    claim_epoch: Natural
    version: Natural
    """See `WriteClassicGroup`."""
    change: ConsumerGroupChange


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """Committed offsets of one or several groups. Rows of equal length, one per partition.

    `group` and `topic` are indexes into `groups` and `topic_ids`; `retention_ms` is -1 where the commit names none.
    `metadata` is empty where all rows have none.
    """

    groups: tuple[tuple[str, int], ...]
    """Group ids and the epochs of their claims."""
    topic_ids: tuple[TopicId, ...]
    group: Sequence[int]
    topic: Sequence[int]
    partition: Sequence[int]
    offset: Sequence[int]
    leader_epoch: Sequence[int]
    retention_ms: Sequence[int]
    metadata: tuple[str, ...] = ()


class DeleteOffsets(WireStruct, frozen=True, kw_only=True, tag=22):
    """Drop committed offsets of a group. What is not there is no error."""

    group_id: str
    claim_epoch: Natural
    partitions: tuple[tuple[TopicIdField, PartitionField], ...]


class DeleteGroup(WireStruct, frozen=True, kw_only=True, tag=23):
    """Drop a group that has no members, with its offsets."""

    group_id: str
    claim_epoch: Natural


class ExpireOffsets(WireStruct, frozen=True, kw_only=True, tag=24):
    """Drop what the named groups need not keep (`coordinator.groups.offset_expiry`), and those of which nothing is
    left.

    `now_ms` is from a checked clock; the smaller of it and the state's time counts (S2). `NO_TIME` where there is none:
    then no offset is old, and groups alone go of which nothing is left.
    """

    now_ms: NaturalMilliseconds
    retention_ms: Natural
    group_ids: tuple[str, ...]


PlainGroupCommand = ClaimGroups | WriteClassicGroup | WriteConsumerGroup | DeleteOffsets | DeleteGroup | ExpireOffsets
"""Commands without columns."""
GroupCommand = PlainGroupCommand | CommitOffsets


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsClaimed:
    """Per group of the command: the claim's epoch, or -1 and why it was not given."""

    claim_epochs: tuple[int, ...]
    error_codes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsCommitted:
    """Per row of the command: its error."""

    error_codes: Sequence[int]
