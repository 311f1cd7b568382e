"""What consumers see of transactions: read_committed nothing that is open or aborted, read_uncommitted everything, both
the markers; from the intake, from the archive, and while the one becomes the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent.fetch.isolation import AbortedTransactions, visible_end
from agent.fetch.partition_read import PartitionRead
from agent.runtime.clock import SystemClock
from coordinator.configs.topic_configs import AT_COMMIT, PLACEMENT, TABLE_RETENTION
from coordinator.ledger.memory import MemoryLedger
from coordinator.state.state import PartitionState
from protocol.errors import ErrorCode
from protocol.limits import LEDGER_SESSION_SECONDS, MIB
from protocol.records.batch import walk_batches
from protocol.records.control_batches import Marker, marker_batch, read_marker
from protocol.types import Milliseconds, Offset, ProducerEpoch, ProducerId
from storage.decorators.failing import FaultKind, InjectedFault, StoreOperation
from tests.support.agent.data_paths import DataPaths, another_agent, data_paths
from tests.support.agent.fetch_paths import consumer_of, fetch_path_of
from tests.support.agent.transactional_paths import (
    COMMITTED,
    UNCOMMITTED,
    Producer,
    fetch,
    partition_of,
    produce_chunk,
    read_all,
    transact,
    values_batch,
    values_of,
)
from tests.support.clients.committed_reader import PartitionReader
from tests.support.commands.commands import TOPIC, delete_before
from txn.isolation import AbortedRange, IsolationLevel, PartitionTransactions

BOTH = pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])


def joined(read: PartitionRead) -> bytes:
    return b"".join(bytes(part) for part in read.records)


@asynccontextmanager
async def with_producers(
    count: int = 1, *, cache_bytes: int = 64 * MIB
) -> AsyncIterator[tuple[DataPaths, list[Producer]]]:
    async with data_paths(cache_bytes=cache_bytes) as paths:
        yield paths, [Producer(paths, f"tx-{number}") for number in range(count)]


class TestLastStableOffset:
    async def test_read_committed_ends_before_an_open_transaction_and_goes_on_once_it_is_decided(self) -> None:
        async with with_producers() as (paths, [producer]):
            await paths.produce(values_batch([b"plain"]))
            await producer.begin()
            await paths.produce(producer.batch(b"a", b"b"), values_batch([b"later"]))
            before = await read_all(paths, 0)
            told = await fetch(paths, 0)
            assert (told.high_watermark, told.last_stable) == (4, 1)
            assert (before.position, values_of(before)) == (1, [b"plain"])
            everything = await read_all(paths, 0, UNCOMMITTED)
            assert (everything.position, values_of(everything)) == (4, [b"plain", b"a", b"b", b"later"])
            assert (await fetch(paths, 0, UNCOMMITTED)).last_stable == 1
            await producer.end(is_commit=True)
            after = await read_all(paths, before.position)
            assert (after.position, values_of(after)) == (5, [b"a", b"b", b"later"])

    async def test_it_cuts_a_chunk_of_batches_of_several_producers_in_two(self) -> None:
        async with with_producers() as (paths, [producer]):
            await producer.begin()
            await produce_chunk(paths, [values_batch([b"x", b"y"]), producer.batch(b"a"), values_batch([b"z"])])
            assert len(partition_of(paths).index) == 1
            reader = await read_all(paths, 0)
            assert (reader.position, values_of(reader)) == (2, [b"x", b"y"])
            read = await fetch(paths, 2)
            assert (read.error_code, read.records, read.aborted) == (ErrorCode.none, [], [])

    @BOTH
    async def test_a_fetch_that_waits_is_woken_by_the_end_of_the_transaction(self, isolation: IsolationLevel) -> None:
        async with with_producers() as (paths, [producer]):
            await producer.begin()
            await paths.produce(producer.batch(b"a"))
            path = fetch_path_of(paths, SystemClock(), SystemClock().monotonic_s)
            offset = 0 if isolation is COMMITTED else 1
            waiting = asyncio.create_task(
                path.fetch(
                    [consumer_of("t", offset)], max_wait_ms=60_000, bytes_min=1, bytes_max=MIB, isolation=isolation
                )
            )
            for _ in range(20):
                await asyncio.sleep(0)
            assert not waiting.done()
            await producer.end(is_commit=True)
            (read,) = await asyncio.wait_for(waiting, 10)
            assert [header.is_control for header in walk_batches(joined(read))] == [False, True][offset:]

    async def test_records_behind_it_wake_nobody_who_reads_what_is_committed(self) -> None:
        async with with_producers() as (paths, [producer]):
            await producer.begin()
            await paths.produce(producer.batch(b"a"))
            path = fetch_path_of(paths, SystemClock(), SystemClock().monotonic_s)
            waiting = asyncio.create_task(
                path.fetch([consumer_of("t")], max_wait_ms=60_000, bytes_min=1, bytes_max=MIB, isolation=COMMITTED)
            )
            await paths.produce(values_batch([b"plain"]))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not waiting.done()
            await producer.end(is_commit=False)
            (read,) = await asyncio.wait_for(waiting, 10)
            assert (read.last_stable, len(list(walk_batches(joined(read))))) == (3, 3)

    async def test_a_consumer_beyond_it_waits_without_an_error(self) -> None:
        async with with_producers() as (paths, [producer]):
            await producer.begin()
            await paths.produce(producer.batch(b"a", b"b"))
            read = await fetch(paths, 1)
            assert (read.error_code, read.records, read.last_stable, read.high_watermark) == (ErrorCode.none, [], 0, 2)
            assert (await fetch(paths, 3)).error_code is ErrorCode.offset_out_of_range

    async def test_it_is_not_below_the_start_of_the_log(self) -> None:
        async with with_producers() as (paths, [producer]):
            await producer.begin()
            await paths.produce(producer.batch(b"a", b"b"), producer.batch(b"c"))
            await paths.parts.ledger.propose(delete_before(1))
            read = await fetch(paths, 1)
            assert (read.last_stable, read.log_start, read.records) == (1, 1, [])
            await producer.end(is_commit=True)
            assert values_of(await read_all(paths, 1)) == [b"b", b"c"]


class TestS4LastStableOffsetIsNeverOlderThanWhatWasTold:
    async def test_an_agent_that_is_behind_takes_a_barrier_before_it_answers_a_consumer_beyond_what_it_knows(
        self,
    ) -> None:
        async with with_producers() as (paths, [producer]), another_agent(paths) as other:
            await producer.begin()
            await paths.produce(producer.batch(b"a"))
            await other.parts.ledger.barrier()
            assert (await fetch(other, 0)).last_stable == 0
            await producer.end(is_commit=True)
            reader = await read_all(paths, 0)
            assert reader.position == 2
            # The other agent was not told of the end so far; this consumer was.
            assert (await fetch(other, reader.position)).last_stable == 2

    async def test_without_the_ledger_such_a_consumer_is_sent_away(self) -> None:
        async with with_producers() as (paths, [producer]):
            await producer.begin()
            await paths.produce(producer.batch(b"a"))
            ledger = paths.parts.backend
            assert isinstance(ledger, MemoryLedger)
            ledger.is_reachable = False
            assert (await fetch(paths, 1)).error_code is ErrorCode.not_leader_or_follower
            assert (await fetch(paths, 1, UNCOMMITTED)).error_code is ErrorCode.none
            ledger.is_reachable = True

    async def test_an_agent_out_of_touch_turns_away_who_waits_at_the_last_stable_offset(self) -> None:
        async with with_producers() as (paths, [producer]):
            await producer.begin()
            await paths.produce(producer.batch(b"a"))
            paths.confirmed_s = paths.parts.clock.monotonic_s() - LEDGER_SESSION_SECONDS
            committed, uncommitted = await fetch(paths, 0), await fetch(paths, 0, UNCOMMITTED)
            assert committed.error_code is ErrorCode.not_leader_or_follower
            assert (uncommitted.error_code, uncommitted.record_bytes > 0) == (ErrorCode.none, True)


class TestMarkers:
    @BOTH
    async def test_they_are_kafkas_batches_and_nothing_is_read_for_them(self, isolation: IsolationLevel) -> None:
        async with with_producers(cache_bytes=0) as (paths, [producer]):
            await transact(producer, b"a", is_commit=True)
            time_ms = partition_of(paths).index.row(1).max_timestamp
            paths.store.script(*[InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.GET)] * 9)
            read = await fetch(paths, 1, isolation)
            assert joined(read) == marker_batch(
                offset=Offset(1),
                producer_id=ProducerId(producer.producer_id),
                producer_epoch=ProducerEpoch(producer.epoch),
                is_commit=True,
                timestamp_ms=Milliseconds(time_ms),
            )
            assert (read.offset_next, read.high_watermark, read.last_stable) == (2, 2, 2)

    async def test_each_producer_has_its_own_in_one_answer(self) -> None:
        async with with_producers(2) as (paths, [first, second]):
            await first.begin()
            await second.begin()
            await paths.produce(first.batch(b"a"), second.batch(b"b"))
            await second.end(is_commit=False)
            await first.end(is_commit=True)
            batches = joined(await fetch(paths, 0, UNCOMMITTED))
            headers = list(walk_batches(batches))
            assert [header.producer_id for header in headers] == [
                first.producer_id,
                second.producer_id,
                second.producer_id,
                first.producer_id,
            ]
            markers = [read_marker(batches, header) for header in headers if header.is_control]
            assert markers == [
                Marker(is_commit=False, coordinator_epoch=0),
                Marker(is_commit=True, coordinator_epoch=0),
            ]

    async def test_a_small_limit_gives_one_batch_after_the_other(self) -> None:
        async with with_producers() as (paths, [producer]):
            for value in (b"a", b"b"):
                await transact(producer, value, is_commit=value == b"b")
            for isolation, wanted in ((COMMITTED, [b"b"]), (UNCOMMITTED, [b"a", b"b"])):
                reader = await read_all(paths, 0, isolation, bytes_max=1)
                assert (reader.position, values_of(reader)) == (4, wanted)


class TestAbortedTransactionsOfAnAnswer:
    async def test_those_that_concern_what_is_told_and_no_others(self) -> None:
        async with with_producers(2) as (paths, [first, second]):
            await transact(first, b"a", is_commit=False)
            await transact(second, b"b", is_commit=False)
            await transact(first, b"c", is_commit=True)
            one, two = (
                AbortedRange(ProducerId(first.producer_id), Offset(0)),
                AbortedRange(ProducerId(second.producer_id), Offset(2)),
            )
            assert [list((await fetch(paths, offset)).aborted) for offset in range(6)] == [
                [one, two],
                [one, two],
                [two],
                [two],
                [],
                [],
            ]
            assert list((await fetch(paths, 0, bytes_max=1)).aborted) == [one]
            assert (await fetch(paths, 0, UNCOMMITTED)).aborted == []
            assert values_of(await read_all(paths, 0)) == [b"c"]
            assert values_of(await read_all(paths, 0, UNCOMMITTED)) == [b"a", b"b", b"c"]

    async def test_s5_an_archived_marker_is_listed_no_more_and_what_the_producer_commits_later_is_read(self) -> None:
        async with with_producers() as (paths, [producer]):
            await transact(producer, b"a", is_commit=False)
            await paths.archiver.archive_topic(TOPIC)
            await transact(producer, b"b", is_commit=True)
            assert (await fetch(paths, 0)).aborted == []
            for isolation in (COMMITTED, UNCOMMITTED):
                reader = await read_all(paths, 0, isolation)
                assert (reader.position, values_of(reader)) == (4, [b"b"])

    async def test_s5_a_marker_behind_the_log_start_is_listed_no_more(self) -> None:
        async with with_producers() as (paths, [producer]):
            await transact(producer, b"a", is_commit=False)
            await transact(producer, b"b", is_commit=True)
            await paths.parts.ledger.propose(delete_before(1))
            assert len((await fetch(paths, 1)).aborted) == 1
            await paths.parts.ledger.propose(delete_before(2))
            assert (await fetch(paths, 2)).aborted == []
            assert values_of(await read_all(paths, 2)) == [b"b"]

    async def test_s5_a_marker_that_is_archived_while_its_records_are_read_is_told_with_them(self) -> None:
        async with with_producers(cache_bytes=0) as (paths, [producer]):
            await transact(producer, b"a", is_commit=False)
            await transact(producer, b"b", is_commit=True)
            paths.during_pause = lambda: paths.archiver.archive_topic(TOPIC)
            paths.store.script(InjectedFault(kind=FaultKind.SLOW, operation=StoreOperation.GET))
            read = await fetch(paths, 0)
            paths.during_pause = None
            assert partition_of(paths).transactions is None
            assert [each.offset_first for each in read.aborted] == [0]
            reader = PartitionReader(0, is_committed=True)
            reader.take(joined(read), [(each.producer_id, each.offset_first) for each in read.aborted])
            assert (reader.position, values_of(reader)) == (4, [b"b"])

    def test_s5_a_later_plan_that_knows_others_of_what_is_read_ends_the_answer(self) -> None:
        partition = PartitionState()
        transactions = partition.transactions = PartitionTransactions()
        transactions.begin(ProducerId(7), Offset(5))
        transactions.end(ProducerId(7), Offset(20), is_commit=False)
        answer = AbortedTransactions(Offset(6))
        assert answer.plan(partition, 6, 10)
        assert answer.plan(partition, 10, 15)
        assert answer.listed(8) == [AbortedRange(ProducerId(7), Offset(5))]
        transactions.forget_markers(Offset(20), Offset(21))
        assert not answer.plan(partition, 15, 30)
        assert answer.listed(15) == [AbortedRange(ProducerId(7), Offset(5))]

    def test_ranges_that_begin_behind_what_is_read_may_come_and_go(self) -> None:
        partition = PartitionState()
        answer = AbortedTransactions(Offset(0))
        assert answer.plan(partition, 0, 10)
        partition.transactions = PartitionTransactions()
        partition.transactions.begin(ProducerId(7), Offset(12))
        partition.transactions.end(ProducerId(7), Offset(14), is_commit=False)
        assert answer.plan(partition, 10, 20)
        assert (answer.listed(12), answer.listed(13)) == ([], [AbortedRange(ProducerId(7), Offset(12))])

    def test_the_end_that_is_seen(self) -> None:
        partition = PartitionState(log_end=Offset(9))
        assert [visible_end(partition, level) for level in IsolationLevel] == [9, 9]
        partition.transactions = PartitionTransactions()
        partition.transactions.begin(ProducerId(7), Offset(4))
        assert [visible_end(partition, level) for level in IsolationLevel] == [9, 4]


class TestArchive:
    async def test_a_pass_ends_before_an_open_transaction_and_takes_it_once_it_is_decided(self) -> None:
        async with with_producers() as (paths, [producer]):
            await paths.produce(values_batch([b"plain"]))
            await producer.begin()
            await paths.produce(producer.batch(b"a"), values_batch([b"later"]))
            report = await paths.archiver.archive_topic(TOPIC)
            assert report.records == 1
            assert partition_of(paths).index.intake_row == 1
            assert (await paths.archiver.archive_topic(TOPIC)).records == 0
            await producer.end(is_commit=True)
            assert (await paths.archiver.archive_topic(TOPIC)).records == 2
            assert all(chunk.is_archived for chunk in partition_of(paths).index.rows_from(0))
            for isolation in (COMMITTED, UNCOMMITTED):
                reader = await read_all(paths, 0, isolation)
                assert (reader.position, values_of(reader)) == (4, [b"plain", b"a", b"later"])

    async def test_only_aborted_records_leave_a_range_without_rows_that_every_consumer_steps_over_at_once(self) -> None:
        async with with_producers() as (paths, [producer]):
            await transact(producer, b"a", b"b", is_commit=False)
            report = await paths.archiver.archive_topic(TOPIC)
            (chunk,) = partition_of(paths).index.rows_from(0)
            assert (report.records, chunk.row_count, chunk.byte_count, chunk.offset_end) == (0, 0, 0, 3)
            path = fetch_path_of(paths, SystemClock(), SystemClock().monotonic_s)
            for isolation in (COMMITTED, UNCOMMITTED):
                (read,) = await path.fetch(
                    [consumer_of("t")], max_wait_ms=60_000, bytes_min=1, bytes_max=MIB, isolation=isolation
                )
                (header,) = walk_batches(joined(read))
                assert (header.is_control, header.producer_id, read.offset_next) == (True, -1, 3)

    async def test_holes_between_and_inside_the_runs_of_a_row_group_keep_every_offset(self) -> None:
        async with with_producers(2) as (paths, [kept, dropped]):
            await kept.begin()
            await dropped.begin()
            await produce_chunk(
                paths,
                [
                    dropped.batch(b"1"),
                    kept.batch(b"2", b"3"),
                    dropped.batch(b"4", b"5"),
                    values_batch([b"6"]),
                    dropped.batch(b"7"),
                ],
            )
            await dropped.end(is_commit=False)
            await kept.end(is_commit=True)
            await paths.archiver.archive_topic(TOPIC)
            for offset in range(9):
                for isolation in (COMMITTED, UNCOMMITTED):
                    reader = await read_all(paths, offset, isolation)
                    found = [(record.offset, record.value) for record in reader.records]
                    assert found == [pair for pair in [(1, b"2"), (2, b"3"), (5, b"6")] if pair[0] >= offset]
                    assert reader.position == 9

    async def test_an_aborted_transaction_over_two_passes_is_left_out_of_both(self) -> None:
        async with with_producers(2) as (paths, [first, second]):
            await first.begin()
            await paths.produce(first.batch(b"a"))
            await second.begin()
            await paths.produce(second.batch(b"open"), first.batch(b"b"))
            await first.end(is_commit=False)
            assert (await paths.archiver.archive_topic(TOPIC)).records == 0
            assert partition_of(paths).index.intake_row == 1
            assert values_of(await read_all(paths, 0)) == []
            await second.end(is_commit=True)
            assert (await paths.archiver.archive_topic(TOPIC)).records == 1
            assert values_of(await read_all(paths, 0, UNCOMMITTED)) == [b"open"]
            assert partition_of(paths).transactions is None

    async def test_what_the_table_keeps_behind_the_log_start_is_archived_without_what_was_aborted_or_is_open(
        self,
    ) -> None:
        async with with_producers(2) as (paths, [aborted, still_open]):
            paths.parts.ledger.state.topics[TOPIC].configs = {TABLE_RETENTION: "-1"}
            await transact(aborted, b"a", is_commit=False)
            await paths.produce(values_batch([b"kept"]))
            await still_open.begin()
            await paths.produce(still_open.batch(b"open"))
            await paths.produce(values_batch([b"later"]))
            await paths.parts.ledger.propose(delete_before(5))
            partition = partition_of(paths)
            assert (partition.log_start, partition.table_start, partition.last_stable) == (5, 0, 5)
            assert (await paths.archiver.archive_topic(TOPIC)).records == 1
            assert (partition.index.row(0).offset_end, partition.index.row(1).is_archived) == (3, False)
            await still_open.end(is_commit=False)
            assert (await paths.archiver.archive_topic(TOPIC)).records == 1
            assert partition.transactions is None
            assert values_of(await read_all(paths, 5)) == []

    async def test_what_was_placed_at_its_commit_is_archived_behind_what_was_written_later(self) -> None:
        async with with_producers(2, cache_bytes=0) as (paths, [committed, aborted]):
            paths.parts.ledger.state.topics[TOPIC].configs = {PLACEMENT: AT_COMMIT}
            for producer in (committed, aborted):
                await producer.begin()
                await paths.produce(producer.batch(b"waited"))
            await paths.produce(values_batch([b"plain"]))
            await aborted.end(is_commit=False)
            await committed.end(is_commit=True)
            for _ in range(2):
                for isolation in (COMMITTED, UNCOMMITTED):
                    reader = await read_all(paths, 0, isolation)
                    assert (reader.position, values_of(reader)) == (3, [b"plain", b"waited"])
                await paths.archiver.archive_topic(TOPIC)
            assert all(chunk.is_archived for chunk in partition_of(paths).index.rows_from(0))
