"""The plots of a result: throughput beside Kafka's, latency, CPU per GB. `make bench ARGS="--plots DIR"` writes them.

Rule: what they show is in the result's file; failed rows are left out, and so is a plot without rows.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.cases import Kind, PeerName
from benchmarks.report import goals, result_file
from benchmarks.report.chart import Chart, ChartLine, ChartSection, ChartSeries, LinearAxis, LogAxis, draw
from benchmarks.report.currency import store_figure
from benchmarks.report.results import RowResult, ratios
from benchmarks.report.statistics import geometric_mean
from benchmarks.report.table import METRICS, UNITS, figure_text

THROUGHPUT_GOALS = {
    Kind.PRODUCE: goals.PRODUCE_MEAN_MIN,
    Kind.PRODUCE_BULK: None,
    Kind.PRODUCE_SUSTAINED: goals.SUSTAINED_MIN,
    Kind.CONSUME_MEMORY: goals.CONSUME_MIN,
    Kind.CONSUME_ARCHIVE: goals.ARCHIVE_CONSUME_MIN,
    Kind.TRANSACTIONS: None,
    Kind.TLS_PRODUCE: None,
    Kind.TLS_CONSUME: None,
}
"""The least ratio, of the mean or of every row; None: there is none."""
LATENCY_GOALS = {
    (Kind.LATENCY, "p50_ms"): goals.LATENCY_P50_MS_MAX,
    (Kind.LATENCY, "p99_ms"): goals.LATENCY_P99_MS_MAX,
    (Kind.END_TO_END, "avg_ms"): None,
    (Kind.END_TO_END, "p50_ms"): goals.END_TO_END_P50_MS_MAX,
    (Kind.END_TO_END, "p99_ms"): None,
    (Kind.COMMIT, "answered_p50_ms"): None,
    (Kind.COMMIT, "visible_p50_ms"): None,
    (Kind.COMMIT, "visible_max_ms"): goals.COMMIT_VISIBLE_MS_MAX,
    (Kind.OPENMESSAGING, "end_to_end_p50_ms"): None,
    (Kind.OPENMESSAGING, "end_to_end_p99_ms"): None,
    (Kind.OPENMESSAGING, "publish_p50_ms"): None,
    (Kind.OPENMESSAGING, "publish_p99_ms"): None,
    (Kind.CLUSTER_LATENCY, "p50_ms"): None,
    (Kind.CLUSTER_LATENCY, "p99_ms"): None,
    (Kind.CLUSTER_COST, "p50_ms"): None,
    (Kind.CLUSTER_COST, "p99_ms"): None,
}
"""The most milliseconds of every row. What clusters should take depends on their flush interval; the table shows it."""
CPU_GOALS = {Kind.PRODUCE_PACED: goals.CPU_PRODUCE_MAX, Kind.CONSUME_MEMORY: goals.CPU_CONSUME_MAX}
"""The most beside Kafka's CPU, in the mean."""
RATIO_AXIS_MIN = 1.25
MEAN = "geometric mean"
SERIES = (
    ChartSeries(name="Kafka", style="kafka"),
    ChartSeries(name="Penstock", style="penstock"),
    ChartSeries(name="with MinIO", style="store"),
)


def write_plots(name: str, folder: Path) -> list[Path]:
    """Writes the plots of a result. Raises `UnreadableResult`."""
    drawn = plots(name)
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in drawn.items():
        (folder / file).write_text(text, encoding="utf-8")
    return [folder / file for file in drawn]


def plots(name: str) -> dict[str, str]:
    """Each plot of a result by its file's name. Raises `UnreadableResult`."""
    rows = [row for row in result_file.read(name) if not row.failure]
    source = result_file.source(name)
    charts = {
        "throughput": throughput_chart(rows, source),
        "latency": latency_chart(rows, source),
        "cpu": cpu_chart(rows, source),
    }
    return {f"{name}-{plot}.svg": draw(chart) for plot, chart in charts.items() if chart.sections}


