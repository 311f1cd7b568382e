"""A refusal tells the log start where Kafka has asked the log, and the records at fault; nothing refused is kept."""

import asyncio
import struct
from dataclasses import replace

import pytest

from agent.handlers import produce
from agent.handlers.produce import _arrival_now, _rejection
from agent.produce.record_rules import RecordRules
from agent.produce.record_validator import Arrival, CheckedRecords, check_records
from agent.request.services import Answer, NoAnswerOwed, Request
from coordinator.commands.admin import CreatePartitions
from coordinator.commands.commands import Done, ReportTime
from coordinator.ledger.port import LedgerUnavailable
from protocol.connection import read_request_frame
from protocol.errors import ErrorCode, InvalidBatch, NotOneBatch
from protocol.limits import MIB
from protocol.records.compression import Compression
from storage.decorators.failing import FaultKind, InjectedFault, StoreOperation
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.agent.ledger_parts import BEGAN_MS, ManualClock
from tests.support.commands.commands import TOPIC
from tests.support.records.plain_records import Record, make_batch

HEAD = struct.pack(">hhih", 0, 3, 7, -1) + b"\xff\xff" + struct.pack(">hi", -1, 30_000) + b"\0\0\0\1\0\1t"


def test_records_that_the_log_refuses_come_with_the_log_start_and_their_rows() -> None:
    told = _rejection(InvalidBatch(ErrorCode.invalid_record, "no key", (0, 2)), 40)
    assert (told.error_code, told.base_offset, told.log_start, told.rows_rejected) == (87, -1, 40, (0, 2))
    assert told.error_message == "no key"


def test_bytes_that_are_not_one_batch_never_reach_the_log() -> None:
    assert _rejection(NotOneBatch(ErrorCode.invalid_record, "two"), 40).log_start == -1


def test_a_wrong_checksum_and_a_batch_too_large_are_told_without_the_log() -> None:
    assert _rejection(InvalidBatch(ErrorCode.corrupt_message, "crc"), 40).log_start == -1
    assert _rejection(InvalidBatch(ErrorCode.message_too_large, "large"), 40).log_start == -1


@pytest.mark.parametrize(("value_bytes", "is_memory_shared"), [(1, False), (MIB // 4, True)])
async def test_accepted_records_move_out_of_a_request_that_was_refused_for_the_most_part(
    value_bytes: int, *, is_memory_shared: bool
) -> None:
    batch = make_batch([Record(offset=0, timestamp=1_700_000_000_000, value=bytes(value_bytes))], Compression.NONE)
    accepted = struct.pack(">ii", 0, len(batch)) + batch
    refused = struct.pack(">ii", 1, MIB) + bytes(MIB)
    received = bytearray(HEAD + struct.pack(">i", 2) + accepted + refused)
    frame = read_request_frame(0, memoryview(received))
    is_shared: list[bool] = []

    async def look() -> None:
        """While the records are being put: what somebody looks into cannot change its size."""
        try:
            received.clear()
        except BufferError:
            is_shared.append(True)
        else:
            is_shared.append(False)

    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        paths.store.script(InjectedFault(operation=StoreOperation.PUT, kind=FaultKind.SLOW, pause_s=1.0))
        paths.during_pause = look
        request = Request(frame=frame, listener="PLAINTEXT", peer="test")
        answer = await produce.handle(services_of(paths, ManualClock(), tasks), request)
        assert isinstance(answer, asyncio.Future)
        told = b"".join(await answer)
    assert is_shared == [is_memory_shared]
    codes = struct.unpack(">h", told[19:21]) + struct.unpack(">h", told[41:43])
    assert codes == (ErrorCode.none, ErrorCode.unknown_topic_or_partition)


BATCH = make_batch([Record(offset=0, timestamp=1_700_000_000_000, value=b"v")], Compression.NONE)


def request(*topics: bytes, partition: int = 0, acks: int = -1) -> Request:
    """Produce 3 of a batch for one partition of each topic."""
    sizes = struct.pack(">iii", 1, partition, len(BATCH))
    data = [struct.pack(">h", len(name)) + name + sizes + BATCH for name in topics]
    head = HEAD[:12] + struct.pack(">hii", acks, 30_000, len(topics))
    return Request(frame=read_request_frame(0, memoryview(head + b"".join(data))), listener="PLAINTEXT", peer="test")


async def told(answer: Answer) -> bytes:
    assert isinstance(answer, asyncio.Future)
    return b"".join(await answer)


async def test_s2_records_arrive_by_the_checked_clock_or_between_two_times_that_nobody_checked() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        parts = paths.parts
        services = services_of(paths, parts.clock, tasks)
        parts.clock.seconds = 50.0
        await parts.ledger.propose(ReportTime())
        parts.clock.seconds = 70.0
        assert _arrival_now(services) == Arrival(BEGAN_MS + 70_000, BEGAN_MS + 70_000)
        parts.is_clock_checked = False
        assert _arrival_now(services) == Arrival(BEGAN_MS + 50_000, BEGAN_MS + 70_000)


async def test_s21_a_topic_of_append_times_takes_no_records_while_the_clock_is_ahead() -> None:
    async with data_paths(timestamp_type="LogAppendTime") as paths, asyncio.TaskGroup() as tasks:
        services = replace(services_of(paths, paths.parts.clock, tasks), is_clock_ahead=lambda: True)
        answer = await told(await produce.handle(services, request(b"t")))
    assert struct.unpack(">h", answer[19:21]) == (ErrorCode.not_leader_or_follower,)


async def test_s8_what_is_checked_while_a_drain_lets_others_lead_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    is_checking, may_go_on = asyncio.Event(), asyncio.Event()

    async def slowly(records: memoryview | None, rules: RecordRules, arrival: Arrival) -> CheckedRecords:
        is_checking.set()
        await may_go_on.wait()
        return await check_records(records, rules, arrival)

    monkeypatch.setattr(produce, "check_records", slowly)
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, ManualClock(), tasks)
        handled = tasks.create_task(produce.handle(services, request(b"t")))
        await is_checking.wait()
        services.draining.begin()
        await services.produce.drain()
        services.draining.announce()
        may_go_on.set()
        answer = await told(await handled)
        await services.produce.drain()
        assert services.state.topics[TOPIC].partitions[0].log_end == 0
    assert struct.unpack(">h", answer[19:21]) == (ErrorCode.not_leader_or_follower,)
    assert services.draining.redirected_count == 1


async def test_s4_a_ledger_that_is_away_costs_an_unknown_topic_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[None] = []

    async def away() -> None:
        asked.append(None)
        raise LedgerUnavailable("away")

    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, ManualClock(), tasks)
        monkeypatch.setattr(services.ledger, "barrier", away)
        answer = await told(await produce.handle(services, request(b"u", b"t", b"v")))
        assert services.state.topics[TOPIC].partitions[0].log_end == 1
    rows = [answer[first : first + 29] for first in range(8, 8 + 3 * 29, 29)]
    codes = {row[2:3]: struct.unpack(">h", row[11:13])[0] for row in rows}
    assert codes == {
        b"u": ErrorCode.not_leader_or_follower,
        b"t": ErrorCode.none,
        b"v": ErrorCode.not_leader_or_follower,
    }
    assert len(asked) == 1


async def test_s4_a_partition_that_this_agent_has_not_seen_yet_takes_records() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, ManualClock(), tasks)
        growth = services.ledger.propose(CreatePartitions(topic_id=TOPIC, partition_count=2))
        answer = await told(await produce.handle(services, request(b"t", partition=1)))
        assert await growth == Done()
        assert [held.log_end for held in services.state.topics[TOPIC].partitions] == [0, 1]
    assert struct.unpack(">h", answer[19:21]) == (ErrorCode.none,)


