"""DescribeTopicPartitions: topics with their partitions, page by page (KIP-966).

- Versions: 0.
- Behaviour: the request takes a barrier first (safety rule S4). Topics come in the order of their names, with at most
  `response_partition_limit` partitions in all, and never more than 2,000. The cursor is where the next request goes on.
- Source: org.apache.kafka.server.handlers.DescribeTopicPartitionsRequestHandler (Kafka 4.3).
"""

import uuid
from typing import Any

from agent.request.authorized_operations import on_topic
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.security.required_rights import DESCRIBE_TOPIC
from coordinator.configs.topic_names import InvalidTopicName, validate_topic_name
from protocol.auth.operations import NOT_ASKED
from protocol.errors import ErrorCode
from protocol.limits import DESCRIBED_PARTITIONS_MAX
from protocol.types import LEADER_EPOCH

API_KEY = 75


async def handle(services: Services, request: Request, body: Any) -> Values:
    rights = request.rights
    asked_names = {topic.name for topic in body.topics}
    denied = await rights.denied_names(*DESCRIBE_TOPIC, asked_names)
    await services.ledger.barrier()
    rights.refresh()
    allowed_names = [name for name in services.state.topic_ids if rights.may(*DESCRIBE_TOPIC, name)]
    names = sorted((asked_names - denied) if body.topics else allowed_names)
    cursor_name = body.cursor.topic_name if body.cursor else ""
    cursor_index = body.cursor.partition_index if body.cursor else 0
    if body.cursor and (cursor_index < 0 or (body.topics and cursor_name not in asked_names)):
        rejected = [_missing(name, ErrorCode.invalid_request, NOT_ASKED) for name in sorted(asked_names or names)]
        return {"topics": rejected, "next_cursor": None}
    budget = max(1, min(body.response_partition_limit, DESCRIBED_PARTITIONS_MAX))
    denial = ErrorCode.topic_authorization_failed
    topics: list[dict[str, Any]] = [_missing(name, denial, NOT_ASKED) for name in sorted(denied)]
    next_cursor = None
    for name in names:
        if name < cursor_name:
            continue
        if budget == 0:
            next_cursor = {"topic_name": name, "partition_index": 0}
            break
        index_first = cursor_index if name == cursor_name else 0
        described, index_end, count = _describe(services, request, name, index_first, budget)
        topics.append(described)
        budget -= index_end - index_first
        if index_end < count:
            next_cursor = {"topic_name": name, "partition_index": index_end}
            break
    return {"topics": topics, "next_cursor": next_cursor}


def _describe(
    services: Services, request: Request, name: str, index_first: int, budget: int
) -> tuple[dict[str, Any], int, int]:
    """The topic's partitions from `index_first`, the index at which the answer ends, and how many there are."""
    operations = on_topic(request.rights, name, is_asked=True)
    topic = services.topics.known(name)
    if topic is None:
        error_code = ErrorCode.unknown_topic_or_partition
        try:
            validate_topic_name(name)
        except InvalidTopicName:
            error_code = ErrorCode.invalid_topic_exception
        return _missing(name, error_code, operations), index_first, index_first
    count = len(topic.partitions)
    index_end = max(index_first, min(count, index_first + budget))
    assignments = services.assignments(topic, services.zone_of(request))
    partitions = [
        {
            "error_code": ErrorCode.none,
            "partition_index": index,
            "leader_id": assignments[index].leader,
            "leader_epoch": LEADER_EPOCH,
            "replica_nodes": assignments[index].replicas,
            "isr_nodes": assignments[index].in_sync,
            "eligible_leader_replicas": [],
            "last_known_elr": [],
            "offline_replicas": assignments[index].offline,
        }
        for index in range(index_first, index_end)
    ]
    described = {
        "error_code": ErrorCode.none,
        "name": name,
        "topic_id": uuid.UUID(bytes=topic.topic_id),
        "is_internal": False,
        "partitions": partitions,
        "topic_authorized_operations": operations,
    }
    return described, index_end, count


def _missing(name: str, error_code: ErrorCode, operations: int) -> dict[str, Any]:
    return {
        "error_code": error_code,
        "name": name,
        "topic_id": None,
        "partitions": [],
        "topic_authorized_operations": operations,
    }
