"""InitProducerId: a fresh id without a transactional id, the next epoch with one (KIP-98, KIP-360)."""

from datetime import timedelta

import pytest

from protocol.errors import ErrorCode
from protocol.limits import TRANSACTIONAL_ID_CHARS_MAX
from tests.support.handlers.stalled_ledger import Impatient
from tests.support.handlers.transactions import (
    ID,
    NONE,
    Producer,
    add,
    begun,
    end,
    init,
    produce,
    serving,
    stop_answering,
)


@pytest.mark.parametrize("version", range(6))
async def test_a_transactional_id_gets_an_epoch_more_each_time(version: int) -> None:
    async with serving() as services:
        told = [await init(services, version) for _ in range(3)]
    assert [answer.error_code for answer in told] == [NONE] * 3
    assert len({answer.producer_id for answer in told}) == 1
    assert [answer.producer_epoch for answer in told] == [0, 1, 2]


async def test_without_one_every_id_is_fresh() -> None:
    async with serving() as services:
        told = [await init(services, transactional_id=None) for _ in range(2)]
        told.append(await init(services))
    assert len({answer.producer_id for answer in told}) == 3
    assert {answer.producer_epoch for answer in told} == {0}


@pytest.mark.parametrize(
    ("transactional_id", "producer", "timeout_ms", "error_code"),
    [
        ("", Producer(), 60_000, ErrorCode.invalid_request),
        (ID, Producer(), 0, ErrorCode.invalid_transaction_timeout),
        (ID, Producer(), -1, ErrorCode.invalid_transaction_timeout),
        (ID, Producer(), 900_001, ErrorCode.invalid_transaction_timeout),
        (ID, Producer(), 900_000, NONE),
        (ID, Producer(1234, -1), 60_000, ErrorCode.invalid_request),
        (ID, Producer(-1, 3), 60_000, ErrorCode.invalid_request),
        ("i" * TRANSACTIONAL_ID_CHARS_MAX, Producer(), 60_000, NONE),
        ("i" * (TRANSACTIONAL_ID_CHARS_MAX + 1), Producer(), 60_000, ErrorCode.invalid_request),
        (None, Producer(), 0, NONE),
    ],
)
async def test_what_cannot_be_meant_is_refused(
    transactional_id: str | None, producer: Producer, timeout_ms: int, error_code: ErrorCode
) -> None:
    async with serving() as services:
        told = await init(services, 4, transactional_id, producer, timedelta(milliseconds=timeout_ms))
    assert told.error_code is error_code
    if error_code is not NONE:
        assert (told.producer_id, told.producer_epoch) == (-1, -1)


@pytest.mark.parametrize(("version", "error_code"), [(3, 47), (4, 90), (5, 90)])
async def test_who_was_fenced_is_told_so_in_words_of_the_version(version: int, error_code: int) -> None:
    async with serving() as services:
        first = await begun(services)
        await begun(services)
        await begun(services)
        told = await init(services, version, producer=first)
    assert (told.error_code, told.producer_id, told.producer_epoch) == (ErrorCode(error_code), -1, -1)


async def test_a_repeat_is_answered_as_before() -> None:
    async with serving() as services:
        first = await begun(services)
        told = [await init(services, producer=first) for _ in range(2)]
    assert [(answer.producer_id, answer.producer_epoch) for answer in told] == [first.next] * 2


async def test_what_the_predecessor_has_open_is_aborted() -> None:
    async with serving() as services:
        first = await begun(services)
        await add(services, first)
        await produce(services, first)
        second = await begun(services)
        assert second.producer_id == first.producer_id
        assert second.epoch > first.epoch
        assert (await end(services, first)).error_code is ErrorCode.producer_fenced
        partition = services.state.topics[services.state.topic_ids["t"]].partitions[0]
        assert (partition.log_end, partition.last_stable) == (2, 2)


async def test_a_ledger_that_does_not_answer_in_time_is_asked_again() -> None:
    async with serving(clock=Impatient()) as services:
        stop_answering(services)
        told = await init(services)
    assert (told.error_code, told.producer_id) == (ErrorCode.coordinator_not_available, -1)


async def test_a_producer_of_an_agent_that_stops_is_sent_to_another() -> None:
    async with serving() as services:
        services.draining.begin()
        services.draining.announce()
        told = await init(services)
        assert told.error_code is ErrorCode.not_coordinator
        assert services.draining.redirected_count == 1
        assert not services.state.transactional_ids
