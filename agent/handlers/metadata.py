"""Metadata: brokers, topics, partitions and their leaders.

- Versions: 0-13. 0 lists every topic for an empty list, later versions for null. 4 adds the permission to create
  topics, 10 topic ids (KIP-516).
- Behaviour: a topic that does not exist is created if both the request and `auto.create.topics.enable` allow it. The
  response comes when it exists: never LEADER_NOT_AVAILABLE, which is final for kafka-go. While the ledger does not
  answer, known topics are reported as usual. A topic that may be new is REQUEST_TIMED_OUT, so that the client asks
  again, never unknown (safety rule S4); a list of all topics may lack the newest.
- Differs from Kafka: leaders and replicas are agents that rendezvous hashing gives (`coordinator.state.rendezvous`), in
  the client's zone where that is known. All replicas are in sync. An agent that is cut off from the ledger names itself
  among the brokers, and others as leaders and controller; Kafka leaves a fenced broker out.
- Source: org.apache.kafka.server.KafkaApis.handleTopicMetadataRequest (Kafka 4.3).
"""

import asyncio
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from agent.admin.topics import TopicError, TopicLookup, before, deadline_s
from agent.request.authorized_operations import on_cluster, on_topic
from agent.request.controller_mutations import count_mutations
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.request.topic_rights import denied_topics, is_denied
from agent.runtime.yielding import CooperativeYield, inline_or_in_thread
from agent.security.audit.audit_events import AuditedResource, ChangeEvent
from agent.security.required_rights import CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CLUSTER, DESCRIBE_TOPIC
from agent.security.rights import Rights
from coordinator.configs.topic_names import InvalidTopicName, validate_topic_name
from coordinator.ledger.port import LedgerUnavailable, OutcomeUnknown
from coordinator.state.rendezvous import Assignment
from coordinator.state.state import TopicState
from protocol.auth.operations import CLUSTER_NAME, NOT_ASKED, Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.types import LEADER_EPOCH, TopicId

API_KEY = 3
FIRST_WITH_OPERATIONS = 8
LAST_WITH_CLUSTER_OPERATIONS = 10
DESCRIBE_BIT = 1 << DESCRIBE_TOPIC.operation
FIRST_WITH_NULL_NAMES = 12
"""Versions 10 and 11 have ids, but no null for a topic without a name: Kafka fails there, here the name is empty."""


@dataclass(frozen=True, slots=True)
class _TopicCopy:
    """The result for one topic, copied from the state."""

    name: str | None
    topic_id: uuid.UUID | None
    error_code: ErrorCode = ErrorCode.none
    assignments: Sequence[Assignment] = ()
    operations: int = NOT_ASKED
    """The allowed operations, as bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lookup:
    """The common parts of the results for one request's topics."""

    services: Services
    request: Request
    rights: Rights
    topics: TopicLookup
    denied: frozenset[str | TopicId]
    """The topics, by name or known id, that the client may not describe."""
    has_null_names: bool
    creation_end_s: float | None
    """The time by which a missing topic has to be created; None where none is."""
    zone: str | None
    are_operations_asked: bool

    @property
    def nameless(self) -> str | None:
        """The name of a topic whose name the response does not have."""
        return None if self.has_null_names else ""

    def copied(self, topic: TopicState) -> _TopicCopy:
        """A topic that the client may describe."""
        return _TopicCopy(
            topic.name,
            uuid.UUID(bytes=topic.topic_id),
            assignments=self.services.assignments(topic, self.zone),
            operations=on_topic(self.rights, topic.name, is_asked=self.are_operations_asked),
        )

    def missing(self, name: str, error_code: ErrorCode) -> _TopicCopy:
        """A topic that does not exist and that the client might describe: as in Kafka, with its operations."""
        operations = on_topic(self.rights, name, is_asked=self.are_operations_asked)
        return _TopicCopy(name, None, error_code, operations=operations)

    async def may_create(self, name: str) -> bool:
        """Whether the client may create a topic. False stands behind a barrier (S16)."""
        if self.rights.may(*CREATE_CLUSTER, CLUSTER_NAME):
            return True
        await self.rights.settle(*CREATE_TOPIC, name)
        if self.rights.may(*CREATE_CLUSTER, CLUSTER_NAME) or self.rights.may(*CREATE_TOPIC, name):
            return True
        self.rights.count_denials(*CREATE_TOPIC, (name,))
        return False


