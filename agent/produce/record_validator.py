"""Checks of produced records that need no ledger: format, sizes, CRC, keys, timestamps.

In: one partition's records of a Produce request. Out: batches that can be archived and read back, or `InvalidBatch`
with Kafka's error code. Large batches are checked in a thread, where the heavy part runs without the GIL.
Source: org.apache.kafka.common.requests.ProduceRequest.validateRecords and LogValidator (Kafka 4.3).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent.produce.record_rules import RecordRules
from agent.runtime.unpacking import run_unpacking
from protocol.errors import ErrorCode, InvalidBatch, NotOneBatch
from protocol.limits import DECOMPRESSED_BYTES_MAX, RECORD_ERRORS_LISTED_MAX, TIMESTAMP_MS_MAX
from protocol.records.batch import (
    BatchHeader,
    check_crc,
    read_header,
    records_at_sight,
    set_max_timestamp,
    split_batches,
)
from protocol.records.records import BatchSummary, decode_records, kernels_ready, validate_records
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, Milliseconds

INLINE_BYTES_MAX = 128 * 1024
"""Batches up to this size are checked on the event loop: to hand them to a thread would cost more."""
INLINE_UNPACKED_BYTES_MAX = 1024 * 1024
"""The bytes that a batch may unpack to on the loop; a larger one is checked again in a thread."""
INLINE_PLAIN_BYTES_MAX = 16 * 1024
"""Replaces both limits until the compiled kernels are loaded."""
INLINE_PLAIN_RECORDS_MAX = 150
"""Records that a batch may have on the loop until then: they take most of a millisecond in plain Python."""


class Arrival(NamedTuple):
    """The time at which records arrived: one moment by a checked clock, else a range between two doubtful ones."""

    first_ms: int
    last_ms: int
    is_clock_ahead: bool = False
    """Whether the clock is not believed because it is far ahead of the ledger's last time (safety rule S21)."""


class CheckedRecords(NamedTuple):
    """Record batches that may be committed, and a header per batch."""

    records: memoryview
    headers: Sequence[BatchHeader]


async def check_records(records: memoryview | None, rules: RecordRules, arrival: Arrival) -> CheckedRecords:
    """The checked batches of one partition. Raises `InvalidBatch`.

    Args:
        records: as the request brings them; None, or empty, where it brings none.
        rules: the topic's.
        arrival: when the records came in (`arrival_now`).
    """
    if records is None or len(records) == 0:
        raise NotOneBatch(
            ErrorCode.invalid_record, "A Produce request must have at least one record batch per partition."
        )
    if rules.uses_append_time and arrival.is_clock_ahead:
        # No entry carries a time now (S21), so apply would give the records the ledger's last one, perhaps days old.
        # An append time is final (S14), and retention would drop the records as soon as the clock is believed.
        raise InvalidBatch(
            ErrorCode.not_leader_or_follower,
            "this broker's clock is not believed, and the topic has message.timestamp.type=LogAppendTime: try again "
            'later (docs/operations/clock.md, "The clock is wrong, or was set")',
        )
    unpacked_bytes_max = _inline_unpacked_bytes_max(records)
    if unpacked_bytes_max is not None:
        try:
            return check_batches(records, rules, arrival, unpacked_bytes_max=unpacked_bytes_max)
        except InvalidBatch:
            # The cause may be INLINE_UNPACKED_BYTES_MAX alone. The check in the thread has Kafka's limits and decides.
            pass
    return await run_unpacking(_check_unpacked, records, rules, arrival)


def _check_unpacked(
    unpacked_bytes_max: int, records: memoryview, rules: RecordRules, arrival: Arrival
) -> CheckedRecords:
    # What is not compressed needs no memory: such records share that of the request.
    return check_batches(records, rules, arrival, unpacked_bytes_max=max(unpacked_bytes_max, len(records)))


def _inline_unpacked_bytes_max(records: memoryview) -> int | None:
    """The bytes that the records may unpack to on the loop; None where they have to be checked in a thread."""
    if kernels_ready():
        return INLINE_UNPACKED_BYTES_MAX if len(records) <= INLINE_BYTES_MAX else None
    if len(records) > INLINE_PLAIN_BYTES_MAX or records_at_sight(records) > INLINE_PLAIN_RECORDS_MAX:
        return None
    return INLINE_PLAIN_BYTES_MAX


def arrival_now(
    checked_ms: Milliseconds | None, unchecked_ms: Milliseconds, state_ms: Milliseconds, *, is_clock_ahead: bool
) -> Arrival:
    """The `Arrival` of records at this moment.

    Args:
        checked_ms: the checked clock's time; None while the clock is not believed (safety rule S2).
        unchecked_ms: the same clock's time, believed or not.
        state_ms: the newest time in the ledger.
        is_clock_ahead: whether the clock is not believed because it is far ahead of `state_ms` (safety rule S21).
    """
    if checked_ms is not None:
        return Arrival(checked_ms, checked_ms, is_clock_ahead)
    # Either time may be the wrong one (S2). A rejection is final for a producer, so both times have to demand it.
    return Arrival(min(unchecked_ms, state_ms), max(unchecked_ms, state_ms), is_clock_ahead)


