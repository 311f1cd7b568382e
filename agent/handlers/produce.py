"""Produce: appends record batches and returns their offsets.

- Versions: 3-13. From 12 on a transactional batch makes its partition part of the transaction (KIP-890); before, that
  has to be part of it already. 13 adds topic ids (KIP-516).
- Behaviour: a bad batch fails alone. While the ledger does not answer, a topic that may be new fails alone, too
  (NOT_LEADER_OR_FOLLOWER, safety rule S4). A transactional batch needs the transactional id that has its producer id.
  An agent that is cut off from the ledger takes in nothing new while others live (`agent.request.cut_off`).
- Differs from Kafka: `acks=1` means `acks=all`: nothing is acknowledged before it is durable and ordered. acks=0 is
  written all the same; there is no response, but the connection is closed where an error is known at once. No client
  may write the topic of the audit log: TOPIC_AUTHORIZATION_FAILED.
- Source: org.apache.kafka.server.KafkaApis.handleProduceRequest, ProduceRequestUtils.validateRecords,
  org.apache.kafka.storage.internals.log.LogValidator (Kafka 4.3).
"""

import asyncio
from collections.abc import Sequence
from typing import cast

from prometheus_client import Counter

from agent.admin.topics import TopicLookup
from agent.produce.acknowledgement import NO_OFFSET, Acknowledgement
from agent.produce.record_validator import Arrival, arrival_now, check_records
from agent.request.services import Answer, NoAnswerOwed, Request, Services
from agent.request.topic_rights import denied_topics
from agent.request.transactional_requests import BatchesOfTransaction
from agent.request.zone_traffic import count_zone_bytes
from agent.runtime.threads import run_in_thread
from agent.runtime.yielding import CooperativeYield
from agent.security.audit.audit_subject import AGENTS_ALONE, record_denials
from agent.security.required_rights import WRITE_TOPIC, WRITE_TRANSACTION
from coordinator.configs.topic_names import AUDIT_TOPIC, INTERNAL_TOPICS
from coordinator.ledger.port import LedgerUnavailable
from coordinator.state.state import TopicState
from protocol.connection import RequestFrame
from protocol.errors import ErrorCode, InvalidBatch, NotOneBatch
from protocol.limits import CUT_OFF_HOLD_SECONDS, INLINE_ROWS_MAX, INTAKE_SHARE_OF_RECEIVED_MIN, RECEIVE_BUFFER_BYTES
from protocol.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
    ProduceTopic,
    RecordError,
    read_produce_request,
    write_produce_response,
)
from protocol.records.batch import is_transactional_at_sight
from protocol.types import PartitionIndex, TopicId
from storage.batcher import BatchGroup
from storage.object_store import Buffer
from txn.transaction_requests import answered_code, transaction_version

API_KEY = 0
ACKS_NONE = 0
ACKS_ALL = -1
TIMEOUT_MS_MIN_OF_ONE = 30_000
"""In Kafka the time-out is for replicas: with acks=1 or 0 it does not count, and may be 0."""
ACKS_VALID = (-1, 0, 1)
ERRORS_WITHOUT_LOG_START = (ErrorCode.corrupt_message, ErrorCode.message_too_large)
"""With these errors Kafka returns no log start. Source: ReplicaManager.appendRecordsToLeader (Kafka 4.3)."""
NOT_IN_TIME = Acknowledgement(error_code=ErrorCode.request_timed_out)
"""The records may still be committed, and an idempotent producer's repeat finds them."""
REDIRECTION = Acknowledgement(error_code=ErrorCode.not_leader_or_follower)
DENIED_TOPIC = Acknowledgement(error_code=ErrorCode.topic_authorization_failed)
NO_TRANSACTIONAL_ID = Acknowledgement(error_code=ErrorCode.transactional_id_authorization_failed)
"""A transactional batch needs a transactional id that its client may write under."""


