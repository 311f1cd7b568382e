"""What a fetch does next: every wait, barrier and read in its place, and one answer for each partition."""

import pytest

from agent.fetch.planner import FetchPlanner, ReadPlan
from agent.fetch.sessions import RequestedPartition
from agent.fetch.steps import PAUSE, Barrier, FetchAnswer, ReadChunks, WaitForMemory, WaitForRecords
from agent.fetch.wait import FetchWait
from protocol.errors import ErrorCode
from protocol.limits import FETCH_READ_SECONDS_MAX, MIB, READ_PLANS_MAX, ROWS_PER_TURN
from protocol.records.compression import Compression
from protocol.types import LEADER_EPOCH, PartitionIndex, TopicId
from storage.object_store import ObjectDamaged, ObjectMissing, StoreDenied, StoreError, StoreUnavailable
from tests.support.agent.planned_fetches import CURRENT_S, FetchWorld, requested_at
from tests.support.commands.commands import TOPIC
from txn.isolation import IsolationLevel

AWAY = ErrorCode.not_leader_or_follower


def codes(answer: FetchAnswer) -> list[ErrorCode]:
    return [read.error_code for read in answer.reads]


def have_records(answer: FetchAnswer) -> list[bool]:
    return [bool(read.records) for read in answer.reads]


class TestWaits:
    def test_a_fetch_with_enough_bytes_does_not_wait_for_records(self) -> None:
        world = FetchWorld()
        world.append()
        answer = world.run(world.planner(requested_at(0), wait_s=1.0))
        assert world.kinds == [WaitForMemory, ReadChunks]
        assert (codes(answer), have_records(answer)) == ([ErrorCode.none], [True])

    def test_a_fetch_at_the_end_waits_for_its_partitions_until_its_deadline(self) -> None:
        world = FetchWorld(2)
        answer = world.run(world.planner(requested_at(0, 0), requested_at(0, 1), wait_s=1.5))
        keys = [(TOPIC, PartitionIndex(0)), (TOPIC, PartitionIndex(1))]
        assert world.steps == [WaitForRecords(keys, 1.5), WaitForMemory(0, 0.0)]
        assert (codes(answer), have_records(answer)) == ([ErrorCode.none] * 2, [False] * 2)

    def test_growth_below_the_bytes_that_are_asked_for_does_not_end_the_wait(self) -> None:
        world = FetchWorld()
        chunk_bytes = world.append().byte_count
        planner = world.planner(requested_at(0), bytes_min=chunk_bytes + 1, wait_s=3.0)
        assert isinstance(world.next(planner), WaitForRecords)
        world.now_s = 1.0
        assert isinstance(again := world.next(planner), WaitForRecords)
        assert again.seconds == 2.0
        world.append()
        assert isinstance(world.next(planner), WaitForMemory)

    def test_no_fetch_waits_for_more_bytes_than_it_may_have(self) -> None:
        world = FetchWorld()
        world.append()
        world.run(world.planner(requested_at(0), bytes_min=1 << 20, bytes_max=10, wait_s=1.0))
        assert WaitForRecords not in world.kinds

    def test_a_fetch_waits_no_longer_than_its_state_counts_as_current(self) -> None:
        """Safety rule S4: then an empty answer would say more than this agent knows."""
        world = FetchWorld()
        answer = world.run(world.planner(requested_at(0), wait_s=CURRENT_S + 1))
        assert world.steps[0] == WaitForRecords([(TOPIC, PartitionIndex(0))], CURRENT_S)
        assert (codes(answer), answer.reads[0].high_watermark) == ([AWAY], -1)

    def test_a_fetch_whose_wait_was_ended_answers_with_what_there_is(self) -> None:
        world, fetch_wait = FetchWorld(), FetchWait()
        planner = world.planner(requested_at(0), wait_s=1.0, fetch_wait=fetch_wait)
        assert isinstance(world.next(planner), WaitForRecords)
        fetch_wait.end()
        assert have_records(world.run(planner)) == [False]
        assert WaitForRecords not in world.kinds

    def test_a_topic_that_is_deleted_ends_the_wait(self) -> None:
        world = FetchWorld()
        planner = world.planner(requested_at(0), wait_s=1.0)
        assert isinstance(world.next(planner), WaitForRecords)
        del world.state.topics[TOPIC], world.state.topic_ids["t"]
        assert codes(world.run(planner)) == [ErrorCode.unknown_topic_or_partition]
        assert world.kinds == [Barrier, WaitForMemory]

    def test_an_error_of_one_partition_is_answered_without_a_wait(self) -> None:
        world = FetchWorld(2)
        answer = world.run(world.planner(requested_at(0, 0), requested_at(5, 1), wait_s=1.0))
        assert codes(answer) == [ErrorCode.none, ErrorCode.offset_out_of_range]
        assert WaitForRecords not in world.kinds

    def test_a_fetch_of_many_partitions_lets_others_run_and_misses_no_growth_meanwhile(self) -> None:
        world = FetchWorld(2 * ROWS_PER_TURN + 1)
        world.run(world.planner(*(requested_at(0, n) for n in range(2 * ROWS_PER_TURN + 1)), wait_s=1.0))
        waits = [step for step in world.steps if isinstance(step, WaitForRecords)]
        assert [wait.seconds for wait in waits] == [0.0] * 4 + [1.0] + [0.0] * 6
        # From the first step with these partitions on they are watched, and the last one waits for the same list.
        assert [wait.keys is waits[4].keys for wait in waits] == [False] * 2 + [True] * 3 + [False] * 6
        assert all(wait == PAUSE for wait in waits[5:])


class TestBarriers:
    """Safety rule S4: an error that may only mean that this agent is behind."""

    UNKNOWN = RequestedPartition(TopicId(b"x" * 16), 0, 0, 1 << 20, -1, -1)

    @pytest.mark.parametrize(
        ("requested", "error_code"),
        [
            (requested_at(0, topic="u"), ErrorCode.unknown_topic_or_partition),
            (UNKNOWN, ErrorCode.unknown_topic_id),
            (requested_at(0, 1), ErrorCode.unknown_topic_or_partition),
            (requested_at(1), ErrorCode.offset_out_of_range),
        ],
    )
    def test_an_error_by_an_old_state_is_answered_behind_a_barrier(
        self, requested: RequestedPartition, error_code: ErrorCode
    ) -> None:
        world = FetchWorld()
        answer = world.run(world.planner(requested))
        assert (world.kinds, codes(answer)) == ([Barrier, WaitForMemory], [error_code])
        world.is_ledger_away = True
        assert codes(world.run(world.planner(requested))) == [AWAY]

    def test_what_the_barrier_brings_is_read(self) -> None:
        world = FetchWorld()
        world.append()
        world.during[Barrier] = world.append
        answer = world.run(world.planner(requested_at(2)))
        assert world.kinds == [Barrier, WaitForMemory]
        world.append()
        assert have_records(world.run(world.planner(requested_at(2)))) == [True]
        assert codes(answer) == [ErrorCode.none]

    def test_one_barrier_serves_all_partitions(self) -> None:
        world = FetchWorld()
        world.run(world.planner(*(requested_at(0, n) for n in range(1, 9))))
        assert world.kinds.count(Barrier) == 1

    def test_an_epoch_that_never_was_needs_none(self) -> None:
        world = FetchWorld()
        answer = world.run(world.planner(RequestedPartition("t", 0, 0, 1 << 20, LEADER_EPOCH + 1, -1)))
        assert (world.kinds, codes(answer)) == ([WaitForMemory], [ErrorCode.unknown_leader_epoch])

    def test_a_consumer_beyond_the_end_of_its_epoch_learns_the_end(self) -> None:
        world = FetchWorld()
        world.append()
        answer = world.run(world.planner(RequestedPartition("t", 0, 7, 1 << 20, -1, LEADER_EPOCH)))
        assert world.kinds == [Barrier, WaitForMemory]
        assert [(read.is_diverging, read.high_watermark) for read in answer.reads] == [(True, 1)]


