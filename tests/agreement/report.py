"""A run's report as text."""

from collections.abc import Mapping

from tests.agreement.freshness import STREAM_GOAL_MS, TABLE_GOAL_MS, Ages
from tests.agreement.run import Freshness, RunReport

VIEWS = "Kafka read_committed, the Iceberg tables, format(penstock) in batch and in streaming, and the bucket"


def as_text(report: RunReport) -> str:
    settings = report.settings
    lines = [
        f"agreement, seed {settings.seed}: {settings.topics} topics x {settings.partitions} partitions, "
        f"{settings.seconds / 60:.1f} minutes of load, passes every {settings.archive_interval_s} s",
        "",
        *(f"{seconds:8.1f} s  {what}" for what, seconds in report.steps),
        "",
        *(f"{value:10,.0f}  {name}" for name, value in report.figures.items()),
        "",
        *([] if report.freshness is None else freshness_lines(report.freshness)),
    ]
    lines += [f"DISAGREEMENT {stage}: {finding}" for stage, finding in report.findings]
    lines += [f"PROBLEM {problem}" for problem in report.problems]
    if report.is_well:
        lines.append(f"{VIEWS} agree record for record")
    else:
        lines.append(f"{len(report.findings)} disagreements, {len(report.problems)} problems")
    return "\n".join(lines)


def freshness_lines(found: Freshness) -> list[str]:
    """Ages from a record's produce to its row, goals, and whether they were met."""
    return [
        "age from produce to row, in s                p50      p99   p99 since the end of its transaction",
        *_of(f"table ({found.polled} polled)", found.table, TABLE_GOAL_MS),
        *_of("stream", found.stream, STREAM_GOAL_MS),
        "",
    ]


def _of(what: str, spans: Mapping[str, Ages], goal_ms: int) -> list[str]:
    """A line for each span of time. What was never seen is infinitely old."""
    lines: list[str] = []
    for name, ages in spans.items():
        seconds = "".join(f" {ms / 1000:8.2f}" for ms in (ages.p50_ms, ages.p99_ms, ages.p99_ended_ms))
        goal = f"goal p99 < {goal_ms / 1000:g} s {verdict(ages, goal_ms)}"
        lines.append(f"  {f'{what}, {name}':<36}{seconds}   {goal}; {ages.count:,} records, {ages.unseen:,} not seen")
    return lines


def verdict(ages: Ages, goal_ms: int) -> str:
    if not ages.count:
        return "not measured"
    return "met" if ages.p99_ms < goal_ms else "missed"