async def handle(services: Services, request: Request) -> Answer:
    body = read_produce_request(request.frame.body, request.frame.api_version)
    hold_s = min(CUT_OFF_HOLD_SECONDS, _timeout_s(body))
    rejection = await _rejection_of_all(services, request, body, hold_s)
    if rejection is not None:
        return _rejected(services, request, body, rejection)
    denied = await denied_topics(request.rights, WRITE_TOPIC, services.topics, map(_key, body.topics))
    has_room = await services.produce.wait_for_room(_timeout_s(body))
    pending = PendingProduce(request, body, services.metrics.produce_batches_rejected)
    pacer = CooperativeYield(services.clock)
    lookup = TopicLookup(services.topics)
    transaction = BatchesOfTransaction(services, body.transactional_id)
    version = transaction_version(API_KEY, request.frame.api_version)
    arrival = _arrival_now(services)
    accepted: list[BatchGroup] = []
    for topic_row, topic in enumerate(body.topics):
        topic_state, unknown = await _find_topic(services, request, lookup, topic, is_denied=_key(topic) in denied)
        for partition in topic.partitions:
            place = PartitionAnswer(pending, topic_row, partition.index)
            if unknown is ErrorCode.topic_authorization_failed and topic_state is None:
                place.settle(DENIED_TOPIC)
            elif has_room:
                held, error_code = topic_state, unknown
                if topic_state is not None and not 0 <= partition.index < len(topic_state.partitions):
                    held, error_code = await _find_partition(lookup, topic_state, partition.index)
                group = await _check(services, body, held, error_code, partition, place, transaction, arrival)
                if group is not None:
                    accepted.append(group._replace(transaction_version=version))
            else:
                place.settle(NOT_IN_TIME)
            partition.records = None
            await pacer.step()
        await pacer.step()
    # Checks and the wait for memory take time. Once a drain has begun meanwhile, other agents may lead (S8).
    if await _redirects(services, request, body, hold_s):
        for group in accepted:
            cast("PartitionAnswer", group.ticket).settle(REDIRECTION)
        accepted = []
    _take_in(services, request, accepted)
    if body.acks == ACKS_NONE:
        await _end_where_due(services, pending, hold_s, has_room=has_room)
        return None
    pending.begin()
    # A large request is answered before the next one of its connection: no other shares its flush anyway.
    if not pending.is_large:
        return pending.answer
    await pending.answer
    return await run_in_thread(pending.response)


async def _redirects(services: Services, request: Request, body: ProduceRequest, hold_s: float) -> bool:
    """Whether to send the client to another agent, before anything of its request is taken in.

    What was taken in is never answered so: it may still be committed, and NOT_LEADER_OR_FOLLOWER says that it is not.
    A client that gets no responses (acks=0) is not redirected.
    """
    if body.acks == ACKS_NONE or not services.may_redirect:
        return False
    return await services.redirects(request, hold_s)


async def _rejection_of_all(
    services: Services, request: Request, body: ProduceRequest, hold_s: float
) -> Acknowledgement | None:
    """The result of every partition where none is looked at."""
    if await _redirects(services, request, body, hold_s):
        return REDIRECTION
    if not _has_transactional_batches(body):
        return None
    transactional_id = body.transactional_id
    if transactional_id is None or not await request.rights.may_behind_barrier(*WRITE_TRANSACTION, transactional_id):
        return NO_TRANSACTIONAL_ID
    return None


async def _end_where_due(services: Services, pending: "PendingProduce", hold_s: float, *, has_room: bool) -> None:
    """Raises `NoAnswerOwed` where a client that gets no responses (acks=0) has to refresh its metadata.

    Raises `LedgerUnavailable` where it has to because this agent is cut off: its records may be lost.
    """
    pending.count_rejected(is_waiting_late=not has_room)
    if not has_room:
        raise NoAnswerOwed("the intake is full, and the client waits for no error")
    if pending.rejected is not None:
        raise NoAnswerOwed(f"{pending.rejected.name} for records with acks=0")
    if services.draining.is_redirecting:
        raise NoAnswerOwed("this agent is stopping, and the client waits for no error")
    # Since now: a connection is closed at the first of them, and what stands behind it is lost with it.
    if await services.cut_off.redirects(hold_s):
        raise LedgerUnavailable("the session is not confirmed, and the client waits for no error")


def _rejected(services: Services, request: Request, body: ProduceRequest, acknowledgement: Acknowledgement) -> Answer:
    """The answer where no partition is accepted: the same error for each."""
    if body.acks == ACKS_NONE:
        raise NoAnswerOwed(f"{acknowledgement.error_code.name} for records with acks=0")
    pending = PendingProduce(request, body, services.metrics.produce_batches_rejected)
    for topic_row, topic in enumerate(body.topics):
        for partition in topic.partitions:
            PartitionAnswer(pending, topic_row, partition.index).settle(acknowledgement)
            partition.records = None
    pending.begin()
    return pending.response()


def _has_transactional_batches(body: ProduceRequest) -> bool:
    return any(is_transactional_at_sight(partition.records) for topic in body.topics for partition in topic.partitions)


def _timeout_s(body: ProduceRequest) -> float:
    return max(body.timeout_ms, 0 if body.acks == ACKS_ALL else TIMEOUT_MS_MIN_OF_ONE) / 1000