@pytest.mark.parametrize(
    ("is_away", "error_code"),
    [(False, ErrorCode.unknown_topic_or_partition), (True, ErrorCode.not_leader_or_follower)],
)
async def test_s4_a_partition_that_is_not_there_is_unknown_where_the_ledger_says_so(
    monkeypatch: pytest.MonkeyPatch, *, is_away: bool, error_code: ErrorCode
) -> None:
    async def away() -> None:
        raise LedgerUnavailable("away")

    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, ManualClock(), tasks)
        if is_away:
            monkeypatch.setattr(services.ledger, "barrier", away)
        answer = await told(await produce.handle(services, request(b"t", partition=1)))
    assert struct.unpack(">h", answer[19:21]) == (error_code,)


async def test_nobody_writes_to_a_topic_of_kafkas_own() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, ManualClock(), tasks)
        answer = await told(await produce.handle(services, request(b"__consumer_offsets")))
    assert answer[8:28] == struct.pack(">h", 18) + b"__consumer_offsets"
    assert struct.unpack(">h", answer[36:38]) == (ErrorCode.invalid_topic_exception,)


async def test_each_batch_whose_client_is_told_an_error_is_counted_by_its_name() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, ManualClock(), tasks)
        await told(await produce.handle(services, request(b"u", b"t", b"v")))
        paths.store.script(InjectedFault(operation=StoreOperation.PUT, kind=FaultKind.BEFORE))
        await told(await produce.handle(services, request(b"t")))
        lines = services.metrics.exposition().decode().splitlines()
    assert [line for line in lines if line.startswith("penstock_produce_batches")] == [
        "penstock_produce_batches_total 1.0",
        'penstock_produce_batches_rejected_total{error="UNKNOWN_TOPIC_OR_PARTITION"} 2.0',
        'penstock_produce_batches_rejected_total{error="REQUEST_TIMED_OUT"} 1.0',
    ]


async def test_what_clients_without_answers_lose_is_counted() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, ManualClock(), tasks)
        with pytest.raises(NoAnswerOwed):
            await produce.handle(services, request(b"u", b"t", acks=0))
        await services.produce.drain()
        lines = services.metrics.exposition().decode().splitlines()
    rejected = [line for line in lines if line.startswith("penstock_produce_batches_rejected_total{")]
    assert rejected == ['penstock_produce_batches_rejected_total{error="UNKNOWN_TOPIC_OR_PARTITION"} 1.0']
