"""Transactions are listed, described and aborted from outside, as Kafka's tools do it."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from agent.handlers import describe_transactions
from agent.handlers.describe_transactions import EPOCH_OF_UNIX, partition_of_group
from agent.ledger import ledger_writer
from agent.request.services import Services
from coordinator.ledger.memory import MemoryLedger
from coordinator.ledger.port import LedgerUnavailable
from coordinator.state.transactions import TransactionEnding
from protocol.errors import ErrorCode
from tests.support.agent.data_paths import DataPaths, another_agent, data_paths, services_of
from tests.support.agent.ledger_parts import BEGAN_MS
from tests.support.commands.commands import Chunk, commit
from tests.support.commands.transaction_commands import ID, TIMEOUT_MS, add, begin, end, transactional
from tests.support.handlers.handler_client import ask, ask_for_bytes
from tests.support.records.kio_messages import KioEntity

DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS, WRITE_TXN_MARKERS = 61, 65, 66, 27


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[DataPaths, Services]]:
    """A topic `t` with two partitions, and two transactional ids: one with a transaction in partition 0, one idle."""
    async with data_paths(partitions=2) as paths, asyncio.TaskGroup() as tasks:
        ledger = paths.parts.ledger
        await ledger.propose(begin())
        await ledger.propose(begin(transactional_id="idle"))
        await ledger.propose(commit(0, Chunk(batches=[transactional(0), transactional(1)]), session=ledger.session))
        yield paths, services_of(paths, paths.parts.clock, tasks)


async def away() -> None:
    raise LedgerUnavailable("away")


def is_open(services: Services) -> bool:
    return ID in services.state.open_transactions


class TestDescribing:
    async def described(self, services: Services, *transactional_ids: str) -> list[KioEntity]:
        answer = await ask(services, DESCRIBE_TRANSACTIONS, 0, transactional_ids=list(transactional_ids))
        assert [row.transactional_id for row in answer.transaction_states] == list(transactional_ids)
        return list(answer.transaction_states)

    async def test_an_open_transaction_is_reported_with_its_partitions_and_when_it_began(self) -> None:
        async with serving() as (_, services):
            (told,) = await self.described(services, ID)
        assert (told.error_code, told.transaction_state) == (ErrorCode.none, "Ongoing")
        assert (told.producer_id, told.producer_epoch) == (0, 0)
        assert told.transaction_timeout == timedelta(milliseconds=TIMEOUT_MS)
        assert told.transaction_start_time == EPOCH_OF_UNIX + timedelta(milliseconds=BEGAN_MS)
        assert [(topic.topic, topic.partitions) for topic in told.topics] == [("t", (0,))]

    async def test_one_that_has_ended_or_never_began_has_neither(self) -> None:
        async with serving() as (paths, services):
            await paths.parts.ledger.propose(end())
            ended = await ask_for_bytes(services, DESCRIBE_TRANSACTIONS, 0, transactional_ids=[ID])
            idle = await ask_for_bytes(services, DESCRIBE_TRANSACTIONS, 0, transactional_ids=["idle"])
        # kio reads no time before 1970, which is how Kafka says that there is none.
        for told, state, producer_id, epoch in ((ended, b"CompleteCommit", 0, 1), (idle, b"Empty", 1, 0)):
            _, _, rest = told.partition(bytes([len(state) + 1]) + state)
            no_topics = bytes([1])
            assert rest.startswith(struct.pack(">iqqh", TIMEOUT_MS, -1, producer_id, epoch) + no_topics)

    async def test_offsets_of_a_group_stand_where_kafka_keeps_them(self) -> None:
        async with serving() as (paths, services):
            await paths.parts.ledger.propose(add(producer=1, transactional_id="idle", groups=("g", "h")))
            (told,) = await self.described(services, "idle")
        (topic,) = told.topics
        assert (topic.topic, topic.partitions) == ("__consumer_offsets", (3, 4))

    async def test_what_is_not_there_or_no_id_has_an_error(self) -> None:
        async with serving() as (_, services):
            unknown, nameless = await self.described(services, "who", "")
        assert unknown.error_code is ErrorCode.transactional_id_not_found
        assert nameless.error_code is ErrorCode.invalid_request
        assert (unknown.transaction_state, unknown.transaction_start_time) == ("", EPOCH_OF_UNIX)

    async def test_what_an_answer_has_no_room_for_is_to_be_asked_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(describe_transactions, "TRANSACTION_MEMBERS_LISTED_MAX", 1)
        async with serving() as (_, services):
            first, second = await self.described(services, ID, ID)
        assert (first.error_code, second.error_code) == (ErrorCode.none, ErrorCode.coordinator_load_in_progress)

    async def test_s4_nothing_is_reported_without_a_barrier(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with serving() as (_, services):
            monkeypatch.setattr(services.ledger, "barrier", away)
            (told,) = await self.described(services, ID)
        assert told.error_code is ErrorCode.coordinator_not_available

    @pytest.mark.parametrize(
        ("group_id", "partition"),
        [("g", 3), ("my-group", 12), ("", 0), ("polygenelubricants", 0), ("Grüße \N{GRINNING FACE}", 12)],
    )
    def test_a_groups_partition_is_java_s(self, group_id: str, partition: int) -> None:
        assert partition_of_group(group_id, 50) == partition


class TestListing:
    async def listed(self, services: Services, version: int = 2, **filters: object) -> list[tuple[str, int, str]]:
        answer = await ask(services, LIST_TRANSACTIONS, version, **filters)
        assert answer.error_code is ErrorCode.none
        rows = answer.transaction_states
        return [(row.transactional_id, row.producer_id, row.transaction_state) for row in rows]

    async def test_all_ids_are_listed_with_their_producers_and_states(self) -> None:
        async with serving() as (_, services):
            assert await self.listed(services, 0) == [(ID, 0, "Ongoing"), ("idle", 1, "Empty")]

    async def test_filters_take_states_and_producers(self) -> None:
        async with serving() as (_, services):
            assert await self.listed(services, state_filters=["Ongoing", "PrepareAbort"]) == [(ID, 0, "Ongoing")]
            assert await self.listed(services, producer_id_filters=[1, 77]) == [("idle", 1, "Empty")]
            assert await self.listed(services, state_filters=["Empty"], producer_id_filters=[0]) == []

    async def test_a_state_that_kafka_does_not_know_is_told_and_matches_nothing(self) -> None:
        async with serving() as (_, services):
            answer = await ask(services, LIST_TRANSACTIONS, 0, state_filters=["Stuck", "Dead", "Stuck"])
        assert (answer.unknown_state_filters, answer.transaction_states) == (("Stuck",), ())

    async def test_a_duration_takes_what_is_open_for_longer(self) -> None:
        async with serving() as (paths, services):
            paths.parts.clock.seconds += 60
            assert await self.listed(services, 1, duration_filter=59_999) == [(ID, 0, "Ongoing")]
            assert await self.listed(services, 1, duration_filter=60_000) == []
            assert len(await self.listed(services, 1, duration_filter=-1)) == 2
            paths.parts.is_clock_checked = False
            assert await self.listed(services, 1, duration_filter=59_999) == []

    async def test_a_pattern_takes_ids_that_it_matches_as_a_whole(self) -> None:
        async with serving() as (_, services):
            assert await self.listed(services, transactional_id_pattern="i.*") == [("idle", 1, "Empty")]
            assert await self.listed(services, transactional_id_pattern="i") == []
            assert len(await self.listed(services, transactional_id_pattern="")) == 2

    async def test_a_pattern_that_is_none_is_refused(self) -> None:
        async with serving() as (_, services):
            answer = await ask(services, LIST_TRANSACTIONS, 2, transactional_id_pattern="[")
        assert (answer.error_code, answer.transaction_states) == (ErrorCode.invalid_regular_expression, ())

    async def test_each_id_is_listed_by_the_agent_that_clients_find_for_it(self) -> None:
        async with serving() as (paths, services), another_agent(paths) as other, asyncio.TaskGroup() as tasks:
            for number in range(20):
                await paths.parts.ledger.propose(begin(transactional_id=f"id-{number}"))
            mine = await self.listed(services)
            others = await self.listed(services_of(other, other.parts.clock, tasks))
        assert mine
        assert others
        assert {row[0] for row in mine} | {row[0] for row in others} == {ID, "idle", *(f"id-{n}" for n in range(20))}
        assert len(mine) + len(others) == 22

    async def test_s4_nothing_is_listed_without_a_barrier(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with serving() as (_, services):
            monkeypatch.setattr(services.ledger, "barrier", away)
            answer = await ask(services, LIST_TRANSACTIONS, 0)
        assert answer.error_code is ErrorCode.coordinator_not_available


class TestProducers:
    async def producers(self, services: Services) -> list[KioEntity]:
        answer = await ask(services, DESCRIBE_PRODUCERS, 0, topics=[{"name": "t", "partition_indexes": [0]}])
        return list(answer.topics[0].partitions[0].active_producers)

    async def test_an_open_transaction_has_the_offset_where_it_begins(self) -> None:
        async with serving() as (_, services):
            (told,) = await self.producers(services)
        assert (told.producer_id, told.producer_epoch, told.last_sequence) == (0, 0, 1)
        assert (told.current_txn_start_offset, told.coordinator_epoch) == (0, 0)

    async def test_after_a_marker_that_brought_an_epoch_there_is_no_sequence(self) -> None:
        async with serving() as (paths, services):
            await paths.parts.ledger.propose(end())
            (told,) = await self.producers(services)
        assert (told.producer_epoch, told.last_sequence, told.current_txn_start_offset) == (1, -1, -1)


class TestAborting:
    async def told(
        self, services: Services, *partitions: int, topic: str = "t", epoch: int = 0, is_commit: bool = False
    ) -> list[ErrorCode]:
        marker = {
            "producer_id": 0,
            "producer_epoch": epoch,
            "transaction_result": is_commit,
            "topics": [{"name": topic, "partition_indexes": list(partitions)}],
            "coordinator_epoch": 0,
        }
        answer = await ask(services, WRITE_TXN_MARKERS, 1, markers=[marker])
        ((row,),) = [marker.topics for marker in answer.markers]
        assert [each.partition_index for each in row.partitions] == list(partitions)
        return [each.error_code for each in row.partitions]

    async def test_s15_an_abort_at_the_current_epoch_ends_the_whole_transaction(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with serving() as (paths, services):
            ledger = paths.parts.ledger
            chunk = Chunk(partition=1, batches=[transactional(0)])
            await ledger.propose(commit(1, chunk, session=ledger.session))
            assert await self.told(services, 0) == [ErrorCode.none]
            assert not is_open(services)
            assert services.state.transaction_counts.ended[TransactionEnding.TERMINATED] == 1
            (first, second) = next(iter(services.state.topics.values())).partitions
            assert (first.last_stable, second.last_stable) == (first.log_end, second.log_end) == (3, 2)
        assert "because a tool asked for it" in caplog.text

    async def test_s15_a_commit_is_refused(self) -> None:
        async with serving() as (_, services):
            assert await self.told(services, 0, is_commit=True) == [ErrorCode.invalid_txn_state]
            assert is_open(services)

    @pytest.mark.parametrize("epoch", [1, 5])
    async def test_s15_another_epoch_aborts_nothing(self, epoch: int) -> None:
        async with serving() as (_, services):
            assert await self.told(services, 0, epoch=epoch) == [ErrorCode.invalid_producer_epoch]
            assert is_open(services)

    async def test_a_partition_that_the_transaction_has_not_written_to_ends_nothing(self) -> None:
        async with serving() as (_, services):
            assert await self.told(services, 1) == [ErrorCode.none]
            assert is_open(services)

    async def test_where_nothing_is_open_nothing_is_written(self) -> None:
        async with serving() as (paths, services):
            await paths.parts.ledger.propose(end())
            position = services.state.position
            assert await self.told(services, 0, epoch=1) == [ErrorCode.none]
            assert services.state.position == position

    async def test_partitions_that_are_not_there_are_told_and_do_not_matter(self) -> None:
        async with serving() as (_, services):
            assert await self.told(services, 9) == [ErrorCode.unknown_topic_or_partition]
            assert await self.told(services, 0, topic="no") == [ErrorCode.unknown_topic_or_partition]
            assert is_open(services)
            assert await self.told(services, 9, 0) == [ErrorCode.unknown_topic_or_partition, ErrorCode.none]
            assert not is_open(services)

    async def test_s4_without_a_barrier_the_tool_is_to_ask_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with serving() as (_, services):
            monkeypatch.setattr(services.ledger, "barrier", away)
            assert await self.told(services, 0, 9) == [ErrorCode.not_leader_or_follower] * 2

    async def test_so_it_is_where_the_ledger_is_too_busy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with serving() as (_, services):
            monkeypatch.setattr(ledger_writer, "LEDGER_COMMANDS_QUEUED_MAX", 0)
            assert await self.told(services, 0) == [ErrorCode.not_leader_or_follower]
            assert is_open(services)

    async def test_and_where_the_outcome_is_unknown(self) -> None:
        async with serving() as (paths, services):
            assert isinstance(paths.parts.backend, MemoryLedger)
            paths.parts.backend.core.expire(paths.parts.ledger.session)
            assert await self.told(services, 0) == [ErrorCode.not_leader_or_follower]
