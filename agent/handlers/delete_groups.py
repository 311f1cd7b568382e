"""DeleteGroups 0-2: drops groups that have no members, with the offsets that they committed.

A group with members is NON_EMPTY_GROUP, one that does not exist GROUP_ID_NOT_FOUND, after a barrier (safety rule S4).
The answer comes once the entries are applied, each under the coordinator's claim (safety rule S13); one that the
ledger did not answer in time is COORDINATOR_NOT_AVAILABLE, and may still be deleted. A group that is named twice is
answered once.
Source: org.apache.kafka.server.KafkaApis.handleDeleteGroupsRequest,
org.apache.kafka.coordinator.group.GroupCoordinatorShard.deleteGroups (Kafka 4.3).
"""

import asyncio
from collections.abc import Sequence

from agent.group_ledger import NotCoordinator
from agent.handlers.entities import answer, request_body
from agent.offset_commits import as_told
from agent.services import Request, Services
from agent.topics import TopicError, before, deadline_s
from agent.turns import rows_at_most, work
from coordinator.commands import Refused
from coordinator.log import LedgerUnavailable
from protocol.errors import ErrorCode
from protocol.limits import GROUP_IDS_PER_CLAIM_MAX
from storage.object_store import Buffer

API_KEY = 42


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    body = await work(rows_at_most(request.frame.body), request_body, request.frame)
    group_ids = list(dict.fromkeys(body.groups_names))
    end_s = deadline_s(services.clock)
    results: list[dict[str, object]] = []
    for first in range(0, len(group_ids), GROUP_IDS_PER_CLAIM_MAX):
        share = group_ids[first : first + GROUP_IDS_PER_CLAIM_MAX]
        told = await _delete_all(services, share, end_s)
        results += [
            {"group_id": group_id, "error_code": error_code} for group_id, error_code in zip(share, told, strict=True)
        ]
    return await work(len(results), answer, request.frame, {"results": results})


async def _delete_all(services: Services, group_ids: Sequence[str], end_s: float) -> list[ErrorCode]:
    """An error for each group. Together they cost a barrier, an entry for their claims, and one for each of them."""
    try:
        await services.metadata.barrier()
    except LedgerUnavailable:
        return [ErrorCode.coordinator_not_available] * len(group_ids)
    async with asyncio.TaskGroup() as tasks:
        deletions = [tasks.create_task(_delete(services, group_id, end_s)) for group_id in group_ids]
    return [deletion.result() for deletion in deletions]


async def _delete(services: Services, group_id: str, end_s: float) -> ErrorCode:
    """What one group is answered; the caller has taken a barrier."""
    try:
        services.group_ledger.readable(group_id)
        if group_id not in services.state.groups:
            return ErrorCode.group_id_not_found
        group = await services.group_ledger.claim(group_id)
        if group.has_members or await has_live_members(services, group_id):
            return ErrorCode.non_empty_group
        if not services.group_ledger.is_mine(group_id):
            return ErrorCode.not_coordinator
        outcome = await before(end_s, services.clock, services.group_ledger.delete_group(group_id))
    except NotCoordinator as error:
        return error.error_code
    except TopicError:
        return ErrorCode.coordinator_not_available
    if isinstance(outcome, Refused):
        return as_told(outcome.error_code)
    services.groups.forget(group_id)
    services.consumer_groups.forget(group_id)
    return ErrorCode.none


async def has_live_members(services: Services, group_id: str) -> bool:
    """Whether members are joining that the ledger does not have yet. Raises `NotCoordinator`."""
    described = await services.groups.describe(group_id)
    return (described is not None and bool(described.members)) or services.consumer_groups.is_live(group_id)
