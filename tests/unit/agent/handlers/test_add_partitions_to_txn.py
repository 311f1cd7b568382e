"""AddPartitionsToTxn: all partitions of a transactional id, or none; unknown ones are told behind a barrier (S4)."""

from collections.abc import Sequence

import pytest

from agent.request.services import Services
from coordinator.ledger.port import LedgerUnavailable
from protocol.errors import ErrorCode
from tests.support.handlers.handler_client import ask, turns_of_others
from tests.support.handlers.stalled_ledger import Impatient
from tests.support.handlers.transactions import (
    ADD_PARTITIONS,
    ID,
    NONE,
    Producer,
    add,
    begun,
    end,
    errors_of,
    serving,
    stop_answering,
)
from tests.support.records.kio_messages import KioEntity


def added(services: Services) -> Sequence[int]:
    return [index for _, index in services.state.transactional_ids[ID].partitions]


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added_as_often_as_they_are_named(version: int) -> None:
    async with serving() as services:
        producer = await begun(services)
        assert await add(services, producer, version, topics={"t": [0, 1]}) == {("t", 0): NONE, ("t", 1): NONE}
        assert await add(services, producer, version, topics={"t": [1]}) == {("t", 1): NONE}
        assert added(services) == [0, 1]
        assert services.state.transactional_ids[ID].metadata.is_ongoing


async def test_where_one_is_unknown_none_is_added() -> None:
    async with serving() as services:
        producer = await begun(services)
        told = await add(services, producer, topics={"t": [0, 9], "absent": [0], "__consumer_offsets": [0]})
        assert told == {
            ("t", 0): ErrorCode.operation_not_attempted,
            ("t", 9): ErrorCode.unknown_topic_or_partition,
            ("absent", 0): ErrorCode.unknown_topic_or_partition,
            ("__consumer_offsets", 0): ErrorCode.topic_authorization_failed,
        }
        assert not services.state.transactional_ids[ID].metadata.is_ongoing


async def test_s4_a_partition_is_not_called_unknown_while_the_ledger_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def away() -> None:
        raise LedgerUnavailable("away")

    async with serving() as services:
        producer = await begun(services)
        monkeypatch.setattr(services.ledger, "barrier", away)
        told = await add(services, producer, topics={"t": [0], "absent": [0]})
    assert told == {
        ("t", 0): ErrorCode.operation_not_attempted,
        ("absent", 0): ErrorCode.coordinator_not_available,
    }


async def test_who_may_not_is_told_for_each_partition() -> None:
    async with serving() as services:
        first = await begun(services)
        second = await begun(services)
        assert await add(services, first, 3) == {("t", 0): ErrorCode.producer_fenced}
        assert await add(services, first, 1) == {("t", 0): ErrorCode.invalid_producer_epoch}
        assert await add(services, second.another) == {("t", 0): ErrorCode.invalid_producer_id_mapping}
        assert await add(services, second, transactional_id="y") == {("t", 0): ErrorCode.invalid_producer_id_mapping}
        assert await add(services, second, transactional_id="") == {("t", 0): ErrorCode.invalid_request}


async def test_a_ledger_that_does_not_answer_in_time_is_asked_again() -> None:
    async with serving(clock=Impatient()) as services:
        producer = await begun(services)
        stop_answering(services)
        assert await add(services, producer) == {("t", 0): ErrorCode.coordinator_not_available}


async def test_many_partitions_are_gone_through_in_turns() -> None:
    async with serving(partitions=3_000) as services:
        producer = await begun(services)
        named = [{"name": "t", "partitions": list(range(3_000))}]
        told, turns_count = await turns_of_others(
            ask(
                services,
                ADD_PARTITIONS,
                3,
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=named,
            )
        )
        assert set(errors_of(told.results_by_topic_v3_and_below).values()) == {NONE}
        assert turns_count > 3


class TestBatched:
    """Versions 4 and 5, as Kafka's brokers ask each other."""

    async def asked(self, services: Services, version: int, *transactions: KioEntity) -> Sequence[KioEntity]:
        told = await ask(services, ADD_PARTITIONS, version, transactions=list(transactions))
        assert told.error_code is NONE
        results: Sequence[KioEntity] = told.results_by_transaction
        return results

    def of(
        self, producer: Producer, transactional_id: str, *indexes: int, is_verify_only: bool = False
    ) -> dict[str, object]:
        return {
            "transactional_id": transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "verify_only": is_verify_only,
            "topics": [{"name": "t", "partitions": list(indexes)}],
        }

    @pytest.mark.parametrize("version", [4, 5])
    async def test_each_transactional_id_is_decided_on_its_own(self, version: int) -> None:
        async with serving() as services:
            one, other = await begun(services), await begun(services, "y")
            told = await self.asked(
                services, version, self.of(one, ID, 0), self.of(other, "y", 0, 9), self.of(one.another, ID, 1)
            )
            assert [(row.transactional_id, errors_of(row.topic_results)) for row in told] == [
                (ID, {("t", 0): NONE}),
                ("y", {("t", 0): ErrorCode.operation_not_attempted, ("t", 9): ErrorCode.unknown_topic_or_partition}),
                (ID, {("t", 1): ErrorCode.invalid_producer_id_mapping}),
            ]

    async def test_who_only_asks_changes_nothing(self) -> None:
        async with serving() as services:
            producer = await begun(services)
            await add(services, producer)
            told = await self.asked(
                services,
                5,
                self.of(producer, ID, 0, 1, is_verify_only=True),
                self.of(producer.next, ID, 0, is_verify_only=True),
                self.of(producer, "y", 0, is_verify_only=True),
                self.of(producer, "", 0, is_verify_only=True),
            )
            assert [errors_of(row.topic_results) for row in told] == [
                {("t", 0): NONE, ("t", 1): ErrorCode.transaction_abortable},
                {("t", 0): ErrorCode.producer_fenced},
                {("t", 0): ErrorCode.invalid_producer_id_mapping},
                {("t", 0): ErrorCode.invalid_request},
            ]
            assert added(services) == [0]
            await end(services, producer)
            (told_later,) = await self.asked(services, 5, self.of(producer, ID, 0, is_verify_only=True))
            assert errors_of(told_later.topic_results) == {("t", 0): ErrorCode.transaction_abortable}

    async def test_s4_who_only_asks_is_not_told_what_may_be_old(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def away() -> None:
            raise LedgerUnavailable("away")

        async with serving() as services:
            producer = await begun(services)
            monkeypatch.setattr(services.ledger, "barrier", away)
            (told,) = await self.asked(services, 4, self.of(producer, ID, 0, is_verify_only=True))
            assert errors_of(told.topic_results) == {("t", 0): ErrorCode.coordinator_not_available}
