"""Metadata: brokers, topics, partitions and their leaders.

- Versions: 0-13. 0 lists every topic for an empty list, later versions for null. 4 adds the permission to create
  topics, 10 topic ids (KIP-516).
- Behaviour: a topic that does not exist is created if both the request and `auto.create.topics.enable` allow it. The
  response comes when it exists: never LEADER_NOT_AVAILABLE, which is final for kafka-go. While the ledger does not
  answer, known topics are reported as usual. A topic that may be new is REQUEST_TIMED_OUT, so that the client asks
  again, never unknown (safety rule S4); a list of all topics may lack the newest.
- Differs from Kafka: leaders and replicas are agents that rendezvous hashing gives (`coordinator.state.rendezvous`), in
  the client's zone where that is known. All replicas are in sync.
- Source: org.apache.kafka.server.KafkaApis.handleTopicMetadataRequest (Kafka 4.3).
"""

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agent.admin.topics import TopicError, TopicLookup, before, deadline_s
from agent.request.authorized_operations import on_cluster, on_topic
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield, inline_or_in_thread
from coordinator.configs.topic_names import InvalidTopicName, validate_topic_name
from coordinator.ledger.port import LedgerUnavailable, OutcomeUnknown
from coordinator.state.rendezvous import Assignment
from coordinator.state.state import TopicState
from protocol.errors import ErrorCode
from protocol.types import LEADER_EPOCH, TopicId

API_KEY = 3
FIRST_WITH_OPERATIONS = 8
LAST_WITH_CLUSTER_OPERATIONS = 10
FIRST_WITH_NULL_NAMES = 12
"""Versions 10 and 11 have ids, but no null for a topic without a name: Kafka fails there, here the name is empty."""


@dataclass(frozen=True, slots=True)
class _TopicCopy:
    """The result for one topic, copied from the state."""

    name: str | None
    topic_id: uuid.UUID | None
    error_code: ErrorCode = ErrorCode.none
    assignments: Sequence[Assignment] = ()


async def handle(services: Services, request: Request, body: Any) -> Values:
    pacer = CooperativeYield(services.clock)
    version = request.frame.api_version
    may_create = services.topics.is_auto_create_enabled and (version < 4 or body.allow_auto_topic_creation)
    zone = services.zone_of(request)
    if body.topics is None or (version == 0 and not body.topics):
        # The barrier brings topics that were just created through another agent. Without it the list is only older.
        with suppress(LedgerUnavailable):
            await services.ledger.barrier()
        topics = []
        for topic in list(services.state.topics.values()):
            topics.append(_copied(services, topic, zone))
            await pacer.step()
    else:
        once = {(topic.name, topic.topic_id if version >= 10 else None): topic for topic in body.topics}
        lookup = TopicLookup(services.topics)
        creation_end_s = deadline_s(services.clock) if may_create else None
        topic_copies = []
        for wanted in once.values():
            topic_copies.append(await _wanted(services, lookup, wanted, version, creation_end_s, zone))
            await pacer.step()
        topics = list({(topic.name, topic.topic_id): topic for topic in topic_copies}.values())
    alive = services.brokers(request.listener)
    has_cluster_operations = FIRST_WITH_OPERATIONS <= version <= LAST_WITH_CLUSTER_OPERATIONS
    are_operations_asked = version >= FIRST_WITH_OPERATIONS and body.include_topic_authorized_operations
    row_count = sum(1 + len(topic.assignments) for topic in topics)
    return {
        "brokers": [
            {"node_id": broker.node_id, "host": broker.host, "port": broker.port, "rack": broker.zone}
            for broker in alive
        ],
        "cluster_id": services.cluster_id,
        "controller_id": alive[0].node_id if alive else -1,
        "cluster_authorized_operations": on_cluster(
            is_asked=has_cluster_operations and body.include_cluster_authorized_operations
        ),
        "error_code": ErrorCode.none,
        "topics": await inline_or_in_thread(row_count, _rows, topics, are_operations_asked=are_operations_asked),
    }


def _rows(topics: Sequence[_TopicCopy], *, are_operations_asked: bool) -> list[dict[str, Any]]:
    """The rows of the response. A thread makes them where there are many, so it takes copies alone."""
    # Topics share the row of a partition that has the same index and the same leader and replicas.
    made: dict[tuple[int, Assignment], Mapping[str, Any]] = {}
    return [
        {
            "error_code": topic.error_code,
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": False,
            "partitions": [
                made.get(placed) or made.setdefault(placed, _partition(*placed))
                for placed in enumerate(topic.assignments)
            ],
            "topic_authorized_operations": on_topic(is_asked=are_operations_asked and not topic.error_code),
        }
        for topic in topics
    ]


async def _wanted(
    services: Services,
    lookup: TopicLookup,
    wanted: Any,
    version: int,
    creation_end_s: float | None,
    zone: str | None,
) -> _TopicCopy:
    """The result for one topic. Without a deadline none is created."""
    topic_id = wanted.topic_id if version >= 10 else None
    nameless = None if version >= FIRST_WITH_NULL_NAMES else ""
    try:
        if topic_id is None:
            return await _named(services, lookup, wanted.name, nameless, creation_end_s, zone)
        topic = await lookup.by_id(TopicId(topic_id.bytes))
    except (LedgerUnavailable, OutcomeUnknown):
        name = nameless if wanted.name is None else wanted.name
        return _TopicCopy(name, topic_id, ErrorCode.request_timed_out)
    return (
        _TopicCopy(nameless, topic_id, ErrorCode.unknown_topic_id) if topic is None else _copied(services, topic, zone)
    )


async def _named(
    services: Services,
    lookup: TopicLookup,
    name: str | None,
    nameless: str | None,
    creation_end_s: float | None,
    zone: str | None,
) -> _TopicCopy:
    if name is None:
        return _TopicCopy(nameless, None, ErrorCode.unknown_topic_id)
    topic = await lookup.by_name(name)
    if topic is None:
        try:
            validate_topic_name(name)
        except InvalidTopicName:
            return _TopicCopy(name, None, ErrorCode.invalid_topic_exception)
        if creation_end_s is None:
            return _TopicCopy(name, None, ErrorCode.unknown_topic_or_partition)
        try:
            creation = services.topics.auto_create(name)
            topic = await before(creation_end_s, services.clock, creation)
        except TopicError as error:
            return _TopicCopy(name, None, error.error_code)
    return _copied(services, topic, zone)


def _copied(services: Services, topic: TopicState, zone: str | None) -> _TopicCopy:
    return _TopicCopy(topic.name, uuid.UUID(bytes=topic.topic_id), assignments=services.assignments(topic, zone))


def _partition(index: int, assignment: Assignment) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.none,
        "partition_index": index,
        "leader_id": assignment.leader,
        "leader_epoch": LEADER_EPOCH,
        "replica_nodes": assignment.replicas,
        "isr_nodes": assignment.in_sync,
        "offline_replicas": assignment.offline,
    }
