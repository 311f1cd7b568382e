"""ConsumerGroupDescribe: consumer groups with their members and assignments (KIP-848).

- Versions: 0-1. 1 adds whether a member uses the classic protocol.
- Behaviour: the group's coordinator responds, after a barrier (safety rule S4), from the state. A group of another kind
  is not found. Each group is described once, however often it is named. A response has a limit: groups beyond it are
  COORDINATOR_LOAD_IN_PROGRESS, and clients ask again.
- Source: org.apache.kafka.server.KafkaApis.handleConsumerGroupDescribe, ConsumerGroup.asDescribedGroup (Kafka 4.3).
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from agent.groups.group_ledger import NotCoordinator
from agent.request.authorized_operations import on_group
from agent.request.barriers import passes_barrier
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield, inline_or_in_thread
from agent.security.required_rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from agent.security.rights import Rights
from coordinator.commands.consumer_group_values import ConsumerGroup, GroupPhase, Partitions, without_epochs
from protocol.errors import ErrorCode
from protocol.limits import GROUP_MEMBERS_LISTED_MAX

API_KEY = 69
CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1
HAS_DENIED_TOPICS = "The group has described topic(s) that the client is not authorized to describe."
_PHASES = {
    GroupPhase.EMPTY: "Empty",
    GroupPhase.ASSIGNING: "Assigning",
    GroupPhase.RECONCILING: "Reconciling",
    GroupPhase.STABLE: "Stable",
}


async def handle(services: Services, request: Request, body: Any) -> Values:
    denied = await request.rights.denied_names(*DESCRIBE_GROUP, body.group_ids)
    if not await passes_barrier(services):
        return {"groups": await inline_or_in_thread(len(body.group_ids), _unavailable, body.group_ids)}
    pacer = CooperativeYield(services.clock)
    groups: list[dict[str, Any]] = []
    members_count = 0
    for group_id in dict.fromkeys(body.group_ids):
        if group_id in denied:
            groups.append(_error(group_id, ErrorCode.group_authorization_failed, None))
            await pacer.step()
            continue
        if members_count >= GROUP_MEMBERS_LISTED_MAX:
            groups.append(_error(group_id, ErrorCode.coordinator_load_in_progress, "Ask for fewer groups at once."))
            await pacer.step()
            continue
        row = await _group(services, request.rights, group_id, pacer, is_asked=body.include_authorized_operations)
        if await request.rights.denied_names(*DESCRIBE_TOPIC, _named_topics(row)):
            row = _error(group_id, ErrorCode.topic_authorization_failed, HAS_DENIED_TOPICS)
        groups.append(row)
        members_count += len(groups[-1]["members"])
    return {"groups": groups}


def _unavailable(group_ids: Sequence[str]) -> list[dict[str, Any]]:
    error_code = ErrorCode.coordinator_not_available
    return [_error(group_id, error_code, "the ledger does not answer") for group_id in group_ids]


def _named_topics(row: Mapping[str, Any]) -> set[str]:
    """The topics that the members of a group's row have, or are to have."""
    return {
        topic["topic_name"]
        for member in row["members"]
        for field in ("assignment", "target_assignment")
        for topic in member[field]["topic_partitions"]
    }


async def _group(
    services: Services, rights: Rights, group_id: str, pacer: CooperativeYield, *, is_asked: bool
) -> dict[str, Any]:
    """The row of the group as it is now."""
    await pacer.step()
    if not group_id:
        return _error(group_id, ErrorCode.invalid_group_id, None)
    try:
        group_state = services.group_ledger.readable(group_id)
    except NotCoordinator as error:
        return _error(group_id, error.error_code, error.message)
    if group_state is None or not isinstance(group_state.value, ConsumerGroup):
        why = "not found" if group_state is None else "is not a consumer group"
        return _error(group_id, ErrorCode.group_id_not_found, f"Group {group_id} {why}.")
    # Other tasks run between two members, and may change the group: a copy keeps the response consistent.
    group = group_state.value.copy()
    group_row = {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_id": group_id,
        "group_state": _PHASES[group.phase()],
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": services.consumer_groups.preferred_assignor(group),
        "authorized_operations": on_group(rights, group_id, is_asked=is_asked),
    }
    members: list[Values] = []
    for member_id in sorted(group.members):
        topics_count = len(group.assignment(member_id).assigned) + len(group.targets.get(member_id, ()))
        members.append(_member(services, group, member_id))
        for _ in range(1 + topics_count):
            await pacer.step()
    return group_row | {"members": members}


def _member(services: Services, group: ConsumerGroup, member_id: str) -> Values:
    member = group.members[member_id]
    assignment = group.assignment(member_id)
    return {
        "member_id": member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": assignment.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.subscribed_names,
        "subscribed_topic_regex": member.subscribed_regex,
        "assignment": _topics(services, without_epochs(assignment.assigned)),
        "target_assignment": _topics(services, group.targets.get(member_id, ())),
        "member_type": CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    }


def _topics(services: Services, owned: Partitions) -> Values:
    """The partitions of the topics that still exist."""
    topics = services.state.topics
    return {
        "topic_partitions": [
            {"topic_id": uuid.UUID(bytes=topic_id), "topic_name": topics[topic_id].name, "partitions": indexes}
            for topic_id, indexes in owned
            if topic_id in topics
        ]
    }


def _error(group_id: str, error_code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {
        "error_code": error_code,
        "error_message": message,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }
