"""Where logs and tables start: what DeleteRecords hides, what grows too old or too much, and what stays for whom."""

import pytest
from msgspec.structs import replace

from coordinator.apply.retention import due_chunks
from coordinator.commands.commands import (
    AdvanceLogStart,
    AllocateProducerIds,
    DeleteTopic,
    Done,
    LogStartsAdvanced,
    ReportTime,
)
from protocol.errors import ErrorCode
from protocol.types import Offset, TopicId
from tests.support.commands.commands import (
    TOPIC,
    Batch,
    Chunk,
    Cluster,
    commit,
    create,
    delete_before,
    idempotent,
    retain,
)
from tests.support.commands.transaction_commands import begin, end, transactional

OTHER = TopicId(bytes([1] * 16))
LATE_MS = 100_000


def filled(*timestamps: int, records: int = 10, **configs: str) -> Cluster:
    """The topic `t` with a chunk of 100 bytes and ten records for each timestamp; the state's time is `LATE_MS`."""
    cluster = Cluster.started(**configs)
    for number, timestamp in enumerate(timestamps):
        cluster.produce(number, Batch(records=records, timestamp=timestamp))
    cluster.do(ReportTime(), time_ms=LATE_MS)
    return cluster


def starts(cluster: Cluster) -> tuple[int, int]:
    return cluster.partition.log_start, cluster.partition.table_start


def object_numbers(cluster: Cluster) -> list[int]:
    """The numbers of the intake objects that are kept."""
    return sorted(int(found.key.rsplit("/")[-1], 16) for found in cluster.state.objects.values())


class TestDeleteRecords:
    def test_records_below_the_offset_are_hidden_and_whole_chunks_released(self) -> None:
        cluster = filled(1, 2, 3)
        told = cluster.do(delete_before(15), time_ms=LATE_MS)
        assert told == LogStartsAdvanced(error_codes=[0], log_starts=[15])
        assert (starts(cluster), cluster.partition.index.first) == ((15, 15), 10)
        assert object_numbers(cluster) == [1, 2]
        assert list(cluster.state.released.values()) == [LATE_MS]

    def test_everything_can_go_and_the_log_goes_on_where_it_was(self) -> None:
        cluster = filled(1, 2)
        cluster.do(delete_before(20))
        assert (starts(cluster), len(cluster.partition.index)) == ((20, 20), 0)
        assert cluster.produce(9, Batch()).base_offsets == [20]
        assert cluster.produce(10, Batch()).log_start == [20]

    def test_an_offset_behind_the_log_start_changes_nothing(self) -> None:
        cluster = filled(1, 2)
        cluster.do(delete_before(15))
        assert cluster.do(delete_before(3)) == LogStartsAdvanced(error_codes=[0], log_starts=[15])
        assert starts(cluster) == (15, 15)

    def test_each_row_has_its_own_answer(self) -> None:
        cluster = filled(1)
        cluster.do(create("u", topic_id=OTHER, partitions=2))
        cluster.do(commit(7, Chunk(topic_id=OTHER, partition=1, batches=[Batch(records=4)])))
        command = AdvanceLogStart(
            topic_ids=(TOPIC, OTHER, TopicId(bytes([9] * 16))),
            topic=[1, 0, 1, 2, 0],
            partition=[1, 0, 2, 0, 1],
            log_start=[4, 11, 0, 0, 0],
        )
        out_of_range, unknown = int(ErrorCode.offset_out_of_range), int(ErrorCode.unknown_topic_or_partition)
        assert cluster.do(command) == LogStartsAdvanced(
            error_codes=[0, out_of_range, unknown, unknown, unknown], log_starts=[4, -1, -1, -1, -1]
        )
        assert starts(cluster) == (0, 0)

    def test_s8_producers_are_known_as_before(self) -> None:
        cluster = Cluster.started()
        cluster.do(AllocateProducerIds(count=10))
        cluster.produce(0, idempotent(0, records=3))
        cluster.do(delete_before(3))
        assert cluster.produce(1, idempotent(0, records=3)).base_offsets == [0]
        assert cluster.produce(2, idempotent(3)).base_offsets == [3]
        assert cluster.produce(3, idempotent(5, producer=8)).error_codes == [45]

    def test_a_table_with_a_time_of_its_own_keeps_what_the_log_hides(self) -> None:
        cluster = filled(1, 2, penstock_table_retention_ms="-1")
        cluster.do(delete_before(20))
        assert (starts(cluster), object_numbers(cluster)) == ((20, 0), [0, 1])