class PendingProduce:
    """A Produce request until every partition has its result, or its time-out is over."""

    __slots__ = ("_body", "_frame", "_is_begun", "_places", "_rejections", "_timer", "_unsettled_count", "answer")

    def __init__(self, request: Request, body: ProduceRequest, rejections: Counter) -> None:
        """`rejections`: counts the batches that are answered with an error, by its name."""
        self._rejections = rejections
        self._frame = request.frame
        self._body = body
        self._places: list[PartitionAnswer] = []
        self._unsettled_count = 0
        self._is_begun = False
        self._timer: asyncio.TimerHandle | None = None
        self.answer: asyncio.Future[Sequence[Buffer]] = asyncio.get_running_loop().create_future()

    @property
    def rejected(self) -> ErrorCode | None:
        """The first error that is known by now."""
        settled = (place.acknowledgement for place in self._places if place.acknowledgement is not NOT_IN_TIME)
        return next(
            (
                acknowledgement.error_code
                for acknowledgement in settled
                if acknowledgement.error_code is not ErrorCode.none
            ),
            None,
        )

    def add(self, place: "PartitionAnswer") -> None:
        self._places.append(place)
        self._unsettled_count += 1

    def begin(self) -> None:
        """Begins to answer, after all partitions are added: once all are settled, or at the time-out."""
        self._is_begun = True
        if self._unsettled_count == 0:
            self._finish()
        else:
            self._timer = asyncio.get_running_loop().call_later(_timeout_s(self._body), self._finish)

    def place_settled(self) -> None:
        self._unsettled_count -= 1
        if self._unsettled_count == 0 and self._is_begun:
            self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.answer.done():
            self.count_rejected(is_waiting_late=True)
            self.answer.set_result(() if self.is_large else self.response())

    def count_rejected(self, *, is_waiting_late: bool) -> None:
        """Count what has an error by now: batches that wait for the ledger too, where they are late."""
        for place in self._places:
            error_code = place.acknowledgement.error_code
            if error_code is not ErrorCode.none and (is_waiting_late or place.acknowledgement is not NOT_IN_TIME):
                self._rejections.labels(error_code.name.upper()).inc()

    @property
    def is_large(self) -> bool:
        """Whether a thread writes the response: the result of `answer` is empty then."""
        return len(self._places) > INLINE_ROWS_MAX

    def response(self) -> Sequence[Buffer]:
        """The response with the results of now."""
        return _response(self._frame, self._body, self._places)


class PartitionAnswer:
    """One partition of a request; a `Ticket` of the produce path."""

    __slots__ = ("_pending", "acknowledgement", "partition", "topic_row")

    def __init__(self, pending: PendingProduce, topic_row: int, partition: int) -> None:
        self._pending: PendingProduce | None = pending
        self.topic_row = topic_row
        self.partition = partition
        self.acknowledgement = NOT_IN_TIME
        pending.add(self)

    def settle(self, acknowledgement: Acknowledgement) -> None:
        self.acknowledgement = acknowledgement
        # A reference back would be a cycle: the records would stay in memory until the cyclic GC runs.
        pending, self._pending = self._pending, None
        assert pending is not None, "settled twice"
        pending.place_settled()


def _key(topic: ProduceTopic) -> str | TopicId:
    """The topic's name, or its id."""
    if topic.topic_id is not None:
        return TopicId(topic.topic_id)
    assert topic.name is not None
    return topic.name


async def _find_topic(
    services: Services, request: Request, lookup: TopicLookup, topic: ProduceTopic, *, is_denied: bool
) -> tuple[TopicState | None, ErrorCode]:
    """The topic, and the error where it is None."""
    if is_denied:
        return None, ErrorCode.topic_authorization_failed
    try:
        if topic.topic_id is not None:
            found_topic = await lookup.by_id(TopicId(topic.topic_id))
            if found_topic is not None and found_topic.name == AUDIT_TOPIC:
                return None, _denied_audit_topic(services)
            # An id that became known only now has not been judged yet.
            if found_topic is not None and not await request.rights.may_behind_barrier(*WRITE_TOPIC, found_topic.name):
                return None, ErrorCode.topic_authorization_failed
            return found_topic, ErrorCode.unknown_topic_id
        assert topic.name is not None
        if topic.name in INTERNAL_TOPICS:  # a producer that writes there expects groups to change
            return None, ErrorCode.invalid_topic_exception
        if topic.name == AUDIT_TOPIC:  # whatever the rights of the client: a record there is an event of an agent
            return None, _denied_audit_topic(services)
        return await lookup.by_name(topic.name), ErrorCode.unknown_topic_or_partition
    except LedgerUnavailable:
        return None, ErrorCode.not_leader_or_follower


