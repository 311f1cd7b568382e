"""What the tail manifest says of a state."""

import random

import pytest

from coordinator.apply.retention import forget_markers
from coordinator.state.chunk_index import ChunkRef, MarkerRow, marker_row
from coordinator.state.state import ClusterState, PartitionState, TableState
from iceberg_export.tail.manifest import NO_KEY, NO_ROWS, TailPartition
from iceberg_export.tail.planner import TailTopics, chunks_each, waiting_chunks
from protocol.types import NO_TIMESTAMP, Milliseconds, Offset, ProducerEpoch, ProducerId
from tests.support.lake.intake_states import ARCHIVED, TOPIC, partition_of, state_of
from txn.isolation import AbortedExtent, PartitionTransactions

MARKER = marker_row(MarkerRow(ProducerId(7), ProducerEpoch(0), is_commit=False, timestamp_ms=Milliseconds(9)))


def told(partition: TailPartition) -> list[tuple[int, int, str, int, int]]:
    return [
        (chunk.offset_first, chunk.offset_end, chunk.object_key, chunk.byte_first, chunk.byte_count)
        for chunk in partition.chunks
    ]


def test_an_unknown_topic_has_no_tail() -> None:
    state = state_of()
    state.topics.clear()
    assert TailTopics().topic(state, TOPIC, each_max=9) is None
    assert waiting_chunks(state, TOPIC) == []


def test_a_tail_is_what_lies_behind_the_archive() -> None:
    partitions = [
        partition_of((5, 1, 10), (8, 1, 20), (9, 2, 30), archived_count=1),
        partition_of((4, 1, 40), archived_count=1),
        partition_of(),
    ]
    for partition in partitions:
        partition.log_end = partition.index.end
    partitions[0].log_start = Offset(3)
    state = state_of(*partitions)
    topic = TailTopics().topic(state, TOPIC, each_max=9)
    assert topic is not None
    assert (topic.name, topic.topic_id, topic.metadata_key) == ("orders", TOPIC, NO_KEY)
    with_tail, archived, empty = topic.partitions
    assert told(with_tail) == [(5, 8, "intake/1", 40, 20), (8, 9, "intake/2", 40, 30)]
    assert (with_tail.log_start, with_tail.archived_end, with_tail.last_stable) == (3, 5, 9)
    assert (archived.archived_end, archived.last_stable, told(archived)) == (4, 4, [])
    assert (empty.archived_end, empty.last_stable, told(empty)) == (0, 0, [])
    assert waiting_chunks(state, TOPIC) == [2, 0, 0]
    assert topic.byte_count == 50


def test_a_table_is_reported_as_of_the_same_position() -> None:
    state = state_of(partition_of((5, 1, 10)))
    state.topics[TOPIC].table = TableState(metadata_key="lake/orders/metadata/7", version=7, objects=set())
    topic = TailTopics().topic(state, TOPIC, each_max=9)
    assert topic is not None
    assert topic.metadata_key == "lake/orders/metadata/7"


def test_a_topic_whose_archived_records_were_all_aborted_lacks_no_table() -> None:
    aborted = partition_of((5, 1, 10), (8, 1, 20), archived_count=2, row_count=0)
    for others, metadata_key in (
        ((), NO_ROWS),
        ((partition_of((4, 1, 40)),), NO_ROWS),
        ((partition_of((4, 1, 40), archived_count=1),), NO_KEY),
    ):
        topic = TailTopics().topic(state_of(aborted, *others), TOPIC, each_max=9)
        assert topic is not None
        assert topic.metadata_key == metadata_key
        assert [each.without_rows for each in topic.partitions] == [((0, 8),), *(() for _ in others)]


def test_an_open_transaction_ends_what_can_be_read_within_a_chunk_and_aborted_ones_are_reported() -> None:
    partition = partition_of((5, 1, 10))
    transactions = partition.transactions = PartitionTransactions()
    transactions.begin(ProducerId(7), Offset(2))
    transactions.end(ProducerId(7), partition.index.append_marker(MARKER), is_commit=False)
    partition.index.append(9, 2, 40, 20, 7, 11, 0xFFFFFFFF)
    partition.index.append(12, 2, 60, 20, 7, 11)
    transactions.begin(ProducerId(8), Offset(8))
    partition.log_end = Offset(12)
    topic = TailTopics().topic(state_of(partition), TOPIC, each_max=9)
    assert topic is not None
    (tail,) = topic.partitions
    assert told(tail) == [(0, 5, "intake/1", 40, 10), (5, 6, NO_KEY, 0, 0), (6, 9, "intake/2", 40, 20)]
    assert tail.chunks[2].append_time_ms == 11
    assert [each.checksum for each in tail.chunks] == [10, 0, 0xFFFFFFFF]
    assert tail.aborted == (AbortedExtent(ProducerId(7), Offset(2), Offset(5)),)
    assert (tail.last_stable, tail.readable_end) == (8, 8)
    assert waiting_chunks(state_of(partition), TOPIC) == [3]


def test_an_open_transaction_at_a_chunks_first_record_ends_the_tail_before_it() -> None:
    partition = partition_of((5, 1, 10), (9, 2, 10))
    partition.transactions = PartitionTransactions()
    partition.transactions.begin(ProducerId(8), Offset(5))
    partition.log_end = Offset(9)
    topic = TailTopics().topic(state_of(partition), TOPIC, each_max=9)
    assert topic is not None
    assert [each[1] for each in told(topic.partitions[0])] == [5]


