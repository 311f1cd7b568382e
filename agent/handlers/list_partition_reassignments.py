"""ListPartitionReassignments 0: none is ever under way (KIP-455).

Agents hold no replicas, so nothing is moved between them; partitions that do not exist are left out, as in Kafka.
Source: org.apache.kafka.controller.ReplicationControlManager.listPartitionReassignments (Kafka 4.3).
"""

from typing import Any

from agent.request.messages import Values
from agent.request.services import Request, Services
from protocol.errors import ErrorCode

API_KEY = 46


async def handle(services: Services, request: Request, body: Any) -> Values:
    return {"error_code": ErrorCode.none, "error_message": None, "topics": []}
