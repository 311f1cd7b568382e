"""DescribeGroups: classic groups with their members and assignments.

- Versions: 0-6. 3 adds authorized operations. From 6 on a group that does not exist, or is not a classic one, is
  GROUP_ID_NOT_FOUND besides being Dead (KIP-1043).
- Behaviour: the request takes a barrier first (safety rule S4), and waits for what the coordinator has not written yet.
  Metadata and assignments are in the response while a group is stable. Each group is described once, however often it
  is named. A response has a limit: groups beyond it are COORDINATOR_LOAD_IN_PROGRESS, and clients ask again. Behind one
  address for several agents any of them lists all groups, and librdkafka's `list_groups` describes them where they were
  listed. So a request for several groups has those of other agents there as the ledger has them.
- Source: org.apache.kafka.coordinator.group.GroupMetadataManager.describeGroups (Kafka 4.3).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agent.admin.cluster_view import sessions_behind
from agent.groups.group_ledger import NotCoordinator
from agent.request.authorized_operations import on_group
from agent.request.barriers import passes_barrier
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield, inline_or_in_thread
from agent.security.required_rights import DESCRIBE_GROUP
from coordinator.commands.group_values import NO_GROUP, ClassicGroup
from coordinator.groups.classic_descriptions import describe_kept
from coordinator.groups.classic_messages import DescribedMember, Description
from coordinator.state.state import ClusterState
from protocol.auth.operations import NOT_ASKED
from protocol.errors import ErrorCode
from protocol.limits import GROUP_MEMBERS_LISTED_MAX
from protocol.types import SessionId

API_KEY = 15
FIRST_WITH_OPERATIONS = 3
FIRST_WITH_NOT_FOUND = 6
DEAD = Description(state="Dead")
NOTHING = Description(state="")


async def handle(services: Services, request: Request, body: Any) -> Values:
    version = request.frame.api_version
    is_asked = version >= FIRST_WITH_OPERATIONS and body.include_authorized_operations
    denied = await request.rights.denied_names(*DESCRIBE_GROUP, body.groups)
    if not await passes_barrier(services):
        return {"groups": await inline_or_in_thread(len(body.groups), _unavailable, body.groups)}
    pacer = CooperativeYield(services.clock)
    # A group that is asked for alone is its coordinator's: a client that is sent there learns of members that join.
    is_alone = len(body.groups) == 1
    sessions = frozenset() if is_alone else sessions_behind(services.state, request.listener, services.ledger.agent)
    groups = []
    members_count = 0
    for group_id in dict.fromkeys(body.groups):
        if group_id in denied:
            row, members = _row(group_id, NOTHING, ErrorCode.group_authorization_failed), NOTHING.members
        elif members_count >= GROUP_MEMBERS_LISTED_MAX:
            row, members = _row(group_id, NOTHING, ErrorCode.coordinator_load_in_progress), NOTHING.members
        else:
            row, members = await _described(services, group_id, sessions, version)
            if is_asked and row["error_code"] is ErrorCode.none:
                row["authorized_operations"] = on_group(request.rights, group_id, is_asked=True)
        rows = []
        for member in members:
            rows.append(_member(member))
            await pacer.step()
        groups.append(row | {"members": rows})
        members_count += len(rows)
        await pacer.step()
    return {"groups": groups}


def _unavailable(group_ids: Sequence[str]) -> list[dict[str, Any]]:
    error_code = ErrorCode.coordinator_not_available
    return [_row(group_id, NOTHING, error_code) | {"members": []} for group_id in group_ids]


async def _described(
    services: Services, group_id: str, sessions: frozenset[SessionId], version: int
) -> tuple[dict[str, Any], tuple[DescribedMember, ...]]:
    """The row of a group, and its members as they are now. Other tasks run while the members' rows are made."""
    try:
        group = services.group_ledger.readable(group_id)
        description = await services.groups.describe(group_id)
    except NotCoordinator as error:
        kept = _kept(services.state, group_id) if services.group_ledger.coordinator(group_id) in sessions else None
        if error.error_code is not ErrorCode.not_coordinator or kept is None:
            return _row(group_id, NOTHING, error.error_code), ()
        return _row(group_id, kept, ErrorCode.none), kept.members
    if description is not None:
        return _row(group_id, description, ErrorCode.none), description.members
    if version < FIRST_WITH_NOT_FOUND:
        return _row(group_id, DEAD, ErrorCode.none), ()
    why = "not found" if group is None else "is not a classic group"
    return _row(group_id, DEAD, ErrorCode.group_id_not_found, message=f"Group {group_id} {why}."), ()


def _kept(state: ClusterState, group_id: str) -> Description | None:
    """A group as the ledger has it; None where it has no such classic group."""
    group = state.groups.get(group_id)
    if group is None or group.is_vacant:
        return None
    value = NO_GROUP if group.value is None else group.value
    return describe_kept(value) if isinstance(value, ClassicGroup) else None


def _row(
    group_id: str,
    description: Description,
    error_code: ErrorCode,
    *,
    message: str | None = None,
) -> dict[str, Any]:
    """The row of a group, without its members."""
    return {
        "error_code": error_code,
        "error_message": message,
        "group_id": group_id,
        "group_state": description.state,
        "protocol_type": description.protocol_type,
        "protocol_data": description.protocol,
        "authorized_operations": NOT_ASKED,
    }


def _member(member: DescribedMember) -> Mapping[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata,
        "member_assignment": member.assignment,
    }