def check_batches(
    records: memoryview, rules: RecordRules, arrival: Arrival, *, unpacked_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> CheckedRecords:
    """Check every batch of one partition's records. Raises `InvalidBatch`; the caller's bytes stay as they are."""
    headers = split_batches(records)
    if len(headers) != 1:  # ProduceRequest.validateRecords
        raise NotOneBatch(
            ErrorCode.invalid_record, f"exactly one record batch per partition is accepted, not {len(headers)}"
        )
    header = headers[0]
    _check_header(header, rules)
    check_crc(records, header)
    summary = validate_records(records, header, decompressed_bytes_max=unpacked_bytes_max)
    _check_summary(records, header, summary, rules, arrival)
    if rules.uses_append_time or summary.max_timestamp == header.max_timestamp:
        return CheckedRecords(records=records, headers=headers)
    # Kafka writes the true maximum into the header (LogValidator). A copy is changed: the caller's bytes stay as they
    # arrived.
    corrected = bytearray(records)
    set_max_timestamp(corrected, header, summary.max_timestamp)
    return CheckedRecords(records=memoryview(corrected), headers=[read_header(corrected)])


def _check_header(header: BatchHeader, rules: RecordRules) -> None:
    if header.batch_bytes > rules.message_bytes_max:  # UnifiedLog.analyzeAndValidateRecords
        raise InvalidBatch(
            ErrorCode.message_too_large,
            f"a record batch of {header.batch_bytes} bytes; max.message.bytes allows {rules.message_bytes_max}",
        )
    if header.is_control:  # LogValidator.validateBatch: only a broker writes markers
        raise InvalidBatch(ErrorCode.invalid_record, "Clients are not allowed to write control records.")
    if header.record_count == 0:  # LogValidator.validateBatch
        raise InvalidBatch(ErrorCode.invalid_record, "a record batch without records")
    if header.producer_id > NO_PRODUCER_ID and header.producer_epoch < NO_PRODUCER_EPOCH + header.is_transactional:
        # ProducerAppendInfo.checkProducerEpoch; for transactions TransactionCoordinator, which verifies them (KIP-890).
        raise InvalidBatch(
            ErrorCode.invalid_producer_epoch, f"producer {header.producer_id} sends epoch {header.producer_epoch}"
        )
    # A producer id without an epoch or a sequence: its repeats could not be recognised.
    is_half_idempotent = header.producer_id > NO_PRODUCER_ID and (header.producer_epoch < 0 or header.base_sequence < 0)
    if header.producer_id < NO_PRODUCER_ID or is_half_idempotent:
        raise InvalidBatch(
            ErrorCode.invalid_record,
            f"producer {header.producer_id} sends epoch {header.producer_epoch}, sequence {header.base_sequence}",
        )


def _check_summary(
    records: memoryview, header: BatchHeader, summary: BatchSummary, rules: RecordRules, arrival: Arrival
) -> None:
    if rules.is_compacted and summary.first_without_key >= 0:  # LogValidator.validateKey
        raise InvalidBatch(
            ErrorCode.invalid_record,
            f"Compacted topic cannot accept message without key: the record at {summary.first_without_key} has none.",
            _rows(decode_records(records, header).key_bytes < 0),
        )
    # The producer's timestamps are not used, or there are none: nothing to check (LogValidator.validateTimestamp).
    if rules.uses_append_time or summary.max_timestamp == summary.min_timestamp == NO_TIMESTAMP:
        return
    # Beyond TIMESTAMP_MS_MAX a timestamp does not fit Iceberg's microseconds: the records could not be archived.
    earliest = max(-TIMESTAMP_MS_MAX, arrival.first_ms - rules.timestamp_before_max_ms)
    latest = min(TIMESTAMP_MS_MAX, arrival.last_ms + rules.timestamp_after_max_ms)
    if summary.max_timestamp > latest or summary.min_timestamp < earliest:
        timestamps = decode_records(records, header).timestamp
        is_outside = (timestamps > latest) | (timestamps < earliest)
        raise InvalidBatch(
            ErrorCode.invalid_timestamp,
            f"timestamps from {summary.min_timestamp} to {summary.max_timestamp} are not within {earliest} "
            f"and {latest} (message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
            _rows(is_outside & (timestamps != NO_TIMESTAMP)),
        )


def _rows(is_rejected: NDArray[np.bool_]) -> tuple[int, ...]:
    """The first RECORD_ERRORS_LISTED_MAX rejected records: a batch may hold millions."""
    return tuple(np.flatnonzero(is_rejected)[:RECORD_ERRORS_LISTED_MAX].tolist())
