"""A short torture run: producers and readers of three libraries, and some faults of every kind of part.

The long one is `make torture`.
"""

from pathlib import Path

import pytest

from tests.torture.report import as_text
from tests.torture.run import SERVICE_SECONDS_MAX, Run, RunReport
from tests.torture.schedule import chosen

pytestmark = pytest.mark.timeout(420)

SHORT = [
    ("kill -9", "agent a"),
    ("applied_reset", "b-store"),
    ("reset", "c-etcd"),
    ("kill -9", "etcd leader"),
    ("cut in the answer", "a-client"),
    ("SIGTERM, start again", "agent b"),
]
BEYOND_THE_LEASE = [
    ("SIGSTOP", "agent c"),
    ("black hole from it", "a-etcd"),
    ("black hole to it", "b-etcd"),
    ("black hole", "c-store"),
    ("SIGSTOP", "etcd all"),
    ("slow_down", "a-store"),
    ("missing_first", "b-store"),
    ("half-closed", "c-client"),
]


def tortured(folder: Path, faults: list[tuple[str, str]]) -> RunReport:
    report = Run(folder=folder, seed=1, slots=chosen(faults), seconds_max=300, partitions=3, pause_ms=60).run()
    print(as_text(report))
    assert report.anomalies == []
    assert len(report.slots) == len(faults)
    assert report.totals["acknowledged"] == report.totals["sent"] > 0
    assert report.totals["read"] == 3 * report.totals["sent"]
    return report


def test_nothing_is_lost_while_parts_die_and_links_break(tmp_path: Path) -> None:
    report = tortured(tmp_path, SHORT)
    assert report.struck["applied_reset"] > 0


@pytest.mark.slow
def test_nothing_is_lost_while_parts_are_away_for_longer_than_a_lease(tmp_path: Path) -> None:
    report = tortured(tmp_path, BEYOND_THE_LEASE)
    assert (report.slots[-1].recovery_s or 0) < SERVICE_SECONDS_MAX
