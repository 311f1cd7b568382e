"""Gaps that lost objects leave in a log, and what readers find there instead (safety rule S5)."""

from coordinator.apply.objects import add_object
from coordinator.apply.topics import create_topic
from coordinator.commands.commands import (
    CreateTopic,
)
from coordinator.invariants import check
from coordinator.recovery.state_recovery import StateRecovery
from coordinator.state.state import ClusterState
from storage.refs import ObjectKind
from tests.support.commands.commands import TOPIC


def test_s5_a_gap_behind_archived_records_is_chunks_of_their_file_without_rows() -> None:
    state = ClusterState.empty("mine", 1)
    create_topic(state, CreateTopic(name="t", topic_id=TOPIC, partition_count=1, configs=()))
    partition = state.topics[TOPIC].partitions[0]
    for number in range(4):
        object_id = state.object_id_next
        kind = ObjectKind.INTAKE if number == 3 else ObjectKind.PARQUET
        add_object(state, key=f"object {number}", kind=kind, object_bytes=10, references=1)
        partition.index.append(3 * number + 3, object_id, 0, 10, 1_000, -1)
        if kind is ObjectKind.PARQUET:
            row = partition.index.row(number)._replace(row_group=0, row_first=0, row_count=3)
            partition.index.replace(number, number + 1, [row])
    partition.log_end = partition.index.end
    recovery = StateRecovery(state, {})
    assert recovery.forget_lost({"object 1", "object 2", "object 3"}, 2) is None
    chunks = [(chunk.offset_end, chunk.object_id, chunk.row_count) for chunk in partition.index.rows_from(0)]
    assert (chunks, partition.log_end) == ([(3, 1, 3), (6, 1, 0), (9, 1, 0), (12, 1, 0)], 12)
    assert partition.index.archived_without_rows() == [(3, 12)]
    assert (recovery.topics[TOPIC].offsets_lost, check(state)) == (9, [])


def test_a_log_of_which_nothing_is_left_goes_on_where_it_was() -> None:
    state = ClusterState.empty("mine", 1)
    create_topic(state, CreateTopic(name="t", topic_id=TOPIC, partition_count=1, configs=()))
    partition = state.topics[TOPIC].partitions[0]
    add_object(state, key="gone", kind=ObjectKind.INTAKE, object_bytes=10, references=1)
    partition.index.append(3, 1, 0, 10, 1_000, -1)
    partition.log_end = partition.index.end
    assert StateRecovery(state, {}).forget_lost({"gone"}, 2) is None
    assert (partition.log_start, partition.log_end, len(partition.index), check(state)) == (3, 3, 0, [])
