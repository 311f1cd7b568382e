"""What producers are told: an offset once it is in the ledger, and never an offset with an error."""

import asyncio
import struct
from collections import Counter
from collections.abc import Sequence

import pytest
from crc32c import crc32c

from agent.fetch.sessions import RequestedPartition
from agent.produce import produce_path
from agent.produce.acknowledgement import NO_OFFSET, Acknowledgement
from agent.produce.produce_path import ProducePath
from coordinator.commands.admin import AlterConfigs, ConfigOperation, ConfigResourceType, OperationKind
from coordinator.commands.commands import Outcome, QuotaUse, Rejected, ReportTime
from coordinator.commands.rules import RULES_FIRST, RULES_NEWEST, RULES_SECURITY
from coordinator.configs.topic_configs import AT_COMMIT, PLACEMENT
from coordinator.ledger.memory import AppendFate, MemoryLedger
from coordinator.ledger.port import LedgerEntry, OutcomeUnknown
from coordinator.state.chunk_index import NO_CHECKSUM
from protocol.errors import ErrorCode
from protocol.limits import (
    INTAKE_BUFFER_BYTES_MAX,
    INTAKE_OBJECT_BYTES_ENOUGH,
    INTAKE_OBJECT_BYTES_TARGET,
    ROWS_PER_TURN,
)
from protocol.records.batch import check_crcs, split_batches
from protocol.types import ObjectNumber, PartitionIndex, SessionId
from storage.batcher import BatchGroup
from storage.decorators.failing import FaultKind, InjectedFault, StoreOperation
from storage.object_store import Buffer
from storage.refs import intake_key
from tests.support.agent.data_paths import DataPaths, Ticket, data_paths, group_of, tasks_that_fail
from tests.support.agent.transactional_paths import Producer
from tests.support.commands.commands import TOPIC
from tests.support.records.plain_records import Record, make_batch, read_batches

SECONDS_MAX = 10.0
PRODUCER_AT = 43
CRC_AT = 17
"""Where a batch holds its producer and its CRC, which covers all behind it (KIP-98)."""
PLAIN = make_batch([Record(offset=0, timestamp=5, value=b"first"), Record(offset=1, timestamp=6, value=b"second")])


def idempotent(value: bytes, sequence: int) -> bytes:
    """A batch of one record of producer 7 in epoch 0."""
    batch = bytearray(make_batch([Record(offset=0, timestamp=5, value=value)]))
    struct.pack_into(">qhi", batch, PRODUCER_AT, 7, 0, sequence)
    struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[CRC_AT + 4 :]))
    return bytes(batch)


async def test_offsets_follow_each_other() -> None:
    async with data_paths() as paths:
        answers = await paths.produce(PLAIN, PLAIN)
    assert [(a.error_code, a.base_offset, a.log_start) for a in answers] == [
        (ErrorCode.none, 0, 0),
        (ErrorCode.none, 2, 0),
    ]


async def test_what_came_together_shares_one_object() -> None:
    async with data_paths() as paths:
        tickets = [Ticket(), Ticket(), Ticket()]
        for ticket in tickets:
            view = memoryview(PLAIN)
            paths.produce_path.add(BatchGroup(TOPIC, PartitionIndex(0), view, split_batches(view), ticket))
        answers = [await ticket.settled for ticket in tickets]
        objects = [meta async for meta in paths.memory.list("intake/")]
    assert [answer.base_offset for answer in answers] == [0, 2, 4]
    assert len(objects) == 1


async def test_a_put_that_fails_is_a_retriable_error_without_an_offset() -> None:
    async with data_paths() as paths:
        paths.store.script(InjectedFault(kind=FaultKind.AFTER, operation=StoreOperation.PUT))
        failed, done = await paths.produce(PLAIN, PLAIN)
    assert (failed.error_code, failed.base_offset) == (ErrorCode.request_timed_out, NO_OFFSET)
    assert (done.error_code, done.base_offset) == (ErrorCode.none, 0)


