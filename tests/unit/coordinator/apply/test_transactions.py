"""Transactions: who takes part, how they end, and what a partition looks like then."""

import pytest

from coordinator.apply import transactions as apply_transactions
from coordinator.apply.apply import apply
from coordinator.commands.admin import CreatePartitions
from coordinator.commands.commands import (
    AdvanceLogStart,
    ChunksCommitted,
    Command,
    DeleteTopic,
    Done,
    ExpireProducers,
    Rejected,
    ReportTime,
)
from coordinator.commands.transaction import (
    ExpireTransaction,
    ExpireTransactionalIds,
    SetTransactionVersion,
    TerminateTransaction,
)
from coordinator.snapshot import decode_snapshot, digest, encode_snapshot
from coordinator.state.chunk_index import NO_OBJECT, MarkerRow
from protocol.errors import ErrorCode
from protocol.types import Milliseconds, Offset, ProducerEpoch, ProducerId
from tests.support.commands.commands import TOPIC, Batch, Chunk, Cluster, commit, start
from tests.support.commands.transaction_commands import ID, V1, V2, add, begin, decided, end, transactional
from txn.isolation import AbortedRange
from txn.transaction import TransactionStatus, TransactionVersion

FENCED = ErrorCode.producer_fenced


def started() -> Cluster:
    cluster = Cluster.started()
    told = decided(cluster, begin())
    assert (told.error_code, told.producer_id, told.epoch) == (ErrorCode.none, 0, 0)
    return cluster


def written(cluster: Cluster, *batches: Batch, number: int = 0) -> list[tuple[int, int]]:
    outcome = cluster.produce(number, *batches)
    return list(zip(outcome.error_codes, outcome.base_offsets, strict=True))


class TestV2:
    def test_a_batch_begins_a_transaction_and_a_commit_ends_it_with_a_marker(self) -> None:
        cluster = started()
        assert written(cluster, transactional(0, records=3), transactional(3)) == [(0, 0), (0, 3)]
        assert cluster.state.transactional_ids[ID].metadata.status is TransactionStatus.ONGOING
        assert cluster.partition.last_stable == 0
        told = decided(cluster, end(), time_ms=5)
        assert (told.error_code, told.producer_id, told.epoch) == (ErrorCode.none, 0, 1)
        assert told.grown == ((TOPIC, 0),)
        assert (cluster.partition.log_end, cluster.partition.last_stable) == (5, 5)
        marker = cluster.partition.index.row(len(cluster.partition.index) - 1)
        assert marker.marker == MarkerRow(ProducerId(0), ProducerEpoch(1), True, Milliseconds(5))
        assert (marker.offset_first, marker.offset_end, marker.object_id) == (4, 5, NO_OBJECT)
        assert cluster.partition.transactions is None

    def test_an_abort_leaves_a_range_that_readers_drop(self) -> None:
        cluster = started()
        cluster.produce(0, Batch(records=2))
        written(cluster, transactional(0, records=3), number=1)
        assert cluster.partition.last_stable == 2
        assert decided(cluster, end(is_commit=False)).epoch == 1
        transactions = cluster.partition.transactions
        assert transactions is not None
        assert transactions.aborted_between(Offset(0), Offset(6)) == [AbortedRange(ProducerId(0), Offset(2))]
        assert cluster.partition.last_stable == cluster.partition.log_end == 6

    def test_the_next_transaction_begins_at_sequence_0_in_the_next_epoch(self) -> None:
        cluster = started()
        written(cluster, transactional(0))
        decided(cluster, end())
        assert written(cluster, transactional(1, epoch=1), number=1) == [(ErrorCode.out_of_order_sequence_number, -1)]
        assert written(cluster, transactional(0, epoch=1), number=2) == [(0, 2)]
        assert written(cluster, transactional(1, epoch=0), number=3) == [(ErrorCode.invalid_producer_epoch, -1)]

    def test_a_repeat_of_the_end_is_answered_and_ends_nothing_more(self) -> None:
        cluster = started()
        written(cluster, transactional(0))
        decided(cluster, end())
        log_end = cluster.partition.log_end
        told = decided(cluster, end())
        assert (told.error_code, told.epoch, told.grown) == (ErrorCode.none, 1, ())
        assert cluster.partition.log_end == log_end
        assert decided(cluster, end(is_commit=False)).error_code is not ErrorCode.none

    def test_a_repeated_batch_has_its_first_copys_offset(self) -> None:
        cluster = started()
        assert written(cluster, transactional(0, records=2)) == [(0, 0)]
        assert written(cluster, transactional(0, records=2), number=1) == [(0, 0)]


