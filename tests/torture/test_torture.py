"""A short torture run: producers and readers of three libraries, and some faults of every kind of part.

The long one is `make torture`.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.processes import Process
from tests.torture.report import as_text
from tests.torture.run import SERVICE_SECONDS_MAX, Run, RunReport
from tests.torture.schedule import chosen
from tools.steps import ROOT

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


@pytest.mark.slow
def test_nothing_is_lost_while_parts_die_and_links_break(tmp_path: Path) -> None:
    report = tortured(tmp_path, SHORT)
    assert report.struck["applied_reset"] > 0


def living_in(folder: Path) -> list[str]:
    """Processes whose working directory is in the folder."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile, or is another user's
            if Path(os.readlink(process / "cwd")).is_relative_to(folder):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process_behind(tmp_path: Path, signal_number: signal.Signals) -> None:
    folder = tmp_path / "run"
    command: list[str | Path] = [sys.executable, "-m", "tests.torture", "--minutes", "2", "--folder", folder]
    with Process(command, tmp_path, name="torture", env={"PYTHONPATH": str(ROOT)}) as process:
        for _ in range(2):  # where the logs are, and the first fault
            process.read_line()
        assert len(living_in(folder)) > 10
        os.kill(process.pid, signal_number)
        assert process.wait_ended() == {signal.SIGINT: 130, signal.SIGTERM: 143}[signal_number]
    assert living_in(folder) == []


@pytest.mark.slow
def test_nothing_is_lost_while_parts_are_away_for_longer_than_a_lease(tmp_path: Path) -> None:
    report = tortured(tmp_path, BEYOND_THE_LEASE)
    assert (report.slots[-1].recovery_s or 0) < SERVICE_SECONDS_MAX
