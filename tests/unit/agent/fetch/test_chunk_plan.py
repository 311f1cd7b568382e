"""Which chunks answer a fetch: from the one that holds its offset on, until the limit or the archive ends them."""

import pytest

from agent.fetch.chunk_plan import (
    archive_compression,
    available_bytes,
    chunks_from,
    expected_bytes,
    has_every_record,
    stored_bytes,
)
from coordinator.state.chunk_index import ChunkIndex
from coordinator.state.state import PartitionState, TopicState
from protocol.records.compression import Compression
from protocol.types import Milliseconds, Offset
from tests.support.commands.commands import TOPIC


def partition(*, archived: int = 0) -> PartitionState:
    """Five chunks of ten offsets and 100 bytes each; the first `archived` of them are rows of Parquet files."""
    index = ChunkIndex()
    for number in range(5):
        index.append(10 * number + 10, number, 0, 100, 1_000, -1)
    rows = [index.row(row)._replace(row_group=0, row_first=0, row_count=10) for row in range(archived)]
    if rows:
        index.replace(0, archived, rows)
    return PartitionState(log_end=Offset(50), index=index)


def firsts(found: PartitionState, offset: int, bytes_max: int, offset_end: int | None = None) -> list[int]:
    return [chunk.offset_first for chunk in chunks_from(found, offset, bytes_max, offset_end=offset_end)]


@pytest.mark.parametrize(
    ("offset", "bytes_max", "expected"),
    [
        (0, 1, [0]),
        (9, 0, [0]),
        (10, 100, [10]),
        (10, 101, [10, 20]),
        (25, 1_000, [20, 30, 40]),
        (50, 1_000, []),
    ],
)
def test_chunks_follow_until_their_bytes_reach_the_limit_and_there_is_one_at_least(
    offset: int, bytes_max: int, expected: list[int]
) -> None:
    assert firsts(partition(), offset, bytes_max) == expected


def test_chunks_that_begin_at_the_mark_or_beyond_it_are_left_out() -> None:
    assert firsts(partition(), 0, 1_000, 20) == [0, 10]
    assert firsts(partition(), 0, 1_000, 21) == [0, 10, 20]
    assert firsts(partition(), 20, 1_000, 20) == []


def test_an_archived_chunk_ends_the_plan_as_nobody_knows_how_much_it_comes_to() -> None:
    assert firsts(partition(archived=2), 0, 1_000) == [0]
    assert firsts(partition(archived=2), 10, 1_000) == [10]
    assert firsts(partition(archived=2), 20, 1_000) == [20, 30, 40]


@pytest.mark.parametrize(
    ("offset_first", "offset_end", "expected"),
    [(0, 10, True), (5, 20, True), (0, 30, False), (15, 25, False), (20, 21, False), (30, 40, False), (41, 55, False)],
)
def test_s5_the_archive_has_every_record_where_each_offset_has_a_row(
    offset_first: int, offset_end: int, *, expected: bool
) -> None:
    index = partition(archived=5).index
    index.replace(2, 4, [index.row(2)._replace(row_count=9), index.row(3)._replace(row_count=0)])
    assert has_every_record(index, offset_first, offset_end) is expected


def test_s5_the_archive_has_no_record_of_the_intake_nor_of_what_is_deleted() -> None:
    index = partition(archived=3).index
    assert not has_every_record(index, 20, 31)
    assert has_every_record(index, 0, 30)
    index.truncate_before(Offset(10))
    assert not has_every_record(index, 5, 15)
    assert has_every_record(index, 10, 15)


@pytest.mark.parametrize(("bytes_max", "expected"), [(1, 100), (100, 100), (150, 150), (400, 400), (1 << 20, 400)])
def test_archived_records_are_taken_for_a_few_times_what_is_stored_and_no_more_than_is_accepted(
    bytes_max: int, expected: int
) -> None:
    chunk = partition(archived=1).index.row(0)
    assert expected_bytes(chunk, bytes_max) == expected


def test_what_several_chunks_share_is_stored_once() -> None:
    chunks = [partition(archived=2).index.row(row) for row in range(3)]
    others = [chunk._replace(row_first=10) for chunk in chunks[:2]]
    assert stored_bytes([*chunks, *others]) == 300
    assert stored_bytes([]) == 0


@pytest.mark.parametrize(
    ("offset", "bytes_wanted", "expected"), [(0, 1, 100), (0, 450, 500), (35, 1_000, 200), (50, 1, 0), (0, 0, 0)]
)
def test_what_waits_is_counted_in_whole_chunks(offset: int, bytes_wanted: int, expected: int) -> None:
    found = partition()
    assert available_bytes(found, offset, bytes_wanted, found.log_end) == expected


@pytest.mark.parametrize(
    ("configs", "broker_configs", "expected"),
    [
        ({}, {}, Compression.NONE),
        ({"compression.type": "producer"}, {}, Compression.NONE),
        ({"compression.type": "zstd"}, {"compression.type": "gzip"}, Compression.ZSTD),
        ({}, {"compression.type": "lz4"}, Compression.LZ4),
    ],
)
def test_archived_records_are_compressed_as_the_topic_or_the_broker_says(
    configs: dict[str, str], broker_configs: dict[str, str], expected: Compression
) -> None:
    topic = TopicState(topic_id=TOPIC, name="t", configs=configs, partitions=[], created_ms=Milliseconds(0))
    assert archive_compression(topic, broker_configs) is expected