async def test_a_duplicate_is_answered_with_its_first_copys_offset_and_does_not_take_its_place() -> None:
    async with data_paths() as paths:
        first, second, repeat = await paths.produce(idempotent(b"a", 0), idempotent(b"b", 1), idempotent(b"x", 0))
        read = await paths.fetch(0)
    assert [answer.base_offset for answer in (first, second, repeat)] == [0, 1, 0]
    records = read_batches(b"".join(bytes(part) for part in read.records)).records
    assert [record.value for record in records] == [b"a", b"b"]


async def test_a_gap_in_the_sequence_is_refused_without_an_offset() -> None:
    async with data_paths() as paths:
        _, gap = await paths.produce(idempotent(b"a", 0), idempotent(b"c", 2))
    assert (gap.error_code, gap.base_offset) == (ErrorCode.out_of_order_sequence_number, NO_OFFSET)


async def test_append_time_is_told_and_a_duplicate_is_told_the_first_ones() -> None:
    async with data_paths(timestamp_type="LogAppendTime") as paths:
        (first,) = await paths.produce(idempotent(b"a", 0))
        paths.parts.clock.seconds += 60
        (repeat,) = await paths.produce(idempotent(b"a", 0))
    assert first.append_time_ms == repeat.append_time_ms > 0


async def test_append_time_is_told_of_what_waits_for_its_commit_and_a_repeat_is_told_the_first_ones() -> None:
    async with data_paths(timestamp_type="LogAppendTime") as paths:
        at_commit = ConfigOperation(kind=OperationKind.SET, name=PLACEMENT, value=AT_COMMIT)
        await paths.parts.ledger.propose(
            AlterConfigs(
                resource_type=ConfigResourceType.TOPIC, resource_name="t", is_whole=False, operations=(at_commit,)
            )
        )
        producer = Producer(paths, "x")
        await producer.begin()
        batch = producer.batch(b"a")
        (first,) = await paths.produce(batch)
        paths.parts.clock.seconds += 60
        (repeat,) = await paths.produce(batch)
        await producer.end(is_commit=True)
        (afterwards,) = await paths.produce(producer.batch(b"not in a transaction"))
        read = await paths.fetch(0)
    assert first.base_offset == repeat.base_offset == NO_OFFSET
    assert first.append_time_ms == repeat.append_time_ms > 0
    assert read_batches(b"".join(bytes(part) for part in read.records)).records[0].timestamp == first.append_time_ms
    assert (afterwards.error_code, afterwards.append_time_ms) == (ErrorCode.transaction_abortable, -1)


async def test_a_full_intake_lets_nothing_in_until_there_is_room() -> None:
    async with data_paths() as paths:
        big = make_batch([Record(offset=0, timestamp=5, value=bytes(INTAKE_BUFFER_BYTES_MAX))])
        view = memoryview(big)
        ticket = Ticket()
        paths.produce_path.add(BatchGroup(TOPIC, PartitionIndex(0), view, split_batches(view), ticket))
        waiting = asyncio.ensure_future(paths.produce_path.wait_for_room(1.0))
        await asyncio.wait([waiting], timeout=0)
        assert not waiting.done()
        await ticket.settled
        assert await waiting


HOUR_MS = 3_600_000


def on_costly_store(paths: DataPaths, tasks: asyncio.TaskGroup, *, flush_interval_ms: int = HOUR_MS) -> ProducePath:
    """A path that would wait for an hour, were it for the age of its intake alone; or for less."""
    return ProducePath(
        paths.parts.context(store=paths.store),
        cache=paths.cache,
        tasks=tasks,
        flush_interval_ms=flush_interval_ms,
        is_store_cheap=False,
    )


def add(path: ProducePath, value_bytes: int) -> Ticket:
    ticket, view = Ticket(), memoryview(make_batch([Record(offset=0, timestamp=5, value=bytes(value_bytes))]))
    path.add(BatchGroup(TOPIC, PartitionIndex(0), view, split_batches(view), ticket))
    return ticket


