"""FindCoordinator 0-6: which agent coordinates a group or a transactional id.

A group's coordinator is the agent that rendezvous hashing names over the live ones (`GroupLedger.coordinator`), as this
agent knows them: one that is asked and is not, says so. Transactions are not served: for them the agent names itself.
Version 4 and later ask for many keys at once (KIP-699). Source: org.apache.kafka.server.KafkaApis.handleFindCoordinatorRequest (Kafka 4.3).
"""

from collections.abc import Sequence
from typing import Any

from agent.cluster_view import agent_of
from agent.handlers.entities import answer, request_body
from agent.services import Request, Services
from protocol.errors import ErrorCode
from storage.object_store import Buffer

API_KEY = 10
GROUP = 0
TRANSACTION = 1


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    body = request_body(request.frame)
    version = request.frame.api_version
    key_type = body.key_type if version >= 1 else GROUP
    keys = body.coordinator_keys if version >= 4 else (body.key,)
    found = [_coordinator(services, request, key_type, key) for key in keys]
    if version >= 4:
        return answer(request.frame, {"coordinators": found})
    return answer(request.frame, found[0])


def _coordinator(services: Services, request: Request, key_type: int, key: str) -> dict[str, Any]:
    if key_type not in (GROUP, TRANSACTION):
        return {
            "key": key,
            "node_id": -1,
            "host": "",
            "port": -1,
            "error_code": ErrorCode.invalid_request,
            "error_message": f"Coordinator type {key_type} is not served; ask for 0 (group) or 1 (transaction).",
        }
    session = services.group_ledger.coordinator(key) if key_type == GROUP else services.writer.session
    broker = None if session is None else agent_of(services.state, session, request.listener)
    if broker is None:
        return {
            "key": key,
            "node_id": -1,
            "host": "",
            "port": -1,
            "error_code": ErrorCode.coordinator_not_available,
            "error_message": "No agent is ready for it; ask again.",
        }
    return {
        "key": key,
        "node_id": broker.node_id,
        "host": broker.host,
        "port": broker.port,
        "error_code": ErrorCode.none,
        "error_message": None,
    }
