"""What becomes of the batches of an intake object."""

from dataclasses import replace

import pytest

from coordinator.commands.commands import ChunksCommitted, Outcome, Rejected
from coordinator.commands.rules import RULES_CHECKED_ENTRIES, RULES_CHECKED_STORAGE
from coordinator.state.chunk_index import NO_CHECKSUM
from protocol.errors import ErrorCode
from protocol.records.crc import crc_of_crcs, pack_crcs
from protocol.types import PartitionIndex, ProducerId, SessionId, TopicId
from tests.support.commands.commands import BATCH_BYTES, TOPIC, Batch, Chunk, Cluster, commit, create, idempotent, start

OTHER = TopicId(bytes([1] * 16))
NOT_LEADER_OR_FOLLOWER = 6
OUT_OF_ORDER = 45
DUPLICATE_SEQUENCE = 46
STALE_EPOCH = 47
INVALID_TXN_STATE = 48
KEY = "intake/0000000000000001/{:016x}"


def committed(outcome: Outcome) -> ChunksCommitted:
    assert isinstance(outcome, ChunksCommitted)
    return outcome


def rows(cluster: Cluster) -> list[tuple[int, int, int, int]]:
    """First offset, end, first byte and bytes of every chunk."""
    return [
        (chunk.offset_first, chunk.offset_end, chunk.byte_first, chunk.byte_count)
        for chunk in cluster.partition.index.rows_from(0)
    ]


class TestBatchesWithoutProducers:
    def test_one_batch_gets_the_end_of_the_log(self) -> None:
        cluster = Cluster.started()
        cluster.produce(0, Batch(records=3))
        outcome = cluster.produce(1, Batch(records=2, timestamp=77))
        assert outcome == ChunksCommitted(
            error_codes=[0], base_offsets=[3], append_time_ms=[-1], log_start=[0], grown=((TOPIC, PartitionIndex(0)),)
        )
        assert cluster.partition.log_end == 5
        assert cluster.partition.index.row(1).max_timestamp == 77

    def test_a_chunk_of_several_batches_is_one_row(self) -> None:
        cluster = Cluster.started()
        outcome = cluster.produce(0, Batch(records=3, timestamp=9_000), Batch(records=2), Batch())
        assert outcome.base_offsets == [0, 3, 5]
        assert rows(cluster) == [(0, 6, 0, 3 * BATCH_BYTES)]
        assert cluster.partition.index.row(0).max_timestamp == 9_000

    def test_a_row_has_the_checksum_of_its_batches(self) -> None:
        cluster = Cluster.started(RULES_CHECKED_STORAGE)
        cluster.produce(0, Batch(crc=9))
        cluster.produce(1, Batch(crc=0xFFFFFFFF), Batch(crc=8), Batch(crc=7))
        cluster.produce(2, Batch(), Batch())
        checksums = [row.checksum for row in cluster.partition.index.rows_from(0)]
        assert checksums == [9, crc_of_crcs(pack_crcs([0xFFFFFFFF, 8, 7])), NO_CHECKSUM]

    def test_a_row_of_accepted_batches_has_their_checksum_alone(self) -> None:
        cluster = Cluster.started(RULES_CHECKED_STORAGE)
        cluster.produce(0, replace(idempotent(0), crc=1))
        again = replace(idempotent(0), crc=2)
        cluster.produce(1, Batch(crc=3), Batch(crc=4), again, replace(idempotent(1), crc=5), again, Batch(crc=6))
        expected = [1, crc_of_crcs(pack_crcs([3, 4])), 5, 6]
        assert [row.checksum for row in cluster.partition.index.rows_from(0)] == expected
        assert rows(cluster)[1:] == [(1, 3, 0, 200), (3, 4, 300, 100), (4, 5, 500, 100)]

    def test_chunks_of_one_object_count_as_its_references(self) -> None:
        cluster = Cluster.started()
        cluster.do(create("u", topic_id=OTHER, partitions=2))
        outcome = committed(
            cluster.do(
                commit(
                    0,
                    Chunk(batches=[Batch()]),
                    Chunk(topic_id=OTHER, partition=1, batches=[Batch(), Batch()]),
                    Chunk(batches=[Batch()]),
                )
            )
        )
        assert outcome.base_offsets == [0, 0, 1, 1]
        assert outcome.grown == ((TOPIC, 0), (OTHER, 1))
        (found,) = cluster.state.objects.values()
        assert (found.key, found.references, found.object_bytes) == (KEY.format(0), 3, 4 * BATCH_BYTES)
        assert rows(cluster) == [(0, 1, 0, 100), (1, 2, 300, 100)]


