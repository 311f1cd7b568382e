"""Produce 3-13: records in, offsets out.

`acks=1` means `acks=all`: nothing is acknowledged before it is durable and ordered. acks=0 is written all the same and
answered by nothing. A bad batch fails alone. Versions 11 and 12 carry the transactional protocol of KIP-890 in the same
bytes; version 13 names topics by id (KIP-516).
Source: org.apache.kafka.server.KafkaApis.handleProduceRequest, ProduceRequestUtils.validateRecords,
org.apache.kafka.storage.internals.log.LogValidator (Kafka 4.3).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from agent.produce_path import Acknowledgement
from agent.record_checks import CheckedRecords, check_records
from agent.services import Answer, Request, Services
from coordinator.state import TopicState
from protocol.errors import ErrorCode, InvalidBatch
from protocol.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
    ProduceTopic,
    read_produce_request,
    write_produce_response,
)
from protocol.types import PartitionIndex, TopicId
from storage.batcher import BatchGroup
from storage.object_store import Buffer

API_KEY = 0
ACKS_NONE = 0
ACKS_VALID = (-1, 0, 1)


@dataclass(frozen=True, slots=True)
class _Placed:
    """One partition of the request, and its answer or the promise of one."""

    topic: int
    partition: int
    acknowledgement: "asyncio.Future[Acknowledgement] | Acknowledgement"


async def handle(services: Services, request: Request) -> Answer:
    body = read_produce_request(request.frame.body, request.frame.api_version)
    await services.produce.wait_for_room()
    placed: list[_Placed] = []
    for topic_row, topic in enumerate(body.topics):
        found, unknown = await _find_topic(services, topic)
        for partition in topic.partitions:
            waiting = await _place(services, body, found, unknown, partition)
            placed.append(_Placed(topic_row, partition.index, waiting))
    if body.acks == ACKS_NONE:
        return None
    return _answer_later(services, request, body, placed)


async def _find_topic(services: Services, topic: ProduceTopic) -> tuple[TopicState | None, ErrorCode]:
    """The topic, and what to answer where it is None."""
    if topic.topic_id is not None:
        topic_id = TopicId(topic.topic_id)
        found = services.state.topics.get(topic_id) or await services.topics.by_id(topic_id)
        return found, ErrorCode.unknown_topic_id
    assert topic.name is not None
    found = services.topics.known(topic.name) or await services.topics.by_name(topic.name)
    return found, ErrorCode.unknown_topic_or_partition


async def _place(
    services: Services, body: ProduceRequest, topic: TopicState | None, unknown: ErrorCode, partition: ProducePartition
) -> "asyncio.Future[Acknowledgement] | Acknowledgement":
    """Check one partition's records and put them into the intake."""
    if body.acks not in ACKS_VALID:
        return Acknowledgement(error_code=ErrorCode.invalid_required_acks)
    if topic is None:
        return Acknowledgement(error_code=unknown)
    if not 0 <= partition.index < len(topic.partitions):
        return Acknowledgement(error_code=ErrorCode.unknown_topic_or_partition)
    try:
        checked: CheckedRecords = await check_records(services, topic, partition.records)
    except InvalidBatch as error:
        return Acknowledgement(error_code=error.error_code, error_message=str(error))
    return services.produce.add(
        BatchGroup(
            topic_id=topic.topic_id,
            partition=PartitionIndex(partition.index),
            records=checked.records,
            headers=checked.headers,
            ticket=None,
            max_timestamps=None,
        )
    )


def _answer_later(
    services: Services, request: Request, body: ProduceRequest, placed: list[_Placed]
) -> "Sequence[Buffer] | asyncio.Future[Sequence[Buffer]]":
    """The response once every partition has its answer, or when the request's timeout is over."""
    waiting = [p.acknowledgement for p in placed if isinstance(p.acknowledgement, asyncio.Future)]
    if not waiting:
        return _response(request, body, placed)
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[Buffer]] = loop.create_future()
    remaining = len(waiting)

    def settle() -> None:
        timer.cancel()
        if not answer.done():
            answer.set_result(_response(request, body, placed))

    def count_down(_: "asyncio.Future[Acknowledgement]") -> None:
        nonlocal remaining
        remaining -= 1
        if remaining == 0:
            settle()

    timer = loop.call_later(max(body.timeout_ms, 0) / 1000, settle)
    for future in waiting:
        future.add_done_callback(count_down)
    return answer


def _response(request: Request, body: ProduceRequest, placed: list[_Placed]) -> list[Buffer]:
    partitions: list[list[ProduceResponsePartition]] = [[] for _ in body.topics]
    for place in placed:
        told = place.acknowledgement
        if isinstance(told, asyncio.Future):
            # Not there in time: the records may still be committed, and an idempotent producer's repeat finds them.
            told = told.result() if told.done() else Acknowledgement(error_code=ErrorCode.request_timed_out)
        partitions[place.topic].append(
            ProduceResponsePartition(
                index=place.partition,
                error_code=told.error_code,
                base_offset=told.base_offset,
                log_append_time_ms=told.append_time_ms,
                log_start_offset=told.log_start,
                error_message=told.error_message,
            )
        )
    topics = [
        ProduceResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=rows)
        for topic, rows in zip(body.topics, partitions, strict=True)
    ]
    return write_produce_response(
        request.frame.correlation_id, request.frame.api_version, ProduceResponse(topics=topics)
    )
