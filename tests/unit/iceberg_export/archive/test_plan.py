"""When a topic is archived, and what one pass takes."""

from dataclasses import replace

import pytest

from iceberg_export.archive.plan import (
    ArchivePolicy,
    ArchiveSchedule,
    IntakeChunk,
    TopicIntake,
    plan_pass,
    should_archive,
)
from protocol.types import NO_TIMESTAMP, Milliseconds, ObjectId, Offset, PartitionIndex, TopicId

TOPIC = TopicId(b"t" * 16)
OTHER = TopicId(b"u" * 16)
POLICY = ArchivePolicy(age_ms=100, bytes_target=1000)


def chunk(partition: int, first: int, end: int, *, of: int, size: int = 10) -> IntakeChunk:
    return IntakeChunk(
        partition=PartitionIndex(partition),
        offset_first=Offset(first),
        offset_end=Offset(end),
        object_id=ObjectId(of),
        object_key=f"intake/1/{of}",
        byte_first=40,
        byte_count=size,
        append_time_ms=NO_TIMESTAMP,
    )


def intake(*chunks: IntakeChunk) -> TopicIntake:
    return TopicIntake(topic_id=TOPIC, name="orders", chunks=chunks)


def at(milliseconds: int) -> Milliseconds:
    return Milliseconds(milliseconds)


class TestWhenATopicIsDue:
    def test_nothing_to_archive_is_never_due(self) -> None:
        assert not should_archive(0, at(0), at(10**9), POLICY)

    def test_due_by_size_at_once(self) -> None:
        assert should_archive(1000, at(5), at(5), POLICY)

    def test_due_by_age_however_small(self) -> None:
        assert should_archive(1, at(0), at(100), POLICY)

    def test_not_due_below_both(self) -> None:
        assert not should_archive(999, at(0), at(99), POLICY)

    def test_the_defaults_are_half_a_minute_and_64_mib(self) -> None:
        assert should_archive(1, at(0), at(30_000))
        assert not should_archive((64 << 20) - 1, at(0), at(29_999))
        assert should_archive(64 << 20, at(0), at(0))


def schedule_that_began() -> ArchiveSchedule:
    """One that was asked before, when nothing waited."""
    schedule = ArchiveSchedule(POLICY)
    assert schedule.topics_due([(TOPIC, 0), (OTHER, 0)], at(0)) == []
    return schedule


class TestSchedule:
    def test_what_waits_already_when_it_is_asked_first_is_due_at_once(self) -> None:
        schedule = ArchiveSchedule(POLICY)
        assert schedule.topics_due([(TOPIC, 1)], at(5)) == [TOPIC]
        schedule.passed(TOPIC, at(5))
        assert schedule.topics_due([(TOPIC, 1), (OTHER, 1)], at(104)) == []
        assert schedule.topics_due([(TOPIC, 1), (OTHER, 1)], at(105)) == [TOPIC]

    def test_what_waits_already_counts_as_waiting_for_a_quarter_of_an_hour_where_the_interval_is_longer(self) -> None:
        hour_ms, quarter_ms = 3_600_000, 900_000
        schedule = ArchiveSchedule(ArchivePolicy(age_ms=hour_ms))
        assert schedule.topics_due([(TOPIC, 1)], at(5)) == []
        assert schedule.topics_due([(TOPIC, 1)], at(4 + hour_ms - quarter_ms)) == []
        assert schedule.topics_due([(TOPIC, 1)], at(5 + hour_ms - quarter_ms)) == [TOPIC]

    def test_it_stays_due_until_a_pass_takes_it(self) -> None:
        schedule = ArchiveSchedule(POLICY)
        schedule.topics_due([(TOPIC, 1)], at(5))
        assert schedule.topics_due([(TOPIC, 1)], at(6)) == [TOPIC], (
            "another agent's topic, say, whose agent is gone now"
        )

    def test_age_counts_from_when_intake_was_first_seen(self) -> None:
        schedule = schedule_that_began()
        assert schedule.topics_due([(TOPIC, 1)], at(1000)) == []
        assert schedule.topics_due([(TOPIC, 1)], at(1099)) == []
        assert schedule.topics_due([(TOPIC, 1)], at(1100)) == [TOPIC]

    def test_a_topic_that_was_emptied_starts_again(self) -> None:
        schedule = schedule_that_began()
        schedule.topics_due([(TOPIC, 1)], at(0))
        schedule.topics_due([(TOPIC, 0)], at(90))
        assert schedule.topics_due([(TOPIC, 1)], at(110)) == []
        assert schedule.topics_due([(TOPIC, 1)], at(210)) == [TOPIC]

    def test_after_a_pass_what_came_since_waits_its_own_age(self) -> None:
        schedule = schedule_that_began()
        schedule.topics_due([(TOPIC, 1)], at(0))
        schedule.passed(TOPIC, at(100))
        assert schedule.topics_due([(TOPIC, 1)], at(150)) == []
        assert schedule.topics_due([(TOPIC, 1)], at(200)) == [TOPIC]

    def test_the_longest_waiting_comes_first(self) -> None:
        schedule = schedule_that_began()
        schedule.topics_due([(OTHER, 1)], at(0))
        schedule.topics_due([(TOPIC, 1), (OTHER, 1)], at(50))
        assert schedule.topics_due([(TOPIC, 1), (OTHER, 1)], at(200)) == [OTHER, TOPIC]