async def test_where_puts_cost_a_full_intake_is_sealed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.produce.produce_path.INTAKE_PAUSE_SHARE", 1.0)
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        path = on_costly_store(paths, tasks)
        tickets = [add(path, INTAKE_OBJECT_BYTES_TARGET // 3) for _ in range(3)]
        answers = [await ticket.settled for ticket in tickets]
        objects = [meta async for meta in paths.memory.list("intake/")]
    assert [answer.base_offset for answer in answers] == [0, 1, 2]
    assert len(objects) == 1


async def test_where_puts_cost_what_is_enough_is_sealed_when_nothing_more_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agent.produce.produce_path.INTAKE_PAUSE_SHARE", 0.0)
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        path = on_costly_store(paths, tasks)
        little = add(path, 10)
        for _ in range(10):
            await asyncio.wait([little.settled], timeout=0)
        assert not little.settled.done(), "a pause seals nothing before there is enough"
        enough = add(path, INTAKE_OBJECT_BYTES_ENOUGH)
        assert [(await ticket.settled).base_offset for ticket in (little, enough)] == [0, 1]
        assert len([meta async for meta in paths.memory.list("intake/")]) == 1


async def test_what_comes_meanwhile_is_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.produce.produce_path.INTAKE_PAUSE_SHARE", 0.0)
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        path = on_costly_store(paths, tasks)
        first = add(path, INTAKE_OBJECT_BYTES_ENOUGH)
        assert path._pause_timer is not None
        second = add(path, 10)
        path._pause_timer.cancel()
        path._seal_after_pause()
        assert path._pause_timer is not None, "more came, so it is waited for the next pause"
        assert [(await ticket.settled).base_offset for ticket in (first, second)] == [0, 1]
        assert len([meta async for meta in paths.memory.list("intake/")]) == 1


async def test_s9_an_intake_waits_for_a_session_that_the_ledger_names() -> None:
    """While a lost session is replaced nothing is put; then everything is, in its order and under the new one."""
    is_open, waits = asyncio.Event(), asyncio.Event()
    is_open.set()

    async def slow(_session: SessionId, _entries: Sequence[LedgerEntry]) -> AppendFate:
        if not is_open.is_set():
            waits.set()
            await is_open.wait()
        return AppendFate.APPLIED

    ledger = MemoryLedger(fate_of_append=slow)
    async with data_paths(ledger=ledger) as paths, asyncio.timeout(SECONDS_MAX):
        client = paths.parts.ledger
        ended = client.session
        ledger.core.expire(ended)
        is_open.clear()
        lost = client.propose(ReportTime())
        await waits.wait()
        waits.clear()
        is_open.set()
        is_open.clear()
        await waits.wait()  # the new session's start
        assert client.session != ended
        tickets = [Ticket(), Ticket()]
        for ticket, sequence in zip(tickets, (0, 1), strict=True):
            view = memoryview(idempotent(b"a", sequence))
            paths.produce_path.add(BatchGroup(TOPIC, PartitionIndex(0), view, split_batches(view), ticket))
            paths.produce_path._seal_open()
        for _ in range(20):
            await asyncio.sleep(0)
        assert [meta.key async for meta in paths.memory.list("intake/")] == []
        is_open.set()
        answers = [await ticket.settled for ticket in tickets]
        assert [answer.base_offset for answer in answers] == [0, 1]
        keys = [meta.key async for meta in paths.memory.list("intake/")]
        assert keys == [intake_key(client.session, ObjectNumber(number)) for number in (0, 1)]
        with pytest.raises(OutcomeUnknown):
            await lost


async def test_of_very_many_chunks_some_stay_in_memory_and_all_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_path, "CHUNKS_KEPT_PER_INTAKE_MAX", 2)
    async with data_paths(partitions=5) as paths:
        await paths.produce_together(dict.fromkeys(range(5), PLAIN))
        read: list[str] = []
        get_range = paths.store.get_range

        async def counted(key: str, first: int, byte_count: int) -> Buffer:
            read.append(key)
            return await get_range(key, first, byte_count)

        monkeypatch.setattr(paths.store, "get_range", counted)
        for partition, is_read in ((0, False), (1, False), (2, True)):
            wanted = RequestedPartition("t", partition, 0, 1 << 20, -1, -1)
            found = await paths.fetch_path.fetch([wanted], max_wait_ms=0, bytes_min=1, bytes_max=1 << 20)
            assert (found[0].error_code, found[0].record_bytes) == (ErrorCode.none, len(PLAIN))
            assert bool(read) is is_read


class OrderedTicket:
    """Writes down when it was settled, and in which turn of the loop."""

    def __init__(self, told: list[tuple[int, int, Acknowledgement]], turn: list[int], number: int) -> None:
        self._told, self._turn, self._number = told, turn, number

    def settle(self, acknowledgement: Acknowledgement) -> None:
        self._told.append((self._turn[0], self._number, acknowledgement))


async def told_in_turns(paths: DataPaths, intake_sizes: Sequence[int]) -> list[tuple[int, int, Acknowledgement]]:
    """Turn, number and answer of each batch, in the order in which they were told; intakes as large as asked for."""
    told: list[tuple[int, int, Acknowledgement]] = []
    turn = [0]
    number = 0

    async def count_turns() -> None:
        while True:
            turn[0] += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(count_turns())
        for size in intake_sizes:
            for _ in range(size):
                view = memoryview(PLAIN)
                ticket = OrderedTicket(told, turn, number)
                paths.produce_path.add(BatchGroup(TOPIC, PartitionIndex(0), view, split_batches(view), ticket))
                number += 1
            tasks.create_task(paths.produce_path.drain())
            await asyncio.sleep(0)
        await paths.produce_path.drain()
        counting.cancel()
    return told


def most_in_a_turn(told: Sequence[tuple[int, int, Acknowledgement]]) -> int:
    return max(Counter(turn for turn, _, _ in told).values())


async def test_many_are_answered_in_turns_in_their_order_and_intakes_one_after_the_other() -> None:
    async with data_paths() as paths:
        told = await told_in_turns(paths, [3 * ROWS_PER_TURN + 1, 2 * ROWS_PER_TURN, 1])
        assert paths.produce_path.bytes_held == 0
    assert [number for _, number, _ in told] == list(range(5 * ROWS_PER_TURN + 2))
    assert [answer.base_offset for _, _, answer in told] == [2 * row for row in range(len(told))]
    assert most_in_a_turn(told) <= 2 * ROWS_PER_TURN
    assert len({turn for turn, _, _ in told}) >= 5


async def test_many_are_told_an_error_in_turns_too() -> None:
    async with data_paths() as paths:
        paths.store.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.PUT))
        told = await told_in_turns(paths, [3 * ROWS_PER_TURN])
    assert {(answer.error_code, answer.base_offset) for _, _, answer in told} == {
        (ErrorCode.request_timed_out, NO_OFFSET)
    }
    assert [number for _, number, _ in told] == list(range(3 * ROWS_PER_TURN))
    assert most_in_a_turn(told) == ROWS_PER_TURN


