"""When a topic is archived, and what one pass takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.state.chunk_index import NO_OBJECT
from iceberg_export.archive.plan import (
    ArchivePolicy,
    ArchiveSchedule,
    IntakeRows,
    plan_rows,
    should_archive,
)
from protocol.types import Milliseconds, Offset, PartitionIndex, TopicId

TOPIC = TopicId(b"t" * 16)
OTHER = TopicId(b"u" * 16)
POLICY = ArchivePolicy(age_ms=100, bytes_target=1000)


def rows(*chunks: tuple[int, int, int, int, int]) -> IntakeRows:
    """Chunks as columns: partition, first offset, end, object, bytes."""
    columns = np.array(chunks, dtype=np.int64).reshape(-1, 5)
    return IntakeRows(*(columns[:, number].copy() for number in range(5)))


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


class TestEarlyPasses:
    """Of `POLICY`: after 6 ms with 31 bytes."""

    def test_a_hot_topic_is_archived_early_and_a_slow_one_waits(self) -> None:
        schedule = schedule_that_began()
        for now_ms, early in ((10, []), (15, []), (16, [TOPIC])):
            assert schedule.topics_due([(TOPIC, 31), (OTHER, 30)], at(now_ms)) == []
            assert schedule.topics_early(at(now_ms)) == early
        schedule.passed(TOPIC, at(16))
        assert schedule.topics_early(at(17)) == []
        assert schedule.topics_due([(TOPIC, 31), (OTHER, 30)], at(110)) == [OTHER]

    def test_the_longest_waiting_hot_topic_comes_first(self) -> None:
        schedule = schedule_that_began()
        schedule.topics_due([(OTHER, 31)], at(0))
        schedule.topics_due([(TOPIC, 31), (OTHER, 31)], at(5))
        schedule.topics_due([(TOPIC, 31), (OTHER, 31)], at(20))
        assert schedule.topics_early(at(20)) == [OTHER, TOPIC]

    def test_what_is_due_is_not_early(self) -> None:
        schedule = schedule_that_began()
        assert schedule.topics_due([(TOPIC, 1000)], at(50)) == [TOPIC]
        assert schedule.topics_early(at(90)) == []

    def test_by_the_defaults_a_hot_topic_has_two_mib_in_two_seconds(self) -> None:
        assert (ArchivePolicy().early_age_ms, ArchivePolicy().early_bytes) == (2_000, 2 << 20)

    def test_early_passes_take_a_third_of_the_time(self) -> None:
        schedule = schedule_that_began()
        seen = [schedule.has_early_time]
        schedule.spend_early_time(1_000)
        seen.append(schedule.has_early_time)
        for now_ms in (1_900, 2_100):
            schedule.topics_due([], at(now_ms))
            seen.append(schedule.has_early_time)
        assert seen == [True, False, False, True]

    def test_a_long_time_without_early_passes_saves_up_a_second(self) -> None:
        schedule = schedule_that_began()
        schedule.topics_due([], at(10**9))
        seen = []
        for pass_ms in (999, 1):
            schedule.spend_early_time(pass_ms)
            seen.append(schedule.has_early_time)
        assert seen == [True, False]


class TestPlanRows:
    def test_no_chunks_no_pass(self) -> None:
        assert plan_rows(rows()).tolist() == []

    def test_all_chunks_in_order_of_partition_and_offset(self) -> None:
        assert plan_rows(rows((0, 0, 5, 2, 10), (0, 5, 9, 3, 10), (1, 7, 8, 1, 10))).tolist() == [0, 1, 2]

    def test_the_oldest_objects_first_so_that_whole_objects_are_released(self) -> None:
        chunks = rows((0, 0, 5, 1, 10), (0, 5, 9, 2, 10), (1, 0, 1, 1, 10), (1, 1, 2, 2, 10))
        assert plan_rows(chunks, bytes_max=20).tolist() == [0, 2]
        assert plan_rows(chunks, bytes_max=30).tolist() == [0, 1, 2]

    def test_the_first_chunk_is_taken_however_large(self) -> None:
        assert plan_rows(rows((0, 0, 5, 1, 1000), (0, 5, 6, 2, 10)), bytes_max=20).tolist() == [0]

    def test_no_more_chunks_than_one_entry_can_name(self) -> None:
        assert plan_rows(rows(*((0, n, n + 1, n, 10) for n in range(5))), chunks_max=3).tolist() == [0, 1, 2]

    def test_what_waits_and_what_is_behind_it_is_not_taken(self) -> None:
        chunks = rows((0, 0, 5, 1, 10), (0, 5, 9, 1, 10), (0, 9, 10, 1, 10), (1, 0, 9, 2, 10))
        assert plan_rows(chunks, waiting={PartitionIndex(0): Offset(5)}).tolist() == [0, 3]
        assert plan_rows(chunks, waiting={PartitionIndex(n): Offset(0) for n in range(2)}).tolist() == []

    def test_a_hole_in_a_partition_is_a_bug(self) -> None:
        with pytest.raises(AssertionError):
            plan_rows(rows((0, 0, 5, 1, 10), (0, 6, 7, 2, 10)))

    def test_a_marker_is_taken_behind_its_partitions_chunks(self) -> None:
        """It stands in no object."""
        chunks = rows((0, 0, 5, 3, 10), (0, 5, 6, NO_OBJECT, 78), (1, 0, 5, 2, 10))
        assert plan_rows(chunks, chunks_max=2).tolist() == [0, 2]
        assert plan_rows(chunks).tolist() == [0, 1, 2]

    def test_what_was_written_long_before_it_was_placed_waits_for_what_it_is_placed_behind(self) -> None:
        chunks = rows((0, 0, 5, 9, 10), (0, 5, 8, 1, 10), (1, 0, 5, 2, 10))
        assert plan_rows(chunks, chunks_max=2).tolist() == [0, 2]

    @given(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(1, 30)), max_size=40),
        st.integers(1, 200),
        st.integers(1, 12),
        st.dictionaries(st.integers(0, 3).map(PartitionIndex), st.integers(0, 10).map(Offset)),
    )
    def test_it_takes_what_one_chunk_after_the_other_would(
        self,
        drawn: list[tuple[int, int, int]],
        bytes_max: int,
        chunks_max: int,
        waiting: dict[PartitionIndex, Offset],
    ) -> None:
        ends = dict.fromkeys(range(4), 0)
        chunks: list[tuple[int, int, int, int, int]] = []
        for partition, object_id, size in sorted(drawn, key=lambda each: each[0]):
            chunks.append((partition, ends[partition], ends[partition] + 1, object_id, size))
            ends[partition] += 1
        newest = dict.fromkeys(range(4), 0)
        with_age: list[tuple[int, int, int, int]] = []
        for row, (partition, first, _, object_id, _) in enumerate(chunks):
            newest[partition] = max(newest[partition], object_id)
            with_age.append((newest[partition], partition, first, row))
        taken: list[int] = []
        for _, partition, first, row in sorted(with_age):
            if first >= waiting.get(PartitionIndex(partition), first + 1):
                continue
            if taken and (sum(chunks[each][4] for each in (*taken, row)) > bytes_max or len(taken) == chunks_max):
                break
            taken.append(row)
        planned = plan_rows(rows(*chunks), waiting=waiting, bytes_max=bytes_max, chunks_max=chunks_max)
        assert planned.tolist() == sorted(taken)
