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
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from agent.security.required_rights import Right
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


async def of_named_topics(
    services: Services,
    request: Request,
    topics: Sequence[Any],
    right: Right,
    *,
    has_leader_epochs: bool,
    retention_ms: int = NO_RETENTION,
) -> OffsetRequest:
    """A request that names its topics, and asks for a right on each. Denials stand behind a barrier (S16)."""
    denied = await request.rights.denied_names(*right, [topic.name for topic in topics])
    return OffsetRequest(
        topics=topics,
        find=lambda topic: services.topics.known(topic.name),
        missing=lambda _: ErrorCode.unknown_topic_or_partition,
        has_leader_epochs=has_leader_epochs,
        is_denied=lambda topic: topic.name in denied,
        retention_ms=retention_ms,
    )


async def read_rows(services: Services, request: OffsetRequest) -> tuple[list[ErrorCode], list[WantedOffset]]:
    """The error for each partition of the request, in its order, and the partitions that exist."""
    pacer = CooperativeYield(services.clock)
    is_confirmed: bool | None = None
    """Whether missing partitions do not exist; None before the barrier that the first of them takes (S4)."""
    metadata_max = int(broker_value(services.broker_configs, "offset.metadata.max.bytes"))
    errors: list[ErrorCode] = []
    wanted: list[WantedOffset] = []
    for topic in request.topics:
        is_denied = request.is_denied(topic)
        topic_state = None if is_denied else request.find(topic)
        for partition in topic.partitions:
            if pacer.is_turn_over():
                await pacer.turn()
            row = _row(request, topic_state, partition)
            if row is None and is_confirmed is None and not is_denied:
                is_confirmed = await passes_barrier(services)
                is_denied = request.is_denied(topic)  # an id may have become known
                topic_state = None if is_denied else request.find(topic)
                row = _row(request, topic_state, partition)
            if row is not None:
                is_unfit = bool(row.metadata) and is_too_long(row.metadata, metadata_max)
                wanted.append(WantedOffset(len(errors), None if is_unfit else row))
                errors.append(ErrorCode.none)
            elif is_denied:
                errors.append(ErrorCode.topic_authorization_failed)
            else:
                errors.append(request.missing(topic_state) if is_confirmed else ErrorCode.coordinator_not_available)
    return errors, wanted


def _row(request: OffsetRequest, topic: TopicState | None, partition: Any) -> OffsetRow | None:
    """The offset to commit for one of the topic's partitions; None where that does not exist."""
    if topic is None or not 0 <= partition.partition_index < len(topic.partitions):
        return None
    return OffsetRow(
        topic.topic_id,
        PartitionIndex(partition.partition_index),
        Offset(partition.committed_offset),
        partition.committed_leader_epoch if request.has_leader_epochs else NO_LEADER_EPOCH,
        partition.committed_metadata or "",
        request.retention_ms,
    )


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