class BrokenTicket:
    """Of a request with a bug."""

    def settle(self, _acknowledgement: Acknowledgement) -> None:
        raise AssertionError("settled twice")


async def test_a_group_that_cannot_be_told_holds_up_no_others_for_ever() -> None:
    async with data_paths() as paths:
        seen: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: seen.append(context["exception"]))
        view = memoryview(PLAIN)
        broken = BrokenTicket()
        paths.produce_path.add(BatchGroup(TOPIC, PartitionIndex(0), view, split_batches(view), broken))
        await paths.produce_path.drain()
        (answer,) = await paths.produce(PLAIN)
        assert paths.produce_path.bytes_held == 0
    assert [str(error) for error in seen] == ["settled twice"]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 2)


async def test_a_timer_that_fires_after_the_end_of_the_agents_tasks_puts_nothing_and_is_no_bug() -> None:
    seen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: seen.append(context["exception"]))
    async with data_paths() as paths:
        async with tasks_that_fail() as tasks:
            path = on_costly_store(paths, tasks, flush_interval_ms=1)
            ticket = add(path, 10)
            assert not path._batcher.is_empty
        await asyncio.wait([ticket.settled], timeout=0.05)
        assert path._batcher.batch_count == 0, "the timer has fired"
        assert not ticket.settled.done()
        assert [meta async for meta in paths.memory.list("intake/")] == []
    assert seen == []


