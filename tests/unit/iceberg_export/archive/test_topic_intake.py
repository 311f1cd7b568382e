"""What of a topic waits for the archive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.state.chunk_index import MARKER_BYTES, MarkerRow, marker_row
from coordinator.state.state import ClusterState, PartitionState
from iceberg_export.archive.plan import ArchivePass
from iceberg_export.archive.topic_intake import intake_bytes, intake_end, intake_first, next_pass
from protocol.types import (
    NO_TIMESTAMP,
    Milliseconds,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
)
from tests.support.lake.intake_states import TOPIC, partition_of, state_of
from txn.isolation import PartitionTransactions


def test_an_unknown_topic_has_none() -> None:
    state = ClusterState.empty("cluster", 0)
    assert next_pass(state, TOPIC) is None
    assert intake_bytes(state, TOPIC) == 0


def test_chunks_come_by_partition_and_offset_behind_what_is_archived() -> None:
    state = state_of(
        partition_of((5, 1, 10), (8, 1, 20), (9, 2, 30), archived_count=1),
        partition_of((4, 1, 40), archived_count=1),
        PartitionState(),
        partition_of((2, 2, 50)),
    )
    intake = next_pass(state, TOPIC)
    assert intake is not None
    assert (intake.topic_id, intake.name) == (TOPIC, "orders")
    assert intake.by_partition() == [(0, intake.chunks[:2]), (3, intake.chunks[2:])]
    found = [(chunk.partition, chunk.offset_first, chunk.offset_end, chunk.object_key) for chunk in intake.chunks]
    assert found == [(0, 5, 8, "intake/1"), (0, 8, 9, "intake/2"), (3, 0, 2, "intake/2")]
    assert sum(chunk.byte_count for chunk in intake.chunks) == intake_bytes(state, TOPIC) == 100
    assert intake.chunks[0].byte_first == 40
    assert intake.chunks[0].append_time_ms == NO_TIMESTAMP
    assert [chunk.checksum for chunk in intake.chunks] == [20, 30, 50]
    assert intake.chunks[0].offset_first == Offset(5)


def test_an_open_transaction_ends_what_can_be_archived_and_aborted_ones_are_reported() -> None:
    partition = partition_of((5, 1, 10))
    transactions = partition.transactions = PartitionTransactions()
    transactions.begin(ProducerId(7), Offset(2))
    marker = MarkerRow(ProducerId(7), ProducerEpoch(0), is_commit=False, timestamp_ms=Milliseconds(9))
    transactions.end(ProducerId(7), partition.index.append_marker(marker_row(marker)), is_commit=False)
    partition.index.append(8, 2, 40, 20, 7, NO_TIMESTAMP)
    transactions.begin(ProducerId(8), Offset(7))
    partition.log_end = Offset(8)
    state = state_of(partition)
    intake = next_pass(state, TOPIC)
    assert intake is not None
    found = [(chunk.offset_end, chunk.object_key, chunk.byte_first, chunk.is_marker) for chunk in intake.chunks]
    assert found == [(5, "intake/1", 40, False), (6, "", 7, True)]
    assert intake_bytes(state, TOPIC) == 10 + MARKER_BYTES
    assert (intake_first(state, TOPIC), intake_end(state, TOPIC)) == ([0], [6])
    aborted = intake.aborted[PartitionIndex(0)]
    assert [offset for offset in range(8) if aborted.holds(7, offset)] == [2, 3, 4]


def test_nothing_is_planned_where_all_is_archived_or_waits() -> None:
    state = state_of(partition_of((5, 1, 10), archived_count=1), PartitionState(), partition_of((4, 1, 40)))
    assert next_pass(state, TOPIC, waiting={PartitionIndex(2): Offset(0)}) is None
    assert next_pass(state_of(PartitionState()), TOPIC) is None


def test_more_of_a_partition_with_nearly_all_chunks_is_read() -> None:
    many = partition_of(*((end, 1, 10) for end in range(1, 1001)))
    state = state_of(many, *(partition_of((4, 2, 40)) for _ in range(9)))
    planned = next_pass(state, TOPIC, chunks_max=900)
    assert planned is not None
    assert [(chunk.partition, chunk.offset_first) for chunk in planned.chunks] == [(0, n) for n in range(900)]
    planned = next_pass(state, TOPIC, chunks_max=1_004)
    assert planned is not None
    assert [chunk.partition for chunk in planned.chunks] == [0] * 1_000 + [1, 2, 3, 4]


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 2), st.integers(1, 30)), max_size=12), min_size=1, max_size=5),
    st.integers(1, 200),
    st.integers(1, 40),
    st.dictionaries(st.integers(0, 4).map(PartitionIndex), st.integers(0, 10).map(Offset)),
)
def test_a_pass_does_not_depend_on_how_many_rows_are_read_at_first(
    drawn: list[list[tuple[int, int]]], bytes_max: int, chunks_max: int, waiting: dict[PartitionIndex, Offset]
) -> None:
    state = state_of(
        *(
            partition_of(*((row + 1, object_id, size) for row, (object_id, size) in enumerate(chunks)))
            for chunks in drawn
        )
    )
    passes: list[ArchivePass | None] = []
    for rows_read_min in (1, 1_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("iceberg_export.archive.topic_intake._ROWS_READ_MIN", rows_read_min)
            passes.append(next_pass(state, TOPIC, waiting=waiting, bytes_max=bytes_max, chunks_max=chunks_max))
    assert passes[0] == passes[1]
