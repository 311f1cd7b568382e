"""Heartbeat: a member of a classic group reports that it is alive.

- Versions: 0-4. 3 adds static members (KIP-345).
- Behaviour: it writes no entry. After REBALANCE_IN_PROGRESS the member joins again.
- Source: org.apache.kafka.coordinator.group.GroupMetadataManager.classicGroupHeartbeat (Kafka 4.3).
"""

from typing import Any

from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.security.required_rights import READ_GROUP
from protocol.errors import ErrorCode

API_KEY = 12
FIRST_WITH_INSTANCES = 3


async def handle(services: Services, request: Request, body: Any) -> Values:
    if not await request.rights.may_behind_barrier(*READ_GROUP, body.group_id):
        return {"error_code": ErrorCode.group_authorization_failed}
    instance_id = body.group_instance_id if request.frame.api_version >= FIRST_WITH_INSTANCES else None
    error_code = await services.groups.heartbeat(body.group_id, body.member_id, instance_id, body.generation_id)
    return {"error_code": error_code}