class TestV1:
    def test_partitions_are_added_before_they_are_written_to(self) -> None:
        cluster = started()
        refused = written(cluster, transactional(0, version=V1))
        assert refused[0][0] != 0
        assert decided(cluster, add(0)).error_code is ErrorCode.none
        assert written(cluster, transactional(0, version=V1), number=1) == [(0, 0)]
        told = decided(cluster, end(version=V1))
        assert (told.error_code, told.producer_id, told.epoch) == (ErrorCode.none, -1, -1)
        assert decided(cluster, add(0)).error_code is ErrorCode.none
        assert written(cluster, transactional(1, version=V1), number=2) == [(0, 2)]

    def test_a_partition_without_records_has_its_marker_too(self) -> None:
        cluster = started()
        decided(cluster, add(0))
        decided(cluster, end(version=V1, is_commit=False))
        assert cluster.partition.log_end == 1
        assert cluster.partition.transactions is None

    def test_partitions_that_are_not_there_are_refused_and_none_is_added(self) -> None:
        cluster = started()
        assert decided(cluster, add(0, 1)).error_code is ErrorCode.unknown_topic_or_partition
        assert not cluster.state.transactional_ids[ID].metadata.is_ongoing


class TestOpenOnes:
    def test_those_that_are_open_are_known_without_a_look_at_all_ids(self) -> None:
        cluster = started()
        decided(cluster, begin(transactional_id="idle"))
        assert cluster.state.open_transactions == {}
        written(cluster, transactional(0))
        assert cluster.state.open_transactions == {ID: None}
        assert decode_snapshot(encode_snapshot(cluster.state)).open_transactions == {ID: None}
        decided(cluster, end())
        assert cluster.state.open_transactions == {}

    def test_they_are_counted_by_how_they_ended(self) -> None:
        cluster = started()
        ends: tuple[Command, ...] = (
            end(version=V1),
            end(version=V1, is_commit=False),
            ExpireTransaction(transactional_id=ID, producer_id=ProducerId(0), epoch=ProducerEpoch(0), serial=3),
            begin(),
            TerminateTransaction(producer_id=ProducerId(0), epoch=ProducerEpoch(3), is_commit=False),
        )
        for command, epoch in zip(ends, (0, 0, 0, 1, 3), strict=True):
            assert decided(cluster, add(0, epoch=epoch)).error_code is ErrorCode.none
            decided(cluster, command)
        assert cluster.state.transaction_counts.begun == len(ends)
        assert set(cluster.state.transaction_counts.ended.values()) == {1}


class TestFencing:
    def test_a_new_instance_aborts_what_the_old_one_has_open(self) -> None:
        cluster = started()
        written(cluster, transactional(0))
        told = decided(cluster, begin())
        assert (told.error_code, told.producer_id, told.epoch) == (ErrorCode.none, 0, 2)
        assert told.grown == ((TOPIC, 0),)
        assert written(cluster, transactional(1), number=1) == [(ErrorCode.invalid_producer_epoch, -1)]
        assert decided(cluster, end()).error_code is FENCED

    @pytest.mark.parametrize("version", [V1, V2])
    def test_a_late_end_of_an_older_epoch_decides_nothing(self, version: TransactionVersion) -> None:
        cluster = started()
        decided(cluster, begin())
        decided(cluster, add(0, epoch=1))
        assert decided(cluster, end(version=version)).error_code is FENCED
        assert cluster.state.transactional_ids[ID].metadata.is_ongoing


