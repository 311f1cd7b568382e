"""ListPartitionReassignments 0: none is ever under way (KIP-455).

Agents hold no replicas, so nothing is moved between them; partitions that do not exist are left out, as in Kafka.
Source: org.apache.kafka.controller.ReplicationControlManager.listPartitionReassignments (Kafka 4.3).
"""

from collections.abc import Sequence

from agent.request.messages import answer, request_body
from agent.request.services import Request, Services
from agent.runtime.yielding import inline_or_in_thread, rows_at_most
from protocol.errors import ErrorCode
from storage.object_store import Buffer

API_KEY = 46


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    await inline_or_in_thread(rows_at_most(request.frame.body), request_body, request.frame)
    return answer(request.frame, {"error_code": ErrorCode.none, "error_message": None, "topics": []})
