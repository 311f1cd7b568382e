"""Rows of a response are counted up to the number at which a thread encodes them."""

from agent.request.messages import NUMBERS_PER_ROW, row_count
from protocol.limits import INLINE_ROWS_MAX


def test_structures_in_arrays_are_counted_at_any_depth() -> None:
    partition = {"index": 0, "replicas": [1, 2, 3]}
    topics = [{"name": "t", "partitions": [partition] * 2}, {"name": "u", "partitions": ()}]
    assert row_count({"error_code": 0, "topics": topics}) == 4


def test_arrays_in_a_structure_are_counted() -> None:
    assert row_count({"assignment": {"topic_partitions": [{"topic_id": None, "partitions": [0]}]}}) == 1


def test_many_numbers_take_as_long_as_a_structure() -> None:
    assert row_count({"partitions": list(range(2 * NUMBERS_PER_ROW))}) == 2


def test_counting_stops_once_there_are_many() -> None:
    topics = [{"partitions": [{"index": 0}] * (INLINE_ROWS_MAX + 1)}] * 1_000
    assert row_count({"topics": topics}) <= 2 * INLINE_ROWS_MAX + 1_001
