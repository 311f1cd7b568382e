"""Heartbeat 0-4: a member of a classic group is there. REBALANCE_IN_PROGRESS tells it to join again.

It costs no entry. Version 3 knows static members (KIP-345).
Source: org.apache.kafka.coordinator.group.GroupMetadataManager.classicGroupHeartbeat (Kafka 4.3).
"""

from typing import Any

from agent.request.messages import Values
from agent.request.services import Request, Services

API_KEY = 12
FIRST_WITH_INSTANCES = 3


async def handle(services: Services, request: Request, body: Any) -> Values:
    instance_id = body.group_instance_id if request.frame.api_version >= FIRST_WITH_INSTANCES else None
    error_code = await services.groups.heartbeat(body.group_id, body.member_id, instance_id, body.generation_id)
    return {"error_code": error_code}