class TestMemory:
    def test_a_fetch_reserves_what_it_has_to_read_and_nothing_for_what_is_in_memory(self) -> None:
        world = FetchWorld(2)
        world.append(0, is_in_memory=True)
        missing = world.append(1)
        planner = world.planner(requested_at(0, 0), requested_at(0, 1), wait_s=2.0)
        assert world.next(planner) == WaitForMemory(missing.byte_count, 2.0)

    def test_a_fetch_whose_memory_does_not_come_answers_marks_and_errors(self) -> None:
        world = FetchWorld(budget_bytes=1)
        world.append()
        world.budget.bytes_held = 1
        answer = world.run(world.planner(requested_at(0), requested_at(9)))
        assert world.kinds == [Barrier, WaitForMemory]
        assert codes(answer) == [ErrorCode.none, ErrorCode.offset_out_of_range]
        assert (have_records(answer), answer.reads[0].high_watermark) == ([False, False], 1)

    def test_an_answer_has_no_more_bytes_than_its_connections_memory_after_each_wait(self) -> None:
        world = FetchWorld()
        sizes = [world.append().byte_count for _ in range(4)]
        capacities = [3 * sizes[0], 2 * sizes[0]]
        answer = world.run(world.planner(requested_at(0), capacity_bytes=lambda: capacities.pop(0)))
        assert answer.reads[0].record_bytes == 2 * sizes[0]
        assert capacities == []

    def test_a_fetch_without_limits_answers_marks_at_once(self) -> None:
        world = FetchWorld(2)
        world.append(0, is_in_memory=True)
        requested = [requested_at(0, 0), requested_at(0, 1)]
        planner = FetchPlanner(requested, IsolationLevel.READ_UNCOMMITTED, None, memory=world, broker_configs={})
        answer = world.run(planner)
        assert (world.steps, have_records(answer)) == ([], [False, False])
        assert [read.high_watermark for read in answer.reads] == [1, 0]
        assert planner.reservation is None


