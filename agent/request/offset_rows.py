"""Reads the rows of requests that commit offsets: the partitions that exist, and their offsets to commit.

A partition is called unknown only after a barrier (safety rule S4). Each row has its own error. Other tasks run while
many rows are read.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from agent.admin.cluster_view import NO_LEADER_EPOCH
from agent.groups.group_ledger import NO_RETENTION, OffsetRow
from agent.request.barriers import passes_barrier
from agent.request.offset_commits import is_too_long
from agent.request.services import Services
from agent.runtime.yielding import CooperativeYield
from coordinator.configs.broker_configs import broker_value
from coordinator.state.state import TopicState
from protocol.errors import ErrorCode
from protocol.types import Offset, PartitionIndex


class WantedOffset(NamedTuple):
    """An existing partition: the position of its error, and the row to commit; None where the note is too long."""

    position: int
    row: OffsetRow | None


class OffsetRequest(NamedTuple):
    """The parts of a request that differ by API and version."""

    topics: Sequence[Any]
    find: Callable[[Any], TopicState | None]
    """The topic that one of `topics` names, as far as this agent knows."""
    missing: Callable[[TopicState | None], ErrorCode]
    """The error for a partition that does not exist in the topic."""
    has_leader_epochs: bool
    is_denied: Callable[[Any], bool]
    """Whether the client may not read the topic that one of `topics` names."""
    retention_ms: int = NO_RETENTION


async def read_rows(services: Services, request: OffsetRequest) -> tuple[list[ErrorCode], list[WantedOffset]]:
    """The error for each partition of the request, in its order, and the partitions that exist."""
    pacer = CooperativeYield(services.clock)
    is_confirmed = await _is_confirmed(services, request, pacer)
    metadata_max = int(broker_value(services.broker_configs, "offset.metadata.max.bytes"))
    errors: list[ErrorCode] = []
    wanted: list[WantedOffset] = []
    for topic in request.topics:
        is_denied = request.is_denied(topic)
        topic_state = None if is_denied else request.find(topic)
        for partition in topic.partitions:
            if is_denied:
                errors.append(ErrorCode.topic_authorization_failed)
            elif topic_state is not None and _has(topic_state, partition.partition_index):
                row = _row(request, topic_state, partition)
                wanted.append(WantedOffset(len(errors), None if is_too_long(row.metadata, metadata_max) else row))
                errors.append(ErrorCode.none)
            else:
                errors.append(request.missing(topic_state) if is_confirmed else ErrorCode.coordinator_not_available)
            await pacer.step()
    return errors, wanted


def _row(request: OffsetRequest, topic: TopicState, partition: Any) -> OffsetRow:
    """The offset to commit for one of the topic's partitions."""
    return OffsetRow(
        topic_id=topic.topic_id,
        partition=PartitionIndex(partition.partition_index),
        offset=Offset(partition.committed_offset),
        leader_epoch=partition.committed_leader_epoch if request.has_leader_epochs else NO_LEADER_EPOCH,
        metadata=partition.committed_metadata or "",
        retention_ms=request.retention_ms,
    )


async def _is_confirmed(services: Services, request: OffsetRequest, pacer: CooperativeYield) -> bool:
    """Whether missing partitions do not exist. Takes a barrier where one is missing; False where that fails (S4)."""
    for topic in request.topics:
        if request.is_denied(topic):
            continue
        topic_state = request.find(topic)
        for partition in topic.partitions:
            if topic_state is None or not _has(topic_state, partition.partition_index):
                return await passes_barrier(services)
            await pacer.step()
    return True


def _has(topic: TopicState, partition_index: int) -> bool:
    return 0 <= partition_index < len(topic.partitions)


def answered_topics(
    topics: Sequence[Any], errors: Sequence[ErrorCode], named: Callable[[Any], dict[str, Any]]
) -> list[dict[str, Any]]:
    """The topics of the response. `named` returns the field with a topic's name or id."""
    by_partition = iter(errors)
    return [
        named(topic)
        | {
            "partitions": [
                {"partition_index": partition.partition_index, "error_code": next(by_partition)}
                for partition in topic.partitions
            ]
        }
        for topic in topics
    ]
