"""Checks of produced records name the records at fault."""

import struct
import threading
from dataclasses import replace

import pytest
from crc32c import crc32c

from agent.produce import record_validator
from agent.produce.record_rules import RecordRules
from agent.produce.record_validator import (
    INLINE_BYTES_MAX,
    INLINE_PLAIN_BYTES_MAX,
    INLINE_PLAIN_RECORDS_MAX,
    INLINE_UNPACKED_BYTES_MAX,
    Arrival,
    CheckedRecords,
    arrival_now,
    check_batches,
    check_records,
)
from protocol.errors import ErrorCode, InvalidBatch, NotOneBatch
from protocol.limits import DECOMPRESSED_BYTES_MAX, MIB, RECORD_ERRORS_LISTED_MAX
from protocol.records import records
from protocol.records import reference as record_reference
from protocol.records.compression import Compression
from protocol.records.records import warm_kernels
from protocol.types import Milliseconds
from tests.support.agent.ledger_parts import BEGAN_MS
from tests.support.records.plain_records import Record, make_batch
from tests.support.records.record_rules import NOW, NOW_MS, RULES


def rejection(batch: bytes, rules: RecordRules) -> InvalidBatch:
    with pytest.raises(InvalidBatch) as refused:
        check_batches(memoryview(batch), rules, NOW)
    return refused.value


@pytest.fixture(params=[False, True], ids=["by the reference", "by kernels"])
def has_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the process has its kernels loaded."""
    monkeypatch.setattr(records, "_observers", [])
    monkeypatch.setattr(records, "_workers", [record_reference])
    if request.param:
        warm_kernels()
    return bool(request.param)


@pytest.fixture
def checking_threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of those that checked batches, whatever they made of them."""
    names: list[str] = []

    def watched(
        batch: memoryview, rules: RecordRules, arrival: Arrival, unpacked_bytes_max: int = DECOMPRESSED_BYTES_MAX
    ) -> CheckedRecords:
        names.append("cpu" if threading.current_thread().name.startswith("cpu") else "loop")
        return check_batches(batch, rules, arrival, unpacked_bytes_max=unpacked_bytes_max)

    monkeypatch.setattr(record_validator, "check_batches", watched)
    return names


async def checked(batch: bytes) -> CheckedRecords | InvalidBatch:
    rules = replace(RULES, message_bytes_max=MIB * 2, timestamp_before_max_ms=BEGAN_MS)
    try:
        return await check_records(memoryview(batch), rules, Arrival(BEGAN_MS, BEGAN_MS))
    except InvalidBatch as error:
        return error


def rows(count: int, value: bytes = b"v") -> list[Record]:
    return [Record(offset=n, timestamp=BEGAN_MS, value=value) for n in range(count)]


@pytest.mark.parametrize(
    ("batch", "plain", "compiled"),
    [
        pytest.param(make_batch(rows(INLINE_PLAIN_RECORDS_MAX)), ["loop"], ["loop"], id="few records"),
        pytest.param(make_batch(rows(INLINE_PLAIN_RECORDS_MAX + 1)), ["cpu"], ["loop"], id="many records"),
        pytest.param(make_batch(rows(1, bytes(INLINE_PLAIN_BYTES_MAX))), ["cpu"], ["loop"], id="large"),
        pytest.param(make_batch(rows(1, bytes(INLINE_BYTES_MAX))), ["cpu"], ["cpu"], id="larger"),
        pytest.param(
            make_batch(rows(1, bytes(INLINE_PLAIN_BYTES_MAX)), compression=Compression.ZSTD),
            ["loop", "cpu"],
            ["loop"],
            id="unpacks to much",
        ),
        pytest.param(
            make_batch(rows(1, bytes(INLINE_UNPACKED_BYTES_MAX)), compression=Compression.ZSTD),
            ["loop", "cpu"],
            ["loop", "cpu"],
            id="unpacks to more",
        ),
    ],
)
async def test_what_takes_long_is_checked_in_a_thread(
    batch: bytes, plain: list[str], compiled: list[str], has_kernels: bool, checking_threads: list[str]
) -> None:
    found = await checked(batch)
    assert isinstance(found, CheckedRecords)
    assert [header.batch_bytes for header in found.headers] == [len(batch)]
    assert checking_threads == (compiled if has_kernels else plain)


@pytest.mark.usefixtures("has_kernels", "checking_threads")
async def test_what_is_refused_on_the_loop_and_in_a_thread_has_the_same_code() -> None:
    batch = bytearray(make_batch(rows(1)))
    batch[-1] ^= 1
    refused = await checked(bytes(batch))
    assert isinstance(refused, InvalidBatch)
    assert refused.error_code is ErrorCode.corrupt_message


@pytest.mark.parametrize("size", [0, 1, 60])
async def test_what_is_cut_is_refused_however_little_there_is(size: int) -> None:
    assert isinstance(await checked(make_batch(rows(1))[:size]), InvalidBatch)


def test_records_without_a_key_are_named_where_a_topic_is_compacted() -> None:
    keys = [None, b"k", None, b""]
    batch = make_batch([Record(offset=n, timestamp=NOW_MS, key=key) for n, key in enumerate(keys)])
    error = rejection(batch, replace(RULES, is_compacted=True))
    assert (error.error_code, error.rows) == (ErrorCode.invalid_record, (0, 2))
    assert len(check_batches(memoryview(batch), RULES, NOW).headers) == 1


