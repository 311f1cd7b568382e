"""OffsetCommit 2-10: how far a group has come, with a note and the leader epoch (6, KIP-320) for each partition.

Version 10 names topics by their ids (KIP-848); 2 to 4 may say how long the offsets are kept. A partition is called
unknown only after a barrier (safety rule S4). Whoever belongs to the group says so by member id and generation or
member epoch, and is judged by the group's coordinator; others may commit for a group without members (generation -1).
The answer comes once the entry is applied, under the coordinator's claim (safety rule S13); what the ledger did not
answer within offsets.commit.timeout.ms is COORDINATOR_NOT_AVAILABLE, and may still be committed. The coordinator judges
ahead of the ledger, so a refusal waits likewise.
Source: org.apache.kafka.server.KafkaApis.handleOffsetCommitRequest,
org.apache.kafka.coordinator.group.OffsetMetadataManager.commitOffset (Kafka 4.3).
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from agent.group_ledger import NO_RETENTION, NotCoordinator, OffsetRow
from agent.handlers.entities import answer, request_body
from agent.offset_commits import commit_error, commit_offsets, is_too_long, refusal
from agent.services import Request, Services
from agent.turns import Turns, rows_at_most, work
from coordinator.broker_configs import broker_value
from coordinator.log import LedgerUnavailable
from coordinator.state import TopicState
from protocol.connection import RequestFrame
from protocol.errors import ErrorCode
from protocol.types import Offset, PartitionIndex, TopicId
from storage.object_store import Buffer

API_KEY = 8
LAST_WITH_RETENTION = 4
FIRST_WITH_EPOCHS = 6
FIRST_WITH_INSTANCES = 7
FIRST_WITH_GROUP_ID_NOT_FOUND = 9
FIRST_WITH_TOPIC_IDS = 10
NO_LEADER_EPOCH = -1


class _Wanted(NamedTuple):
    """A partition that exists: where its error goes, and what to commit; None where the note is too long."""

    position: int
    row: OffsetRow | None


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    body = await work(rows_at_most(request.frame.body), request_body, request.frame)
    turns = Turns(services.clock)
    errors, wanted = await _read(services, request, body, turns)
    if wanted:
        error_code = await _claim(services, request, body)
        if error_code is ErrorCode.none:
            told = await _commit(services, request, body, wanted)
        else:
            told = [error_code] * len(wanted)
        for each, told_code in zip(wanted, told, strict=True):
            errors[each.position] = told_code
    return await work(len(errors), _answer, request.frame, body.topics, errors)


async def _read(services: Services, request: Request, body: Any, turns: Turns) -> tuple[list[ErrorCode], list[_Wanted]]:
    """An error for every partition of the request, in its order, and those of them that exist."""
    version = request.frame.api_version
    is_confirmed = await _is_confirmed(services, version, body, turns)
    metadata_max = int(broker_value(services.broker_configs, "offset.metadata.max.bytes"))
    retention_ms = _retention_ms(body.retention_time) if version <= LAST_WITH_RETENTION else NO_RETENTION
    errors: list[ErrorCode] = []
    wanted: list[_Wanted] = []
    for topic in body.topics:
        found = _find(services, version, topic)
        for partition in topic.partitions:
            if _has(found, partition.partition_index):
                assert found is not None
                metadata = partition.committed_metadata or ""
                row = OffsetRow(
                    topic_id=found.topic_id,
                    partition=PartitionIndex(partition.partition_index),
                    offset=Offset(partition.committed_offset),
                    leader_epoch=partition.committed_leader_epoch if version >= FIRST_WITH_EPOCHS else NO_LEADER_EPOCH,
                    metadata=metadata,
                    retention_ms=retention_ms,
                )
                wanted.append(_Wanted(len(errors), None if is_too_long(metadata, metadata_max) else row))
                errors.append(ErrorCode.none)
            else:
                errors.append(_missing(version, found) if is_confirmed else ErrorCode.coordinator_not_available)
            await turns.row()
    return errors, wanted


async def _is_confirmed(services: Services, version: int, body: Any, turns: Turns) -> bool:
    """Whether what seems to be missing is: where anything is, a barrier is taken, which may not be answered (S4)."""
    for topic in body.topics:
        found = _find(services, version, topic)
        for partition in topic.partitions:
            if not _has(found, partition.partition_index):
                try:
                    await services.metadata.barrier()
                except LedgerUnavailable:
                    return False
                return True
            await turns.row()
    return True


def _has(topic: TopicState | None, partition_index: int) -> bool:
    return topic is not None and 0 <= partition_index < len(topic.partitions)


def _missing(version: int, topic: TopicState | None) -> ErrorCode:
    is_unknown_id = topic is None and version >= FIRST_WITH_TOPIC_IDS
    return ErrorCode.unknown_topic_id if is_unknown_id else ErrorCode.unknown_topic_or_partition


def _find(services: Services, version: int, topic: Any) -> TopicState | None:
    if version < FIRST_WITH_TOPIC_IDS:
        return services.topics.known(topic.name)
    return None if topic.topic_id is None else services.topics.known_id(TopicId(topic.topic_id.bytes))


def _retention_ms(retention: timedelta) -> int:
    """-1 where the group's own retention holds; below that is over already."""
    retention_ms = retention // timedelta(milliseconds=1)
    return NO_RETENTION if retention_ms == NO_RETENTION else max(0, retention_ms)


async def _claim(services: Services, request: Request, body: Any) -> ErrorCode:
    """NONE once this agent coordinates the group. A generation of a group that does not exist is refused unwritten."""
    ledger = services.group_ledger
    is_of_member = body.generation_id_or_member_epoch >= 0
    try:
        if is_of_member and not ledger.is_mine(body.group_id) and await ledger.check_readable(body.group_id) is None:
            is_told = request.frame.api_version >= FIRST_WITH_GROUP_ID_NOT_FOUND
            return ErrorCode.group_id_not_found if is_told else ErrorCode.illegal_generation
        await ledger.claim(body.group_id)
    except NotCoordinator as error:
        return error.error_code
    return ErrorCode.none


async def _commit(services: Services, request: Request, body: Any, wanted: Sequence[_Wanted]) -> list[ErrorCode]:
    """An error for each of `wanted`. The coordinator's comes before that of a note that is too long, as in Kafka."""
    rows = [each.row for each in wanted if each.row is not None]
    error_code = _judge(services, request, body, rows)
    if error_code is not ErrorCode.none:
        return await refusal(services, body.group_id, len(wanted), error_code)
    if not rows:
        return [ErrorCode.offset_metadata_too_large] * len(wanted)
    told = iter(await commit_offsets(services, body.group_id, rows, partial(_judge, services, request, body)))
    return [ErrorCode.offset_metadata_too_large if each.row is None else next(told) for each in wanted]


def _judge(services: Services, request: Request, body: Any, rows: Sequence[OffsetRow]) -> ErrorCode:
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


def _answer(frame: RequestFrame, topics: Sequence[Any], errors: Sequence[ErrorCode]) -> Sequence[Buffer]:
    by_partition = iter(errors)
    rows = []
    for topic in topics:
        partitions = [
            {"partition_index": partition.partition_index, "error_code": next(by_partition)}
            for partition in topic.partitions
        ]
        name = {"topic_id": topic.topic_id} if frame.api_version >= FIRST_WITH_TOPIC_IDS else {"name": topic.name}
        rows.append(name | {"partitions": partitions})
    return answer(frame, {"topics": rows})