class TestConnectionEpochs:
    def test_s7_a_request_on_an_older_connection_of_the_agent_decides_nothing(self) -> None:
        cluster = started()
        decided(cluster, add(0, connection_epoch=(5, 8)))
        assert decided(cluster, end(version=V1, connection_epoch=(5, 7))).is_stale
        assert cluster.state.transactional_ids[ID].metadata.is_ongoing
        assert not decided(cluster, end(version=V1, connection_epoch=(5, 8))).is_stale

    def test_s7_partitions_are_not_added_on_an_older_connection(self) -> None:
        cluster = started()
        decided(cluster, add(0, connection_epoch=(5, 8)))
        decided(cluster, end(version=V1, connection_epoch=(5, 8)))
        assert decided(cluster, add(0, connection_epoch=(5, 7))).is_stale
        assert not cluster.state.transactional_ids[ID].metadata.is_ongoing

    def test_s7_an_older_epoch_on_an_older_connection_is_fenced_and_told(self) -> None:
        cluster = started()
        decided(cluster, begin())
        decided(cluster, add(0, epoch=1, connection_epoch=(5, 8)))
        told = decided(cluster, end(version=V1, connection_epoch=(5, 7)))
        assert (told.is_stale, told.error_code) == (False, FENCED)

    def test_s7_one_of_another_agent_has_to_be_later_than_what_was_done_last(self) -> None:
        cluster = started()
        cluster.do(start("b", node=2), session=2)
        decided(cluster, add(0, connection_epoch=(2, 8)))
        acted_at = cluster.state.position
        assert decided(cluster, end(version=V1, connection_epoch=(acted_at, 99)), session=2).is_stale
        assert decided(cluster, end(version=V1, connection_epoch=(acted_at - 1, 99)), session=2).is_stale
        assert not decided(cluster, end(version=V1, connection_epoch=(acted_at + 1, 1)), session=2).is_stale

    def test_s7_who_goes_back_to_a_connection_that_it_has_had_for_long_has_left_those_since(self) -> None:
        cluster = started()
        cluster.do(start("b", node=2), session=2)
        decided(cluster, add(0, connection_epoch=(2, 0)), session=2)
        opened_at = cluster.state.position  # a connection to the other agent; what is asked there comes late
        cluster.do(ReportTime(), time_ms=1)
        assert not decided(cluster, end(version=V1, connection_epoch=(2, 0)), session=2).is_stale
        decided(cluster, add(0, connection_epoch=(2, 0)), session=2)
        assert decided(cluster, end(version=V1, connection_epoch=(opened_at, 0))).is_stale
        assert cluster.state.transactional_ids[ID].metadata.is_ongoing


def test_a_known_producer_of_v1_that_goes_on_without_having_added_the_partition_is_refused() -> None:
    cluster = started()
    decided(cluster, add(0))
    assert cluster.produce(0, transactional(0, version=V1)).error_codes == [0]
    decided(cluster, end(version=V1))
    outcome = cluster.produce(1, transactional(1, version=V1))
    assert (outcome.error_codes, outcome.base_offsets) == ([ErrorCode.transaction_abortable], [-1])


def test_a_producer_that_writes_outside_its_open_transaction_is_refused() -> None:
    cluster = started()
    written(cluster, transactional(0))
    plain = Batch(producer=0, epoch=0, sequence=1)
    assert written(cluster, plain, number=1) == [(ErrorCode.invalid_txn_state, -1)]
    decided(cluster, end())
    after = Batch(producer=0, epoch=1, sequence=0)
    assert written(cluster, after, number=2) == [(0, 2)]


def test_a_state_with_transactions_is_its_snapshot() -> None:
    cluster = started()
    written(cluster, transactional(0))
    decided(cluster, end(is_commit=False))
    written(cluster, transactional(0, epoch=1), number=1)
    decided(cluster, begin(transactional_id="other"))
    decided(cluster, add(0, producer=1, transactional_id="other", groups=("g",), connection_epoch=(3, 4)))
    copy = decode_snapshot(encode_snapshot(cluster.state))
    assert digest(copy) == digest(cluster.state)
    assert copy.transactional_ids == cluster.state.transactional_ids
    assert copy.topics[TOPIC].partitions[0].transactions == cluster.partition.transactions


def test_a_deleted_topic_is_no_part_of_its_transactions_any_more() -> None:
    cluster = started()
    written(cluster, transactional(0))
    cluster.do(DeleteTopic(topic_id=TOPIC))
    told = decided(cluster, end())
    assert (told.error_code, told.grown) == (ErrorCode.none, ())


def test_two_producers_in_one_entry_are_open_from_their_own_first_offsets() -> None:
    cluster = started()
    decided(cluster, begin(transactional_id="other"))
    cluster.do(commit(0, Chunk(batches=[transactional(0, records=2), transactional(0, producer=1)])))
    transactions = cluster.partition.transactions
    assert transactions is not None
    assert transactions.open == {0: 0, 1: 2}
    decided(cluster, end())
    assert cluster.partition.last_stable == 2


def expire(serial: int, *, epoch: int = 0) -> ExpireTransaction:
    return ExpireTransaction(transactional_id=ID, producer_id=ProducerId(0), epoch=ProducerEpoch(epoch), serial=serial)


def terminate(*, producer: int = 0, epoch: int = 0, is_commit: bool = False) -> TerminateTransaction:
    return TerminateTransaction(producer_id=ProducerId(producer), epoch=ProducerEpoch(epoch), is_commit=is_commit)


