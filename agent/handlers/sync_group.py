"""SyncGroup 0-5: a member asks for its assignment; the leader brings everybody's.

Others than the leader wait until its request came, and the connection's next requests are taken up meanwhile. Version 3
knows static members (KIP-345); from 5 on a member says which protocol it believes in, and has to (KIP-559).
Differs from Kafka: a second SyncGroup of a member that waits has the first one answered with REBALANCE_IN_PROGRESS,
where Kafka never answers it. Source: org.apache.kafka.coordinator.group.GroupMetadataManager.classicGroupSync,
org.apache.kafka.server.KafkaApis.handleSyncGroupRequest (Kafka 4.3).
"""

from typing import Any

from agent.groups.classic_group import next_ticket
from agent.request.deferred import DeferredValues
from agent.request.messages import Values
from agent.request.services import Request, Services
from coordinator.groups.classic_messages import Sync, SyncAnswer
from protocol.errors import ErrorCode
from protocol.limits import CLASSIC_MEMBERS_MAX

API_KEY = 14
FIRST_WITH_INSTANCES = 3
FIRST_WITH_PROTOCOL = 5


async def handle(services: Services, request: Request, body: Any) -> Values | DeferredValues[Any]:
    version = request.frame.api_version
    if version >= FIRST_WITH_PROTOCOL and None in (body.protocol_type, body.protocol_name):
        return _values(SyncAnswer(error_code=ErrorCode.inconsistent_group_protocol))
    if len(body.assignments) > CLASSIC_MEMBERS_MAX:
        return _values(SyncAnswer(error_code=ErrorCode.invalid_request))
    syncing = await services.groups.sync(body.group_id, _sync(version, body))
    return DeferredValues(syncing, _values)


def _sync(version: int, body: Any) -> Sync:
    return Sync(
        ticket=next_ticket(),
        member_id=body.member_id,
        group_instance_id=body.group_instance_id if version >= FIRST_WITH_INSTANCES else None,
        generation=body.generation_id,
        protocol_type=body.protocol_type if version >= FIRST_WITH_PROTOCOL else None,
        protocol=body.protocol_name if version >= FIRST_WITH_PROTOCOL else None,
        assignments=tuple((given.member_id, given.assignment) for given in body.assignments),
    )


def _values(sync_answer: SyncAnswer) -> Values:
    return {
        "error_code": sync_answer.error_code,
        "protocol_type": sync_answer.protocol_type,
        "protocol_name": sync_answer.protocol,
        "assignment": sync_answer.assignment,
    }