async def test_a_commit_that_is_refused_after_the_end_of_the_agents_tasks_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: seen.append(context["exception"]))
    async with data_paths() as paths:
        submitted = asyncio.Event()
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def propose(_command: object) -> asyncio.Future[Outcome]:
            submitted.set()
            return outcome

        monkeypatch.setattr(paths.parts.ledger, "propose", propose)
        async with tasks_that_fail() as tasks:
            path = on_costly_store(paths, tasks, flush_interval_ms=1)
            ticket = add(path, 10)
            await submitted.wait()
        outcome.set_result(Rejected(error_code=ErrorCode.invalid_request, reason="too large"))
        answer = await asyncio.wait_for(ticket.settled, SECONDS_MAX)
        assert path.bytes_held == 0
        assert len([meta async for meta in paths.memory.list("intake/")]) == 1, "the garbage collector's"
    assert (answer.error_code, answer.base_offset) == (ErrorCode.not_leader_or_follower, NO_OFFSET)
    assert seen == []


async def test_accepted_batches_alone_are_counted() -> None:
    async with data_paths() as paths:
        await paths.produce(idempotent(b"a", 0), idempotent(b"c", 2), PLAIN)
        exposed = paths.parts.metrics.exposition().decode()
    assert "penstock_produce_records_total 3.0" in exposed
    assert "penstock_produce_batches_total 2.0" in exposed
    assert 'penstock_topic_records_total{direction="in",topic="t"} 3.0' in exposed
    assert f"penstock_produce_bytes_total {float(len(idempotent(b'a', 0)) + len(PLAIN))}" in exposed


@pytest.mark.parametrize("rules", [RULES_SECURITY, RULES_NEWEST])
async def test_an_entry_tells_the_use_of_quotas_once_its_rules_have_a_place_for_it(rules: int) -> None:
    uses = (QuotaUse(key=7, byte_count=100),)
    async with data_paths(rules=rules) as paths:
        told: list[object] = []
        paths.parts.ledger.apply_loop.on_quota_uses = lambda session, uses: told.append((session, uses))
        paths.produce_path.quota_uses = lambda session: uses if session == paths.parts.ledger.session else ()
        (answer,) = await paths.produce(PLAIN)
        assert answer.error_code is ErrorCode.none
        assert told == ([] if rules == RULES_SECURITY else [(paths.parts.ledger.session, uses)])


@pytest.mark.parametrize("rules", [RULES_FIRST, RULES_NEWEST])
async def test_the_ledger_gets_to_know_what_was_written_once_its_rules_have_a_place_for_it(rules: int) -> None:
    other = make_batch([Record(offset=0, timestamp=7, value=b"third")])
    async with data_paths(rules=rules) as paths:
        for batch in (PLAIN, other):
            paths.produce_path.add(group_of(batch, ticket := Ticket()))
        await ticket.settled
        (row,) = paths.parts.ledger.state.topics[TOPIC].partitions[0].index.rows_from(0)
    assert row.checksum == (NO_CHECKSUM if rules == RULES_FIRST else check_crcs(PLAIN + other))