class TestTimeOuts:
    def test_a_transaction_that_was_seen_open_for_too_long_is_aborted(self) -> None:
        cluster = started()
        written(cluster, transactional(0))
        assert decided(cluster, expire(1)).grown == ((TOPIC, 0),)
        assert cluster.partition.last_stable == 2
        assert written(cluster, transactional(1), number=1) == [(ErrorCode.invalid_producer_epoch, -1)]

    def test_the_next_one_is_not(self) -> None:
        cluster = started()
        decided(cluster, add(0))
        decided(cluster, end(version=V1))
        decided(cluster, add(0))
        assert decided(cluster, expire(1)).grown == ()
        assert cluster.state.transactional_ids[ID].metadata.is_ongoing
        assert decided(cluster, expire(2)).grown == ((TOPIC, 0),)

    def test_one_of_an_unknown_id_expires_nothing(self) -> None:
        assert decided(Cluster.started(), expire(1)).error_code is not ErrorCode.none


class TestTools:
    def test_s15_what_hangs_is_aborted_at_its_producer_id_and_epoch(self) -> None:
        cluster = started()
        written(cluster, transactional(0))
        assert decided(cluster, terminate(epoch=3)).error_code is not ErrorCode.none
        assert decided(cluster, terminate(is_commit=True)).error_code is not ErrorCode.none
        assert decided(cluster, terminate(producer=9)).grown == ()
        assert cluster.state.transactional_ids[ID].metadata.is_ongoing
        assert decided(cluster, terminate()).grown == ((TOPIC, 0),)
        assert cluster.partition.last_stable == cluster.partition.log_end


class TestTransactionalIds:
    def test_those_that_nobody_used_are_forgotten_with_their_producers(self) -> None:
        cluster = Cluster.started()
        decided(cluster, begin(), time_ms=10)
        decided(cluster, begin(transactional_id="late"), time_ms=20)
        decided(cluster, begin(transactional_id="open"), time_ms=20)
        decided(cluster, add(0, producer=2, transactional_id="open"))
        assert cluster.do(ExpireTransactionalIds(cutoff_ms=Milliseconds(15))) == Done()
        assert list(cluster.state.transactional_ids) == ["late", "open"]
        cluster.do(ExpireTransactionalIds(cutoff_ms=Milliseconds(99)), time_ms=21)
        assert list(cluster.state.transactional_ids) == ["open"]
        assert decided(cluster, end()).error_code is ErrorCode.invalid_producer_id_mapping

    def test_so_many_go_at_most(self) -> None:
        cluster = Cluster.started()
        for number in range(5):
            decided(cluster, begin(transactional_id=f"id-{number}"), time_ms=10)
        expired = ExpireTransactionalIds(cutoff_ms=Milliseconds(20), ids_max=3)
        cluster.do(expired, time_ms=20)
        assert list(cluster.state.transactional_ids) == ["id-3", "id-4"]
        cluster.do(expired)
        assert cluster.state.transactional_ids == {}

    def test_s2_one_that_was_used_while_nobody_told_the_time_is_as_old_as_the_expiry(self) -> None:
        cluster = Cluster.started()
        decided(cluster, begin(), time_ms=10)
        decided(cluster, begin())
        cluster.do(ExpireTransactionalIds(cutoff_ms=Milliseconds(50)), time_ms=60)
        assert cluster.state.transactional_ids[ID].updated_ms == 60
        cluster.do(ExpireTransactionalIds(cutoff_ms=Milliseconds(61)), time_ms=61)
        assert cluster.state.transactional_ids == {}

    def test_s2_an_expiry_that_tells_no_time_makes_nobody_older(self) -> None:
        cluster = Cluster.started()
        decided(cluster, begin(), time_ms=10)
        decided(cluster, begin())
        cluster.do(ExpireTransactionalIds(cutoff_ms=Milliseconds(50)))
        cluster.do(ExpireTransactionalIds(cutoff_ms=Milliseconds(50)), time_ms=60)
        assert cluster.state.transactional_ids[ID].updated_ms == 60

    def test_an_agent_that_loaded_a_snapshot_forgets_the_same(self) -> None:
        cluster = Cluster.started()
        for transactional_id in ("b", "a"):
            decided(cluster, begin(transactional_id=transactional_id), time_ms=10)
        before = decode_snapshot(encode_snapshot(cluster.state))
        cluster.do(ExpireTransactionalIds(cutoff_ms=Milliseconds(20), ids_max=1), time_ms=20)
        apply(before, cluster.records[-1])
        assert list(before.transactional_ids) == list(cluster.state.transactional_ids) == ["a"]
        assert digest(before) == digest(cluster.state)

    def test_s2_a_cutoff_ahead_of_the_states_time_counts_as_that(self) -> None:
        cluster = Cluster.started()
        decided(cluster, begin(), time_ms=10)
        cluster.do(ExpireTransactionalIds(cutoff_ms=Milliseconds(1 << 40)))
        assert ID in cluster.state.transactional_ids

    def test_there_are_only_so_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(apply_transactions, "TRANSACTIONAL_IDS_MAX", 1)
        cluster = started()
        outcome = cluster.do(begin(transactional_id="other"))
        assert isinstance(outcome, Rejected)
        assert outcome.error_code is ErrorCode.policy_violation
        assert decided(cluster, begin()).epoch == 1

    def test_a_producer_that_says_what_it_had_goes_on(self) -> None:
        cluster = started()
        assert decided(cluster, begin(producer=0, epoch=0)).epoch == 1
        assert decided(cluster, begin(producer=9, epoch=0)).error_code is FENCED


