"""Groups of tests, and their order in a run on several processes: the longest first, so that all end together.

A group runs in one process. The tests of a file are a group, so that what a module shares is made once. A marker
`xdist_group` puts a test into another group: one of tests that share what is dear to start. pytest-xdist hands groups
out in the order of collection (`--no-loadscope-reorder`). A group of two minutes that starts last leaves the other
processes idle for as long. `durations.txt` has the seconds of each group that takes at least `GROUP_SECONDS_MIN`, as
`make durations` measured them; a group without a line counts as short.
"""

import os
from collections import defaultdict
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

RECORD = Path(__file__).with_name("durations.txt")
GROUP_SECONDS_MIN = 4.0
RECORDING = "RECORD_DURATIONS"
"""Environment variable: a run in which it is set writes `RECORD`."""


def recorded() -> dict[str, float]:
    """Seconds by group."""
    lines = RECORD.read_text(encoding="utf-8").splitlines() if RECORD.exists() else []
    rows = (line.split(" ", 1) for line in lines if not line.startswith("#"))
    return {group: float(seconds) for seconds, group in rows}


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc] # pytest-xdist ships no types
    """Hands tests out by their groups."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of_name(nodeid)


def group_of_name(nodeid: str) -> str:
    """The group of a test, whose name ends with `@` and its marker's group, if it has one: else its file."""
    has_marker = nodeid.rfind("@") > nodeid.rfind("]")  # a parameter's value may hold the sign too
    return nodeid.rpartition("@")[2] if has_marker else nodeid.partition("::")[0]


def group_of(item: pytest.Item) -> str:
    """The same of a test that pytest-xdist has not named yet."""
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0]) if marker is not None else group_of_name(item.nodeid)


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
                seconds[group_of_name(report.nodeid)] += report.duration
    rows = sorted(((took, group) for group, took in seconds.items() if took >= GROUP_SECONDS_MIN), reverse=True)
    heading = "# Seconds of groups of tests, written by `make durations`; see tests/support/durations.py.\n"
    RECORD.write_text(heading + "".join(f"{took:.0f} {group}\n" for took, group in rows), encoding="utf-8")


def is_recording() -> bool:
    return RECORDING in os.environ
