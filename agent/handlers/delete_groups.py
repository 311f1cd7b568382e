"""DeleteGroups: deletes groups without members, with their committed and pending offsets.

- Versions: 0-2.
- Behaviour: a group with members is NON_EMPTY_GROUP. One that does not exist is GROUP_ID_NOT_FOUND, after a barrier
  (safety rule S4). The response comes once the entries are applied, each under the coordinator's claim (safety rule
  S13). COORDINATOR_NOT_AVAILABLE means that the ledger did not answer in time: the group may still be deleted. A group
  that is named twice has one row.
- Source: org.apache.kafka.server.KafkaApis.handleDeleteGroupsRequest,
  org.apache.kafka.coordinator.group.GroupCoordinatorShard.deleteGroups (Kafka 4.3).
"""

import asyncio
from typing import Any

from agent.admin.topics import TopicError, before, deadline_s
from agent.groups.group_ledger import NotCoordinator
from agent.request.barriers import passes_barrier
from agent.request.messages import Values
from agent.request.offset_commits import as_client_error, is_overdue
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from agent.security.required_rights import DELETE_GROUP
from coordinator.commands.commands import Rejected
from protocol.errors import ErrorCode
from protocol.limits import GROUPS_PER_TURN

API_KEY = 42


async def handle(services: Services, request: Request, body: Any) -> Values:
    end_s = deadline_s(services.clock)
    error_codes = dict.fromkeys(body.groups_names, ErrorCode.coordinator_not_available)
    denied = await request.rights.denied_names(*DELETE_GROUP, error_codes)
    if await passes_barrier(services):
        pacer = CooperativeYield(services.clock, GROUPS_PER_TURN)
        for group_id in error_codes:
            if group_id not in denied:
                error_codes[group_id] = _look_up(services, group_id)
            await pacer.step()
        present = [group_id for group_id, error_code in error_codes.items() if error_code is ErrorCode.none]
        for first in range(0, len(present), GROUPS_PER_TURN):
            share = present[first : first + GROUPS_PER_TURN]
            async with asyncio.TaskGroup() as tasks:
                deletions = [tasks.create_task(_delete(services, request, group_id, end_s)) for group_id in share]
            error_codes |= {group_id: done.result() for group_id, done in zip(share, deletions, strict=True)}
    error_codes |= dict.fromkeys(denied, ErrorCode.group_authorization_failed)
    results = [{"group_id": group_id, "error_code": error_code} for group_id, error_code in error_codes.items()]
    return {"results": results}


def _look_up(services: Services, group_id: str) -> ErrorCode:
    """NONE where the group exists and this agent may delete it."""
    try:
        return ErrorCode.none if services.groups.is_there(group_id) else ErrorCode.group_id_not_found
    except NotCoordinator as error:
        return error.error_code


async def _delete(services: Services, request: Request, group_id: str, end_s: float) -> ErrorCode:
    """Deletes one group and returns its error. Groups of one turn of the loop share an entry for their claims."""
    ledger = services.group_ledger
    try:
        group = await ledger.claim(group_id)
        if group.has_members or await _has_joining_members(services, group_id):
            return ErrorCode.non_empty_group
        if not ledger.owns(group_id):
            return ErrorCode.not_coordinator
        if is_overdue(services, request):  # clients may have committed again since (safety rule S23)
            return ErrorCode.coordinator_not_available
        outcome = await before(end_s, services.clock, ledger.delete_group(group_id))
    except NotCoordinator as error:
        return error.error_code
    except TopicError:
        return ErrorCode.coordinator_not_available
    if isinstance(outcome, Rejected):
        return as_client_error(outcome.error_code)
    services.groups.forget(group_id)
    services.consumer_groups.forget(group_id)
    return ErrorCode.none


async def _has_joining_members(services: Services, group_id: str) -> bool:
    """Whether members join that the ledger does not have yet. Raises `NotCoordinator`."""
    described = await services.groups.describe(group_id)
    return (described is not None and bool(described.members)) or services.consumer_groups.is_live(group_id)