def _denied_audit_topic(services: Services) -> ErrorCode:
    record_denials(services.audit_log, *WRITE_TOPIC, (AUDIT_TOPIC,), rule=AGENTS_ALONE)
    return ErrorCode.topic_authorization_failed


async def _find_partition(lookup: TopicLookup, topic: TopicState, index: int) -> tuple[TopicState | None, ErrorCode]:
    """The topic with a partition that it did not have before, and the error where it is None."""
    try:
        return await lookup.grown_to(topic, index), ErrorCode.unknown_topic_or_partition
    except LedgerUnavailable:
        return None, ErrorCode.not_leader_or_follower


async def _check(
    services: Services,
    body: ProduceRequest,
    topic: TopicState | None,
    unknown: ErrorCode,
    partition: ProducePartition,
    place: PartitionAnswer,
    transaction: BatchesOfTransaction,
    arrival: Arrival,
) -> BatchGroup | None:
    """The checked records of one partition; None where `place` was settled with an error."""
    if body.acks not in ACKS_VALID:
        place.settle(Acknowledgement(error_code=ErrorCode.invalid_required_acks))
    elif topic is None:
        place.settle(Acknowledgement(error_code=unknown))
    else:
        try:
            rules = services.record_rules.rules(topic)
            checked = await check_records(partition.records, rules, arrival)
        except InvalidBatch as error:
            place.settle(_rejection(error, topic.partitions[partition.index].log_start))
        else:
            header, index = checked.headers[0], PartitionIndex(partition.index)
            rejected = ErrorCode.none
            if header.is_transactional:
                rejected = await transaction.error(topic.partitions[index], header.producer_id, header.producer_epoch)
            if rejected is ErrorCode.none:
                return BatchGroup(topic.topic_id, index, checked.records, checked.headers, place)
            place.settle(Acknowledgement(error_code=rejected))
    return None


def _arrival_now(services: Services) -> Arrival:
    return arrival_now(
        services.checked_time(),
        services.clock.now_ms(),
        services.state.time_ms,
        is_clock_ahead=services.is_clock_ahead(),
    )


def _take_in(services: Services, request: Request, accepted: Sequence[BatchGroup]) -> None:
    """Puts the accepted records into the intake, and releases the other bytes of the request.

    Records share the memory that they were received in. Where they are a small part of it they are copied: the intake's
    limit counts the bytes of records, and would otherwise limit no memory.
    """
    received_bytes = max(len(request.frame.body), RECEIVE_BUFFER_BYTES)
    request.frame.body = memoryview(b"")
    record_bytes = sum(len(group.records) for group in accepted)
    count_zone_bytes(services, request, "in", record_bytes)
    is_little = record_bytes < received_bytes * INTAKE_SHARE_OF_RECEIVED_MIN
    for group in accepted:
        services.produce.add(group._replace(records=memoryview(bytes(group.records))) if is_little else group)


def _rejection(error: InvalidBatch, log_start: int) -> Acknowledgement:
    """The result of invalid records. As in Kafka, it has the log start where the log was needed to judge them."""
    is_log_asked = not isinstance(error, NotOneBatch) and error.error_code not in ERRORS_WITHOUT_LOG_START
    return Acknowledgement(
        error_code=error.error_code,
        log_start=log_start if is_log_asked else NO_OFFSET,
        error_message=str(error),
        rows_rejected=error.rows,
    )


def _response(frame: RequestFrame, body: ProduceRequest, places: Sequence[PartitionAnswer]) -> list[Buffer]:
    topics: dict[tuple[str | None, bytes | None], ProduceResponseTopic] = {}
    for place in places:
        acknowledgement, topic = place.acknowledgement, body.topics[place.topic_row]
        name = (topic.name, topic.topic_id)
        if name not in topics:
            topics[name] = ProduceResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[])
        topics[name].partitions.append(
            ProduceResponsePartition(
                index=place.partition,
                error_code=answered_code(API_KEY, frame.api_version, acknowledgement.error_code),
                base_offset=acknowledgement.base_offset,
                log_append_time_ms=acknowledgement.append_time_ms,
                log_start_offset=acknowledgement.log_start,
                error_message=acknowledgement.error_message,
                record_errors=[RecordError(batch_index=row) for row in acknowledgement.rows_rejected],
            )
        )
    response = ProduceResponse(topics=list(topics.values()))
    return write_produce_response(frame.correlation_id, frame.api_version, response)