class TestReads:
    def test_chunks_in_memory_need_no_step(self) -> None:
        world = FetchWorld(2)
        world.append(0, is_in_memory=True)
        world.append(1, is_in_memory=True)
        answer = world.run(world.planner(requested_at(0, 0), requested_at(0, 1)))
        assert (world.steps, have_records(answer)) == ([WaitForMemory(0, 0.0)], [True, True])

    def test_partitions_are_read_together_and_then_each_from_memory(self) -> None:
        world = FetchWorld(2)
        chunks = [world.append(0), world.append(1)]
        answer = world.run(world.planner(requested_at(0, 0), requested_at(0, 1)))
        assert have_records(answer) == [True, True]
        reads = [step for step in world.steps if isinstance(step, ReadChunks)]
        assert [(list(read.chunks), read.seconds) for read in reads] == [(chunks, FETCH_READ_SECONDS_MAX)]

    def test_a_fetch_reads_on_until_its_limit_cuts_a_chunk_short(self) -> None:
        world = FetchWorld()
        sizes = [world.append(0, 100, 100).byte_count for _ in range(3)]
        answer = world.run(world.planner(requested_at(0), bytes_max=sizes[0] + sizes[1] // 2))
        assert (answer.reads[0].record_bytes, answer.reads[0].offset_next) == (sizes[0] + sizes[1] // 2, 3)
        assert [(step.offset_first, step.offset_next) for step in answer.fetch_steps] == [(0, 3)]

    def test_the_first_partition_with_records_answers_one_batch_and_the_others_none(self) -> None:
        world = FetchWorld(3)
        world.append(1, 500)
        world.append(2, 500)
        answer = world.run(world.planner(*(requested_at(0, n, bytes_max=1) for n in range(3)), bytes_max=1))
        assert have_records(answer) == [False, True, False]

    def test_an_object_that_is_gone_is_planned_again_behind_a_barrier_each_time(self) -> None:
        """Safety rule S6: an empty answer would look like the log's end."""
        world = FetchWorld()
        chunk = world.append(error=ObjectMissing("gone"))
        answer = world.run(world.planner(requested_at(0)))
        assert world.kinds == [WaitForMemory, *[ReadChunks, Barrier] * READ_PLANS_MAX]
        assert codes(answer) == [AWAY]
        (unreadable,) = answer.unreadable
        assert unreadable[1:] == ("t", 0, 0, f"object-{chunk.object_id}")

    def test_records_that_were_archived_meanwhile_are_read_where_they_are_now(self) -> None:
        world = FetchWorld()
        world.append(error=ObjectMissing("archived"))

        def archive() -> None:
            index, (served_id,) = world.topic.partitions[0].index, world.errors
            del world.errors[served_id]
            index.replace(0, 1, [index.row(0)])

        world.during[Barrier] = archive
        answer = world.run(world.planner(requested_at(0)))
        assert world.kinds == [WaitForMemory, ReadChunks, Barrier, ReadChunks]
        assert (have_records(answer), answer.unreadable) == ([True], [])

    def test_a_missing_object_without_the_ledgers_answer_ends_all_waits_for_the_store(self) -> None:
        world = FetchWorld(2)
        world.append(0, error=ObjectMissing("gone"))
        world.append(1, error=StoreUnavailable("never asked"))
        world.is_ledger_away = True
        answer = world.run(world.planner(requested_at(0, 0), requested_at(0, 1)))
        assert world.kinds == [WaitForMemory, ReadChunks, ReadChunks, Barrier]
        assert (codes(answer), answer.unreadable) == ([AWAY, AWAY], [])

    @pytest.mark.parametrize("error", [ObjectDamaged("damaged"), StoreDenied("denied")])
    def test_an_error_that_only_an_operator_can_mend_is_named_and_leaves_the_others_theirs(
        self, error: StoreError
    ) -> None:
        world = FetchWorld(2)
        chunk = world.append(0, error=error)
        world.append(1)
        answer = world.run(world.planner(requested_at(0, 0), requested_at(0, 1)))
        assert (codes(answer), have_records(answer)) == ([ErrorCode.kafka_storage_error, ErrorCode.none], [False, True])
        assert answer.unreadable == [(error, "t", 0, 0, f"object-{chunk.object_id}")]

    def test_what_comes_before_a_chunk_that_cannot_be_read_is_the_answer(self) -> None:
        world = FetchWorld()
        first = world.append()
        world.append(error=ObjectDamaged("damaged"))
        answer = world.run(world.planner(requested_at(0)))
        assert (codes(answer), answer.reads[0].record_bytes) == ([ErrorCode.none], first.byte_count)
        assert answer.unreadable == []

    def test_a_store_that_does_not_answer_is_asked_for_no_further_chunks_but_those_on_their_way(self) -> None:
        world = FetchWorld(4)
        chunks = [world.append(n, is_in_memory=n == 2, error=StoreUnavailable("away")) for n in range(4)]
        world.being_read = {chunks[1].object_id}
        answer = world.run(world.planner(*(requested_at(0, n) for n in range(4))))
        reads = [step for step in world.steps if isinstance(step, ReadChunks)]
        assert [list(read.chunks) for read in reads] == [chunks, chunks[1:2]]
        assert codes(answer) == [AWAY, AWAY, ErrorCode.none, AWAY]

    def test_once_the_time_for_reads_is_over_only_chunks_in_memory_are_answered(self) -> None:
        world = FetchWorld(3)
        chunks = [world.append(n, is_in_memory=n == 1) for n in range(3)]
        world.errors = {chunk.object_id: StoreUnavailable("slow") for chunk in (chunks[0], chunks[2])}
        world.being_read = {chunk.object_id for chunk in chunks}

        def pass_time() -> None:
            world.now_s += FETCH_READ_SECONDS_MAX

        world.current_until_s = 100.0
        world.during[ReadChunks] = pass_time
        answer = world.run(world.planner(*(requested_at(0, n) for n in range(3))))
        assert codes(answer) == [AWAY, ErrorCode.none, AWAY]
        assert world.kinds == [WaitForMemory, ReadChunks]

    def test_nothing_is_decided_by_a_partition_that_was_looked_up_before_a_step(self) -> None:
        """A reload of the state replaces every object of it."""
        world = FetchWorld()
        world.append()
        planner = world.planner(requested_at(0))
        assert isinstance(world.next(planner), WaitForMemory)
        other = FetchWorld()
        other.append(0, 10)
        other.append(0, 10)
        planner.reserved(other.budget.take_now(1))
        answer = other.run(planner)
        assert (answer.reads[0].high_watermark, answer.reads[0].offset_next) == (2, 2)


class TestProducedInMemory:
    """Behind an archive pass: what was produced is in memory, and the archive is not."""

    def test_nothing_is_read_or_reserved_for_it(self) -> None:
        world = FetchWorld(2)
        for _ in range(3):
            world.append()
        world.archive(is_produced_in_memory=True)
        missing = world.append(1)
        answer = world.run(world.planner(requested_at(0, 0), requested_at(0, 1)))
        reads = [step for step in world.steps if isinstance(step, ReadChunks)]
        assert world.steps[0] == WaitForMemory(missing.byte_count, 0.0)
        assert [list(read.chunks) for read in reads] == [[missing]]
        assert [read.offset_next for read in answer.reads] == [3, 1]
        assert [(step.offset_first, step.offset_next) for step in answer.fetch_steps] == [(0, 3), (0, 1)]

    def test_it_goes_on_into_the_intake_and_begins_within_the_archived_chunk(self) -> None:
        world = FetchWorld()
        sizes = [world.append().byte_count for _ in range(3)]
        world.archive(is_produced_in_memory=True)
        sizes.append(world.append(is_in_memory=True).byte_count)
        answer = world.run(world.planner(requested_at(1)))
        assert world.steps == [WaitForMemory(0, 0.0)]
        assert (answer.reads[0].record_bytes, answer.reads[0].offset_next) == (sum(sizes[1:]), 4)

    def test_the_limit_cuts_it_at_a_batch(self) -> None:
        world = FetchWorld()
        sizes = [world.append().byte_count for _ in range(3)]
        world.archive(is_produced_in_memory=True)
        answer = world.run(world.planner(requested_at(0), bytes_max=sizes[0] + sizes[1] + 1))
        assert (answer.reads[0].record_bytes, answer.reads[0].offset_next) == (sizes[0] + sizes[1], 2)
        one = world.run(world.planner(requested_at(1), bytes_max=1))
        assert (one.reads[0].record_bytes, one.reads[0].offset_next) == (sizes[1], 2)

    def test_partitions_behind_it_get_what_it_is_expected_to_leave_of_the_fetch(self) -> None:
        world = FetchWorld(2)
        archived_bytes = world.append().byte_count
        world.archive(is_produced_in_memory=True)
        world.append(1)
        answer = world.run(world.planner(requested_at(0, 0), requested_at(0, 1), bytes_max=archived_bytes))
        assert (world.steps, have_records(answer)) == ([WaitForMemory(0, 0.0)], [True, False])

    def test_a_row_group_that_partitions_share_counts_once(self) -> None:
        world = FetchWorld()
        world.append()
        archived = world.archive(is_produced_in_memory=True)
        plan = ReadPlan()
        assert plan.add_produced(archived, MIB) > 0
        assert plan.add_produced(archived._replace(row_first=7), MIB) == 0

    def test_the_archive_is_read_where_only_a_part_is_in_memory_and_taken_where_it_is_there_itself(self) -> None:
        world = FetchWorld()
        world.append()
        archived = world.archive(is_produced_in_memory=False)
        answer = world.run(world.planner(requested_at(0)))
        assert world.steps[1:] == [ReadChunks([archived], [Compression.NONE], FETCH_READ_SECONDS_MAX)]
        assert have_records(answer) == [True]
        both = FetchWorld()
        both.append()
        both.append()
        both.in_memory.add(both.archive(is_produced_in_memory=True).object_id)
        answer = both.run(both.planner(requested_at(0)))
        assert (both.steps, len(answer.reads[0].records)) == ([WaitForMemory(0, 0.0)], 1), "one piece"


def test_a_fetch_of_no_partitions_is_answered_at_once() -> None:
    world = FetchWorld()
    assert world.run(world.planner(wait_s=1.0)).reads == []
    assert world.kinds == [WaitForMemory]


def test_a_fetch_that_is_given_up_takes_no_further_step() -> None:
    world = FetchWorld()
    planner = world.planner(requested_at(0), wait_s=1.0)
    world.next(planner)
    planner.close()
    with pytest.raises(StopIteration):
        next(planner._steps)
