"""OffsetCommit: commits offsets of a group, with a note for each partition.

- Versions: 2-10. 2 to 4 may set how long the offsets are kept, 6 adds leader epochs (KIP-320), 10 topic ids (KIP-848).
- Behaviour: a partition is called unknown only after a barrier (safety rule S4). A member names its id and its
  generation or member epoch, and the group's coordinator judges it. A client that is no member may commit for a group
  without members (generation -1). The response comes once the entry is applied, under the coordinator's claim (safety
  rule S13). After offsets.commit.timeout.ms it is COORDINATOR_NOT_AVAILABLE; the offsets may still be committed. The
  coordinator judges ahead of the ledger, so an error waits likewise. A commit that waited for as long before it could
  be judged is COORDINATOR_NOT_AVAILABLE, too, and is surely not made (safety rule S23).
- Source: org.apache.kafka.server.KafkaApis.handleOffsetCommitRequest,
  org.apache.kafka.coordinator.group.OffsetMetadataManager.commitOffset (Kafka 4.3).
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from agent.groups.group_ledger import NO_RETENTION, NotCoordinator, OffsetRow
from agent.request.messages import Values
from agent.request.offset_commits import commit_error, commit_offsets, is_overdue, rejection
from agent.request.offset_rows import OffsetRequest, WantedOffset, answered_topics, of_named_topics, read_rows
from agent.request.services import Request, Services
from agent.request.topic_rights import denied_topics
from agent.runtime.yielding import inline_or_in_thread
from agent.security.required_rights import READ_GROUP, READ_TOPIC
from coordinator.state.state import TopicState
from protocol.errors import ErrorCode
from protocol.types import TopicId

API_KEY = 8
LAST_WITH_RETENTION = 4
FIRST_WITH_EPOCHS = 6
FIRST_WITH_INSTANCES = 7
FIRST_WITH_GROUP_ID_NOT_FOUND = 9
FIRST_WITH_TOPIC_IDS = 10


async def handle(services: Services, request: Request, body: Any) -> Values:
    errors, wanted = await _read_rows(services, request, body)
    if wanted:
        for each, error_code in zip(wanted, await _commit(services, request, body, wanted), strict=True):
            errors[each.position] = error_code
    named = partial(_named, request.frame.api_version)
    return {"topics": await inline_or_in_thread(len(errors), answered_topics, body.topics, errors, named)}


async def _read_rows(services: Services, request: Request, body: Any) -> tuple[list[ErrorCode], list[WantedOffset]]:
    """The error of each partition, and the partitions whose offsets the client may commit."""
    if not await request.rights.may_behind_barrier(*READ_GROUP, body.group_id):
        count = sum(len(topic.partitions) for topic in body.topics)
        return [ErrorCode.group_authorization_failed] * count, []
    version = request.frame.api_version
    if version >= FIRST_WITH_TOPIC_IDS:
        return await read_rows(services, await _of_topic_ids(services, request, body))
    named = await of_named_topics(
        services,
        request,
        body.topics,
        READ_TOPIC,
        has_leader_epochs=version >= FIRST_WITH_EPOCHS,
        retention_ms=_retention_ms(body.retention_time) if version <= LAST_WITH_RETENTION else NO_RETENTION,
    )
    return await read_rows(services, named)


async def _of_topic_ids(services: Services, request: Request, body: Any) -> OffsetRequest:
    ids = {topic.topic_id: TopicId(topic.topic_id.bytes) for topic in body.topics if topic.topic_id is not None}
    await denied_topics(request.rights, READ_TOPIC, services.topics, ids.values())

    def find(topic: Any) -> TopicState | None:
        topic_id = ids.get(topic.topic_id)
        return None if topic_id is None else services.topics.known_id(topic_id)

    def missing(topic: TopicState | None) -> ErrorCode:
        return ErrorCode.unknown_topic_id if topic is None else ErrorCode.unknown_topic_or_partition

    def is_denied(topic: Any) -> bool:
        """Whether the client may not read it. An id that became known after the rights were judged counts, too."""
        state = find(topic)
        return state is not None and not request.rights.may(*READ_TOPIC, state.name)

    return OffsetRequest(body.topics, find, missing, has_leader_epochs=True, is_denied=is_denied)


def _retention_ms(retention: timedelta) -> int:
    """The retention in milliseconds; -1 where the group's own applies. A shorter one is over already."""
    retention_ms = retention // timedelta(milliseconds=1)
    return NO_RETENTION if retention_ms == NO_RETENTION else max(0, retention_ms)


async def _claim(services: Services, request: Request, body: Any) -> ErrorCode:
    """NONE once this agent coordinates the group. A member of an unknown group is rejected without an entry."""
    ledger = services.group_ledger
    is_of_member = body.generation_id_or_member_epoch >= 0
    try:
        if is_of_member and not ledger.owns(body.group_id) and await ledger.check_readable(body.group_id) is None:
            is_code_known = request.frame.api_version >= FIRST_WITH_GROUP_ID_NOT_FOUND
            return ErrorCode.group_id_not_found if is_code_known else ErrorCode.illegal_generation
        await ledger.claim(body.group_id)
    except NotCoordinator as error:
        return error.error_code
    return ErrorCode.none


async def _commit(services: Services, request: Request, body: Any, wanted: Sequence[WantedOffset]) -> list[ErrorCode]:
    """The error for each of `wanted`. The coordinator's comes before that of a note that is too long, as in Kafka."""
    rows = [each.row for each in wanted if each.row is not None]
    error_code = _judge(services, request, body, rows)
    if error_code is ErrorCode.not_coordinator:  # perhaps this agent has not claimed the group yet
        error_code = await _claim(services, request, body)
        if error_code is not ErrorCode.none:
            return [error_code] * len(wanted)
        error_code = _judge(services, request, body, rows)
    if error_code is not ErrorCode.none:
        return await rejection(services, body.group_id, len(wanted), error_code)
    if not rows:
        return [ErrorCode.offset_metadata_too_large] * len(wanted)
    error_codes = iter(await commit_offsets(services, body.group_id, rows, partial(_judge, services, request, body)))
    return [ErrorCode.offset_metadata_too_large if each.row is None else next(error_codes) for each in wanted]


def _judge(services: Services, request: Request, body: Any, rows: Sequence[OffsetRow]) -> ErrorCode:
    if is_overdue(services, request):
        return ErrorCode.coordinator_not_available
    version = request.frame.api_version
    return commit_error(
        services,
        body.group_id,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id if version >= FIRST_WITH_INSTANCES else None,
        generation=body.generation_id_or_member_epoch,
        api_version=version,
        rows=rows,
    )


def _named(version: int, topic: Any) -> dict[str, Any]:
    return {"topic_id": topic.topic_id} if version >= FIRST_WITH_TOPIC_IDS else {"name": topic.name}
