"""Topics whose transactions are placed at commit: nobody sees an open record, or an aborted one, or a gap."""

from dataclasses import replace

import pytest

from coordinator.apply import transactions as apply_transactions
from coordinator.commands.admin import AlterConfigs, ConfigOperation, ConfigResourceType, OperationKind
from coordinator.commands.commands import ChunksCommitted, DeleteTopic, ExpireProducers
from coordinator.commands.rules import RULES_CHECKED_STORAGE, RULES_FIRST
from coordinator.configs.topic_configs import PLACEMENT
from coordinator.snapshot import decode_snapshot, digest, encode_snapshot
from coordinator.state.chunk_index import NO_CHECKSUM, OFFSET_FIRST
from coordinator.state.unplaced_batches import UnplacedBatch
from protocol.errors import ErrorCode
from protocol.records.crc import crc_of_crcs, pack_crcs
from protocol.types import Milliseconds, ObjectId, ProducerId
from tests.support.commands.commands import TOPIC, Batch, Chunk, Cluster, commit
from tests.support.commands.transaction_commands import ID, V1, add, begin, decided, end, transactional

WAITING = [(0, -1)]
FIRST = ProducerId(0)


def started(rules: int = RULES_FIRST, /, **configs: str) -> Cluster:
    cluster = Cluster.started(rules, **configs)
    place(cluster, "commit")
    decided(cluster, begin())
    return cluster


def place(cluster: Cluster, placement: str) -> None:
    operation = ConfigOperation(kind=OperationKind.SET, name=PLACEMENT, value=placement)
    cluster.do(
        AlterConfigs(resource_type=ConfigResourceType.TOPIC, resource_name="t", is_whole=False, operations=(operation,))
    )


def written(cluster: Cluster, number: int, *batches: Batch, time_ms: int | None = None) -> list[tuple[int, int]]:
    outcome = cluster.do(commit(number, Chunk(batches=batches)), time_ms=time_ms)
    assert isinstance(outcome, ChunksCommitted)
    return list(zip(outcome.error_codes, outcome.base_offsets, strict=True))


def rows(cluster: Cluster) -> list[tuple[int, int, int, int]]:
    """First offset, end, first byte and number of bytes of each chunk; a marker has no bytes."""
    return [
        (row.offset_first, row.offset_end, row.byte_first, 0 if row.marker else row.byte_count)
        for row in cluster.partition.index.rows_from(OFFSET_FIRST)
    ]


def test_a_commit_places_the_batches_one_behind_the_other_and_the_marker_behind_them() -> None:
    cluster = started()
    assert written(cluster, 0, transactional(0, records=3), transactional(3)) == [(0, -1), (0, -1)]
    assert (cluster.partition.log_end, cluster.partition.last_stable) == (0, 0)
    assert written(cluster, 1, Batch(records=2)) == [(0, 0)]
    assert written(cluster, 2, transactional(4)) == WAITING
    assert cluster.partition.last_stable == 2
    outcome = decided(cluster, end())
    assert outcome.grown == ((TOPIC, 0),)
    assert rows(cluster) == [(0, 2, 0, 100), (2, 6, 0, 200), (6, 7, 0, 100), (7, 8, 0, 0)]
    assert cluster.partition.last_stable == 8
    assert cluster.partition.unplaced_batches == {}
    assert cluster.partition.transactions is None


def test_an_abort_leaves_nothing_and_releases_the_bytes() -> None:
    cluster = started()
    written(cluster, 0, transactional(0))
    assert len(cluster.state.objects) == 1
    decided(cluster, end(is_commit=False))
    assert (cluster.partition.log_end, cluster.state.objects) == (0, {})
    assert len(cluster.state.released) == 1
    assert written(cluster, 1, transactional(1)) == [(ErrorCode.invalid_producer_epoch, -1)]
    assert written(cluster, 2, transactional(0, epoch=1)) == WAITING


