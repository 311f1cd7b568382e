"""The table that a run prints: one line per row and metric, ratios beside the figures, then means and goals.

Rule: pure; figures in, text out.
"""

from collections.abc import Iterable, Iterator, Sequence

from benchmarks.cases import Kind, PeerName
from benchmarks.report.currency import mib_per_s_per_vcpu, store_figure, usd_per_gib
from benchmarks.report.goals import judge
from benchmarks.report.results import RowResult, is_lower_better, ratios
from benchmarks.report.statistics import geometric_mean

METRICS: dict[Kind, tuple[str, ...]] = {
    Kind.PRODUCE: ("mb_per_s", "cpu_s_per_gb", "peak_rss_mib"),
    Kind.PRODUCE_BULK: ("mb_per_s", "cpu_s_per_gb", "peak_rss_mib"),
    Kind.PRODUCE_PACED: ("cpu_s_per_gb", "mb_per_s", "p50_ms"),
    Kind.PRODUCE_SUSTAINED: ("mb_per_s", "cpu_s_per_gb", "archived_share", "p99_ms", "peak_rss_mib"),
    Kind.LATENCY: ("p50_ms", "p99_ms"),
    Kind.END_TO_END: ("avg_ms", "p50_ms", "p99_ms"),
    Kind.CONSUME_MEMORY: ("mb_per_s", "cpu_s_per_gb", "peak_rss_mib"),
    Kind.CONSUME_ARCHIVE: ("mb_per_s", "cpu_s_per_gb", "archive_mb_per_s", "archive_mb_per_cpu_s"),
    Kind.RAW_PUT: ("mb_per_s", "p50_ms"),
    Kind.METADATA: ("chunks_per_s", "load_s", "memory_bytes_per_chunk"),
    Kind.OBJECT_REQUESTS: ("puts_per_gib", "gets_per_object", "mb_per_s"),
    Kind.CLUSTER_PRODUCE: ("mb_per_s", "raw_mb_per_s", "share_of_raw", "cpu_s_per_gb", "puts_per_gib"),
    Kind.CLUSTER_COST: (
        *("usd_per_tib", "puts_per_s", "gets_per_s", "puts_per_gib", "gets_per_gib", "p50_ms", "p99_ms"),
        "cpu_s_per_gb",
    ),
    Kind.CLUSTER_LATENCY: ("p50_ms", "p99_ms", "floor_ms", "raw_put_ms", "raw_append_ms", "p50_of_floor"),
    Kind.CLUSTER_RELAY: (
        *("heartbeat_added_ms", "heartbeat_direct_p50_ms", "heartbeat_direct_p99_ms"),
        *("heartbeat_relayed_p50_ms", "heartbeat_relayed_p99_ms"),
        *("commit_added_ms", "commit_direct_p50_ms", "commit_direct_p99_ms"),
        *("commit_relayed_p50_ms", "commit_relayed_p99_ms"),
    ),
    Kind.IDLE: ("start_s", "cpu_percent", "rss_mib", "object_requests"),
    Kind.GROUPS: (
        *("form_s", "rss_mib", "idle_cpu_percent", "idle_entries_per_s", "heartbeats_per_s", "heartbeat_p99_ms"),
        *("commit_cpu_percent", "commits_per_s", "commit_entries_per_s", "commit_p50_ms", "commit_p99_ms"),
    ),
    Kind.TRANSACTIONS: ("overhead_percent", "mb_per_s", "idempotent_mb_per_s", "cpu_s_per_gb"),
    Kind.COMMIT: ("answered_p50_ms", "answered_max_ms", "visible_p50_ms", "visible_max_ms", "cycle_p50_ms"),
    Kind.OPENMESSAGING: (
        *("end_to_end_p50_ms", "end_to_end_p99_ms", "end_to_end_p999_ms", "publish_p50_ms", "publish_p99_ms"),
        *("publish_p999_ms", "delay_p99_ms", "mb_per_s", "read_mb_per_s", "cpu_s_per_gb"),
    ),
    Kind.TLS_PRODUCE: ("mb_per_s", "of_plaintext", "tls_cpu_s_per_gb", "cpu_s_per_gb"),
    Kind.TLS_CONSUME: ("mb_per_s", "of_plaintext", "tls_cpu_s_per_gb", "cpu_s_per_gb"),
    Kind.TLS_HANDSHAKES: (
        *("p99_ms", "p50_ms", "calm_p99_ms", "handshake_loop_ms", "handshake_cpu_ms", "handshakes_per_s"),
        *("handshakes_failed", "idle_kib"),
    ),
    Kind.TLS_START: ("start_s",),
    Kind.RIGHTS_PRODUCE: ("cpu_of_unauthorized", "cpu_s_per_gb", "unauthorized_cpu_s_per_gb", "mb_per_s"),
    Kind.RIGHTS_CONSUME: ("cpu_of_unauthorized", "cpu_s_per_gb", "unauthorized_cpu_s_per_gb", "mb_per_s"),
    Kind.COLD_START: ("cold_start_s",),
}
UNITS = {
    "mb_per_s": "MB/s",
    "cpu_s_per_gb": "CPU s/GB",
    "peak_rss_mib": "peak MiB",
    "rss_mib": "MiB",
    "archived_share": "of it archived meanwhile",
    "archive_mb_per_s": "archiving MB/s",
    "archive_mb_per_cpu_s": "archiving MB per CPU s",
    "overhead_percent": "% below idempotent",
    "idempotent_mb_per_s": "idempotent MB/s",
    "answered_p50_ms": "answered p50 ms",
    "answered_max_ms": "answered worst ms",
    "visible_p50_ms": "visible p50 ms",
    "visible_max_ms": "visible worst ms",
    "cycle_p50_ms": "whole cycle p50 ms",
    "end_to_end_p50_ms": "end-to-end p50 ms",
    "end_to_end_p99_ms": "end-to-end p99 ms",
    "end_to_end_p999_ms": "end-to-end p99.9 ms",
    "publish_p50_ms": "publish p50 ms",
    "publish_p99_ms": "publish p99 ms",
    "publish_p999_ms": "publish p99.9 ms",
    "delay_p99_ms": "later than planned, p99 ms",
    "read_mb_per_s": "read MB/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "avg_ms": "mean ms",
    "start_s": "start s",
    "cold_start_s": "start s",
    "cpu_percent": "CPU %",
    "form_s": "until all are formed, s",
    "idle_cpu_percent": "idle: CPU %",
    "idle_entries_per_s": "idle: ledger entries/s",
    "heartbeats_per_s": "idle: heartbeats/s",
    "heartbeat_p99_ms": "idle: heartbeat p99 ms",
    "commit_cpu_percent": "committing: CPU %",
    "commits_per_s": "committing: commits/s",
    "commit_entries_per_s": "committing: ledger entries/s",
    "commit_p50_ms": "commit p50 ms",
    "commit_p99_ms": "commit p99 ms",
    "chunks_per_s": "chunks/s applied",
    "load_s": "load s, a million chunks",
    "memory_bytes_per_chunk": "bytes a chunk",
    "puts_per_gib": "PUTs/GiB",
    "gets_per_object": "GETs per object",
    "object_requests": "object requests",
    "raw_mb_per_s": "MB/s of plain PUTs",
    "share_of_raw": "share of plain PUTs",
    "usd_per_tib": "USD/TiB, requests",
    "puts_per_s": "PUTs/s",
    "gets_per_s": "GETs/s",
    "gets_per_gib": "GETs/GiB",
    "floor_ms": "wait + PUT + append, ms",
    "raw_put_ms": "PUT p50 ms",
    "raw_append_ms": "append p50 ms",
    "heartbeat_added_ms": "p50 ms that a relay adds to a heartbeat",
    "heartbeat_direct_p50_ms": "heartbeat p50 ms",
    "heartbeat_direct_p99_ms": "heartbeat p99 ms",
    "heartbeat_relayed_p50_ms": "relayed heartbeat p50 ms",
    "heartbeat_relayed_p99_ms": "relayed heartbeat p99 ms",
    "commit_added_ms": "p50 ms that a relay adds to a commit",
    "commit_direct_p50_ms": "direct commit p50 ms",
    "commit_direct_p99_ms": "direct commit p99 ms",
    "commit_relayed_p50_ms": "relayed commit p50 ms",
    "commit_relayed_p99_ms": "relayed commit p99 ms",
    "of_plaintext": "of plaintext's MB/s",
    "tls_cpu_s_per_gb": "CPU s/GB that TLS adds",
    "calm_p99_ms": "p99 ms without handshakes",
    "handshake_loop_ms": "ms of the loop for a handshake",
    "handshake_cpu_ms": "CPU ms for a handshake",
    "handshakes_per_s": "handshakes/s",
    "handshakes_failed": "handshakes that failed",
    "idle_kib": "KiB of an idle connection above plaintext",
    "cpu_of_unauthorized": "of the CPU without an authorizer",
    "unauthorized_cpu_s_per_gb": "CPU s/GB without an authorizer",
    "p50_of_floor": "p50 / (wait + PUT + append)",
}
CURRENCY_HEADER = (
    ("", "MiB/s per vCPU", "", "", "CPU s/GB", "", "", "PUTs/GiB", "USD/GiB"),
    ("row", *("Kafka", "Penstock", "with MinIO") * 2, "with MinIO", "with MinIO"),
)
HEADER = ("row", "metric", "better", "Kafka", "Penstock", "ratio", "with MinIO", "ratio")
MEANS = (Kind.PRODUCE, Kind.PRODUCE_BULK, Kind.PRODUCE_PACED, Kind.CONSUME_MEMORY, Kind.CONSUME_ARCHIVE)
MEAN_METRICS = ("mb_per_s", "cpu_s_per_gb", "peak_rss_mib")
VERDICTS = {True: "met", False: "MISSED", None: "-"}


