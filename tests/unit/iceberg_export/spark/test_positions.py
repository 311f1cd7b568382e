"""Positions of streams: the text in the checkpoint, and fair shares of what waits."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_export.spark.positions import PositionUnreadable, StreamPosition, share_out

POSITION = StreamPosition(
    cluster_id="c1", incarnation=2, topic_ids={"b": "02" * 16, "a": "01" * 16}, offsets={("b", 0): 7, ("a", 10): 1}
)


def test_the_text_names_the_log_and_the_next_offsets() -> None:
    assert json.dumps(POSITION.to_json()) == (
        '{"@": {"cluster": "c1", "incarnation": 2, "ids": {"a": "' + "01" * 16 + '", "b": "' + "02" * 16 + '"}}, '
        '"a": {"10": 1}, "b": {"0": 7}}'
    )
    assert StreamPosition.from_json(json.loads(json.dumps(POSITION.to_json()))) == POSITION


def test_the_first_batchs_end_remembers_where_it_began() -> None:
    end = StreamPosition(
        cluster_id="c1",
        incarnation=2,
        topic_ids=POSITION.topic_ids,
        offsets=POSITION.offsets,
        first_batch_begin={("a", 10): 0},
    )
    read = StreamPosition.from_json(end.to_json())
    assert read.beginning().offsets == {("a", 10): 0}
    assert read.beginning().first_batch_begin is None
    assert read == POSITION


@pytest.mark.parametrize("found", [{"orders": {"0": 5}}, {"@": {"cluster": "c"}}, {"@": 1}, {"@": {}, "a": {"x": 1}}])
def test_a_checkpoint_of_another_source_is_refused(found: dict[str, object]) -> None:
    with pytest.raises(PositionUnreadable, match="needs a new checkpoint"):
        StreamPosition.from_json(found)


def test_shares_follow_what_waits_and_leave_no_partition_out() -> None:
    begins = {("a", 0): 100, ("a", 1): 0, ("a", 2): 5, ("a", 3): 9}
    ends = {("a", 0): 1100, ("a", 1): 3000, ("a", 2): 6, ("a", 3): 9}
    assert share_out(begins, ends, None) == ends
    assert share_out(begins, ends, 400) == {("a", 0): 199, ("a", 1): 299, ("a", 2): 6, ("a", 3): 9}


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 5000)), max_size=8), st.integers(1, 3000))
def test_shares_are_within_what_waits_go_on_and_keep_the_cap_but_for_a_record_each(
    partitions: list[tuple[int, int]], offsets_max: int
) -> None:
    begins = {("t", row): first for row, (first, _) in enumerate(partitions)}
    ends = {("t", row): first + count for row, (first, count) in enumerate(partitions)}
    shares = share_out(begins, ends, offsets_max)
    assert all(begins[key] <= shares[key] <= ends[key] for key in begins)
    assert all(shares[key] > begins[key] for key in begins if ends[key] > begins[key])
    assert sum(shares[key] - begins[key] for key in begins) <= offsets_max + len(partitions)