def test_a_repeat_is_known_before_the_commit_and_after_it_and_has_no_offset() -> None:
    cluster = started()
    decided(cluster, add(0))
    batch = transactional(0, records=2, version=V1)
    assert written(cluster, 0, batch) == WAITING
    assert written(cluster, 1, batch) == WAITING
    assert cluster.partition.unplaced_batches[FIRST] == [
        UnplacedBatch(ObjectId(1), 0, 100, 2, Milliseconds(1_000), Milliseconds(-1))
    ]
    decided(cluster, end(version=V1))
    assert cluster.partition.log_end == 3
    decided(cluster, add(0))
    assert written(cluster, 2, batch) == WAITING
    assert written(cluster, 3, transactional(2, version=V1)) == WAITING
    decided(cluster, end(version=V1))
    assert cluster.partition.log_end == 5


def test_a_producer_whose_records_wait_is_not_forgotten_however_idle() -> None:
    cluster = started()
    decided(cluster, add(0))
    batch = transactional(0, version=V1)
    assert written(cluster, 0, batch, time_ms=1) == WAITING
    cluster.do(ExpireProducers(cutoff_ms=Milliseconds(9)), time_ms=9)
    assert written(cluster, 1, batch) == WAITING
    decided(cluster, end(version=V1))
    assert cluster.partition.log_end == 2


def test_a_producer_that_writes_outside_its_open_transaction_is_refused() -> None:
    """It would come before what it wrote earlier."""
    cluster = started()
    assert written(cluster, 0, transactional(0)) == WAITING
    outside = Batch(producer=0, epoch=0, sequence=1)
    assert written(cluster, 1, outside) == [(ErrorCode.invalid_txn_state, -1)]
    assert written(cluster, 2, Batch(), outside) == [(0, 0), (ErrorCode.invalid_txn_state, -1)]


def test_what_comes_between_cuts_the_run() -> None:
    cluster = started()
    assert written(cluster, 0, transactional(0), Batch(), transactional(1)) == [(0, -1), (0, 0), (0, -1)]
    decided(cluster, end())
    assert rows(cluster) == [(0, 1, 100, 100), (1, 2, 0, 100), (2, 3, 200, 100), (3, 4, 0, 0)]


@pytest.mark.parametrize(("first", "then"), [("commit", "produce"), ("produce", "commit")])
def test_placement_is_fixed_with_the_first_batch(first: str, then: str) -> None:
    cluster = started()
    place(cluster, first)
    at_once = written(cluster, 0, transactional(0)) == [(0, 0)]
    assert at_once == (first == "produce")
    place(cluster, then)
    assert written(cluster, 1, transactional(1)) == ([(0, 1)] if at_once else WAITING)
    decided(cluster, end())
    assert cluster.partition.log_end == 3
    assert written(cluster, 2, transactional(0, epoch=1)) == ([(0, 3)] if then == "produce" else WAITING)


def test_a_partition_without_records_has_no_marker() -> None:
    cluster = started()
    decided(cluster, add(0))
    decided(cluster, end(version=V1))
    assert cluster.partition.log_end == 0
    assert written(cluster, 0, transactional(0)) == WAITING


def test_a_new_instance_drops_what_waits() -> None:
    cluster = started()
    written(cluster, 0, transactional(0))
    decided(cluster, begin())
    assert (cluster.partition.log_end, cluster.partition.unplaced_batches, cluster.state.objects) == (0, {}, {})


def test_a_topic_that_is_deleted_takes_what_waits_with_it() -> None:
    cluster = started()
    written(cluster, 0, transactional(0), Batch())
    cluster.do(DeleteTopic(topic_id=TOPIC))
    assert cluster.state.objects == {}
    held = cluster.state.transactional_ids[ID]
    assert (held.unplaced_runs, held.unplaced_bytes) == (0, 0)
    assert decided(cluster, end()).error_code is ErrorCode.none


