"""Conditions: the filters that are taken are exact, the others are Spark's."""

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_export.spark.conditions import ALL, INT64_END, INT64_MIN, Comparison, Conditions, Intervals

bounds = st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), max_size=5)


def numbers(intervals: Intervals) -> set[int]:
    return {number for number in range(-25, 25) if intervals.holds(number)}


@given(bounds, bounds, st.integers(-22, 22), st.integers(0, 10))
def test_intervals_are_sets_of_numbers(
    one: list[tuple[int, int]], other: list[tuple[int, int]], first: int, count: int
) -> None:
    left, right = Intervals(one), Intervals(other)
    expected = {number for low, high in one for number in range(low, high)}
    assert numbers(left) == expected
    assert numbers(left & right) == expected & numbers(right)
    everything = np.arange(-25, 25)
    assert set(everything[left.mask(everything)].tolist()) == expected
    within = expected & set(range(first, first + count))
    hull_first, hull_end = left.hull(first, first + count)
    assert within <= set(range(hull_first, hull_end)) <= set(range(first, first + count))
    assert (hull_first == hull_end) == (not within)
    assert left.covers(first, first + count) == (set(range(first, first + count + 1)) <= expected)


def test_all_numbers_are_wanted_at_first() -> None:
    assert ALL.is_all
    assert ALL.covers(INT64_MIN, INT64_END - 1)
    assert Conditions().taken([]) == (Conditions(), ())
    assert not ALL.meeting(5, 5)
    assert not ALL.meeting(7, 5)


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("EqualTo", 3, {3}),
        ("EqualNullSafe", 3, {3}),
        ("In", (1, 5), {1, 5}),
        ("In", (), set()),
        ("GreaterThan", 22, {23, 24}),
        ("GreaterThanOrEqual", 23, {23, 24}),
        ("LessThan", -23, {-25, -24}),
        ("LessThanOrEqual", -24, {-25, -24}),
    ],
)
def test_comparisons_with_numbers_are_taken(operator: str, value: object, expected: set[int]) -> None:
    conditions, left = Conditions().taken([Comparison(operator, "offset", value)])
    assert left == ()
    assert numbers(conditions.offsets) == expected


def test_topics_narrow_each_other() -> None:
    conditions, left = Conditions().taken(
        [Comparison("In", "topic", ("a", "b")), Comparison("EqualTo", "topic", "b"), Comparison("IsNotNull", "topic")]
    )
    assert left == ()
    assert conditions.topics == {"b"}
    assert conditions.wants_topic("b")
    assert not conditions.wants_topic("a")


def test_times_are_compared_as_microseconds() -> None:
    time = datetime(1970, 1, 1, 0, 0, 1, 7, tzinfo=UTC)
    conditions, left = Conditions().taken([Comparison("GreaterThan", "timestamp", time)])
    assert left == ()
    assert conditions.times_us.bounds == ((1_000_008, INT64_END),)


@pytest.mark.parametrize(
    "comparison",
    [
        Comparison("EqualTo", "value", b"x"),
        Comparison("Not", "", None),
        Comparison("IsNotNull", "key"),
        Comparison("EqualTo", "offset", True),
        Comparison("EqualTo", "offset", "3"),
        Comparison("EqualTo", "offset", 1 << 70),
        Comparison("In", "offset", (1, None)),
        Comparison("In", "offset", 5),
        Comparison("IsNull", "offset"),
        Comparison("EqualTo", "timestamp", datetime(2020, 1, 1)),  # noqa: DTZ001
        Comparison("StringStartsWith", "topic", "a"),
        Comparison("In", "topic", ("a", 1)),
        Comparison("EqualTo", "timestampType", 0),
    ],
)
def test_what_cannot_be_kept_exactly_is_left_to_spark(comparison: Comparison) -> None:
    kept = Comparison("EqualTo", "partition", 1)
    conditions, left = Conditions().taken([comparison, kept])
    assert left == (0,)
    assert conditions == Conditions().taken([kept])[0]