class TestWhatIsNotThere:
    @pytest.mark.parametrize("chunk", [Chunk(topic_id=OTHER, batches=[Batch()]), Chunk(partition=1, batches=[Batch()])])
    def test_an_unknown_partition_is_told_for_its_batches_alone(self, chunk: Chunk) -> None:
        cluster = Cluster.started()
        outcome = committed(cluster.do(commit(0, chunk, Chunk(batches=[Batch()]))))
        assert outcome.error_codes == [ErrorCode.unknown_topic_or_partition, 0]
        assert outcome.base_offsets == [-1, 0]
        assert (outcome.append_time_ms, outcome.log_start) == ([-1, -1], [-1, 0])

    def test_s6_an_object_without_an_accepted_batch_is_released_at_once(self) -> None:
        cluster = Cluster.started()
        outcome = committed(cluster.do(commit(3, Chunk(partition=1, batches=[Batch()])), time_ms=8))
        assert outcome.grown == ()
        assert cluster.state.objects == {}
        assert cluster.state.released == {KEY.format(3): 8}


class TestS1Objects:
    def test_an_object_of_another_session_is_refused(self) -> None:
        cluster = Cluster.started()
        cluster.do(start("b", node=2), session=2)
        outcome = cluster.do(commit(0, Chunk(batches=[Batch()]), session=1), session=2)
        assert isinstance(outcome, Rejected)
        assert outcome.error_code is ErrorCode.not_leader_or_follower
        assert not cluster.state.objects

    @pytest.mark.parametrize("partition", [0, 1])
    def test_an_object_is_committed_once(self, partition: int) -> None:
        cluster = Cluster.started()
        cluster.do(commit(0, Chunk(partition=partition, batches=[Batch()])))
        outcome = cluster.do(commit(0, Chunk(batches=[Batch()])))
        assert isinstance(outcome, Rejected)
        assert outcome.error_code is ErrorCode.invalid_request

    def test_the_session_of_the_object_counts_not_that_of_its_agent(self) -> None:
        cluster = Cluster.started()
        command = replace(commit(0, Chunk(batches=[Batch()])), object_session=SessionId(5))
        assert isinstance(cluster.do(command), Rejected)


