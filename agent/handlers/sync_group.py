"""SyncGroup: a member asks for its assignment; the leader sends everybody's.

- Versions: 0-5. 3 adds static members (KIP-345). From 5 on a member has to name its protocol (KIP-559).
- Behaviour: members wait until the leader's request came. The connection's next requests are handled meanwhile.
- Differs from Kafka: a second SyncGroup of a waiting member ends the first one with REBALANCE_IN_PROGRESS. Kafka never
  answers the first one.
- Source: org.apache.kafka.coordinator.group.GroupMetadataManager.classicGroupSync,
  org.apache.kafka.server.KafkaApis.handleSyncGroupRequest (Kafka 4.3).
"""

from typing import Any

from agent.groups.classic_group import next_ticket
from agent.request.deferred import DeferredValues
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.security.required_rights import READ_GROUP
from coordinator.groups.classic_messages import Sync, SyncAnswer
from protocol.errors import ErrorCode
from protocol.limits import CLASSIC_MEMBERS_MAX

API_KEY = 14
FIRST_WITH_INSTANCES = 3
FIRST_WITH_PROTOCOL = 5


async def handle(services: Services, request: Request, body: Any) -> Values | DeferredValues[Any]:
    version = request.frame.api_version
    if not await request.rights.may_behind_barrier(*READ_GROUP, body.group_id):
        return _values(SyncAnswer(error_code=ErrorCode.group_authorization_failed))
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


def rejection(api_version: int, error_code: ErrorCode) -> Values:
    """The response to a request of any version."""
    del api_version
    return _values(SyncAnswer(error_code=error_code))


def _values(sync_answer: SyncAnswer) -> Values:
    return {
        "error_code": sync_answer.error_code,
        "protocol_type": sync_answer.protocol_type,
        "protocol_name": sync_answer.protocol,
        "assignment": sync_answer.assignment,
    }