def throughput_chart(rows: Sequence[RowResult], source: str) -> Chart:
    """Bars of the embedded broker's MB/s divided by Kafka's, with the geometric mean of each kind first."""
    sections: list[ChartSection] = []
    for kind, goal in THROUGHPUT_GOALS.items():
        chosen = [row for row in rows if row.case.kind is kind]
        values = [(_label(row), row.ratio(PeerName.EMBEDDED, "mb_per_s")) for row in chosen]
        mean = geometric_mean(ratios(chosen, PeerName.EMBEDDED, "mb_per_s"))
        lines = [
            ChartLine(label=label, values=(value,), texts=(f"{value:.2f}",), goal=goal, is_summary=label == MEAN)
            for label, value in ((MEAN, mean), *values)
            if value is not None
        ]
        if lines:
            sections.append(ChartSection(title=kind.value, lines=lines))
    return Chart(
        title="Throughput: Penstock / Apache Kafka",
        source=source,
        axis_title="ratio of MB/s; more is better",
        axis=LinearAxis(end=max([RATIO_AXIS_MIN, *_values(sections)])),
        series=SERIES[1:2],
        sections=sections,
        are_bars=True,
    )


def latency_chart(rows: Sequence[RowResult], source: str) -> Chart:
    """Percentiles and worst cases. Tools of Kafka count whole milliseconds, so that 0 is less than one."""
    sections: dict[Kind, list[ChartLine]] = {}
    for row in rows:
        for (kind, metric), goal in LATENCY_GOALS.items():
            if kind is row.case.kind:
                sections.setdefault(kind, []).append(_line(row, metric, f"{_label(row)}, {UNITS[metric]}", goal))
    return _marks("Latency", "milliseconds, logarithmic; less is better", sections, source)


def cpu_chart(rows: Sequence[RowResult], source: str) -> Chart:
    """The rows whose CPU the table shows. A goal is a multiple of Kafka's CPU in the same row."""
    sections: dict[Kind, list[ChartLine]] = {}
    for row in rows:
        kind = row.case.kind
        if "cpu_s_per_gb" in METRICS[kind]:
            kafka = row.figure(PeerName.KAFKA, "cpu_s_per_gb")
            goal = CPU_GOALS[kind] * kafka if kind in CPU_GOALS and kafka is not None else None
            sections.setdefault(kind, []).append(_line(row, "cpu_s_per_gb", _label(row), goal))
    return _marks("CPU of the broker", "CPU seconds per GB, logarithmic; less is better", sections, source)


def _marks(title: str, axis_title: str, lines: dict[Kind, list[ChartLine]], source: str) -> Chart:
    """A chart of the peers that have a value, on a logarithmic axis."""
    everything = [line for of_kind in lines.values() for line in of_kind]
    shown = [column for column in range(len(SERIES)) if any(line.values[column] is not None for line in everything)]
    sections = [
        ChartSection(title=kind.value, lines=[_with_columns(line, shown) for line in of_kind])
        for kind, of_kind in lines.items()
    ]
    return Chart(
        title=title,
        source=source,
        axis_title=axis_title,
        axis=LogAxis.around(list(_values(sections))),
        series=[SERIES[column] for column in shown],
        sections=sections,
    )


def _line(row: RowResult, metric: str, label: str, goal: float | None) -> ChartLine:
    kafka, embedded = (row.figure(peer, metric) for peer in (PeerName.KAFKA, PeerName.EMBEDDED))
    values = (kafka, embedded, store_figure(row, metric))
    return ChartLine(label=label, values=values, texts=[figure_text(value) for value in values], goal=goal)


def _with_columns(line: ChartLine, columns: Sequence[int]) -> ChartLine:
    return ChartLine(
        label=line.label,
        values=[line.values[column] for column in columns],
        texts=[line.texts[column] for column in columns],
        goal=line.goal,
    )


def _label(row: RowResult) -> str:
    """The row's name without its kind, which is the section's title."""
    return row.case.plain_name.removeprefix(row.case.kind.value).strip()


def _values(sections: Sequence[ChartSection]) -> Iterator[float]:
    """All that an axis must hold."""
    for section in sections:
        for line in section.lines:
            yield from (value for value in (*line.values, line.goal) if value is not None)
