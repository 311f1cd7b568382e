"""The result of a verification, as text and as JSON. Pure.

It lists what was not checked beside the findings: everything else was checked.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from iceberg_export.jobs.findings import TableFinding

EXIT_FINDINGS, EXIT_FAILED, EXIT_FINE = 1, 2, 0
"""Exit statuses."""


@dataclass(slots=True, kw_only=True)
class TableReport:
    """The result of a topic's table. `dropped`: the count of its rows that the log has dropped already."""

    topic: str
    files: int = 0
    rows: int = 0
    dropped: int = 0
    bytes: int = 0
    partitions: int = 0
    findings: list[TableFinding] = field(default_factory=list[TableFinding])
    not_checked: list[str] = field(default_factory=list[str])
    problem: str = ""
    """The reason why it could not be verified, or not completely."""

    def to_dict(self) -> dict[str, Any]:
        """The report for JSON."""
        names = ("topic", "files", "rows", "dropped", "bytes", "partitions", "not_checked", "problem")
        values = {name: getattr(self, name) for name in names}
        return {**values, "findings": [finding.to_dict() for finding in self.findings]}


def exit_status(reports: Sequence[TableReport]) -> int:
    """The exit status: 1 with findings, 2 without findings where a table was not verified completely, else 0."""
    if any(report.findings for report in reports):
        return EXIT_FINDINGS
    return EXIT_FAILED if any(report.problem for report in reports) else EXIT_FINE


def as_json(reports: Sequence[TableReport]) -> str:
    """The reports as a JSON document."""
    return json.dumps([report.to_dict() for report in reports], indent=2)


def as_text(reports: Sequence[TableReport]) -> str:
    """The reports as text: a line for each table, and one for each finding."""
    lines = [f"{'TOPIC':<32} {'FILES':>8} {'ROWS':>14} {'DROPPED':>10} {'BYTES':>16} {'PARTITIONS':>10}  FINDINGS"]
    for report in reports:
        count = f"{len(report.findings):,}" if report.findings else "not verified" if report.problem else "none"
        lines.append(
            f"{report.topic:<32} {report.files:>8,} {report.rows:>14,} {report.dropped:>10,} {report.bytes:>16,} "
            f"{report.partitions:>10,}  {count}"
        )
    lines += [f"FOUND {report.topic}: {finding.line()}" for report in reports for finding in report.findings]
    lines += [f"not checked, {report.topic}: {what}" for report in reports for what in report.not_checked]
    lines += [f"not verified, {report.topic}: {report.problem}" for report in reports if report.problem]
    return "\n".join(lines)
