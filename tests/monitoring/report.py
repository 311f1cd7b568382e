"""A run's report as text."""

from collections.abc import Iterator

from tests.monitoring.run import FACTOR, INTERVAL_S, FaultReport, RunReport


def as_text(report: RunReport) -> str:
    return "\n".join(_lines(report))


def _lines(report: RunReport) -> Iterator[str]:
    counts = report.counts
    yield f"monitoring: {report.seconds / 60:.1f} minutes; scraped and judged every {INTERVAL_S} s"
    yield (
        f"durations, windows and bounds of waiting in the rules are 1/{FACTOR} of those of deploy/monitoring; "
        "expressions are as they are"
    )
    yield (
        f"clients: {counts.acknowledged:,} records acknowledged, {counts.rejected:,} rejected, "
        f"{counts.committed:,} transactions committed, {counts.consumed:,} records consumed"
    )
    yield ""
    yield f"without a fault: {_names(report.calm) or 'no alert'}"
    for alert in report.calm.values():
        yield f"    {alert.summary} {dict(alert.labels)}"
    yield f"queries of panels: {report.queries_count}, without data {len(report.empty)}, excused {len(report.excused)}"
    for query in report.empty:
        yield f"    NO DATA {query.board}, {query.panel}: {query.expression}"
    for query in report.excused:
        yield f"    excused {query.board}, {query.panel}: {query.excuse}"
    yield ""
    for fault in report.faults:
        yield from _fault_lines(fault)
    for text in report.died:
        yield f"AGENT {text}"
    yield "well" if report.is_well else "NOT WELL"


def _fault_lines(report: FaultReport) -> Iterator[str]:
    fault = report.fault
    ended = "never" if report.ended_s is None else f"{report.ended_s:.0f} s later"
    yield f"{fault.name}, for {report.lasted_s:.0f} s: {'as wanted' if report.is_well else 'NOT AS WANTED'}"
    if not report.is_fired:
        yield f"    MISSING {fault.alert}"
    for (name, severity), seconds in report.after_s.items():
        alert = report.shown[name, severity]
        mark = "    OTHER PAGE" if name in report.other_pages and severity == "page" else f"    {severity}"
        yield f"{mark} {name} after {seconds:.0f} s: {alert.summary} {dict(alert.labels) or ''}".rstrip()
    yield f"    none fired any more {ended}"


def _names(shown: object) -> str:
    return ", ".join(f"{severity} {name}" for name, severity in shown) if isinstance(shown, dict) else ""