class TestIdempotentProducers:
    def test_batches_in_order_are_accepted(self) -> None:
        cluster = Cluster.started()
        for number in range(7):
            assert cluster.produce(number, idempotent(number * 2, records=2)).base_offsets == [number * 2]
        assert cluster.partition.producers[next(iter(cluster.partition.producers))].sequence_next == 14

    def test_a_repeat_gets_its_first_offset_and_no_space(self) -> None:
        cluster = Cluster.started()
        cluster.produce(0, Batch(records=4))
        cluster.produce(1, idempotent(0, records=2))
        outcome = cluster.produce(2, idempotent(0, records=2))
        assert (outcome.error_codes, outcome.base_offsets, outcome.grown) == ([0], [4], ())
        assert cluster.partition.log_end == 6
        assert list(cluster.state.released) == [KEY.format(2)]

    def test_a_repeat_at_the_end_of_the_log_is_still_a_repeat(self) -> None:
        cluster = Cluster.started()
        outcome = cluster.produce(0, idempotent(0), idempotent(0), idempotent(1))
        assert outcome.base_offsets == [0, 0, 1]
        assert rows(cluster) == [(0, 1, 0, 100), (1, 2, 200, 100)]

    def test_a_repeat_that_is_no_longer_remembered_is_answered_as_appended_before(self) -> None:
        """A hint moved while its old agent stood still, and the new one took more batches than are remembered."""
        cluster = Cluster.started(RULES_CHECKED_ENTRIES)
        for sequence in range(12):
            cluster.produce(sequence, idempotent(sequence))
        outcome = cluster.produce(12, idempotent(0), idempotent(2), idempotent(13))
        assert outcome.error_codes == [DUPLICATE_SEQUENCE, 0, OUT_OF_ORDER]
        assert outcome.base_offsets == [-1, 2, -1]
        assert cluster.partition.log_end == 12
        assert cluster.partition.producers[ProducerId(7)].run_first == 0

    def test_s8_a_first_sequence_that_is_not_0_is_out_of_order(self) -> None:
        cluster = Cluster.started()
        assert cluster.produce(0, idempotent(1)).error_codes == [OUT_OF_ORDER]
        assert cluster.produce(1, idempotent(0)).error_codes == [0]
        assert cluster.produce(2, idempotent(1)).error_codes == [0]

    def test_an_old_epoch_is_fenced(self) -> None:
        cluster = Cluster.started()
        cluster.produce(0, idempotent(0, epoch=1))
        assert cluster.produce(1, idempotent(0, epoch=0)).error_codes == [STALE_EPOCH]

    def test_refused_batches_split_a_chunk_into_runs_of_bytes(self) -> None:
        cluster = Cluster.started()
        outcome = cluster.produce(
            0,
            idempotent(5),
            Batch(records=2, timestamp=3),
            idempotent(0),
            idempotent(9),
            idempotent(8),
            Batch(records=4, timestamp=2),
        )
        assert outcome.error_codes == [OUT_OF_ORDER, 0, 0, OUT_OF_ORDER, OUT_OF_ORDER, 0]
        assert outcome.base_offsets == [-1, 0, 2, -1, -1, 3]
        assert rows(cluster) == [(0, 3, 100, 200), (3, 7, 500, 100)]
        assert [chunk.max_timestamp for chunk in cluster.partition.index.rows_from(0)] == [1_000, 2]
        assert [found.references for found in cluster.state.objects.values()] == [2]

    def test_a_refused_batch_after_refused_ones_leaves_no_row(self) -> None:
        cluster = Cluster.started()
        cluster.produce(0, idempotent(5), idempotent(6))
        assert rows(cluster) == []

    def test_producers_are_active_when_they_write(self) -> None:
        cluster = Cluster.started()
        for number, time_ms in enumerate((10, 20)):
            cluster.do(commit(number, Chunk(batches=[idempotent(number)])), time_ms=time_ms)
            (producer,) = cluster.partition.producers.values()
            assert producer.last_active_ms == time_ms


def test_transactional_batches_of_a_producer_without_a_transactional_id_are_refused() -> None:
    cluster = Cluster.started()
    batch = replace(idempotent(0), is_transactional=True)
    assert cluster.produce(0, batch).error_codes == [ErrorCode.invalid_producer_id_mapping]
    assert cluster.produce(1, Batch(), Batch(is_transactional=True)).error_codes == [0, INVALID_TXN_STATE]


@pytest.mark.parametrize("batches", [[Batch()], [Batch(), Batch()], [idempotent(0), idempotent(2)]])
def test_s14_a_topic_with_append_time_gets_the_states_time(batches: list[Batch]) -> None:
    cluster = Cluster.started(message_timestamp_type="LogAppendTime")
    outcome = committed(cluster.do(commit(0, Chunk(batches=batches)), time_ms=123))
    assert outcome.append_time_ms == [123]
    chunk = cluster.partition.index.row(0)
    assert (chunk.append_time_ms, chunk.max_timestamp) == (123, 123)


def test_s14_nothing_is_stamped_before_the_state_has_a_time_and_other_topics_go_on() -> None:
    cluster = Cluster.started(message_timestamp_type="LogAppendTime")
    cluster.do(create("u", topic_id=OTHER))
    chunks = [Chunk(batches=[idempotent(0), Batch()]), Chunk(topic_id=OTHER, batches=[Batch()])]
    refused = committed(cluster.do(commit(0, *chunks)))
    assert refused.error_codes == [NOT_LEADER_OR_FOLLOWER, NOT_LEADER_OR_FOLLOWER, 0]
    assert refused.append_time_ms == [-1, -1]
    assert cluster.partition.log_end == 0
    accepted = committed(cluster.do(commit(1, *chunks), time_ms=5))
    assert (accepted.error_codes, accepted.append_time_ms) == ([0, 0, 0], [5, -1])