class TestLimits:
    def test_a_v1_transaction_has_only_so_many_partitions_and_groups(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(apply_transactions, "TRANSACTION_MEMBERS_MAX", 1)
        cluster = started()
        assert decided(cluster, add(0, groups=("g",))).error_code is ErrorCode.policy_violation
        assert decided(cluster, add(0)).error_code is ErrorCode.none

    def test_a_v2_transaction_has_only_so_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cluster = started()
        written(cluster, transactional(0))
        monkeypatch.setattr(apply_transactions, "TRANSACTION_MEMBERS_MAX", 1)
        cluster.do(CreatePartitions(topic_id=TOPIC, partition_count=2))
        outcome = cluster.do(commit(1, Chunk(partition=1, batches=[transactional(0)])))
        assert isinstance(outcome, ChunksCommitted)
        assert list(outcome.error_codes) == [ErrorCode.policy_violation]


class TestFeature:
    def test_a_level_is_changed_and_counted_once(self) -> None:
        cluster = Cluster.started()
        assert (cluster.state.transaction_version, cluster.state.features_epoch) == (2, 0)
        assert cluster.do(SetTransactionVersion(level=1)) == Done()
        cluster.do(SetTransactionVersion(level=1))
        assert (cluster.state.transaction_version, cluster.state.features_epoch) == (1, 1)

    def test_a_level_that_is_none_is_refused(self) -> None:
        outcome = Cluster.started().do(SetTransactionVersion(level=3))
        assert isinstance(outcome, Rejected)
        assert outcome.error_code is ErrorCode.invalid_update_version


class TestWhatIsNoLongerServed:
    def test_s5_a_range_whose_marker_is_below_the_logs_start_is_listed_no_more(self) -> None:
        cluster = started()
        written(cluster, transactional(0))
        decided(cluster, end(is_commit=False))
        written(cluster, transactional(0, epoch=1), number=1)
        decided(cluster, end(epoch=1, is_commit=False))
        assert aborted_count(cluster) == 2
        cluster.do(AdvanceLogStart(topic_ids=(TOPIC,), topic=[0], partition=[0], log_start=[2]))
        assert aborted_count(cluster) == 1
        cluster.do(AdvanceLogStart(topic_ids=(TOPIC,), topic=[0], partition=[0], log_start=[4]))
        assert cluster.partition.transactions is None
        assert cluster.state.objects == {}

    def test_an_open_producer_is_not_forgotten_however_idle(self) -> None:
        cluster = started()
        cluster.do(commit(0, Chunk(batches=[transactional(0)])), time_ms=5)
        cluster.do(ExpireProducers(cutoff_ms=Milliseconds(9)), time_ms=9)
        assert list(cluster.partition.producers) == [0]
        decided(cluster, end(), time_ms=9)
        cluster.do(ExpireProducers(cutoff_ms=Milliseconds(19)), time_ms=19)
        assert list(cluster.partition.producers) == []


def aborted_count(cluster: Cluster) -> int:
    transactions = cluster.partition.transactions
    return 0 if transactions is None else transactions.aborted_count


@pytest.mark.parametrize("command", [add(0), end(), end(version=V1)])
def test_an_unknown_transactional_id_is_told(command: Command) -> None:
    assert decided(Cluster.started(), command).error_code is ErrorCode.invalid_producer_id_mapping


def test_s7_a_new_epoch_begins_without_connection_epochs() -> None:
    cluster = started()
    decided(cluster, add(0, connection_epoch=(5, 8)))
    decided(cluster, begin())
    assert not decided(cluster, add(0, epoch=2, connection_epoch=(1, 1))).is_stale
