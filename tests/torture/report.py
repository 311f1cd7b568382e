"""A run's report as text."""

from collections import Counter
from collections.abc import Iterable

from tests.torture.run import RunReport, SlotReport, text_of

ANOMALIES_SHOWN_MAX = 5
"""Of each kind."""
SAFETY_KINDS = ("lost", "hidden", "duplicated", "reordered", "inconsistent offset", "spurious offset 0", "phantom")


def as_text(report: RunReport) -> str:
    rows: list[tuple[str, ...]] = [("at s", "fault", "acks", "recovery s", "errors that clients saw")]
    rows += [_row(slot) for slot in report.slots]
    recoveries = sorted(slot.recovery_s for slot in report.slots if slot.recovery_s is not None)
    found = Counter(anomaly.kind for anomaly in report.anomalies)
    lines = [
        f"torture, seed {report.seed}: {len(report.slots)} slots in {report.seconds / 60:.1f} minutes",
        "",
        *_table(rows),
        "",
        ", ".join(f"{name} {count:,}" for name, count in report.totals.items()),
        f"faults of the store that struck: {_counts(report.struck)}",
        *([f"recovery: median {recoveries[len(recoveries) // 2]:.1f} s, longest {recoveries[-1]:.1f} s, after the last "
           f"fault {report.slots[-1].recovery_s or 0:.1f} s"] if recoveries else []),
        ", ".join(f"{kind} {found[kind]}" for kind in SAFETY_KINDS),
    ]  # fmt: skip
    for kind, count in found.items():
        lines.append(f"ANOMALY {kind}: {count}")
        told = [anomaly.text for anomaly in report.anomalies if anomaly.kind == kind]
        lines += [f"    {text}" for text in told[:ANOMALIES_SHOWN_MAX]]
    lines.append("no anomaly" if not report.anomalies else f"{len(report.anomalies)} anomalies")
    return "\n".join(lines)


def _row(slot: SlotReport) -> tuple[str, ...]:
    recovery = "never" if slot.recovery_s is None else f"{slot.recovery_s:.1f}"
    acknowledged = f"{slot.acknowledged_count:,}"
    return f"{slot.began_s:.0f}", text_of(slot.faults), acknowledged, recovery, _counts(slot.errors)


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def _table(rows: list[tuple[str, ...]]) -> Iterable[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]) - 1)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[-1]])
