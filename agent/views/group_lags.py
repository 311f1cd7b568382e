"""How far groups are behind, from their committed offsets and the logs' ends in the state: for /metrics.

Rule: functions of the state alone. The lag in records is that of `kafka-consumer-groups.sh`: the log's end less the
committed offset, markers of transactions included. The lag in seconds goes by the first record that is not consumed.
"""

from collections.abc import Mapping
from typing import NamedTuple

from agent.runtime.yielding import CooperativeYield
from agent.views.append_times import AppendTimes
from coordinator.commands.consumer_group_values import ConsumerGroup
from coordinator.commands.group_values import ClassicGroup, CommittedOffset, GroupState
from coordinator.state.state import TopicState
from protocol.types import Milliseconds, PartitionIndex

CLASSIC = "classic"
CONSUMER = "consumer"


class GroupLag(NamedTuple):
    """The lag of a group in a topic, over the partitions that it has committed offsets of."""

    group_id: str
    topic: str
    records: int
    oldest_ms: Milliseconds | None
    """The append time of the oldest record that is not consumed; None where there is none, or it is not known."""


class GroupRow(NamedTuple):
    """A group as the ledger knows it. Members of a classic group that join just now are not in it yet."""

    group_id: str
    type: str
    """classic or consumer."""
    state: str
    """In Kafka's words, such as Stable."""
    members: int


async def group_lag(
    group_id: str,
    topic: TopicState,
    offsets: Mapping[PartitionIndex, CommittedOffset],
    append_times: AppendTimes,
    turns: CooperativeYield,
) -> GroupLag:
    """The lag of a group in one topic. `turns` is stepped for each committed offset."""
    records = 0
    times: list[Milliseconds] = []
    for number, committed in list(offsets.items()):
        await turns.step()
        partition = topic.partitions[number]
        if committed.offset >= partition.log_end:
            continue
        records += partition.log_end - committed.offset
        # Records before the log's start are deleted: the next one that can be consumed counts.
        offset = max(committed.offset, partition.log_start)
        time_ms = append_times.first(topic, partition, offset)
        if time_ms is not None:
            times.append(time_ms)
    return GroupLag(group_id, topic.name, records, min(times, default=None))


def group_row(group: GroupState) -> GroupRow:
    """The group's row. One that has offsets alone is an empty classic group, as in Kafka."""
    match group.value:
        case ConsumerGroup() as value:
            return GroupRow(group.group_id, CONSUMER, value.phase().name.capitalize(), len(value.members))
        case ClassicGroup() as value:
            return GroupRow(group.group_id, CLASSIC, _classic_state(value), len(value.members))
        case None:
            return GroupRow(group.group_id, CLASSIC, "Empty", 0)


def _classic_state(group: ClassicGroup) -> str:
    if not group.members:
        return "Empty"
    if group.is_rebalance_due:
        return "PreparingRebalance"
    return "Stable" if group.is_synced else "CompletingRebalance"