class TestAge:
    @pytest.mark.parametrize(("now_ms", "log_start"), [(1_050, 0), (1_051, 10), (1_070, 10), (1_071, 30)])
    def test_chunks_go_once_their_youngest_record_is_older_than_the_time(self, now_ms: int, log_start: int) -> None:
        cluster = filled(50, 70, 60, retention_ms="1000")
        assert cluster.do(retain(now_ms)) == Done()
        assert (starts(cluster), cluster.partition.log_end) == ((log_start, log_start), 30)
        assert cluster.partition.index.first == log_start

    def test_a_chunk_that_deleted_records_begin_in_counts_whole(self) -> None:
        cluster = filled(50, 90, retention_ms="1000")
        cluster.do(delete_before(4))
        cluster.do(retain(1_051))
        assert starts(cluster) == (10, 10)

    def test_the_proposers_default_counts_where_the_topic_says_nothing(self) -> None:
        cluster = filled(50)
        cluster.do(retain(1_051, retention_ms=1_001))
        assert starts(cluster) == (0, 0)
        cluster.do(retain(1_051, retention_ms=1_000))
        assert starts(cluster) == (10, 10)

    def test_the_topics_config_at_the_position_counts_not_what_the_proposer_saw(self) -> None:
        cluster = filled(50, retention_ms="-1", retention_bytes="-1")
        cluster.do(retain(LATE_MS, retention_ms=0, retention_bytes=0))
        assert starts(cluster) == (0, 0)

    def test_s2_a_time_ahead_of_the_state_counts_as_the_states_time(self) -> None:
        cluster = filled(50, LATE_MS - 1_000, LATE_MS - 999, retention_ms="1000")
        cluster.do(retain(1 << 60))
        assert starts(cluster) == (10, 10)

    def test_s2_without_any_time_nothing_is_old(self) -> None:
        cluster = Cluster.started(retention_ms="0")
        cluster.produce(0, Batch(timestamp=0), Batch(timestamp=-1))
        cluster.do(retain(1 << 60))
        assert starts(cluster) == (0, 0)

    def test_s14_records_that_the_broker_stamped_are_as_old_as_their_stamp(self) -> None:
        cluster = Cluster.started(message_timestamp_type="LogAppendTime", retention_ms="1000")
        cluster.do(ReportTime(), time_ms=LATE_MS)
        cluster.produce(0, Batch(timestamp=1))
        cluster.do(ReportTime(), time_ms=LATE_MS + 1_001)
        cluster.do(retain(LATE_MS + 1_000))
        assert starts(cluster) == (0, 0)
        cluster.do(retain(LATE_MS + 1_001))
        assert starts(cluster) == (1, 1)

    @pytest.mark.parametrize("value", ["no number", "-1", "9" * 30])
    def test_a_value_that_sets_no_limit_drops_nothing(self, value: str) -> None:
        cluster = filled(50, retention_ms=value, retention_bytes=value)
        cluster.do(retain(LATE_MS, retention_ms=0, retention_bytes=0))
        assert starts(cluster) == (0, 0)


class TestSize:
    @pytest.mark.parametrize(("bytes_max", "log_start"), [(300, 0), (201, 0), (200, 10), (199, 10), (100, 20), (0, 30)])
    def test_chunks_go_while_no_less_stays_than_the_topic_keeps(self, bytes_max: int, log_start: int) -> None:
        cluster = filled(1, 2, 3, retention_ms="-1", retention_bytes=str(bytes_max))
        cluster.do(retain(LATE_MS))
        assert starts(cluster) == (log_start, log_start)

    def test_age_and_size_hold_both(self) -> None:
        for retention_ms, log_start in (("99998", 10), ("99997", 20)):
            cluster = filled(1, 2, 3, retention_ms=retention_ms, retention_bytes="200")
            cluster.do(retain(LATE_MS))
            assert starts(cluster) == (log_start, log_start)


