"""The append times of records, as the chunk index knows them."""

import pytest

from agent.views.append_times import AppendTimes, age_seconds
from coordinator.state.chunk_index import ChunkIndex, MarkerRow, marker_row
from coordinator.state.state import ObjectState, PartitionState, TopicState
from protocol.limits import METRIC_CHUNKS_BEFORE_MAX
from protocol.types import (
    NO_TIMESTAMP,
    Milliseconds,
    ObjectId,
    ObjectNumber,
    ProducerEpoch,
    ProducerId,
    SessionId,
    TopicId,
)
from storage.refs import ObjectKind, parquet_key

MARKER = marker_row(
    MarkerRow(producer_id=ProducerId(1), epoch=ProducerEpoch(0), is_commit=True, timestamp_ms=Milliseconds(9))
)
HOUR_MS = 3_600_000
PASS_MS = 30_000


def index_of(*rows: tuple[int, int], append_time_ms: int = -1, archived: int = 0) -> ChunkIndex:
    """An index whose chunks have these ends and greatest timestamps; the first `archived` ones are archived."""
    index = ChunkIndex()
    for number, (end, timestamp_ms) in enumerate(rows):
        index.append(end, number + 1, 0, 10, timestamp_ms, append_time_ms)
    for row in range(archived):
        index.replace(row, row + 1, [index.row(row)._replace(row_group=0, row_first=0, row_count=1)])
    return index


def objects_of(index: ChunkIndex, *merged: int) -> dict[ObjectId, ObjectState]:
    """The objects of an index, as if passes had written all but the `merged` ones."""
    keys = {
        ObjectId(object_id): parquet_key(
            "t", TopicId(bytes(16)), SessionId(1), ObjectNumber(0), is_merged=object_id in merged
        )
        for object_id in index.object_ids(0, len(index))
    }
    return {
        object_id: ObjectState(key=key, kind=ObjectKind.PARQUET, object_bytes=10, references=1)
        for object_id, key in keys.items()
    }


def append_time(index: ChunkIndex, offset: int, *merged: int, created_ms: int = 0) -> int | None:
    partition = PartitionState(index=index)
    topic = TopicState(
        topic_id=TopicId(bytes(16)), name="t", configs={}, partitions=[partition], created_ms=Milliseconds(created_ms)
    )
    return AppendTimes(objects_of(index, *merged), PASS_MS).first(topic, partition, offset)


@pytest.mark.parametrize(("offset", "time_ms"), [(0, 1_000), (9, 1_000), (10, 2_000), (20, None)])
def test_a_record_is_as_old_as_the_newest_of_its_chunk(offset: int, time_ms: int | None) -> None:
    assert append_time(index_of((10, 1_000), (20, 2_000)), offset) == time_ms


def test_the_brokers_stamp_is_the_append_time() -> None:
    assert append_time(index_of((10, 5_000), append_time_ms=5_000), 0) == 5_000


def test_a_chunk_without_timestamps_has_no_append_time() -> None:
    assert append_time(index_of((10, NO_TIMESTAMP)), 0) is None


def test_markers_of_transactions_are_passed_over() -> None:
    index = index_of((10, 1_000))
    index.append_marker(MARKER)
    assert append_time(index, 10) is None
    index.append(15, 2, 0, 10, 7_000, -1)
    assert append_time(index, 10) == 7_000


def test_an_archived_chunk_without_records_is_passed_over() -> None:
    index = index_of((10, NO_TIMESTAMP), (20, 2_000), archived=1)
    index.replace(0, 1, [index.row(0)._replace(row_count=0)])
    assert append_time(index, 0) == 2_000


@pytest.mark.parametrize(("offset", "time_ms"), [(10, 11_000), (14, 15_000), (19, 20_000)])
def test_records_of_an_archived_chunk_came_one_after_the_other(offset: int, time_ms: int) -> None:
    assert append_time(index_of((10, 10_000), (20, 20_000), archived=2), offset) == time_ms


def test_a_pause_before_an_archived_chunk_does_not_make_its_records_older_than_a_pass() -> None:
    index = index_of((10, 0), (20, HOUR_MS), archived=2)
    assert append_time(index, 10) == HOUR_MS - PASS_MS * 9 // 10
    assert append_time(index_of((10, HOUR_MS), archived=1), 9) == HOUR_MS


@pytest.mark.parametrize(("offset", "time_ms"), [(10, HOUR_MS // 10), (14, HOUR_MS // 2), (19, HOUR_MS)])
def test_records_of_a_merged_file_came_since_the_chunk_before(offset: int, time_ms: int) -> None:
    assert append_time(index_of((10, 0), (20, HOUR_MS), archived=2), offset, 2) == time_ms


def test_chunks_without_timestamps_say_nothing_about_the_records_after_them() -> None:
    silent = [(10 + n, NO_TIMESTAMP) for n in range(1, METRIC_CHUNKS_BEFORE_MAX + 1)]
    merged = METRIC_CHUNKS_BEFORE_MAX + 2
    index = index_of((10, 0), *silent, (10 + merged + 8, HOUR_MS), archived=merged)
    assert append_time(index, 10 + METRIC_CHUNKS_BEFORE_MAX, merged) == HOUR_MS
    index = index_of((10, 0), *silent[:-1], (10 + merged + 7, HOUR_MS), archived=merged - 1)
    assert append_time(index, 9 + METRIC_CHUNKS_BEFORE_MAX, merged - 1) == HOUR_MS // 10


def test_records_of_the_first_merged_file_came_as_fast_as_later_ones() -> None:
    index = index_of((30, HOUR_MS), (40, HOUR_MS + 1_000), archived=2)
    assert append_time(index, 0, 1) == HOUR_MS - 2_900
    assert append_time(index, 29, 1) == HOUR_MS
    index = index_of((300, HOUR_MS), (301, HOUR_MS + 1_000), archived=1)
    assert append_time(index, 0, 1) == HOUR_MS - 299_000
    assert append_time(index, 0, 1, created_ms=HOUR_MS - 30_000) == HOUR_MS - 29_900
    assert append_time(index, 0) == HOUR_MS - PASS_MS * 299 // 300


@pytest.mark.parametrize("later", [(20, NO_TIMESTAMP), (20, 5_000)])
def test_later_records_may_say_nothing_about_the_first_merged_file(later: tuple[int, int]) -> None:
    assert append_time(index_of((10, 9_000), later, archived=2), 0, 1) == 9_000
    assert append_time(index_of((10, 9_000), archived=1), 0, 1) == 9_000


def test_timestamps_that_fall_are_taken_as_they_are() -> None:
    assert append_time(index_of((10, 9_000), (20, 5_000), archived=2), 10) == 5_000


@pytest.mark.parametrize(("time_ms", "seconds"), [(None, 0.0), (1_500, 1.0), (9_000, 0.0)])
def test_an_age_is_never_negative(time_ms: int | None, seconds: float) -> None:
    assert age_seconds(None if time_ms is None else Milliseconds(time_ms), Milliseconds(2_500)) == seconds