class TestPlanPass:
    def test_no_chunks_no_pass(self) -> None:
        assert plan_pass(intake()) is None

    def test_all_chunks_in_order_of_partition_and_offset(self) -> None:
        chunks = (chunk(0, 0, 5, of=1), chunk(0, 5, 9, of=2), chunk(1, 7, 8, of=1))
        planned = plan_pass(intake(*reversed(chunks)))
        assert planned is not None
        assert planned.chunks == chunks
        assert planned.by_partition() == [(0, chunks[:2]), (1, chunks[2:])]
        assert (planned.topic_id, planned.name) == (TOPIC, "orders")

    def test_the_oldest_objects_first_so_that_whole_objects_are_released(self) -> None:
        chunks = (chunk(0, 0, 5, of=1), chunk(0, 5, 9, of=2), chunk(1, 0, 1, of=1), chunk(1, 1, 2, of=2))
        planned = plan_pass(intake(*chunks), bytes_max=20)
        assert planned is not None
        assert planned.chunks == (chunks[0], chunks[2])

    def test_the_first_chunk_is_taken_however_large(self) -> None:
        planned = plan_pass(intake(chunk(0, 0, 5, of=1, size=1000), chunk(0, 5, 6, of=2)), bytes_max=20)
        assert planned is not None
        assert [taken.byte_count for taken in planned.chunks] == [1000]

    def test_no_more_chunks_than_one_entry_can_name(self) -> None:
        planned = plan_pass(intake(*(chunk(0, n, n + 1, of=n) for n in range(5))), chunks_max=3)
        assert planned is not None
        assert [taken.offset_first for taken in planned.chunks] == [0, 1, 2]

    def test_a_hole_in_a_partition_is_a_bug(self) -> None:
        with pytest.raises(AssertionError):
            plan_pass(intake(chunk(0, 0, 5, of=1), chunk(0, 6, 7, of=2)))

    def test_the_bytes_that_wait_are_the_sum_of_the_chunks(self) -> None:
        assert intake(chunk(0, 0, 5, of=1, size=3), chunk(1, 0, 5, of=1, size=4)).intake_bytes == 7


class TestMarkers:
    """They stand in no object, and follow the chunk that they stand behind."""

    def test_a_marker_is_taken_behind_its_partitions_chunks(self) -> None:
        marker = replace(chunk(0, 5, 6, of=0), object_key="")
        taken = plan_pass(intake(chunk(0, 0, 5, of=3), marker, chunk(1, 0, 5, of=2)), chunks_max=2)
        assert taken is not None
        assert [(each.partition, each.offset_first) for each in taken.chunks] == [(0, 0), (1, 0)]
        taken = plan_pass(intake(chunk(0, 0, 5, of=3), marker, chunk(1, 0, 5, of=2)))
        assert taken is not None
        assert [each.is_marker for each in taken.chunks] == [False, True, False]

    def test_what_was_written_long_before_it_was_placed_waits_for_what_it_is_placed_behind(self) -> None:
        taken = plan_pass(intake(chunk(0, 0, 5, of=9), chunk(0, 5, 8, of=1), chunk(1, 0, 5, of=2)), chunks_max=2)
        assert taken is not None
        assert [(each.partition, each.offset_first) for each in taken.chunks] == [(0, 0), (1, 0)]
