"""What Apache Kafka's performance tools print, read into figures.

Rule: pure. A tool whose output holds no summary has failed, whatever its status: `UnreadableOutput` quotes its end.
The formats are those of Kafka 4.3.1: `ProducerPerformance.Stats`, `EndToEndLatency.printResults`.
"""

import re

_PRODUCED = re.compile(
    r"^(?P<records>\d+) (?P<steady>steady state )?records sent, (?P<rate>[\d.]+) records/sec \([\d.]+ MB/sec\), "
    r"(?P<avg>[\d.]+) ms avg latency, (?P<max>[\d.]+) ms max latency, "
    r"(?P<p50>\d+) ms 50th, (?P<p95>\d+) ms 95th, (?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99\.9th",
    re.MULTILINE,
)
_AVERAGE = re.compile(r"^Avg latency: ([\d.]+) ms$", re.MULTILINE)
_PERCENTILES = re.compile(r"^Percentiles: 50th = (\d+), 99th = (\d+), 99\.9th = (\d+)$", re.MULTILINE)
_CONSUMED = re.compile(r"^done (?P<topic>\S+) records=(?P<records>\d+) bytes=(?P<bytes>\d+) ns=(?P<ns>\d+)$")
_COMMITTED = re.compile(
    r"^committed transactions=\d+ answered_ns=(?P<answered>[\d,]+) visible_ns=(?P<visible>[\d,]+) "
    r"cycle_ns=(?P<cycle>[\d,]+)$",
    re.MULTILINE,
)
_STEADY = re.compile(
    r"^steady ns=(?P<ns>\d+) acknowledged=(?P<acknowledged>\d+) read=(?P<read>\d+) commits_failed=(?P<failed>\d+)"
    r"(?P<latencies>.*)$"
)
_TOGETHER = re.compile(
    r"^together records=(?P<records>\d+) ns=(?P<ns>\d+) p50_us=(?P<p50>\d+) p99_us=(?P<p99>\d+)$", re.MULTILINE
)
_LATENCY = re.compile(r" (?P<name>\w+)_us=(?P<us>\d+)")
QUOTE_CHARACTERS = 300


class UnreadableOutput(Exception):
    """There is no summary in what a tool printed."""

    def __init__(self, tool: str, output: str) -> None:
        super().__init__(f"{tool} printed no summary: ...{output.strip()[-QUOTE_CHARACTERS:]}")


def read_produced(output: str, value_bytes: int) -> dict[str, float]:
    """Figures of ProducerPerformance: of the steady state where warm-up records were asked for.

    `value_bytes`: size of each record's value, by which records become MB (10^6 bytes; the tool's are 2^20).
    """
    summaries = list(_PRODUCED.finditer(output))
    if not summaries:
        raise UnreadableOutput("ProducerPerformance", output)
    found = next((summary for summary in summaries if summary["steady"]), summaries[-1])
    rate = float(found["rate"])
    return {
        "mb_per_s": rate * value_bytes / 1e6,
        "records_per_s": rate,
        "avg_ms": float(found["avg"]),
        "max_ms": float(found["max"]),
        "p50_ms": float(found["p50"]),
        "p95_ms": float(found["p95"]),
        "p99_ms": float(found["p99"]),
        "p999_ms": float(found["p999"]),
    }


def read_end_to_end(output: str) -> dict[str, float]:
    """Figures of EndToEndLatency. Its percentiles are whole milliseconds, rounded down."""
    average, percentiles = _AVERAGE.search(output), _PERCENTILES.search(output)
    if average is None or percentiles is None:
        raise UnreadableOutput("EndToEndLatency", output)
    p50, p99, p999 = map(float, percentiles.groups())
    return {"avg_ms": float(average[1]), "p50_ms": p50, "p99_ms": p99, "p999_ms": p999}


def read_consumed(line: str) -> dict[str, float]:
    """Figures of one `done` line of ConsumeAssigned. MB are 10^6 bytes of values."""
    found = _CONSUMED.match(line)
    if found is None:
        raise UnreadableOutput("ConsumeAssigned", line)
    seconds = int(found["ns"]) / 1e9
    return {
        "mb_per_s": int(found["bytes"]) / 1e6 / seconds,
        "records_per_s": int(found["records"]) / seconds,
        "records": float(found["records"]),
    }


def read_steady(line: str, value_bytes: int) -> dict[str, float]:
    """Figures of the last line of SteadyWorkload. MB are 10^6 bytes of values."""
    found = _STEADY.match(line)
    if found is None:
        raise UnreadableOutput("SteadyWorkload", line)
    seconds = int(found["ns"]) / 1e9
    acknowledged, read = int(found["acknowledged"]), int(found["read"])
    figures = {
        "mb_per_s": acknowledged * value_bytes / 1e6 / seconds,
        "read_mb_per_s": read * value_bytes / 1e6 / seconds,
        "records": float(acknowledged),
        "commits_failed": float(found["failed"]),
    }
    return figures | {f"{one['name']}_ms": int(one["us"]) / 1000 for one in _LATENCY.finditer(found["latencies"])}


def read_together(output: str, value_bytes: int) -> dict[str, float]:
    """Figures of ProduceTogether. MB are 10^6 bytes of values."""
    found = _TOGETHER.search(output)
    if found is None:
        raise UnreadableOutput("ProduceTogether", output)
    rate = int(found["records"]) / (int(found["ns"]) / 1e9)
    return {
        "mb_per_s": rate * value_bytes / 1e6,
        "records_per_s": rate,
        "p50_ms": int(found["p50"]) / 1000,
        "p99_ms": int(found["p99"]) / 1000,
    }


def read_committed(output: str) -> dict[str, float]:
    """Figures of CommitTransactions: medians and the worst, of the answer, of what everybody can read, of the cycle."""
    found = _COMMITTED.search(output)
    if found is None:
        raise UnreadableOutput("CommitTransactions", output)
    figures: dict[str, float] = {}
    for name in ("answered", "visible", "cycle"):
        times_ms = sorted(int(word) / 1e6 for word in found[name].split(","))
        figures[f"{name}_p50_ms"] = times_ms[len(times_ms) // 2]
        figures[f"{name}_max_ms"] = times_ms[-1]
    return figures
