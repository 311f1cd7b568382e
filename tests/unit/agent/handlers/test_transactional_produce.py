"""Transactional batches: only under the transactional id whose producer wrote them, and in words of the version."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from agent.request.services import NoAnswerOwed, Services
from coordinator.ledger.port import LedgerUnavailable
from protocol.errors import ErrorCode
from protocol.types import ProducerId
from tests.compat.protocol_diff.batches import batch
from tests.support.handlers.handler_client import ask_for_bytes
from tests.support.handlers.transactions import (
    ID,
    NONE,
    PLAIN_VERSION,
    PRODUCE,
    TIMEOUT,
    V2_VERSION,
    Producer,
    add,
    begun,
    end,
    init,
    produce,
    serving,
)
from txn.transaction import EPOCH_EXHAUSTED, TransactionVersion


@pytest.mark.parametrize("version", range(3, 12))
async def test_v1_writes_to_what_was_added(version: int) -> None:
    async with serving() as services:
        producer = await begun(services)
        await add(services, producer)
        told = await produce(services, producer, version=version)
        assert (told.error_code, told.base_offset) == (NONE, 0)
        partition = services.state.topics[services.state.topic_ids["t"]].partitions[0]
        assert (partition.log_end, partition.last_stable) == (1, 0)
        await end(services, producer)
        assert (partition.log_end, partition.last_stable) == (2, 2)


@pytest.mark.parametrize("version", [12, 13])
async def test_v2_adds_by_writing(version: int) -> None:
    async with serving() as services:
        producer = await begun(services)
        told = [await produce(services, producer, sequence, version) for sequence in (0, 1)]
        assert [(answer.error_code, answer.base_offset) for answer in told] == [(NONE, 0), (NONE, 1)]
        held = services.state.transactional_ids[ID]
        assert [index for _, index in held.partitions] == [0]
        assert held.metadata.version is TransactionVersion.V2


@pytest.mark.parametrize(("version", "error_code"), [(9, 48), (10, 48), (11, 120)])
async def test_what_was_not_added_is_reported_in_words_of_the_version(version: int, error_code: int) -> None:
    async with serving() as services:
        told = await produce(services, await begun(services), version=version)
    assert (told.error_code, told.base_offset, told.log_start_offset) == (ErrorCode(error_code), -1, -1)


@pytest.mark.parametrize("version", [9, V2_VERSION])
async def test_who_was_fenced_may_abort(version: int) -> None:
    async with serving() as services:
        first = await begun(services)
        await begun(services)
        told = await produce(services, first, version=version)
    assert (told.error_code, told.log_start_offset) == (ErrorCode.invalid_producer_epoch, -1)


async def test_a_batch_without_a_transactional_id_refuses_the_whole_request() -> None:
    async with serving() as services:
        producer = await begun(services)
        await add(services, producer)
        told = await produce(services, producer, transactional_id=None)
        assert told.error_code is ErrorCode.transactional_id_authorization_failed
        assert told.log_start_offset == -1
        with pytest.raises(NoAnswerOwed):
            await produced_without_answer(services, producer)
        assert services.state.topics[services.state.topic_ids["t"]].partitions[0].log_end == 0


async def produced_without_answer(services: Services, producer: tuple[int, int]) -> None:
    records = batch([b"v"], pid=producer[0], epoch=producer[1], seq=0, transactional=True)
    data = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
    await ask_for_bytes(
        services, PRODUCE, PLAIN_VERSION, transactional_id=None, acks=0, timeout=TIMEOUT, topic_data=data
    )


@pytest.mark.parametrize("transactional_id", [ID, None])
async def test_plain_batches_need_none_and_may_have_any(transactional_id: str | None) -> None:
    async with serving() as services:
        fresh = await init(services, transactional_id=None)
        producer = (await begun(services))._replace(producer_id=fresh.producer_id, epoch=0)
        told = await produce(services, producer, transactional_id=transactional_id, is_transactional=False)
    assert told.error_code is NONE


async def test_a_plain_batch_of_who_has_a_transaction_open_is_refused_by_the_log() -> None:
    async with serving() as services:
        producer = await begun(services)
        await produce(services, producer, version=V2_VERSION)
        told = await produce(services, producer, 1, is_transactional=False)
    assert (told.error_code, told.log_start_offset) == (ErrorCode.invalid_txn_state, 0)


async def test_a_sequence_out_of_order_is_refused_by_the_log() -> None:
    async with serving() as services:
        producer = await begun(services)
        await produce(services, producer, version=V2_VERSION)
        told = await produce(services, producer, 9, V2_VERSION)
    assert (told.error_code, told.log_start_offset) == (ErrorCode.out_of_order_sequence_number, 0)


async def test_a_batch_of_another_transactional_id_is_refused() -> None:
    async with serving() as services:
        producer = await begun(services)
        await begun(services, "y")
        await add(services, producer)
        for transactional_id in ("y", "z"):
            told = await produce(services, producer, transactional_id=transactional_id)
            assert (told.error_code, told.log_start_offset) == (ErrorCode.invalid_producer_id_mapping, -1)
        told = await produce(services, producer.another, version=V2_VERSION)
        assert told.error_code is ErrorCode.invalid_producer_id_mapping


async def exhausted(services: Services) -> Producer:
    """A producer in the last epoch of its id, with a transaction that is open in partition 0."""
    producer = (await begun(services))._replace(epoch=EPOCH_EXHAUSTED)
    held = services.state.transactional_ids[ID]
    held.metadata = replace(held.metadata, epoch=EPOCH_EXHAUSTED)  # as after so many transactions
    assert (await produce(services, producer, version=V2_VERSION)).error_code is NONE
    return producer


@pytest.mark.parametrize("version", [9, V2_VERSION])
async def test_s11_a_producer_id_that_was_replaced_is_told_by_every_partition_that_its_epoch_is_over(
    version: int,
) -> None:
    async with serving() as services:
        producer = await exhausted(services)
        following = await init(services, producer=producer)
        assert (following.error_code, following.producer_epoch) == (NONE, 0)
        assert following.producer_id != producer.producer_id
        for partition in (0, 1):
            told = await produce(services, producer, 1, version, partition=partition)
            assert (told.error_code, told.log_start_offset) == (ErrorCode.invalid_producer_epoch, -1)
        told = await produce(services, producer, 1, version, transactional_id="y", partition=1)
        assert told.error_code is ErrorCode.invalid_producer_id_mapping


async def test_s11_once_another_instance_began_its_partitions_alone_know_the_id_that_was_replaced() -> None:
    async with serving() as services:
        producer = await exhausted(services)
        assert (await init(services)).producer_id != producer.producer_id
        told = [await produce(services, producer, 1, V2_VERSION, partition=partition) for partition in (0, 1)]
    epoch, mapping = ErrorCode.invalid_producer_epoch, ErrorCode.invalid_producer_id_mapping
    assert [answer.error_code for answer in told] == [epoch, mapping]


@pytest.mark.parametrize("is_away", [True, False])
async def test_s4_a_producer_that_this_agent_has_not_seen_is_refused_only_where_the_ledger_says_so(
    monkeypatch: pytest.MonkeyPatch, *, is_away: bool
) -> None:
    async with serving() as services:
        producer = await begun(services)
        owners = services.state.producers_of_transactions
        owner = owners.pop(ProducerId(producer.producer_id))  # as if the entry were not applied here yet
        monkeypatch.setattr(
            services.ledger, "barrier", _barrier(lambda: owners.update({ProducerId(producer.producer_id): owner}))
        )
        if is_away:
            monkeypatch.setattr(services.ledger, "barrier", _barrier(_away))
        told = await produce(services, producer, version=V2_VERSION)
    assert told.error_code is (ErrorCode.not_leader_or_follower if is_away else NONE)


def _away() -> None:
    raise LedgerUnavailable("away")


def _barrier(what: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    async def barrier() -> None:
        what()

    return barrier
