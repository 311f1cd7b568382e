"""ListPartitionReassignments: no reassignment is ever in progress (KIP-455).

- Versions: 0.
- Behaviour: the response has no rows. Kafka, too, leaves out partitions that do not exist.
- Differs from Kafka: agents hold no replicas, so nothing moves between them.
- Source: org.apache.kafka.controller.ReplicationControlManager.listPartitionReassignments (Kafka 4.3).
"""

from typing import Any

from agent.request.messages import Values
from agent.request.services import Request, Services
from protocol.errors import ErrorCode

API_KEY = 46


async def handle(services: Services, request: Request, body: Any) -> Values:
    return {"error_code": ErrorCode.none, "error_message": None, "topics": []}