class TestPolicy:
    @pytest.mark.parametrize(
        ("policy", "log_start"), [("delete", 10), ("compact, delete", 10), ("compact", 0), ("", 0)]
    )
    def test_only_what_may_be_deleted_goes(self, policy: str, log_start: int) -> None:
        cluster = filled(1, cleanup_policy=policy, retention_ms="0", retention_bytes="0")
        cluster.do(retain(LATE_MS))
        assert starts(cluster) == (log_start, log_start)

    def test_the_proposers_policy_counts_where_the_topic_says_nothing(self) -> None:
        cluster = filled(1, retention_ms="0")
        cluster.do(replace(retain(LATE_MS), is_deleting=False))
        assert starts(cluster) == (0, 0)


class TestTables:
    def test_a_table_that_keeps_longer_keeps_its_chunks_in_the_index(self) -> None:
        cluster = filled(50, 60, retention_ms="100", penstock_table_retention_ms="1000")
        cluster.do(retain(1_050))
        assert (starts(cluster), object_numbers(cluster)) == ((20, 0), [0, 1])
        cluster.do(retain(1_051))
        assert (starts(cluster), object_numbers(cluster)) == ((20, 10), [1])

    def test_a_table_that_keeps_shorter_drops_nothing_that_the_log_needs(self) -> None:
        cluster = filled(50, 60, retention_ms="1000", penstock_table_retention_ms="0")
        cluster.do(retain(1_000))
        assert (starts(cluster), object_numbers(cluster)) == ((0, 20), [0, 1])
        cluster.do(retain(1_051))
        assert (starts(cluster), object_numbers(cluster)) == ((10, 20), [1])

    def test_a_size_limit_is_the_logs_alone(self) -> None:
        cluster = filled(50, 60, retention_bytes="100", penstock_table_retention_ms="-1")
        cluster.do(retain(1_000))
        assert starts(cluster) == (10, 0)

    def test_a_table_without_a_time_of_its_own_follows_the_log(self) -> None:
        cluster = filled(50, 60, retention_bytes="100", penstock_table_retention_ms="-2")
        cluster.do(retain(1_000))
        assert starts(cluster) == (10, 10)


class TestWhatIsAlteredForEveryBroker:
    """It counts where the entry is applied, whatever its proposer took for the default."""

    def altered(self, **configs: str) -> Cluster:
        cluster = filled(50, 90)
        pairs = sorted((name.replace("_", "."), value) for name, value in configs.items())
        cluster.state.broker_configs = {"": dict(pairs)}
        return cluster

    def test_a_longer_time_keeps_what_an_older_proposal_would_drop(self) -> None:
        cluster = self.altered(log_retention_ms="-1")
        cluster.do(retain(LATE_MS, retention_ms=1))
        assert starts(cluster) == (0, 0)

    def test_a_shorter_one_drops_what_it_would_keep(self) -> None:
        cluster = self.altered(log_retention_ms="1")
        cluster.do(retain(LATE_MS), time_ms=LATE_MS)
        assert starts(cluster) == (20, 20)

    def test_so_do_bytes_and_the_policy(self) -> None:
        cluster = self.altered(log_retention_bytes="0", log_cleanup_policy="compact")
        cluster.do(retain(LATE_MS))
        assert starts(cluster) == (0, 0)
        cluster.state.broker_configs = {"": {"log.retention.bytes": "0"}}
        cluster.do(retain(LATE_MS))
        assert starts(cluster) == (20, 20)

    def test_a_topics_own_word_comes_first(self) -> None:
        cluster = filled(50, 90, retention_ms="-1", retention_bytes="-1")
        cluster.state.broker_configs = {"": {"log.retention.bytes": "0", "log.retention.ms": "1"}}
        cluster.do(retain(LATE_MS, retention_ms=1))
        assert starts(cluster) == (0, 0)

    def test_what_is_due_is_the_same_for_the_proposer(self) -> None:
        cluster = self.altered(log_retention_ms="1")
        topic = cluster.state.topics[TOPIC]
        assert list(due_chunks(cluster.state, topic, retain(LATE_MS))) == [2]


