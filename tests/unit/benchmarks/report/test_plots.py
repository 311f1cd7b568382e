"""The plots of literal rows, and their files."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.__main__ import FULL, main
from benchmarks.cases import Kind, cases
from benchmarks.report import result_file
from benchmarks.report.plots import cpu_chart, latency_chart, plots, throughput_chart
from benchmarks.report.results import RowResult
from tests.support.benchmark_rows import made_row


def produced(kafka: float, embedded: float) -> RowResult:
    return made_row(Kind.PRODUCE, kafka={"mb_per_s": kafka}, embedded={"mb_per_s": embedded})


def test_throughput_is_drawn_beside_kafka_with_the_mean_first() -> None:
    chart = throughput_chart([produced(100, 50), produced(50, 100)], "run")
    (section,) = chart.sections
    assert section.title == "produce"
    assert [(line.label, *line.texts) for line in section.lines] == [
        ("geometric mean", "1.00"),
        ("1000 B p1 none 16 KiB", "0.50"),
        ("1000 B p1 none 16 KiB", "2.00"),
    ]
    assert {line.goal for line in section.lines} == {1.0}
    assert [line.is_summary for line in section.lines] == [True, False, False]
    assert chart.axis.share(2.0) == 1


def test_a_kind_without_ratios_has_no_section() -> None:
    assert throughput_chart([made_row(Kind.PRODUCE, kafka={"mb_per_s": 50.0})], "run").sections == []


def test_latency_has_a_line_for_each_percentile_with_its_goal() -> None:
    figures = {"p50_ms": 0.0, "p99_ms": 3.0}
    chart = latency_chart([made_row(Kind.LATENCY, kafka=figures, embedded={"p50_ms": 1.0, "p99_ms": 8.0})], "run")
    (section,) = chart.sections
    assert [(line.label.rpartition(", ")[2], *line.values, line.goal) for line in section.lines] == [
        ("p50 ms", 0.0, 1.0, 2.0),
        ("p99 ms", 3.0, 8.0, 5.0),
    ]


def test_peers_without_a_value_have_no_column() -> None:
    chart = latency_chart([made_row(Kind.CLUSTER_COST, cluster={"p50_ms": 87.0, "p99_ms": 349.0})], "run")
    assert [series.name for series in chart.series] == ["with MinIO"]
    assert [line.values for line in chart.sections[0].lines] == [[87.0], [349.0]]


def test_a_goal_for_cpu_is_a_multiple_of_kafkas() -> None:
    rows = [
        made_row(kind, kafka={"cpu_s_per_gb": 4.0}, embedded={"cpu_s_per_gb": 5.0})
        for kind in (Kind.CONSUME_MEMORY, Kind.CONSUME_ARCHIVE, Kind.LATENCY)
    ]
    chart = cpu_chart(rows, "run")
    assert [(section.title, section.lines[0].goal) for section in chart.sections] == [
        ("consume-memory", 3.6),
        ("consume-archive", None),
    ]


def test_a_plot_is_written_where_there_are_rows_that_did_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(result_file, "RESULTS", tmp_path)
    latency = next(case for case in cases() if case.kind is Kind.LATENCY)
    measured = replace(made_row(Kind.LATENCY, kafka={"p50_ms": 1.0}, embedded={"p50_ms": 2.0}), case=latency)
    failed = replace(produced(1, 1), case=next(cases()), failure="OSError: no")
    result_file.write("run", [failed, measured], FULL, 3, (0.1, 0.2, 0.3))
    folder = tmp_path / "some" / "plots"
    monkeypatch.setattr("sys.argv", ["bench", "--report", "run", "--plots", str(folder)])
    assert main() == 0
    written = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert written.keys() == {"run-latency.svg"}
    assert written == plots("run")
    assert "medians of 3 rounds" in written["run-latency.svg"]
    assert "run-latency.svg" in capsys.readouterr().err
