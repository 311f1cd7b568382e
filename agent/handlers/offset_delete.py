"""OffsetDelete: deletes committed offsets of a group (KIP-496).

- Versions: 0.
- Behaviour: the request takes a barrier first (safety rule S4), and waits for what the coordinator has decided of the
  group: COORDINATOR_LOAD_IN_PROGRESS where that is not applied in time. A topic that members subscribe to is
  GROUP_SUBSCRIBED_TO_TOPIC. A group whose members speak another protocol than consumers do is NON_EMPTY_GROUP. An
  offset that is not committed is no error. Pending offsets of open transactions are deleted, too. The response comes
  once the entries are applied, under the coordinator's claim (safety rule S13). Many partitions take several entries,
  and each is judged again, because members may have joined meanwhile.
- Differs from Kafka: the subscriptions with which members have joined since their generation began count as well. Every
  topic counts while a group that was empty is joined again and its first consumers have no protocol yet.
- Source: org.apache.kafka.server.KafkaApis.handleOffsetDeleteRequest,
  org.apache.kafka.coordinator.group.OffsetMetadataManager.deleteOffsets (Kafka 4.3).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from agent.admin.topics import TopicError, before, deadline_s
from agent.groups.group_ledger import NotCoordinator
from agent.request.messages import Values
from agent.request.offset_commits import as_client_error, is_overdue
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from agent.security.required_rights import DELETE_GROUP, READ_TOPIC
from coordinator.commands.commands import Rejected
from coordinator.commands.consumer_group_values import ConsumerGroup
from coordinator.commands.group_values import ClassicGroup, GroupState
from coordinator.groups.offset_expiry import subscribed_topics
from protocol.consumer_protocol import PROTOCOL_TYPE
from protocol.errors import ErrorCode
from protocol.limits import OFFSETS_PER_COMMIT_ENTRY_MAX
from protocol.types import PartitionIndex, TopicId

API_KEY = 47

Partition = tuple[TopicId, PartitionIndex]


class _Dropped(NamedTuple):
    """A partition whose offset may be deleted, and its row of the response."""

    topic_name: str
    partition: Partition
    row: dict[str, Any]


async def handle(services: Services, request: Request, body: Any) -> Values:
    if not await request.rights.may_behind_barrier(*DELETE_GROUP, body.group_id):
        return {"error_code": ErrorCode.group_authorization_failed, "topics": []}
    denied = await request.rights.denied_names(*READ_TOPIC, [topic.name for topic in body.topics])
    group = await _claim(services, body.group_id)
    if isinstance(group, ErrorCode):
        return {"error_code": group, "topics": []}
    topics, dropped = await _judge(services, body, group, denied)
    error_code = await _drop(services, request, body.group_id, dropped)
    if error_code is not ErrorCode.none:
        topics = []
    return {"error_code": error_code, "topics": topics}


async def _claim(services: Services, group_id: str) -> GroupState | ErrorCode:
    """The group, once this agent coordinates it, or the error because of which its offsets stay."""
    if not group_id:
        return ErrorCode.invalid_group_id
    try:
        await services.group_ledger.check_readable(group_id)
        if not services.groups.is_there(group_id):
            return ErrorCode.group_id_not_found
        await services.group_ledger.claim(group_id)
    except NotCoordinator as error:
        return error.error_code
    return await _settled(services, group_id)


async def _settled(services: Services, group_id: str) -> GroupState | ErrorCode:
    """The group, once all its decided changes are applied, or the error because of which its offsets stay."""
    error_code = await _settle(services, group_id)
    if error_code is not ErrorCode.none:
        return error_code
    group = services.state.groups[group_id]
    return ErrorCode.non_empty_group if any(map(_speaks_otherwise, _values(services, group))) else group


async def _settle(services: Services, group_id: str) -> ErrorCode:
    """NONE once all decided changes of the group are applied, while this agent holds the claim."""
    ledger, end_s = services.group_ledger, deadline_s(services.clock)
    while ledger.owns(group_id) and ledger.has_unapplied_changes(group_id):
        try:
            error_code = await before(end_s, services.clock, ledger.until_applied(group_id))
        except TopicError:
            return ErrorCode.coordinator_load_in_progress
        if error_code is not ErrorCode.none:
            return error_code
    return ErrorCode.none if ledger.owns(group_id) else ErrorCode.not_coordinator


def _values(services: Services, group: GroupState) -> Sequence[ClassicGroup | ConsumerGroup]:
    """The group as the ledger has it, and as the coordinator has it, which may be ahead."""
    return [value for value in (group.value, services.groups.value(group.group_id)) if value is not None]


def _speaks_otherwise(value: ClassicGroup | ConsumerGroup) -> bool:
    return isinstance(value, ClassicGroup) and bool(value.members) and value.protocol_type != PROTOCOL_TYPE


def _subscribed(services: Services, group: GroupState) -> frozenset[str] | None:
    """The topics whose offsets stay; None for all topics."""
    subscribed: frozenset[str] = frozenset()
    for value in _values(services, group):
        topics = subscribed_topics(value)
        if topics is None:
            return None
        subscribed |= topics
    return subscribed


def _is_kept(topic_name: str, subscribed: frozenset[str] | None) -> bool:
    return subscribed is None or topic_name in subscribed


async def _judge(
    services: Services, body: Any, group: GroupState, denied: frozenset[str]
) -> tuple[list[dict[str, Any]], list[_Dropped]]:
    """The rows of the response, and the partitions whose offsets may be deleted."""
    pacer = CooperativeYield(services.clock)
    subscribed, pending = _subscribed(services, group), group.pending_partitions()
    topics: list[dict[str, Any]] = []
    dropped: list[_Dropped] = []
    for topic in body.topics:
        topic_state = services.topics.known(topic.name)
        rows: list[dict[str, Any]] = []
        for partition in topic.partitions:
            index = PartitionIndex(partition.partition_index)
            row: dict[str, Any] = {"partition_index": index, "error_code": ErrorCode.none}
            if topic.name in denied:
                row["error_code"] = ErrorCode.topic_authorization_failed
            elif topic_state is None or not 0 <= index < len(topic_state.partitions):
                row["error_code"] = ErrorCode.unknown_topic_or_partition
            elif _is_kept(topic.name, subscribed):
                row["error_code"] = ErrorCode.group_subscribed_to_topic
            elif index in group.offsets.get(topic_state.topic_id, ()) or (topic_state.topic_id, index) in pending:
                dropped.append(_Dropped(topic.name, (topic_state.topic_id, index), row))
            rows.append(row)
            await pacer.step()
        topics.append({"name": topic.name, "partitions": rows})
        await pacer.step()
    return topics, dropped


async def _drop(services: Services, request: Request, group_id: str, dropped: Sequence[_Dropped]) -> ErrorCode:
    """NONE once the offsets are deleted, without the topics to which members have subscribed meanwhile."""
    end_s = deadline_s(services.clock)
    for first in range(0, len(dropped), OFFSETS_PER_COMMIT_ENTRY_MAX):
        if first > 0:
            await services.clock.sleep(0)
        group = await _settled(services, group_id)
        if isinstance(group, ErrorCode):
            return group
        if is_overdue(services, request):  # members may have committed again since (safety rule S23)
            return ErrorCode.coordinator_not_available
        # The offsets are judged and proposed in one turn of the loop, so that no member joins in between.
        share = _still_free(_subscribed(services, group), dropped[first : first + OFFSETS_PER_COMMIT_ENTRY_MAX])
        error_code = await _forget(services, group_id, share, end_s) if share else ErrorCode.none
        if error_code is not ErrorCode.none:
            return error_code
    return ErrorCode.none


def _still_free(subscribed: frozenset[str] | None, dropped: Sequence[_Dropped]) -> list[Partition]:
    """The partitions without a subscription. The rows of the others get the error."""
    free: list[Partition] = []
    for each in dropped:
        if _is_kept(each.topic_name, subscribed):
            each.row["error_code"] = ErrorCode.group_subscribed_to_topic
        else:
            free.append(each.partition)
    return free


async def _forget(services: Services, group_id: str, partitions: Sequence[Partition], end_s: float) -> ErrorCode:
    """NONE once the deletion is applied. To repeat it is no error."""
    try:
        outcome = await before(end_s, services.clock, services.group_ledger.delete_offsets(group_id, partitions))
    except TopicError:
        return ErrorCode.coordinator_not_available
    return as_client_error(outcome.error_code) if isinstance(outcome, Rejected) else ErrorCode.none
