"""OffsetDelete 0: has a group forget how far it came in some partitions (KIP-496).

What members subscribe to is GROUP_SUBSCRIBED_TO_TOPIC: in the generation that is, or in what they joined with since.
What the coordinator has decided of the group is waited for; where it is not applied in time, the client asks again
(COORDINATOR_LOAD_IN_PROGRESS). A group whose members speak another protocol than consumers do is NON_EMPTY_GROUP. A
barrier comes first (safety rule S4); what the group has not committed is no error. The answer comes once the entry is
applied, under the coordinator's claim (safety rule S13).
Differs from Kafka: what the first members of a group join with counts before there is a generation.
Source: org.apache.kafka.server.KafkaApis.handleOffsetDeleteRequest,
org.apache.kafka.coordinator.group.OffsetMetadataManager.deleteOffsets (Kafka 4.3).
"""

from collections.abc import Sequence
from typing import Any

from agent.group_ledger import NotCoordinator
from agent.handlers.entities import answer, request_body
from agent.offset_commits import delete_offsets
from agent.services import Request, Services
from agent.topics import TopicError, before, deadline_s
from agent.turns import Turns, rows_at_most, work
from coordinator.consumer_group_values import ConsumerGroup
from coordinator.groups import ClassicGroup, GroupState
from coordinator.offset_expiry import subscribed_topics
from protocol.consumer_protocol import PROTOCOL_TYPE
from protocol.errors import ErrorCode
from protocol.types import PartitionIndex, TopicId
from storage.object_store import Buffer

API_KEY = 47

Partition = tuple[TopicId, PartitionIndex]


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    body = await work(rows_at_most(request.frame.body), request_body, request.frame)
    group = await _claim(services, body.group_id)
    if isinstance(group, ErrorCode):
        return answer(request.frame, {"error_code": group, "topics": []})
    topics, dropped = await _judge(services, body, group)
    error_code = await delete_offsets(services, body.group_id, dropped)
    if error_code is not ErrorCode.none:
        topics = []
    row_count = sum(len(topic["partitions"]) for topic in topics)
    return await work(row_count, answer, request.frame, {"error_code": error_code, "topics": topics})


async def _claim(services: Services, group_id: str) -> GroupState | ErrorCode:
    """The group, once this agent coordinates it, or why it keeps its offsets."""
    if not group_id:
        return ErrorCode.invalid_group_id
    try:
        await services.group_ledger.check_readable(group_id)
        if not services.groups.is_there(group_id):
            return ErrorCode.group_id_not_found
        await services.group_ledger.claim(group_id)
    except NotCoordinator as error:
        return error.error_code
    error_code = await _settle(services, group_id)
    if error_code is not ErrorCode.none:
        return error_code
    group = services.state.groups[group_id]
    return ErrorCode.non_empty_group if any(map(_speaks_otherwise, _values(services, group))) else group


async def _settle(services: Services, group_id: str) -> ErrorCode:
    """NONE once the ledger has all that was decided of the group, while this agent holds the claim."""
    ledger, end_s = services.group_ledger, deadline_s(services.clock)
    while ledger.is_mine(group_id) and ledger.is_ahead(group_id):
        try:
            error_code = await before(end_s, services.clock, ledger.settled(group_id))
        except TopicError:
            return ErrorCode.coordinator_load_in_progress
        if error_code is not ErrorCode.none:
            return error_code
    return ErrorCode.none if ledger.is_mine(group_id) else ErrorCode.not_coordinator


def _values(services: Services, group: GroupState) -> Sequence[ClassicGroup | ConsumerGroup]:
    """The group as the ledger has it, and as its live part is ahead of that."""
    return [value for value in (group.value, services.groups.value(group.group_id)) if value is not None]


def _speaks_otherwise(value: ClassicGroup | ConsumerGroup) -> bool:
    return isinstance(value, ClassicGroup) and bool(value.members) and value.protocol_type != PROTOCOL_TYPE


def _subscribed(services: Services, group: GroupState) -> frozenset[str] | None:
    """The topics whose offsets stay; None where all do."""
    subscribed: frozenset[str] = frozenset()
    for value in _values(services, group):
        topics = subscribed_topics(value)
        if topics is None:
            return None
        subscribed |= topics
    return subscribed


async def _judge(services: Services, body: Any, group: GroupState) -> tuple[list[dict[str, Any]], list[Partition]]:
    """The rows of the answer, and the partitions whose offsets may go."""
    turns = Turns(services.clock)
    subscribed = _subscribed(services, group)
    topics: list[dict[str, Any]] = []
    dropped: list[Partition] = []
    for topic in body.topics:
        found = services.topics.known(topic.name)
        rows: list[dict[str, Any]] = []
        for partition in topic.partitions:
            index = PartitionIndex(partition.partition_index)
            error_code = ErrorCode.none
            if found is None or not 0 <= index < len(found.partitions):
                error_code = ErrorCode.unknown_topic_or_partition
            elif subscribed is None or topic.name in subscribed:
                error_code = ErrorCode.group_subscribed_to_topic
            elif index in group.offsets.get(found.topic_id, ()):
                dropped.append((found.topic_id, index))
            rows.append({"partition_index": index, "error_code": error_code})
            await turns.row()
        topics.append({"name": topic.name, "partitions": rows})
        await turns.row()
    return topics, dropped
