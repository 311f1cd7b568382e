"""Checks of produced records name the records at fault."""

import asyncio
import struct
from dataclasses import replace

import pytest
from crc32c import crc32c

from agent.record_checks import INLINE_UNPACKED_BYTES_MAX, Arrival, arrival_now, check_batches
from agent.record_rules import RecordRules
from coordinator.commands import ReportTime
from protocol.compression import Compression
from protocol.errors import ErrorCode, InvalidBatch, NotOneBatch
from protocol.limits import RECORD_ERRORS_TOLD_MAX
from tests.made_records import Record, make_batch
from tests.unit.agent.data_paths import data_paths, services_of
from tests.unit.agent.ledger_parts import BEGAN_MS

RULES = RecordRules(
    message_bytes_max=1_000,
    is_compacted=False,
    uses_append_time=False,
    timestamp_before_max_ms=100,
    timestamp_after_max_ms=10,
)
NOW_MS = 1_000
NOW = Arrival(NOW_MS, NOW_MS)


def refusal(batch: bytes, rules: RecordRules) -> InvalidBatch:
    with pytest.raises(InvalidBatch) as refused:
        check_batches(memoryview(batch), rules, NOW)
    return refused.value


def test_records_without_a_key_are_named_where_a_topic_is_compacted() -> None:
    keys = [None, b"k", None, b""]
    batch = make_batch([Record(offset=n, timestamp=NOW_MS, key=key) for n, key in enumerate(keys)])
    error = refusal(batch, replace(RULES, is_compacted=True))
    assert (error.error_code, error.rows) == (ErrorCode.invalid_record, (0, 2))
    assert len(check_batches(memoryview(batch), RULES, NOW).headers) == 1


def test_records_outside_of_the_time_allowed_are_named() -> None:
    timestamps = [900, 899, 1_010, 1_011, -1]
    batch = make_batch([Record(offset=n, timestamp=timestamp) for n, timestamp in enumerate(timestamps)])
    error = refusal(batch, RULES)
    assert (error.error_code, error.rows) == (ErrorCode.invalid_timestamp, (1, 3))
    assert len(check_batches(memoryview(batch), replace(RULES, uses_append_time=True), NOW).headers) == 1


def test_times_before_1970_are_judged_like_others() -> None:
    batch = make_batch([Record(offset=0, timestamp=-5), Record(offset=1, timestamp=-1)])
    error = refusal(batch, RULES)
    assert (error.error_code, error.rows) == (ErrorCode.invalid_timestamp, (0,))
    assert len(check_batches(memoryview(batch), replace(RULES, timestamp_before_max_ms=2_000), NOW).headers) == 1


def test_of_many_records_at_fault_the_first_are_named() -> None:
    batch = make_batch([Record(offset=n, timestamp=899) for n in range(RECORD_ERRORS_TOLD_MAX + 1)])
    rules = replace(RULES, message_bytes_max=len(batch))
    assert refusal(batch, rules).rows == tuple(range(RECORD_ERRORS_TOLD_MAX))


def test_two_batches_are_no_produce_request() -> None:
    batch = make_batch([Record(offset=0, timestamp=NOW_MS)])
    assert isinstance(refusal(batch * 2, RULES), NotOneBatch)


@pytest.mark.parametrize(
    ("producer_id", "epoch", "sequence"), [(-2, -1, -1), (7, -1, 0), (7, 0, -1), (-(1 << 63), 0, 0)]
)
def test_a_producer_that_cannot_be_is_refused(producer_id: int, epoch: int, sequence: int) -> None:
    batch = bytearray(make_batch([Record(offset=0, timestamp=NOW_MS)]))
    struct.pack_into(">qhi", batch, 43, producer_id, epoch, sequence)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    assert refusal(bytes(batch), RULES).error_code is ErrorCode.invalid_record


def test_a_batch_that_unpacks_to_more_than_the_loop_has_time_for_is_left_to_a_thread() -> None:
    zeros = [Record(offset=0, timestamp=NOW_MS, value=bytes(2 * INLINE_UNPACKED_BYTES_MAX))]
    batch = memoryview(make_batch(zeros, Compression.ZSTD))
    assert len(batch) < 1_000
    with pytest.raises(InvalidBatch):
        check_batches(batch, RULES, NOW, unpacked_bytes_max=INLINE_UNPACKED_BYTES_MAX)
    assert len(check_batches(batch, RULES, NOW).headers) == 1


async def test_s2_a_time_is_judged_by_the_checked_clock_and_by_two_that_nobody_checked() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        parts = paths.parts
        services = services_of(paths, parts.clock, tasks)
        parts.clock.seconds = 50.0
        await parts.writer.submit(ReportTime())
        parts.clock.seconds = 70.0
        assert arrival_now(services) == Arrival(BEGAN_MS + 70_000, BEGAN_MS + 70_000)
        parts.is_clock_checked = False
        assert arrival_now(services) == Arrival(BEGAN_MS + 50_000, BEGAN_MS + 70_000)
        parts.clock.seconds = -1_000.0
        assert arrival_now(services) == Arrival(BEGAN_MS - 1_000_000, BEGAN_MS + 50_000)


@pytest.mark.parametrize(("timestamp", "is_taken"), [(1_499, False), (1_500, True), (2_010, True), (2_011, False)])
def test_s2_a_record_is_refused_only_if_it_is_off_by_both_of_two_times(timestamp: int, *, is_taken: bool) -> None:
    batch = memoryview(make_batch([Record(offset=0, timestamp=timestamp)]))
    arrival = Arrival(1_600, 2_000)
    if is_taken:
        assert check_batches(batch, RULES, arrival).headers[0].max_timestamp == timestamp
    else:
        with pytest.raises(InvalidBatch, match="are not within 1500 and 2010"):
            check_batches(batch, RULES, arrival)