def test_an_open_transaction_that_deleted_records_began_leaves_nothing_to_read() -> None:
    """Nobody knows yet whether what it wrote belongs into the table, though the log begins behind it."""
    partition = partition_of((5, 1, 10), (9, 2, 10))
    partition.transactions = PartitionTransactions()
    partition.transactions.begin(ProducerId(8), Offset(5))
    partition.log_start, partition.log_end = Offset(7), Offset(9)
    topic = TailTopics().topic(state_of(partition), TOPIC, each_max=9)
    assert topic is not None
    (tail,) = topic.partitions
    assert tail.chunks.offset_end == 5
    assert tail.last_stable == tail.readable_end == tail.log_start == 7


def test_of_a_long_tail_the_oldest_chunks_are_told() -> None:
    partition = partition_of((5, 1, 10), (8, 1, 20), (9, 2, 30))
    partition.log_end = Offset(9)
    topic = TailTopics().topic(state_of(partition), TOPIC, each_max=2)
    assert topic is not None
    (tail,) = topic.partitions
    assert [each[1] for each in told(tail)] == [5, 8]
    assert (tail.last_stable, tail.readable_end) == (9, 8)


@pytest.mark.parametrize("seed", range(20))
def test_what_was_reported_before_is_reported_as_if_for_the_first_time(seed: int) -> None:
    chance = random.Random(seed)
    state = state_of(PartitionState(), PartitionState())
    topics = TailTopics()
    for _ in range(100):
        _change(state, chance.choice(state.topics[TOPIC].partitions), chance)
        each_max = chance.choice((2, 9))
        assert topics.topic(state, TOPIC, each_max=each_max) == TailTopics().topic(state, TOPIC, each_max=each_max)


def test_partitions_that_did_not_change_are_not_told_again() -> None:
    changing, idle = partition_of((5, 1, 10)), partition_of((5, 1, 10))
    changing.log_end = idle.log_end = Offset(5)
    state, topics = state_of(changing, idle), TailTopics()
    before = topics.topic(state, TOPIC, each_max=9)
    changing.index.append(7, 2, 40, 20, 7, 11)
    changing.log_end = Offset(7)
    after = topics.topic(state, TOPIC, each_max=9)
    assert before is not None
    assert after is not None
    assert after.partitions[0] != before.partitions[0]
    assert after.partitions[1] is before.partitions[1]
    topics.forget_others(())
    anew = topics.topic(state, TOPIC, each_max=9)
    assert anew is not None
    assert anew == after
    assert anew.partitions[1] is not before.partitions[1]


def test_another_state_is_told_again_though_its_offsets_are_the_same() -> None:
    topics = TailTopics()
    for number in (1, 2):
        partition = partition_of((5, number, 10))
        partition.log_end = Offset(5)
        topic = topics.topic(state_of(partition), TOPIC, each_max=9)
        assert topic is not None
        assert told(topic.partitions[0]) == [(0, 5, f"intake/{number}", 40, 10)]


def _change(state: ClusterState, partition: PartitionState, chance: random.Random) -> None:
    """One of what commands do to a partition."""
    index, producer = partition.index, ProducerId(chance.randrange(4))
    match chance.randrange(7):
        case 0 | 1:
            first = partition.log_end
            index.append(first + chance.randint(1, 6), chance.randint(1, 2), 40, 20, 7, 11)
            for _ in range(chance.randrange(3)):
                partition.transactions = partition.transactions or PartitionTransactions()
                first = Offset(max([first, *(begun + 1 for begun in partition.transactions.open.values())]))
                if first < index.end:
                    partition.transactions.begin(
                        ProducerId(chance.randrange(4)), Offset(chance.randrange(first, index.end))
                    )
        case 2 | 3 if partition.transactions is not None and producer in partition.transactions.open:
            partition.transactions.end(producer, index.append_marker(MARKER), is_commit=chance.random() < 0.5)
        case 4:
            decided_end = partition.log_end
            if partition.transactions is not None:
                decided_end = partition.transactions.decided_end(partition.log_end)
            row = index.intake_row
            if row < index.count_before(decided_end):
                chunk = index.row(row)
                archived = ChunkRef(
                    chunk.offset_first, chunk.offset_end, ARCHIVED, 4, 99, Milliseconds(7), NO_TIMESTAMP, 0, row, 1
                )
                index.replace(row, row + 1, [archived])
                forget_markers(partition, chunk.offset_first, chunk.offset_end)
        case 5:
            partition.log_start = Offset(chance.randint(partition.log_start, index.end))
            if chance.random() < 0.5:
                partition.table_start = Offset(chance.randint(partition.table_start, index.end))
            index.truncate_before(Offset(min(partition.log_start, partition.table_start)))
            forget_markers(partition, Offset(0), index.first)
        case _ if chance.random() < 0.1:
            state.topics[TOPIC].partitions.append(PartitionState())
        case _:
            pass
    partition.log_end = index.end


@pytest.mark.parametrize(
    ("waiting", "each"), [([], 8), ([8, 8], 8), ([9, 9], 8), ([8, 8, 8], 4), ([2, 2, 100], 8), ([1] * 40, 1)]
)
def test_all_partitions_share_what_a_manifest_holds(waiting: list[int], each: int) -> None:
    assert chunks_each(waiting, each_max=8, all_max=16) == each