class TestProposing:
    def test_something_is_due_exactly_as_long_as_applying_it_moves_something(self) -> None:
        cluster = filled(50, 90, retention_ms="1000", penstock_table_retention_ms="1010")
        topic = cluster.state.topics[TOPIC]
        for now_ms, due in ((1_050, False), (1_051, True), (1_060, False), (1_061, True), (1_062, False)):
            proposed = retain(now_ms)
            assert (list(due_chunks(cluster.state, topic, proposed)) != [None]) is due
            cluster.do(proposed)
            assert list(due_chunks(cluster.state, topic, proposed)) == [None]

    def test_no_more_chunks_go_than_the_entry_says_and_the_rest_is_due_as_before(self) -> None:
        cluster = filled(1, 2, 3, 4, 5, retention_ms="1000")
        topic = cluster.state.topics[TOPIC]
        for log_start in (20, 40, 50, 50):
            cluster.do(replace(retain(LATE_MS), chunks_max=2))
            assert starts(cluster) == (log_start, log_start)
            assert list(due_chunks(cluster.state, topic, retain(LATE_MS))) == [(50 - log_start) // 10 or None]

    def test_a_bound_takes_back_no_start_that_was_ahead(self) -> None:
        cluster = filled(1, 2, 3, penstock_table_retention_ms="1000")
        cluster.do(delete_before(25))
        cluster.do(replace(retain(LATE_MS), chunks_max=1))
        assert starts(cluster) == (25, 10)

    def test_partitions_out_of_the_range_stay_as_they_are(self) -> None:
        cluster = filled()
        cluster.do(create("u", topic_id=OTHER, partitions=4))
        chunks = [Chunk(topic_id=OTHER, partition=index, batches=[Batch(timestamp=1)]) for index in range(4)]
        cluster.do(commit(7, *chunks))
        ranges = ((0, 1), (2, 9))
        cluster.do(replace(retain(LATE_MS, OTHER, OTHER, retention_bytes=0), partitions=ranges))
        assert [each.log_start for each in cluster.state.topics[OTHER].partitions] == [1, 0, 1, 1]

    def test_a_topic_that_was_deleted_meanwhile_is_passed_over(self) -> None:
        cluster = filled(1, retention_ms="0")
        cluster.do(DeleteTopic(topic_id=TOPIC))
        assert cluster.do(retain(LATE_MS)) == Done()

    def test_topics_that_are_not_named_stay_as_they_are(self) -> None:
        cluster = filled(1, retention_ms="0")
        cluster.do(retain(LATE_MS, OTHER))
        assert starts(cluster) == (0, 0)


class TestTransactions:
    def test_s5_an_aborted_range_goes_with_its_marker(self) -> None:
        cluster = self.aborted()
        cluster.do(delete_before(1))
        assert cluster.partition.transactions is not None
        cluster.do(delete_before(2))
        assert cluster.partition.transactions is None

    def test_what_the_table_keeps_is_archived_yet_so_what_of_it_was_aborted_is_remembered(self) -> None:
        cluster = self.aborted(penstock_table_retention_ms="-1")
        cluster.do(delete_before(2))
        transactions = cluster.partition.transactions
        assert transactions is not None
        assert transactions.aborted_count == 1
        # A fetch begins at the log's start or behind it, and is not told.
        assert transactions.aborted_between(Offset(2), Offset(3)) == []

    @staticmethod
    def aborted(**configs: str) -> Cluster:
        """Offset 0 of an aborted transaction, its marker, and a record of nobody."""
        cluster = Cluster.started(**configs)
        cluster.do(begin())
        cluster.produce(0, transactional(0))
        cluster.do(end(is_commit=False))
        cluster.produce(1, Batch())
        return cluster
