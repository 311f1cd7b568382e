"""EndTxn: one entry decides; V2 is told the epoch of the next transaction, V1 may be too late (safety rule S7)."""

import logging

import pytest

from agent.request.services import NoAnswerOwed
from protocol.errors import ErrorCode
from tests.support.handlers.stalled_ledger import Impatient
from tests.support.handlers.transactions import (
    ID,
    NONE,
    V2_VERSION,
    Producer,
    add,
    add_group,
    begun,
    end,
    produce,
    serving,
    stop_answering,
)


@pytest.mark.parametrize("version", range(5))
async def test_v1_keeps_its_epoch_and_may_repeat_the_same(version: int) -> None:
    async with serving() as services:
        producer = await begun(services)
        await add(services, producer)
        told = [await end(services, producer, version) for _ in range(2)]
        assert [answer.error_code for answer in told] == [NONE, NONE]
        aborted = await end(services, producer, version, is_commit=False)
        assert aborted.error_code is ErrorCode.invalid_txn_state
        assert services.state.transactional_ids[ID].metadata.epoch == producer.epoch


@pytest.mark.parametrize("is_commit", [True, False])
async def test_v2_is_told_the_next_epoch_as_often_as_it_asks(*, is_commit: bool) -> None:
    async with serving() as services:
        producer = await begun(services)
        await produce(services, producer, version=V2_VERSION)
        told = [await end(services, producer, 5, is_commit=is_commit) for _ in range(2)]
        assert [(answer.error_code, answer.producer_id, answer.producer_epoch) for answer in told] == [
            (NONE, *producer.next)
        ] * 2


async def test_v2_is_not_told_an_epoch_with_an_error() -> None:
    async with serving() as services:
        producer = await begun(services)
        told = await end(services, producer, 5)
    assert (told.error_code, told.producer_id, told.producer_epoch) == (ErrorCode.invalid_txn_state, -1, -1)


@pytest.mark.parametrize(("version", "error_code"), [(0, 47), (1, 47), (2, 90), (3, 90), (4, 90), (5, 90)])
async def test_who_was_fenced_is_told_so_in_words_of_the_version(version: int, error_code: int) -> None:
    async with serving() as services:
        first = await begun(services)
        await begun(services)
        assert (await end(services, first, version)).error_code is ErrorCode(error_code)


async def test_who_is_not_known_is_told_so() -> None:
    async with serving() as services:
        producer = await begun(services)
        assert (await end(services, producer.another)).error_code is ErrorCode.invalid_producer_id_mapping
        told = await end(services, producer, transactional_id="y")
        assert told.error_code is ErrorCode.invalid_producer_id_mapping
        assert (await end(services, producer, transactional_id="")).error_code is ErrorCode.invalid_request


@pytest.mark.parametrize("version", [3, 5])
async def test_a_ledger_that_does_not_answer_in_time_is_asked_again(version: int) -> None:
    async with serving(clock=Impatient()) as services:
        producer = await begun(services)
        await add(services, producer)
        stop_answering(services)
        assert (await end(services, producer, version)).error_code is ErrorCode.coordinator_not_available


class TestS7StaleConnections:
    """A V1 client that opened a newer connection may have gone on there: what comes late decides nothing."""

    async def test_s7_a_late_end_of_the_first_transaction_leaves_the_second_alone(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with serving(is_stamping=True) as services:
            producer = await begun(services)
            old, new = services.connection_epochs.accepted(), services.connection_epochs.accepted()
            await add(services, producer, connection_epoch=old)
            assert (await end(services, producer, connection_epoch=new)).error_code is NONE
            await add(services, producer, connection_epoch=new)
            with caplog.at_level(logging.WARNING), pytest.raises(NoAnswerOwed):
                await end(services, producer, connection_epoch=old)
            assert services.state.transactional_ids[ID].metadata.is_ongoing
            assert "penstock_transactions_fenced_requests_total 1.0" in services.metrics.exposition().decode()
        (record,) = [each for each in caplog.records if each.name == "agent.request.transactional_requests"]
        assert {"transactional_id": ID, "client_id": "me", "peer": "127.0.0.1:50000", "asked": "commit"}.items() <= (
            record.__dict__.items()
        )

    async def test_s7_nor_does_what_would_begin_a_transaction(self) -> None:
        async with serving(is_stamping=True) as services:
            producer = await begun(services)
            old, new = services.connection_epochs.accepted(), services.connection_epochs.accepted()
            await add(services, producer, connection_epoch=new)
            assert (await end(services, producer, connection_epoch=new)).error_code is NONE
            with pytest.raises(NoAnswerOwed):
                await add(services, producer, connection_epoch=old)
            with pytest.raises(NoAnswerOwed):
                await add_group(services, producer, connection_epoch=old)
            assert not services.state.transactional_ids[ID].metadata.is_ongoing

    async def test_s7_a_new_epoch_is_enough_for_who_has_it(self) -> None:
        async with serving(is_stamping=True) as services:
            old, new = services.connection_epochs.accepted(), services.connection_epochs.accepted()
            producer = await begun(services)
            await add(services, producer, connection_epoch=new)
            fresh = await begun(services)
            assert await add(services, fresh, connection_epoch=old) == {("t", 0): NONE}
            assert (await end(services, producer, connection_epoch=new)).error_code is ErrorCode.producer_fenced

    async def test_s7_v2_carries_no_connection_epoch(self) -> None:
        async with serving(is_stamping=True) as services:
            old, new = services.connection_epochs.accepted(), services.connection_epochs.accepted()
            producer = await begun(services)
            await add(services, producer, connection_epoch=new)
            assert (await end(services, producer, 5, old)).error_code is NONE

    async def test_s7_a_connection_whose_age_is_not_known_is_closed(self) -> None:
        async with serving(clock=Impatient()) as services:  # nobody asks for positions
            producer = await begun(services)
            connection_epoch = services.connection_epochs.accepted()
            with pytest.raises(NoAnswerOwed):
                await end(services, producer, connection_epoch=connection_epoch)
            assert (await end(services, Producer(*producer))).error_code is ErrorCode.invalid_txn_state
