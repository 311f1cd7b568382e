"""OffsetFetch 1-10: how far groups have come, by partition; null topics stand for all that a group committed (from 2).

From version 8 on one request asks for many groups (KIP-709), from 9 on a member of a consumer group names its epoch
(KIP-848), in 10 topics have ids. Answers come after a barrier (safety rule S4), from the group's coordinator; without
either the group's error says so, which in version 1 stands in every partition. What a group has not committed, or what
does not exist, is offset -1 and no error, as in Kafka. RequireStable (7) changes nothing while there are no
transactions: an offset that can be seen is stable.
Source: org.apache.kafka.server.KafkaApis.handleOffsetFetchRequest, OffsetFetchResponse.groupError,
org.apache.kafka.coordinator.group.OffsetMetadataManager.fetchOffsets (Kafka 4.3).
"""

import uuid
from collections.abc import Sequence
from typing import Any

from agent.group_ledger import NotCoordinator
from agent.handlers.entities import Values, answer, request_body
from agent.services import Request, Services
from agent.turns import Turns, rows_at_most, work
from coordinator.consumer_group_values import ConsumerGroup
from coordinator.groups import CommittedOffset, GroupState, count_offsets
from coordinator.log import LedgerUnavailable
from protocol.errors import ErrorCode
from protocol.limits import GROUPS_PER_TURN, OFFSETS_TOLD_MAX
from protocol.types import PartitionIndex, TopicId
from storage.object_store import Buffer

API_KEY = 9
FIRST_WITH_GROUP_ERROR = 2
FIRST_WITH_GROUPS = 8
FIRST_WITH_MEMBERS = 9
FIRST_WITH_TOPIC_IDS = 10
NO_OFFSET = -1
NO_LEADER_EPOCH = -1


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    frame = request.frame
    body = await work(rows_at_most(frame.body), request_body, frame)
    is_barred = await _barrier(services)
    turns, group_turns = Turns(services.clock), Turns(services.clock, GROUPS_PER_TURN)
    wanted = body.groups if frame.api_version >= FIRST_WITH_GROUPS else (body,)
    groups: list[dict[str, Any]] = []
    row_count = 0
    for each in wanted:
        rows_max = OFFSETS_TOLD_MAX - row_count
        groups.append(await _group(services, frame.api_version, each, turns, is_barred=is_barred, rows_max=rows_max))
        row_count += 1 + sum(len(topic["partitions"]) for topic in groups[-1]["topics"])
        await group_turns.row()
    values = {"groups": groups} if frame.api_version >= FIRST_WITH_GROUPS else groups[0]
    return await work(row_count, answer, frame, values)


async def _barrier(services: Services) -> bool:
    """Whether the ledger answered."""
    try:
        await services.metadata.barrier()
    except LedgerUnavailable:
        return False
    return True


async def _group(
    services: Services, version: int, wanted: Any, turns: Turns, *, is_barred: bool, rows_max: int
) -> dict[str, Any]:
    """One group of the answer; one that committed more than `rows_max` offsets, and is asked for all, gets an error."""
    error_code, group = _look_up(services, version, wanted, is_barred=is_barred)
    if wanted.topics is None and group is not None and count_offsets([group]) > rows_max:
        error_code = ErrorCode.invalid_request
    if error_code is not ErrorCode.none:
        is_by_row = version < FIRST_WITH_GROUP_ERROR
        topics = await _failed(wanted.topics or (), error_code, turns) if is_by_row else []
    elif wanted.topics is None:
        topics = [] if group is None else await _all(services, group, turns)
    else:
        topics = await _asked(services, version, wanted.topics, group, turns)
    return {"group_id": wanted.group_id, "topics": topics, "error_code": error_code}


def _look_up(services: Services, version: int, wanted: Any, *, is_barred: bool) -> tuple[ErrorCode, GroupState | None]:
    """An error of the whole group, or the group; None where there is none."""
    if not is_barred:
        return ErrorCode.coordinator_not_available, None
    try:
        group = services.group_ledger.readable(wanted.group_id)
    except NotCoordinator as error:
        return error.error_code, None
    if group is None or version < FIRST_WITH_MEMBERS:
        return ErrorCode.none, group
    return member_error(group, wanted.member_id, wanted.member_epoch), group


def member_error(group: GroupState, member_id: str | None, member_epoch: int) -> ErrorCode:
    """What is wrong with who asks: of a consumer group only members of now may, and who does not say who it is.

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


async def _all(services: Services, group: GroupState, turns: Turns) -> list[dict[str, Any]]:
    """Everything that the group committed, as of now."""
    held = [(topic_id, sorted(partitions.items())) for topic_id, partitions in group.offsets.items()]
    names = {topic_id: services.state.topics[topic_id].name for topic_id, _ in held}
    topics = []
    for topic_id, partitions in held:
        rows = []
        for index, found in partitions:
            rows.append(_row(index, found))
            await turns.row()
        topics.append({"name": names[topic_id], "topic_id": uuid.UUID(bytes=topic_id), "partitions": rows})
    return topics


async def _asked(
    services: Services, version: int, wanted: Sequence[Any], group: GroupState | None, turns: Turns
) -> list[dict[str, Any]]:
    topics = []
    for topic in wanted:
        error_code = ErrorCode.none
        if version >= FIRST_WITH_TOPIC_IDS:
            topic_id = None if topic.topic_id is None else TopicId(topic.topic_id.bytes)
            if topic_id is None or topic_id not in services.state.topics:
                error_code = ErrorCode.unknown_topic_id
        else:
            topic_id = services.state.topic_ids.get(topic.name)
        rows = []
        for index in topic.partition_indexes:
            found = _committed(group, topic_id, index)
            rows.append(_row(index, found, error_code))
            await turns.row()
        topics.append(_named(version, topic) | {"partitions": rows})
        await turns.row()
    return topics


async def _failed(wanted: Sequence[Any], error_code: ErrorCode, turns: Turns) -> list[dict[str, Any]]:
    """The error in every partition, for the version that has no other place for it."""
    topics = []
    for topic in wanted:
        rows = []
        for index in topic.partition_indexes:
            rows.append(_row(index, None, error_code))
            await turns.row()
        topics.append({"name": topic.name, "partitions": rows})
    return topics


def _named(version: int, topic: Any) -> dict[str, Any]:
    return {"topic_id": topic.topic_id} if version >= FIRST_WITH_TOPIC_IDS else {"name": topic.name}


def _committed(group: GroupState | None, topic_id: TopicId | None, index: int) -> CommittedOffset | None:
    if group is None or topic_id is None:
        return None
    return group.offsets.get(topic_id, {}).get(PartitionIndex(index))


def _row(index: int, found: CommittedOffset | None, error_code: ErrorCode = ErrorCode.none) -> Values:
    return {
        "partition_index": index,
        "committed_offset": NO_OFFSET if found is None else found.offset,
        "committed_leader_epoch": NO_LEADER_EPOCH if found is None else found.leader_epoch,
        "metadata": "" if found is None else found.metadata,
        "error_code": error_code,
    }
