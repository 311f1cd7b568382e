"""MiB/s per vCPU and dollars per GiB, from literal rows."""

import pytest

from benchmarks.cases import Kind
from benchmarks.report.currency import mib_per_s_per_vcpu, store_figure, usd_per_gib
from tests.support.benchmark_rows import made_row


def test_throughput_is_divided_by_the_cpu_seconds_of_a_second() -> None:
    mb_per_s, cpu_s_per_gb = 100.0, 4.0
    vcpus = mb_per_s / 1000 * cpu_s_per_gb
    assert vcpus == 0.4
    assert mib_per_s_per_vcpu(cpu_s_per_gb) == pytest.approx(mb_per_s * 1e6 / 2**20 / vcpus)
    assert mib_per_s_per_vcpu(1.0) == pytest.approx(953.674)


@pytest.mark.parametrize("cpu_s_per_gb", [None, 0.0])
def test_no_cpu_that_was_counted_is_no_figure(cpu_s_per_gb: float | None) -> None:
    assert mib_per_s_per_vcpu(cpu_s_per_gb) is None


def test_the_price_of_all_requests_is_taken_where_it_was_measured() -> None:
    row = made_row(Kind.CLUSTER_COST, cluster={"usd_per_tib": 2.048, "puts_per_gib": 1000.0})
    assert usd_per_gib(row) == pytest.approx(0.002)


def test_else_puts_are_priced_alone() -> None:
    row = made_row(Kind.OBJECT_REQUESTS, minio={"puts_per_gib": 128.0, "gets_per_object": 5.0})
    assert usd_per_gib(row) == pytest.approx(0.00064)


def test_a_row_without_requests_has_no_price() -> None:
    row = made_row(Kind.PRODUCE, kafka={"cpu_s_per_gb": 4.0}, minio={"cpu_s_per_gb": 5.0})
    assert usd_per_gib(row) is None
    assert store_figure(row, "cpu_s_per_gb") == 5.0
    assert store_figure(made_row(Kind.PRODUCE, kafka={"cpu_s_per_gb": 4.0}), "cpu_s_per_gb") is None