def render(rows: Sequence[RowResult]) -> str:
    """The whole report."""
    parts = [aligned([HEADER, *_lines(row for row in rows if not row.case.agents)], texts=3)]
    clusters = list(_cluster_lines(row for row in rows if row.case.agents))
    if clusters:
        parts.append("Clusters over etcd and MinIO\n" + aligned(clusters, texts=2))
    currency = list(_currency_lines(rows))
    if currency:
        parts.append("Broker CPU and S3 requests\n" + aligned([*CURRENCY_HEADER, *currency], texts=1))
    means = list(_means(rows))
    if means:
        parts.append("Geometric means of the ratios\n" + aligned(means, texts=2))
    goals = [(VERDICTS[goal.is_met], goal.text, goal.measured) for goal in judge(rows)]
    parts.append("Goals (embedded, unless they name MinIO)\n" + aligned(goals, texts=2))
    failed = [f"FAILED  {row.case.name}: {row.failure}" for row in rows if row.failure]
    return "\n\n".join([*parts, *failed]) + "\n"


def row_line(row: RowResult) -> str:
    """One row in a line, for progress."""
    metric = METRICS[row.case.kind][0]
    figures = (f"{peer.value} {figure_text(row.figure(peer, metric))}" for peer in row.case.peers)
    text = row.failure or f"{UNITS[metric]}: {', '.join(figures)}"
    return f"{row.case.name:<34} {text}"