async def handle(services: Services, request: Request, body: Any) -> Values:
    pacer = CooperativeYield(services.clock, after_turn=request.rights.refresh)
    version = request.frame.api_version
    may_create = services.topics.is_auto_create_enabled and (version < 4 or body.allow_auto_topic_creation)
    zone, rights = services.zone_of(request), request.rights
    are_operations_asked = version >= FIRST_WITH_OPERATIONS and body.include_topic_authorized_operations
    if body.topics is None or (version == 0 and not body.topics):
        # The barrier brings topics that were just created through another agent. Without it the list is only older.
        if not services.cut_off.is_cut_off:
            with suppress(LedgerUnavailable):
                await services.ledger.barrier()
        rights.refresh()
        lookup = _Lookup(
            services=services,
            request=request,
            rights=rights,
            topics=TopicLookup(services.topics),
            denied=frozenset(),
            has_null_names=version >= FIRST_WITH_NULL_NAMES,
            creation_end_s=None,
            zone=zone,
            are_operations_asked=are_operations_asked,
        )
        topics = []
        for topic in list(services.state.topics.values()):
            if rights.topics[topic.name] & DESCRIBE_BIT:
                topics.append(lookup.copied(topic))
            await pacer.step()
    else:
        once = {(topic.name, topic.topic_id if version >= 10 else None): topic for topic in body.topics}
        lookup = _Lookup(
            services=services,
            request=request,
            rights=rights,
            topics=TopicLookup(services.topics),
            denied=await denied_topics(rights, DESCRIBE_TOPIC, services.topics, _keys(once)),
            has_null_names=version >= FIRST_WITH_NULL_NAMES,
            creation_end_s=deadline_s(services.clock) if may_create else None,
            zone=zone,
            are_operations_asked=are_operations_asked,
        )
        topic_copies = []
        for name, topic_id in once:
            topic_copies.append(await _wanted(lookup, name, topic_id))
            await pacer.step()
        topics = list({(topic.name, topic.topic_id): topic for topic in topic_copies}.values())
    alive = services.brokers(request.listener)
    has_cluster_operations = FIRST_WITH_OPERATIONS <= version <= LAST_WITH_CLUSTER_OPERATIONS
    is_cluster_asked = has_cluster_operations and body.include_cluster_authorized_operations
    if is_cluster_asked:
        await rights.settle(*DESCRIBE_CLUSTER, CLUSTER_NAME)
    row_count = sum(1 + len(topic.assignments) for topic in topics)
    return {
        "brokers": [
            {"node_id": broker.node_id, "host": broker.host, "port": broker.port, "rack": broker.zone}
            for broker in alive
        ],
        "cluster_id": services.cluster_id,
        "controller_id": services.controller_id(request.listener),
        "cluster_authorized_operations": on_cluster(rights, is_asked=is_cluster_asked),
        "error_code": ErrorCode.none,
        "topics": await inline_or_in_thread(row_count, _rows, topics),
    }


def _rows(topics: Sequence[_TopicCopy]) -> list[dict[str, Any]]:
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
            "topic_authorized_operations": topic.operations,
        }
        for topic in topics
    ]


def _keys(once: Iterable[tuple[str | None, uuid.UUID | None]]) -> Iterator[str | TopicId]:
    """The names and ids of the request's topics. An id counts where a topic has both."""
    for name, topic_id in once:
        if topic_id is not None:
            yield TopicId(topic_id.bytes)
        elif name is not None:
            yield name


async def _wanted(lookup: _Lookup, name: str | None, topic_id: uuid.UUID | None) -> _TopicCopy:
    """The result for one topic."""
    try:
        if topic_id is None:
            return await _named(lookup, name)
        return await _with_id(lookup, topic_id)
    except (LedgerUnavailable, OutcomeUnknown):
        return _TopicCopy(lookup.nameless if name is None else name, topic_id, ErrorCode.request_timed_out)


async def _with_id(lookup: _Lookup, topic_id: uuid.UUID) -> _TopicCopy:
    key = TopicId(topic_id.bytes)
    topic = None if key in lookup.denied else await lookup.topics.by_id(key)
    if key in lookup.denied or (topic is not None and await is_denied(lookup.rights, DESCRIBE_TOPIC, topic.name)):
        return _TopicCopy(lookup.nameless, topic_id, ErrorCode.topic_authorization_failed)
    return _TopicCopy(lookup.nameless, topic_id, ErrorCode.unknown_topic_id) if topic is None else lookup.copied(topic)


async def _named(lookup: _Lookup, name: str | None) -> _TopicCopy:
    if name is None:
        return _TopicCopy(lookup.nameless, None, ErrorCode.unknown_topic_id)
    if name in lookup.denied:
        return _TopicCopy(name, None, ErrorCode.topic_authorization_failed)
    topic = await lookup.topics.by_name(name)
    if topic is None:
        try:
            validate_topic_name(name)
        except InvalidTopicName:
            return lookup.missing(name, ErrorCode.invalid_topic_exception)
        if lookup.creation_end_s is None:
            return lookup.missing(name, ErrorCode.unknown_topic_or_partition)
        if not await lookup.may_create(name):
            return _TopicCopy(name, None, ErrorCode.topic_authorization_failed)
        try:
            count = partial(count_mutations, lookup.request, is_strict=True)
            creation = lookup.services.topics.auto_create(name, count)
            topic = await before(lookup.creation_end_s, lookup.services.clock, creation)
        except (asyncio.CancelledError, OutcomeUnknown):
            _record_creation(lookup, name, is_certain=False)
            raise
        except TopicError as error:
            if error.error_code is ErrorCode.request_timed_out:
                _record_creation(lookup, name, is_certain=False)
            # Above its quota of mutations a client gets Kafka's answer: there is no such topic yet.
            is_above_quota = error.error_code is ErrorCode.throttling_quota_exceeded
            return lookup.missing(name, ErrorCode.unknown_topic_or_partition if is_above_quota else error.error_code)
        _record_creation(lookup, name, is_certain=True)
    return lookup.copied(topic)


def _record_creation(lookup: _Lookup, name: str, *, is_certain: bool) -> None:
    """Record in the audit log that the request created a topic."""
    resource = AuditedResource(kind=ResourceType.TOPIC, name=name)
    source, api = lookup.request.audit_source, lookup.request.audit_api
    change = "created because a client asked for it"
    lookup.services.audit_log.record(
        ChangeEvent(
            source=source,
            api=api,
            resource=resource,
            operation=Operation.CREATE,
            change=change,
            is_certain=is_certain,
        )
    )


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