def test_records_outside_of_the_time_allowed_are_named() -> None:
    timestamps = [900, 899, 1_010, 1_011, -1]
    batch = make_batch([Record(offset=n, timestamp=timestamp) for n, timestamp in enumerate(timestamps)])
    error = rejection(batch, RULES)
    assert (error.error_code, error.rows) == (ErrorCode.invalid_timestamp, (1, 3))
    assert len(check_batches(memoryview(batch), replace(RULES, uses_append_time=True), NOW).headers) == 1


def test_times_before_1970_are_judged_like_others() -> None:
    batch = make_batch([Record(offset=0, timestamp=-5), Record(offset=1, timestamp=-1)])
    error = rejection(batch, RULES)
    assert (error.error_code, error.rows) == (ErrorCode.invalid_timestamp, (0,))
    assert len(check_batches(memoryview(batch), replace(RULES, timestamp_before_max_ms=2_000), NOW).headers) == 1


def test_of_many_records_at_fault_the_first_are_named() -> None:
    batch = make_batch([Record(offset=n, timestamp=899) for n in range(RECORD_ERRORS_LISTED_MAX + 1)])
    rules = replace(RULES, message_bytes_max=len(batch))
    assert rejection(batch, rules).rows == tuple(range(RECORD_ERRORS_LISTED_MAX))


def test_two_batches_are_no_produce_request() -> None:
    batch = make_batch([Record(offset=0, timestamp=NOW_MS)])
    assert isinstance(rejection(batch * 2, RULES), NotOneBatch)


@pytest.mark.parametrize(
    ("producer_id", "epoch", "sequence"), [(-2, -1, -1), (7, -1, 0), (7, 0, -1), (-(1 << 63), 0, 0)]
)
def test_a_producer_that_cannot_be_is_refused(producer_id: int, epoch: int, sequence: int) -> None:
    batch = bytearray(make_batch([Record(offset=0, timestamp=NOW_MS)]))
    struct.pack_into(">qhi", batch, 43, producer_id, epoch, sequence)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    assert rejection(bytes(batch), RULES).error_code is ErrorCode.invalid_record


@pytest.mark.parametrize(("attributes", "epoch"), [(0, -2), (0, -(1 << 15)), (16, -1), (16, -2)])
def test_an_epoch_below_those_of_its_producer_is_told_so(attributes: int, epoch: int) -> None:
    """Without a transaction a producer may have no epoch in Kafka, which is epoch -1 there."""
    batch = bytearray(make_batch([Record(offset=0, timestamp=NOW_MS)]))
    struct.pack_into(">h", batch, 21, attributes)
    struct.pack_into(">qhi", batch, 43, 7, epoch, 0)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    assert rejection(bytes(batch), RULES).error_code is ErrorCode.invalid_producer_epoch


def test_a_batch_that_unpacks_to_more_than_the_loop_has_time_for_is_left_to_a_thread() -> None:
    zeros = [Record(offset=0, timestamp=NOW_MS, value=bytes(2 * INLINE_UNPACKED_BYTES_MAX))]
    batch = memoryview(make_batch(zeros, Compression.ZSTD))
    assert len(batch) < 1_000
    with pytest.raises(InvalidBatch):
        check_batches(batch, RULES, NOW, unpacked_bytes_max=INLINE_UNPACKED_BYTES_MAX)
    assert len(check_batches(batch, RULES, NOW).headers) == 1


def test_s2_a_time_is_judged_by_the_checked_clock_and_by_two_that_nobody_checked() -> None:
    now, before, state = Milliseconds(70_000), Milliseconds(-1_000), Milliseconds(50_000)
    assert arrival_now(now, now, state, is_clock_ahead=False) == Arrival(now, now)
    assert arrival_now(None, now, state, is_clock_ahead=False) == Arrival(state, now)
    assert arrival_now(None, before, state, is_clock_ahead=False) == Arrival(before, state)
    assert arrival_now(None, now, state, is_clock_ahead=True) == Arrival(state, now, is_clock_ahead=True)


@pytest.mark.parametrize(("timestamp", "is_taken"), [(1_499, False), (1_500, True), (2_010, True), (2_011, False)])
def test_s2_a_record_is_refused_only_if_it_is_off_by_both_of_two_times(timestamp: int, *, is_taken: bool) -> None:
    batch = memoryview(make_batch([Record(offset=0, timestamp=timestamp)]))
    arrival = Arrival(1_600, 2_000)
    if is_taken:
        assert check_batches(batch, RULES, arrival).headers[0].max_timestamp == timestamp
    else:
        with pytest.raises(InvalidBatch, match="are not within 1500 and 2010"):
            check_batches(batch, RULES, arrival)


@pytest.mark.parametrize(
    ("uses_append_time", "is_ahead", "is_taken"), [(True, True, False), (True, False, True), (False, True, True)]
)
async def test_s21_nothing_is_stamped_with_an_old_time_while_the_clock_is_not_believed(
    *, uses_append_time: bool, is_ahead: bool, is_taken: bool
) -> None:
    batch = memoryview(make_batch([Record(offset=0, timestamp=NOW_MS)]))
    rules = replace(RULES, uses_append_time=uses_append_time)
    arrival = Arrival(NOW_MS, NOW_MS, is_clock_ahead=is_ahead)
    if is_taken:
        assert (await check_records(batch, rules, arrival)).headers
        return
    with pytest.raises(InvalidBatch) as rejected:
        await check_records(batch, rules, arrival)
    assert rejected.value.error_code is ErrorCode.not_leader_or_follower