def _lines(rows: Iterable[RowResult]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        if row.failure:
            yield (row.case.name, "FAILED")
            continue
        name = row.case.name
        for metric in METRICS[row.case.kind]:
            kafka, ours, minio = (
                row.figure(peer, metric) for peer in (PeerName.KAFKA, PeerName.EMBEDDED, PeerName.MINIO)
            )
            ours_ratio, minio_ratio = (row.ratio(peer, metric) for peer in (PeerName.EMBEDDED, PeerName.MINIO))
            better = "less" if is_lower_better(metric) else "more"
            cells = (figure_text(kafka), figure_text(ours), _ratio(ours_ratio), figure_text(minio), _ratio(minio_ratio))
            yield (name, UNITS[metric], better, *cells)
            name = ""


def _cluster_lines(rows: Iterable[RowResult]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        if row.failure:
            yield (row.case.name, "FAILED")
            continue
        name = row.case.name
        for metric in METRICS[row.case.kind]:
            yield (name, UNITS[metric], figure_text(row.figure(PeerName.CLUSTER, metric)))
            name = ""


def _currency_lines(rows: Iterable[RowResult]) -> Iterator[tuple[str, ...]]:
    """The rows whose CPU or PUTs the table shows: a few seconds at a small rate count too little of either."""
    for row in rows:
        metrics = METRICS[row.case.kind]
        if row.failure or not {"cpu_s_per_gb", "puts_per_gib"} & set(metrics):
            continue
        cpu = (
            row.figure(PeerName.KAFKA, "cpu_s_per_gb"),
            row.figure(PeerName.EMBEDDED, "cpu_s_per_gb"),
            store_figure(row, "cpu_s_per_gb"),
        )
        usd = usd_per_gib(row)
        yield (
            row.case.name,
            *(figure_text(mib_per_s_per_vcpu(value)) for value in cpu),
            *map(figure_text, cpu),
            figure_text(store_figure(row, "puts_per_gib")),
            "-" if usd is None else f"{usd:.2g}",
        )


def _means(rows: Sequence[RowResult]) -> Iterator[tuple[str, ...]]:
    for kind in MEANS:
        chosen = [row for row in rows if row.case.kind is kind and not row.failure]
        for metric in (name for name in MEAN_METRICS if name in METRICS[kind]):
            values = [geometric_mean(ratios(chosen, peer, metric)) for peer in (PeerName.EMBEDDED, PeerName.MINIO)]
            if any(value is not None for value in values):
                yield (kind.value, UNITS[metric], *map(_ratio, values))


def figure_text(value: float | None) -> str:
    """A figure in three digits or so; a dash where there is none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} x"


def aligned(lines: Sequence[Sequence[str]], *, texts: int) -> str:
    """Aligned columns: the first `texts` to the left, figures to the right."""
    columns = max(map(len, lines))
    widths = [max((len(line[column]) for line in lines if column < len(line)), default=0) for column in range(columns)]
    return "\n".join(
        "  ".join(
            cell.ljust(widths[column]) if column < texts else cell.rjust(widths[column])
            for column, cell in enumerate(line)
        ).rstrip()
        for line in lines
    )