def test_s14_append_time_is_that_of_the_produce() -> None:
    cluster = started(message_timestamp_type="LogAppendTime")
    written(cluster, 0, transactional(0), time_ms=5)
    decided(cluster, end(), time_ms=9)
    row = cluster.partition.index.row(0)
    assert (row.append_time_ms, row.max_timestamp) == (5, 5)


def told_ms(cluster: Cluster, number: int, *batches: Batch, time_ms: int) -> dict[int, int]:
    """By batch: the append time that is told of it."""
    outcome = cluster.do(commit(number, Chunk(batches=batches)), time_ms=time_ms)
    assert isinstance(outcome, ChunksCommitted)
    assert set(outcome.error_codes) == {0}
    return dict(outcome.waiting_append_time_ms)


def test_s14_append_time_is_told_of_what_waits_and_of_its_repeats_while_it_waits() -> None:
    cluster = started(message_timestamp_type="LogAppendTime")
    decided(cluster, add(0))
    first, second, third = (transactional(n, records=2, version=V1) for n in (0, 2, 4))
    assert told_ms(cluster, 0, first, Batch(), second, time_ms=5) == {0: 5, 2: 5}
    assert told_ms(cluster, 1, third, time_ms=7) == {0: 7}
    assert told_ms(cluster, 2, third, second, first, time_ms=8) == {0: 7, 1: 5, 2: 5}
    decided(cluster, end(version=V1))
    decided(cluster, add(0))
    assert told_ms(cluster, 3, third, transactional(6, version=V1), time_ms=9) == {1: 9}


def test_nobody_is_told_a_time_where_the_broker_stamps_nothing() -> None:
    cluster = started()
    assert told_ms(cluster, 0, transactional(0), time_ms=5) == {}
    assert told_ms(cluster, 1, transactional(0), time_ms=6) == {}


def test_what_waits_is_part_of_the_state() -> None:
    cluster = started()
    written(cluster, 0, transactional(0), Batch(), transactional(1))
    copy = decode_snapshot(encode_snapshot(cluster.state))
    assert digest(copy) == digest(cluster.state)
    assert copy.topics[TOPIC].partitions[0].unplaced_batches == cluster.partition.unplaced_batches
    assert copy.transactional_ids == cluster.state.transactional_ids


@pytest.mark.parametrize(
    ("limit", "most"), [("TRANSACTION_UNPLACED_RUNS_MAX", 1), ("TRANSACTION_UNPLACED_BYTES_MAX", 150)]
)
def test_there_is_a_limit_to_what_waits(monkeypatch: pytest.MonkeyPatch, limit: str, most: int) -> None:
    monkeypatch.setattr(apply_transactions, limit, most)
    cluster = started()
    assert written(cluster, 0, transactional(0)) == WAITING
    assert written(cluster, 1, transactional(1)) == [(ErrorCode.policy_violation, -1)]
    decided(cluster, end())
    assert cluster.partition.log_end == 2
    assert written(cluster, 2, transactional(0, epoch=1)) == WAITING


def test_what_waits_has_the_checksum_of_its_batches_however_they_came() -> None:
    """Safety rule S20: it is placed as one chunk, and read as one."""
    cluster = started(RULES_CHECKED_STORAGE)
    three = [replace(transactional(number), crc=crc) for number, crc in enumerate((5, 6, 7))]
    written(cluster, 0, *three, Batch(crc=8))
    written(cluster, 1, transactional(3), transactional(4))
    copy = decode_snapshot(encode_snapshot(cluster.state))
    waiting = cluster.partition.unplaced_batches[FIRST]
    checksum = crc_of_crcs(pack_crcs([5, 6, 7]))
    assert [run.checksum for run in waiting] == [checksum, NO_CHECKSUM]
    assert copy.topics[TOPIC].partitions[0].unplaced_batches[FIRST] == waiting
    decided(cluster, end())
    assert [row.checksum for row in cluster.partition.index.rows_from(0)] == [8, checksum, NO_CHECKSUM, NO_CHECKSUM]
