"""Heartbeat 0-4: a member of a classic group is there. REBALANCE_IN_PROGRESS tells it to join again.

It costs no entry. Version 3 knows static members (KIP-345).
Source: org.apache.kafka.coordinator.group.GroupMetadataManager.classicGroupHeartbeat (Kafka 4.3).
"""

from collections.abc import Sequence

from agent.request.messages import answer, request_body
from agent.request.services import Request, Services
from agent.runtime.yielding import inline_or_in_thread, rows_at_most
from storage.object_store import Buffer

API_KEY = 12
FIRST_WITH_INSTANCES = 3


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    body = await inline_or_in_thread(rows_at_most(request.frame.body), request_body, request.frame)
    instance_id = body.group_instance_id if request.frame.api_version >= FIRST_WITH_INSTANCES else None
    error_code = await services.groups.heartbeat(body.group_id, body.member_id, instance_id, body.generation_id)
    return answer(request.frame, {"error_code": error_code})
