"""The order of a run on several processes: the longest groups of tests first, so that all processes end together.

pytest-xdist hands out groups in the order of collection (`--no-loadscope-reorder`). A test of two minutes that starts
last leaves the other process idle for as long. `durations.txt` has the seconds of each group that takes at least
`GROUP_SECONDS_MIN`, as `make durations` measured them; a group without a line counts as short.
"""

import os
from collections import defaultdict
from pathlib import Path

import pytest

RECORD = Path(__file__).with_name("durations.txt")
GROUP_SECONDS_MIN = 4.0
RECORDING = "RECORD_DURATIONS"
"""Environment variable: a run in which it is set writes `RECORD`."""


def recorded() -> dict[str, float]:
    """Seconds by group."""
    lines = RECORD.read_text(encoding="utf-8").splitlines() if RECORD.exists() else []
    rows = (line.split(" ", 1) for line in lines if not line.startswith("#"))
    return {group: float(seconds) for seconds, group in rows}


def group_of(item: pytest.Item) -> str:
    """The name under which pytest-xdist keeps tests together: that of their group, else the test's own."""
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0]) if marker is not None else item.nodeid


def longest_first(items: list[pytest.Item]) -> None:
    """Sort `items` in place by the seconds of their groups; a group stays together, and in its order."""
    seconds = recorded()
    items.sort(
        key=lambda item: (-seconds.get(group_of(item), 0.0), group_of(item) if group_of(item) in seconds else "")
    )


def check_groups(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Raise where pytest-xdist keeps no group together: each process would start a Kafka and a Spark of its own."""
    if getattr(config.option, "loadgroup", False):
        for item in items:
            if item.get_closest_marker("xdist_group") is not None and "@" not in item.nodeid:
                raise pytest.UsageError(f"pytest-xdist has not named the group of {item.nodeid}: pin another pytest")


def record(reports: dict[str, list[pytest.TestReport]]) -> None:
    """Write the seconds of all groups of a run. `reports`: pytest's own, by outcome."""
    seconds: dict[str, float] = defaultdict(float)
    for outcome in reports.values():
        for report in outcome:
            if isinstance(report, pytest.TestReport):
                nodeid, at, group = report.nodeid.rpartition("@")
                seconds[group if at else nodeid or group] += report.duration
    rows = sorted(((took, group) for group, took in seconds.items() if took >= GROUP_SECONDS_MIN), reverse=True)
    heading = "# Seconds of groups of tests, written by `make durations`; see tests/support/durations.py.\n"
    RECORD.write_text(heading + "".join(f"{took:.0f} {group}\n" for took, group in rows), encoding="utf-8")


def is_recording() -> bool:
    return RECORDING in os.environ
