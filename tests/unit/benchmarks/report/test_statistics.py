"""Medians, ratios and geometric means from literal figures."""

import pytest

from benchmarks.report.statistics import geometric_mean, means, medians, ratio


def test_a_median_is_taken_of_each_metric_over_the_rounds_that_have_it() -> None:
    rounds = [{"mb_per_s": 10.0, "p99_ms": 5.0}, {"mb_per_s": 90.0}, {"mb_per_s": 20.0, "p99_ms": 7.0}]
    assert medians(rounds) == {"mb_per_s": 20.0, "p99_ms": 6.0}


def test_a_mean_is_taken_of_each_metric_over_all_turns() -> None:
    assert means([{"mb_per_s": 10.0, "p99_ms": 5.0}, {"mb_per_s": 30.0, "p99_ms": 6.0}]) == {
        "mb_per_s": 20.0,
        "p99_ms": 5.5,
    }


def test_no_rounds_have_no_medians() -> None:
    assert medians([]) == {}


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"), [(50.0, 100.0, 0.5), (0.0, 4.0, 0.0), (None, 4.0, None), (4.0, None, None)]
)
def test_a_ratio_is_ours_by_theirs(ours: float | None, theirs: float | None, expected: float | None) -> None:
    assert ratio(ours, theirs) == expected


def test_nothing_is_divided_by_zero() -> None:
    assert ratio(3.0, 0.0) is None


def test_twice_and_half_cancel_out_in_a_geometric_mean() -> None:
    assert geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
    assert geometric_mean([1.0, 8.0]) == pytest.approx(2.828427)


def test_the_geometric_mean_of_nothing_is_nothing_and_of_a_zero_zero() -> None:
    assert geometric_mean([]) is None
    assert geometric_mean([2.0, 0.0]) == 0.0
