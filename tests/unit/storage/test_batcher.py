"""The open intake, on literal groups."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from protocol.types import ObjectNumber, PartitionIndex, SessionId, TopicId
from storage.batcher import (
    ENTRY_BYTES,
    ENTRY_BYTES_PER_BATCH,
    ENTRY_BYTES_PER_CHUNK,
    ENTRY_BYTES_PER_TOPIC,
    Batcher,
    BatchGroup,
    BatchLimits,
    SealedIntake,
    SealReason,
    TicketRows,
)
from storage.chunk_format import read_footer

TOPIC_A = TopicId(b"a" * 16)
TOPIC_B = TopicId(b"b" * 16)
MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    batch_bytes: int
    crc: int = 0
    record_count: int = 1
    max_timestamp: int = 1000
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False


def group(
    topic_id: TopicId,
    partition: int,
    records: bytes,
    ticket: object = None,
    *,
    rows: Sequence[Row] | None = None,
    max_timestamps: Sequence[int] | None = None,
) -> BatchGroup:
    headers = [Row(batch_bytes=len(records))] if rows is None else rows
    return BatchGroup(topic_id, PartitionIndex(partition), memoryview(records), headers, ticket, max_timestamps)


def batcher(
    *, age_ms: int = 250, object_bytes_target: int = 100, batches_max: int = 10, entry_bytes_max: int = 1 << 20
) -> Batcher:
    return Batcher(
        BatchLimits(
            age_ns_max=age_ms * MS,
            object_bytes_target=object_bytes_target,
            batches_max=batches_max,
            entry_bytes_max=entry_bytes_max,
        )
    )


def sealed(intake: Batcher) -> SealedIntake:
    return intake.seal(session=SessionId(7), number=ObjectNumber(3))


class TestGathering:
    def test_an_empty_intake_waits_for_nothing(self) -> None:
        intake = batcher()
        assert intake.is_empty
        assert intake.deadline_ns is None
        assert intake.should_seal(1 << 62) is None
        assert (intake.record_bytes, intake.batch_count) == (0, 0)

    def test_bytes_and_batches_are_counted(self) -> None:
        intake = batcher()
        intake.add(group(TOPIC_A, 0, b"12345", rows=[Row(batch_bytes=2), Row(batch_bytes=3)]), 0)
        intake.add(group(TOPIC_A, 0, b"67"), 0)
        assert not intake.is_empty
        assert (intake.record_bytes, intake.batch_count) == (7, 3)

    def test_the_entry_is_bounded_by_topics_chunks_and_batches(self) -> None:
        intake = batcher()
        assert intake.entry_bytes_max == ENTRY_BYTES
        for topic_id, partition in ((TOPIC_A, 0), (TOPIC_A, 1), (TOPIC_B, 0), (TOPIC_B, 0)):
            intake.add(group(topic_id, partition, b"x"), 0)
        assert intake.entry_bytes_max == (
            ENTRY_BYTES + 2 * ENTRY_BYTES_PER_TOPIC + 3 * ENTRY_BYTES_PER_CHUNK + 4 * ENTRY_BYTES_PER_BATCH
        )


class TestWhenToSeal:
    def test_by_bytes(self) -> None:
        intake = batcher(object_bytes_target=10)
        intake.add(group(TOPIC_A, 0, b"123456789"), 0)
        assert intake.should_seal(0) is None
        intake.add(group(TOPIC_A, 0, b"0"), 0)
        assert intake.should_seal(0) is SealReason.BYTES

    def test_by_the_age_of_the_first_group(self) -> None:
        intake = batcher(age_ms=250)
        intake.add(group(TOPIC_A, 0, b"1"), 1000 * MS)
        intake.add(group(TOPIC_A, 0, b"1"), 1200 * MS)
        assert intake.deadline_ns == 1250 * MS
        assert intake.should_seal(1250 * MS - 1) is None
        assert intake.should_seal(1250 * MS) is SealReason.AGE

    def test_by_batches(self) -> None:
        intake = batcher(batches_max=2)
        intake.add(group(TOPIC_A, 0, b"1"), 0)
        assert intake.should_seal(0) is None
        intake.add(group(TOPIC_A, 0, b"1"), 0)
        assert intake.should_seal(0) is SealReason.BATCHES

    def test_by_the_size_of_the_ledger_entry(self) -> None:
        one = ENTRY_BYTES + ENTRY_BYTES_PER_TOPIC + ENTRY_BYTES_PER_CHUNK + ENTRY_BYTES_PER_BATCH
        intake = batcher(entry_bytes_max=one + ENTRY_BYTES_PER_BATCH)
        intake.add(group(TOPIC_A, 0, b"1"), 0)
        assert intake.should_seal(0) is None
        intake.add(group(TOPIC_A, 0, b"1"), 0)
        assert intake.should_seal(0) is SealReason.ENTRY

    def test_after_sealing_the_age_begins_again(self) -> None:
        intake = batcher(age_ms=250)
        intake.add(group(TOPIC_A, 0, b"1"), 0)
        sealed(intake)
        intake.add(group(TOPIC_A, 0, b"1"), 400 * MS)
        assert intake.deadline_ns == 650 * MS


class TestFitting:
    def test_anything_fits_into_an_empty_intake(self) -> None:
        rows = [Row(batch_bytes=1)] * 50
        assert batcher(batches_max=1, entry_bytes_max=1).fits(group(TOPIC_A, 0, b"x" * 50, rows=rows))

    def test_no_more_batches_than_a_commit_holds(self) -> None:
        intake = batcher(batches_max=3)
        intake.add(group(TOPIC_A, 0, b"1"), 0)
        assert intake.fits(group(TOPIC_A, 0, b"12", rows=[Row(batch_bytes=1)] * 2))
        assert not intake.fits(group(TOPIC_A, 0, b"123", rows=[Row(batch_bytes=1)] * 3))

    def test_no_more_than_an_entry_holds(self) -> None:
        one = ENTRY_BYTES_PER_TOPIC + ENTRY_BYTES_PER_CHUNK + ENTRY_BYTES_PER_BATCH
        exact, short = (batcher(entry_bytes_max=ENTRY_BYTES + 2 * one - missing) for missing in (0, 1))
        for intake in (exact, short):
            intake.add(group(TOPIC_A, 0, b"1"), 0)
        assert exact.fits(group(TOPIC_B, 0, b"1"))
        assert not short.fits(group(TOPIC_B, 0, b"1"))


class TestSealing:
    def test_batches_of_a_partition_form_one_chunk_in_order_of_arrival(self) -> None:
        intake = batcher()
        for topic_id, partition, records in (
            (TOPIC_A, 1, b"a1-first|"),
            (TOPIC_B, 0, b"b0-first|"),
            (TOPIC_A, 0, b"a0-first|"),
            (TOPIC_A, 1, b"a1-second|"),
            (TOPIC_B, 0, b"b0-second|"),
        ):
            intake.add(group(topic_id, partition, records, ticket=records), 0)
        result = sealed(intake)
        payload = b"".join(result.parts)
        assert payload[12 : -(20 + 3 * 40 + 20)] == b"a1-first|a1-second|b0-first|b0-second|a0-first|"
        assert result.object_bytes == len(payload)
        assert result.topic_ids == (TOPIC_A, TOPIC_B)
        assert result.chunk_topics == [0, 1, 0]
        assert result.chunk_partitions == [1, 0, 0]
        assert result.chunk_byte_firsts == [12, 31, 50]
        assert result.chunk_batch_counts == [2, 2, 1]
        assert result.batch_record_bytes == [9, 10, 9, 10, 9]
        assert [(c.topic_id, c.partition, c.byte_first, c.byte_count) for c in read_footer(payload, len(payload))] == [
            (TOPIC_A, 1, 12, 19),
            (TOPIC_B, 0, 31, 19),
            (TOPIC_A, 0, 50, 9),
        ]

    def test_every_ticket_knows_its_batches(self) -> None:
        intake = batcher()
        two = [Row(batch_bytes=1), Row(batch_bytes=1)]
        intake.add(group(TOPIC_A, 0, b"12", "first", rows=two), 0)
        intake.add(group(TOPIC_B, 0, b"3", "second"), 0)
        intake.add(group(TOPIC_A, 0, b"45", "third", rows=two), 0)
        assert sealed(intake).tickets == [
            TicketRows("first", 0, 0, 2),
            TicketRows("third", 0, 2, 2),
            TicketRows("second", 1, 4, 1),
        ]

    def test_columns_hold_what_the_headers_say(self) -> None:
        intake = batcher()
        row = Row(
            batch_bytes=3,
            crc=0xC0FFEE,
            record_count=5,
            max_timestamp=77,
            producer_id=9,
            producer_epoch=2,
            base_sequence=40,
            is_transactional=True,
        )
        intake.add(group(TOPIC_A, 0, b"abc", rows=[row]), 0)
        intake.add(group(TOPIC_A, 0, b"d", rows=[Row(batch_bytes=1)], max_timestamps=[88]), 0)
        result = sealed(intake)
        assert result.batch_record_counts == [5, 1]
        assert result.batch_max_timestamps == [77, 88]
        assert result.batch_producer_ids == [9, -1]
        assert result.batch_producer_epochs == [2, -1]
        assert result.batch_base_sequences == [40, -1]
        assert result.batch_is_transactional == [1, 0]
        assert result.batch_crcs == bytes([0, 0xC0, 0xFF, 0xEE, 0, 0, 0, 0])

    def test_transactional_batches_say_which_protocol_they_follow_and_others_none(self) -> None:
        intake = batcher()
        rows = [Row(batch_bytes=1, is_transactional=True), Row(batch_bytes=1)]
        intake.add(group(TOPIC_A, 0, b"ab", rows=rows)._replace(transaction_version=2), 0)
        intake.add(group(TOPIC_A, 1, b"cd", rows=rows), 0)
        assert sealed(intake).batch_is_transactional == [2, 0, 1, 0]

    def test_the_object_carries_session_and_number(self) -> None:
        intake = batcher()
        intake.add(group(TOPIC_A, 0, b"x"), 0)
        result = sealed(intake)
        assert (result.session, result.number) == (7, 3)
        assert result.key == "intake/0000000000000007/0000000000000003"

    def test_nothing_is_left_behind(self) -> None:
        intake = batcher()
        intake.add(group(TOPIC_A, 0, b"x"), 0)
        sealed(intake)
        assert intake.is_empty
        assert (intake.record_bytes, intake.batch_count, intake.entry_bytes_max) == (0, 0, ENTRY_BYTES)

    def test_records_are_not_copied(self) -> None:
        records = bytearray(b"x")
        intake = batcher()
        intake.add(BatchGroup(TOPIC_A, PartitionIndex(0), memoryview(records), [Row(batch_bytes=1)], None), 0)
        result = sealed(intake)
        records[0] = ord("y")
        assert bytes(result.parts[1]) == b"y"

    def test_an_empty_intake_is_never_sealed(self) -> None:
        with pytest.raises(AssertionError):
            sealed(batcher())

    def test_a_missing_maximum_timestamp_is_a_bug(self) -> None:
        intake = batcher()
        intake.add(group(TOPIC_A, 0, b"x", max_timestamps=[]), 0)
        with pytest.raises(AssertionError):
            sealed(intake)
