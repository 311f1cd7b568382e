"""ListGroups: the groups that this agent coordinates. A client that needs all of them asks every agent.

- Versions: 0-5. 4 adds a filter by state (KIP-518), 5 one by type, classic or consumer (KIP-848).
- Behaviour: the request takes a barrier first (safety rule S4). Filters ignore case; a name that does not exist matches
  nothing. A group that only has committed offsets is an empty classic one. Behind one address for several agents a
  client cannot ask each of them, so any of them lists the groups of all, those of others as the ledger has them.
- Source: org.apache.kafka.coordinator.group.GroupMetadataManager.listGroups (Kafka 4.3).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agent.admin.cluster_view import sessions_behind
from agent.groups.group_ledger import NotCoordinator
from agent.request.barriers import passes_barrier
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from agent.security.required_rights import DESCRIBE_CLUSTER, DESCRIBE_GROUP
from coordinator.commands.consumer_group_values import ConsumerGroup
from coordinator.commands.group_values import NO_GROUP, ClassicGroup, GroupState
from coordinator.groups.classic_descriptions import describe_kept
from coordinator.groups.classic_messages import Description
from coordinator.state.state import ClusterState
from protocol.auth.operations import CLUSTER_NAME
from protocol.errors import ErrorCode
from protocol.types import SessionId

API_KEY = 16
FIRST_WITH_STATES = 4
FIRST_WITH_TYPES = 5
CLASSIC = "classic"
CONSUMER = "consumer"


async def handle(services: Services, request: Request, body: Any) -> Values:
    version = request.frame.api_version
    states = _names(body.states_filter) if version >= FIRST_WITH_STATES else frozenset[str]()
    types = _names(body.types_filter) if version >= FIRST_WITH_TYPES else frozenset[str]()
    if not await passes_barrier(services):
        return {"error_code": ErrorCode.coordinator_not_available, "groups": []}
    rights = request.rights
    pacer = CooperativeYield(services.clock)
    rows: list[Mapping[str, Any]] = []
    sessions = sessions_behind(services.state, request.listener, services.ledger.agent)
    for group_id in dict.fromkeys((*services.state.groups, *services.groups.unwritten())):
        rights.refresh()  # to look at a group may take a while
        is_allowed = rights.may(*DESCRIBE_CLUSTER, CLUSTER_NAME) or rights.may(*DESCRIBE_GROUP, group_id)
        row = await _row(services, group_id, sessions) if is_allowed else None
        if row is not None and _is_wanted(row["group_state"], states) and _is_wanted(row["group_type"], types):
            rows.append(row)
        await pacer.step()
    return {"error_code": ErrorCode.none, "groups": rows}


def _names(wanted: Sequence[str]) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in wanted)


def _is_wanted(name: str, names: frozenset[str]) -> bool:
    return not names or name.lower() in names


async def _row(services: Services, group_id: str, sessions: frozenset[SessionId]) -> Mapping[str, Any] | None:
    """The row of a group; None where the agent of none of the `sessions` coordinates it, or where it was deleted."""
    coordinator = services.group_ledger.coordinator(group_id)
    if coordinator in sessions and coordinator != services.ledger.session:
        return _written_row(services.state, group_id)
    try:
        group = services.group_ledger.readable(group_id)
        description = await services.groups.describe(group_id)
    except NotCoordinator:
        return None
    if description is not None:
        return _classic_row(group_id, description)
    return None if group is None else _consumer_row(group)


def _written_row(state: ClusterState, group_id: str) -> Mapping[str, Any] | None:
    """The row of a group of another coordinator, as the ledger has it: of members that join it has nothing yet."""
    group = state.groups.get(group_id)
    if group is None or group.is_vacant:
        return None
    value = NO_GROUP if group.value is None else group.value
    return _classic_row(group_id, describe_kept(value)) if isinstance(value, ClassicGroup) else _consumer_row(group)


def _classic_row(group_id: str, description: Description) -> Mapping[str, Any]:
    return {
        "group_id": group_id,
        "protocol_type": description.protocol_type,
        "group_state": description.state,
        "group_type": CLASSIC,
    }


def _consumer_row(group: GroupState) -> Mapping[str, Any] | None:
    if not isinstance(group.value, ConsumerGroup):
        return None
    return {
        "group_id": group.group_id,
        "protocol_type": CONSUMER,
        "group_state": group.value.phase().name.capitalize(),
        "group_type": CONSUMER,
    }
