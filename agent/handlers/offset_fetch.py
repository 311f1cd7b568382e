"""OffsetFetch: the committed offsets of groups.

- Versions: 1-10. From 2 on null topics stand for all that a group committed. 7 adds RequireStable (KIP-447), 8 several
  groups (KIP-709), 9 the member and its epoch (KIP-848), 10 topic ids. In 1 a group's error stands in every partition.
- Behaviour: the group's coordinator responds, after a barrier (safety rule S4). An offset that is not committed, or a
  partition that does not exist, is offset -1 and no error, as in Kafka. Offsets of an open transaction are reported
  once it commits. With RequireStable such a partition is UNSTABLE_OFFSET_COMMIT meanwhile, and the client asks again.
  Null topics list no partition that only has a pending offset, as in Kafka.
- Differs from Kafka: a response lists at most OFFSETS_LISTED_MAX offsets. A group beyond that is INVALID_REQUEST for
  null topics.
- Source: org.apache.kafka.server.KafkaApis.handleOffsetFetchRequest, OffsetFetchResponse.groupError,
  org.apache.kafka.coordinator.group.OffsetMetadataManager.fetchOffsets (Kafka 4.3).
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent.groups.group_ledger import NotCoordinator
from agent.request.barriers import passes_barrier
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.request.topic_rights import denied_topics
from agent.runtime.yielding import CooperativeYield
from agent.security.required_rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from agent.security.rights import Rights
from coordinator.commands.consumer_group_values import ConsumerGroup
from coordinator.commands.group_values import CommittedOffset, GroupState, count_offsets
from protocol.errors import ErrorCode
from protocol.limits import GROUPS_PER_TURN, OFFSETS_LISTED_MAX
from protocol.types import PartitionIndex, TopicId

API_KEY = 9
FIRST_WITH_GROUP_ERROR = 2
FIRST_WITH_STABLE = 7
FIRST_WITH_GROUPS = 8
FIRST_WITH_MEMBERS = 9
FIRST_WITH_TOPIC_IDS = 10
NO_OFFSET = -1
NO_LEADER_EPOCH = -1

Partitions = frozenset[tuple[TopicId, PartitionIndex]]


async def handle(services: Services, request: Request, body: Any) -> Values:
    version = request.frame.api_version
    group_pacer = CooperativeYield(services.clock, GROUPS_PER_TURN)
    wanted = body.groups if version >= FIRST_WITH_GROUPS else (body,)
    groups: list[dict[str, Any]] = []
    row_count = 0
    fetch = _Fetch(
        services=services,
        rights=request.rights,
        version=version,
        is_barred=await passes_barrier(services),
        is_stable=version >= FIRST_WITH_STABLE and body.require_stable,
        pacer=CooperativeYield(services.clock, after_turn=request.rights.refresh),
    )
    denied = await request.rights.denied_names(*DESCRIBE_GROUP, [each.group_id for each in wanted])
    for each in wanted:
        is_denied = each.group_id in denied
        groups.append(await _group(fetch, each, is_denied=is_denied, rows_max=OFFSETS_LISTED_MAX - row_count))
        row_count += 1 + sum(len(topic["partitions"]) for topic in groups[-1]["topics"])
        await group_pacer.step()
    return {"groups": groups} if version >= FIRST_WITH_GROUPS else groups[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetch:
    """The common parts of the rows of one response."""

    services: Services
    rights: Rights
    version: int
    is_barred: bool
    """Whether the ledger answered the barrier."""
    is_stable: bool
    """Whether offsets that an open transaction may change are UNSTABLE_OFFSET_COMMIT."""
    pacer: CooperativeYield


async def _group(fetch: _Fetch, wanted: Any, *, is_denied: bool, rows_max: int) -> dict[str, Any]:
    """The row of a group. It is an error where all offsets are requested and there are more than `rows_max`."""
    error_code, group = (ErrorCode.group_authorization_failed, None) if is_denied else _look_up(fetch, wanted)
    if wanted.topics is None and group is not None and count_offsets([group]) > rows_max:
        error_code = ErrorCode.invalid_request
    unstable = group.pending_partitions() if fetch.is_stable and group is not None else frozenset()
    if error_code is not ErrorCode.none:
        is_by_row = fetch.version < FIRST_WITH_GROUP_ERROR
        topics = await _failed(wanted.topics or (), error_code, fetch.pacer) if is_by_row else []
    elif wanted.topics is None:
        topics = [] if group is None else await _all(fetch, group, unstable)
    else:
        denied = await denied_topics(
            fetch.rights, DESCRIBE_TOPIC, fetch.services.topics, _keys(fetch.version, wanted.topics)
        )
        topics = await _asked(fetch, wanted.topics, group, unstable, denied)
    return {"group_id": wanted.group_id, "topics": topics, "error_code": error_code}


def _look_up(fetch: _Fetch, wanted: Any) -> tuple[ErrorCode, GroupState | None]:
    """The error of the whole group, and the group; None where it does not exist."""
    if not fetch.is_barred:
        return ErrorCode.coordinator_not_available, None
    try:
        group = fetch.services.group_ledger.readable(wanted.group_id)
    except NotCoordinator as error:
        return error.error_code, None
    if group is None or fetch.version < FIRST_WITH_MEMBERS:
        return ErrorCode.none, group
    return member_error(group, wanted.member_id, wanted.member_epoch), group


def member_error(group: GroupState, member_id: str | None, member_epoch: int) -> ErrorCode:
    """The error for the member that sends the request.

    Only current members of a consumer group may, and clients that name no member.

    Source: org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroup.validateOffsetFetch (Kafka 4.3).
    """
    if not isinstance(group.value, ConsumerGroup) or (member_id is None and member_epoch < 0):
        return ErrorCode.none
    member = group.value.members.get(member_id or "")
    if member is None:
        return ErrorCode.unknown_member_id
    if member_epoch == group.value.assignment(member.member_id).epoch:
        return ErrorCode.none
    return ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation


async def _all(fetch: _Fetch, group: GroupState, unstable: Partitions) -> list[dict[str, Any]]:
    """The rows of all offsets that the group has committed now."""
    held = [(topic_id, sorted(partitions.items())) for topic_id, partitions in group.offsets.items()]
    names = {topic_id: fetch.services.state.topics[topic_id].name for topic_id, _ in held}
    fetch.rights.refresh()
    topics = []
    for topic_id, partitions in held:
        if not fetch.rights.may(*DESCRIBE_TOPIC, names[topic_id]):
            continue
        rows = []
        for index, committed in partitions:
            rows.append(_unstable(index) if (topic_id, index) in unstable else _row(index, committed))
            await fetch.pacer.step()
        topics.append({"name": names[topic_id], "topic_id": uuid.UUID(bytes=topic_id), "partitions": rows})
    return topics


def _keys(version: int, wanted: Sequence[Any]) -> list[str | TopicId]:
    """The topics of a request by name or id."""
    if version < FIRST_WITH_TOPIC_IDS:
        return [topic.name for topic in wanted]
    return [TopicId(topic.topic_id.bytes) for topic in wanted if topic.topic_id is not None]


async def _asked(
    fetch: _Fetch,
    wanted: Sequence[Any],
    group: GroupState | None,
    unstable: Partitions,
    denied: frozenset[str | TopicId],
) -> list[dict[str, Any]]:
    state = fetch.services.state
    topics = []
    for topic in wanted:
        error_code = ErrorCode.none
        if fetch.version >= FIRST_WITH_TOPIC_IDS:
            topic_id = None if topic.topic_id is None else TopicId(topic.topic_id.bytes)
            if topic_id is None or topic_id not in state.topics:
                error_code = ErrorCode.unknown_topic_id
        else:
            topic_id = state.topic_ids.get(topic.name)
        if (topic_id if fetch.version >= FIRST_WITH_TOPIC_IDS else topic.name) in denied:
            error_code, topic_id = ErrorCode.topic_authorization_failed, None
        rows = []
        for index in topic.partition_indexes:
            if topic_id is not None and (topic_id, index) in unstable:
                rows.append(_unstable(index))
            else:
                rows.append(_row(index, _committed(group, topic_id, index), error_code))
            await fetch.pacer.step()
        topics.append(_named(fetch.version, topic) | {"partitions": rows})
        await fetch.pacer.step()
    return topics


async def _failed(wanted: Sequence[Any], error_code: ErrorCode, pacer: CooperativeYield) -> list[dict[str, Any]]:
    """The rows with the error in every partition, for the version that has no error of the group."""
    topics = []
    for topic in wanted:
        rows = []
        for index in topic.partition_indexes:
            rows.append(_row(index, None, error_code))
            await pacer.step()
        topics.append({"name": topic.name, "partitions": rows})
    return topics


def _named(version: int, topic: Any) -> dict[str, Any]:
    return {"topic_id": topic.topic_id} if version >= FIRST_WITH_TOPIC_IDS else {"name": topic.name}


def _committed(group: GroupState | None, topic_id: TopicId | None, index: int) -> CommittedOffset | None:
    if group is None or topic_id is None:
        return None
    return group.offsets.get(topic_id, {}).get(PartitionIndex(index))


def _unstable(index: int) -> Values:
    return _row(index, None, ErrorCode.unstable_offset_commit)


def _row(index: int, committed: CommittedOffset | None, error_code: ErrorCode = ErrorCode.none) -> Values:
    return {
        "partition_index": index,
        "committed_offset": NO_OFFSET if committed is None else committed.offset,
        "committed_leader_epoch": NO_LEADER_EPOCH if committed is None else committed.leader_epoch,
        "metadata": "" if committed is None else committed.metadata,
        "error_code": error_code,
    }
