"""ConsumerGroupHeartbeat: a member of a consumer group joins, reports, or leaves (KIP-848).

- Versions: 0-1. In 0 a member without an id is given one. From 1 on it makes its own, and may subscribe by a regular
  expression.
- Behaviour: the group's coordinator responds once the changes are in the ledger (`agent.groups.consumer_coordinator`).
- Source: org.apache.kafka.server.KafkaApis.handleConsumerGroupHeartbeat (Kafka 4.3).
"""

import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from agent.groups.group_ledger import NotCoordinator
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.ids import uuid_text
from agent.security.required_rights import DESCRIBE_TOPIC, READ_GROUP
from coordinator.commands.consumer_group_values import JOIN_EPOCH, Partitions, partitions
from coordinator.groups.consumer_group_messages import NOT_SAID, ConsumerHeartbeat, GroupRejection, HeartbeatAnswer
from protocol.errors import ErrorCode
from protocol.types import TopicId

API_KEY = 68
FIRST_WITH_OWN_IDS = 1
_MILLISECOND = timedelta(milliseconds=1)
_NO_TOPIC = bytes(16)


async def handle(services: Services, request: Request, body: Any) -> Values:
    frame = request.frame
    if not await request.rights.may_behind_barrier(*READ_GROUP, body.group_id):
        return _error(ErrorCode.group_authorization_failed, None)
    if await request.rights.denied_names(*DESCRIBE_TOPIC, body.subscribed_topic_names or ()):
        return _error(ErrorCode.topic_authorization_failed, None)
    is_id_required = frame.api_version >= FIRST_WITH_OWN_IDS
    member_id = body.member_id
    if not member_id and not is_id_required and body.member_epoch == JOIN_EPOCH:
        member_id = uuid_text(services.ids.new_uuid())
    heartbeat = ConsumerHeartbeat(
        member_id=member_id,
        epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=max(NOT_SAID, body.rebalance_timeout // _MILLISECOND),
        names=body.subscribed_topic_names,
        regex=body.subscribed_topic_regex if is_id_required else None,
        server_assignor=body.server_assignor,
        owned=_owned(body.topic_partitions),
        client_id=frame.client_id or "",
        client_host=request.client_host,
    )
    try:
        heartbeat_answer = await services.consumer_groups.heartbeat(
            body.group_id, heartbeat, is_id_required=is_id_required, rights=request.rights
        )
    except GroupRejection as rejection:
        return _error(rejection.error_code, rejection.message)
    except NotCoordinator as error:
        return _error(error.error_code, error.message)
    return _heartbeat_values(heartbeat_answer)


def _owned(topics: Sequence[Any] | None) -> Partitions | None:
    if topics is None:
        return None
    indexes_by_topic: dict[TopicId, set[int]] = {}
    for topic in topics:
        topic_id = TopicId(_NO_TOPIC if topic.topic_id is None else topic.topic_id.bytes)
        indexes_by_topic.setdefault(topic_id, set()).update(topic.partitions)
    return partitions(indexes_by_topic)


def _error(error_code: ErrorCode, message: str | None) -> Values:
    return {
        "error_code": error_code,
        "error_message": message,
        "member_epoch": 0,
        "heartbeat_interval": _milliseconds(0),
    }


def _heartbeat_values(heartbeat_answer: HeartbeatAnswer) -> Values:
    return {
        "error_code": ErrorCode.none,
        "member_id": heartbeat_answer.member_id,
        "member_epoch": heartbeat_answer.epoch,
        "heartbeat_interval": _milliseconds(heartbeat_answer.heartbeat_interval_ms),
        "assignment": None
        if heartbeat_answer.assigned is None
        else {
            "topic_partitions": [
                {"topic_id": uuid.UUID(bytes=topic_id), "partitions": [index for index, _ in rows]}
                for topic_id, rows in heartbeat_answer.assigned
            ]
        },
    }


def _milliseconds(count: int) -> timedelta:
    return timedelta(milliseconds=count)
