"""FindCoordinator: the agent that coordinates a group or a transactional id.

- Versions: 0-6. 4 adds several keys in one request (KIP-699), up to a limit.
- Behaviour: a group's coordinator is the agent that rendezvous hashing gives among the live ones
  (`GroupLedger.coordinator`), as this agent knows them. An agent that is not the coordinator rejects the group's
  requests. An agent that is cut off from the ledger does not name itself (`agent.request.cut_off`).
- Differs from Kafka: any agent serves a transactional id, whichever one is named.
- Source: org.apache.kafka.server.KafkaApis.handleFindCoordinatorRequest (Kafka 4.3).
"""

from collections.abc import Sequence
from typing import Any

from agent.admin.cluster_view import agent_of
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield, inline_or_in_thread
from agent.security.required_rights import DESCRIBE_GROUP, DESCRIBE_TRANSACTION
from coordinator.state.rendezvous import owner_of, transaction_key
from protocol.errors import ErrorCode
from protocol.limits import GROUP_ID_BYTES_MAX, GROUPS_ASKED_MAX, GROUPS_PER_TURN
from protocol.types import SessionId

API_KEY = 10
GROUP = 0
TRANSACTION = 1
RIGHTS = {GROUP: DESCRIBE_GROUP, TRANSACTION: DESCRIBE_TRANSACTION}
"""The rights by the type of a key."""
DENIALS = {
    GROUP: (ErrorCode.group_authorization_failed, "Group authorization failed."),
    TRANSACTION: (ErrorCode.transactional_id_authorization_failed, "Transactional Id authorization failed."),
}


async def handle(services: Services, request: Request, body: Any) -> Values:
    version = request.frame.api_version
    key_type = body.key_type if version >= 1 else GROUP
    keys = body.coordinator_keys if version >= 4 else (body.key,)
    denied: frozenset[str] = frozenset()
    if key_type in RIGHTS:
        denied = await request.rights.denied_names(*RIGHTS[key_type], keys[:GROUPS_ASKED_MAX])
    pacer = CooperativeYield(services.clock, GROUPS_PER_TURN)
    coordinators = []
    for key in keys[:GROUPS_ASKED_MAX]:
        coordinators.append(
            _error(key, *DENIALS[key_type]) if key in denied else _coordinator(services, request, key_type, key)
        )
        await pacer.step()
    if version >= 4:
        rejected = await inline_or_in_thread(len(keys), _too_many, keys[GROUPS_ASKED_MAX:])
        return {"coordinators": [*coordinators, *rejected]}
    return coordinators[0]


def _too_many(keys: Sequence[str]) -> list[Values]:
    why = f"Ask for at most {GROUPS_ASKED_MAX} coordinators at once."
    return [_error(key, ErrorCode.invalid_request, why) for key in keys]


def _coordinator(services: Services, request: Request, key_type: int, key: str) -> Values:
    if key_type not in (GROUP, TRANSACTION):
        why = f"Coordinator type {key_type} is not served; ask for 0 (group) or 1 (transaction)."
        return _error(key, ErrorCode.invalid_request, why)
    if key_type == GROUP and len(key.encode()) > GROUP_ID_BYTES_MAX:
        return _error(key, ErrorCode.invalid_group_id, f"The id of a group has at most {GROUP_ID_BYTES_MAX} bytes.")
    session = services.group_coordinator(key) if key_type == GROUP else transaction_coordinator(services, key)
    broker = None if session is None else agent_of(services.state, session, request.listener)
    if broker is None:
        return _error(key, ErrorCode.coordinator_not_available, "No agent is ready for it; ask again.")
    return {
        "key": key,
        "node_id": broker.node_id,
        "host": broker.host,
        "port": broker.port,
        "error_code": ErrorCode.none,
        "error_message": None,
    }


def transaction_coordinator(services: Services, transactional_id: str) -> SessionId | None:
    """The agent that clients ask about a transactional id; None while no agent is live."""
    return owner_of(transaction_key(transactional_id), services.cut_off.sessions)


def _error(key: str, error_code: ErrorCode, message: str) -> Values:
    return {"key": key, "node_id": -1, "host": "", "port": -1, "error_code": error_code, "error_message": message}
