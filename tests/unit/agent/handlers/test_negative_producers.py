"""Producer ids and epochs below -1 in every transactional request: answered as Kafka does, and never an ERROR line.

What Kafka answers is recorded in `tests.compat.protocol_diff.cases.negative_ids`.
"""

import logging
from collections.abc import Awaitable, Callable

import pytest

from agent.request.services import Services
from protocol.errors import ErrorCode
from tests.support.handlers.handler_client import ask
from tests.support.handlers.transactions import NONE, Producer, add, add_group, begun, end, init, pend, produce, serving

WRITE_TXN_MARKERS = 27
ID_BELOW, EPOCH_BELOW = {"producer_id": -2}, {"epoch": -2}
LEAST = {"producer_id": -(1 << 63), "epoch": -(1 << 15)}
FENCED, EPOCH, MAPPING = (
    ErrorCode.producer_fenced,
    ErrorCode.invalid_producer_epoch,
    ErrorCode.invalid_producer_id_mapping,
)


async def mark(services: Services, producer: Producer) -> ErrorCode:
    topics = [{"name": "t", "partition_indexes": [0]}]
    marker = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "transaction_result": False}
    told = await ask(services, WRITE_TXN_MARKERS, 1, markers=[{**marker, "topics": topics, "coordinator_epoch": 0}])
    code: ErrorCode = told.markers[0].topics[0].partitions[0].error_code
    return code


async def add_one(services: Services, producer: Producer) -> ErrorCode:
    (code,) = (await add(services, producer)).values()
    return code


async def commit_offset(services: Services, producer: Producer) -> ErrorCode:
    ((_, code),) = await pend(services, producer, {0: 1}, version=3)
    return code


async def end_it(services: Services, producer: Producer) -> ErrorCode:
    code: ErrorCode = (await end(services, producer)).error_code
    return code


async def begin_again(services: Services, producer: Producer) -> ErrorCode:
    code: ErrorCode = (await init(services, producer=producer)).error_code
    return code


async def write(services: Services, producer: Producer) -> ErrorCode:
    code: ErrorCode = (await produce(services, producer)).error_code
    return code


Asked = Callable[[Services, Producer], Awaitable[ErrorCode]]
ASKED: list[tuple[Asked, ErrorCode, ErrorCode]] = [
    (add_one, MAPPING, FENCED),
    (add_group, MAPPING, FENCED),
    (commit_offset, MAPPING, EPOCH),
    (end_it, MAPPING, FENCED),
    (begin_again, FENCED, FENCED),
    (mark, NONE, EPOCH),
    (write, ErrorCode.invalid_record, EPOCH),
]


@pytest.mark.parametrize(("asked", "of_id", "of_epoch"), ASKED)
async def test_they_are_answered_as_kafka_does_and_write_no_error_into_the_log(
    asked: Asked, of_id: ErrorCode, of_epoch: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with serving() as services:
        producer = await begun(services)
        await add(services, producer)
        await add_group(services, producer)
        told = [await asked(services, producer._replace(**below)) for below in (ID_BELOW, EPOCH_BELOW, LEAST)]
        assert told == [of_id, of_epoch, of_id]
        assert await write(services, producer) is NONE
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_transactional_id_that_is_not_known_yet_is_given_to_whoever_asks() -> None:
    async with serving() as services:
        told = await init(services, producer=Producer(-2, -2))
        assert (told.error_code, told.producer_epoch) == (NONE, 0)
        assert (await init(services, transactional_id="y", producer=Producer(-2, -1))).error_code == 42
