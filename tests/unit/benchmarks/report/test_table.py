"""The table, from literal rows."""

from dataclasses import replace

from benchmarks.cases import Kind
from benchmarks.report.results import RowResult
from benchmarks.report.table import aligned, render, row_line
from tests.support.benchmark_rows import made_row


def test_columns_are_aligned_texts_to_the_left_and_figures_to_the_right() -> None:
    assert aligned([("row", "MB/s"), ("produce", "9.50"), ("a", "100")], texts=1) == (
        "row      MB/s\nproduce  9.50\na         100"
    )


def test_a_row_shows_figures_and_ratios_and_which_way_is_better() -> None:
    row = made_row(Kind.END_TO_END, kafka={"avg_ms": 2.0}, embedded={"avg_ms": 5.0}, minio={"avg_ms": 260.0})
    line = next(line for line in render([row]).splitlines() if "mean ms" in line)
    assert line.split() == [
        "end-to-end",
        "1000",
        "B",
        "mean",
        "ms",
        "less",
        "2.00",
        "5.00",
        "2.50",
        "x",
        "260",
        "130.00",
        "x",
    ]


def test_a_failed_row_is_shown_as_failed_with_its_reason_and_without_figures() -> None:
    row = made_row(Kind.PRODUCE, kafka={"mb_per_s": 50.0}, failure="ProcessFailed: embedded took over 90 s")
    text = render([row])
    assert "1000 B p1  none 16 KiB  FAILED" in text
    assert "FAILED  produce 1000 B p1  none 16 KiB: ProcessFailed: embedded took over 90 s" in text
    assert "50.0" not in text


def test_clusters_have_a_table_of_their_own() -> None:
    row = made_row(Kind.CLUSTER_COST, cluster={"usd_per_tib": 0.5, "puts_per_gib": 51.0})
    row = replace(row, case=replace(row.case, agents=3, flush_interval_ms=250, rate=20_000))
    lines = render([row]).splitlines()
    table = lines[lines.index("Clusters over etcd and MinIO") + 1 :]
    assert table[0].split() == [
        "cluster-cost",
        "agents",
        "3",
        "20",
        "MB/s",
        "flush",
        "250",
        "ms",
        "USD/TiB,",
        "requests",
        "0.50",
    ]
    assert any(line.split() == ["PUTs/GiB", "51.0"] for line in table)
    failed = replace(row, failure="away")
    assert any(line.endswith("FAILED") for line in render([failed]).splitlines())


def test_what_was_not_measured_is_a_dash() -> None:
    row = made_row(Kind.RAW_PUT, minio={"mb_per_s": 200.0})
    line = next(line for line in render([row]).splitlines() if line.startswith("raw-put"))
    assert line.split() == ["raw-put", "MB/s", "more", "-", "-", "-", "200", "-"]


def currency_lines(*rows: RowResult) -> list[list[str]]:
    """The lines below the two headings of the table of CPU and requests, split at blanks."""
    _, _, table = render(rows).partition("Broker CPU and S3 requests\n")
    return [line.split() for line in table.partition("\n\n")[0].splitlines()[2:]]


def test_a_row_with_cpu_has_it_as_mib_per_vcpu_too_with_the_peer_beside() -> None:
    kafka, embedded, minio = ({"cpu_s_per_gb": seconds} for seconds in (4.0, 8.0, 16.0))
    (line,) = currency_lines(made_row(Kind.CONSUME_MEMORY, kafka=kafka, embedded=embedded, minio=minio))
    assert line[-8:] == ["238", "119", "59.6", "4.00", "8.00", "16.0", "-", "-"]


def test_a_row_with_puts_has_their_price() -> None:
    row = made_row(Kind.OBJECT_REQUESTS, minio={"puts_per_gib": 128.0})
    assert currency_lines(row) == [["object-requests", *"------", "128", "0.00064"]]


def test_failed_rows_and_kinds_whose_cpu_says_nothing_are_not_in_the_table_of_cpu() -> None:
    latency = made_row(Kind.LATENCY, kafka={"cpu_s_per_gb": 4.0})
    failed = made_row(Kind.PRODUCE, kafka={"cpu_s_per_gb": 4.0}, failure="away")
    assert currency_lines(latency, failed) == []


def test_means_are_shown_for_each_kind_and_metric_that_has_ratios() -> None:
    rows = [made_row(Kind.PRODUCE, kafka={"mb_per_s": 50.0}, embedded={"mb_per_s": speed}) for speed in (100.0, 25.0)]
    assert any(line.split() == ["produce", "MB/s", "1.00", "x", "-"] for line in render(rows).splitlines())


def test_progress_names_the_first_metric_of_each_peer() -> None:
    row = made_row(Kind.PRODUCE, kafka={"mb_per_s": 50.0}, embedded={"mb_per_s": 125.0})
    assert row_line(row).endswith("MB/s: kafka 50.0, embedded 125, minio -")
