"""Figures from a literal exposition."""

from benchmarks.measure.exposition import STORE_REQUESTS, increase, read_samples, total

TEXT = """\
# HELP penstock_store_requests_total Requests to the object store.
# TYPE penstock_store_requests_total counter
penstock_store_requests_total{operation="put"} 12.0
penstock_store_requests_total{operation="get"} 3.0
penstock_objects_pending_deletion 2.0
penstock_produce_bytes_total 1.073741824e+09
penstock_store_requests_total_other 7.0
python_info{version="3.11"} 1.0
"""


def test_a_metric_is_the_sum_of_its_series() -> None:
    samples = read_samples(TEXT)
    assert total(samples, STORE_REQUESTS) == 15
    assert total(samples, "penstock_produce_bytes_total") == 1 << 30
    assert total(samples, "penstock_objects_pending_deletion") == 2


def test_one_operation_can_be_named() -> None:
    assert total(read_samples(TEXT), STORE_REQUESTS, "get") == 3


def test_what_was_never_counted_is_zero() -> None:
    assert total(read_samples(TEXT), STORE_REQUESTS, "list") == 0


def test_series_of_others_are_left_out() -> None:
    assert total(read_samples(TEXT), "python_info") == 0


def test_an_increase_counts_series_that_began_in_between() -> None:
    before = read_samples('penstock_store_requests_total{operation="put"} 10.0\n')
    assert increase(before, read_samples(TEXT), STORE_REQUESTS) == 5
    assert increase(before, read_samples(TEXT), STORE_REQUESTS, "put") == 2
