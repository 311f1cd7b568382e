"""Processes that hold the SQLite ledger: killed at any point, and two at a time."""

import os
import sys
from pathlib import Path

import pytest

from coordinator.ledger.port import SessionHeld
from coordinator.ledger.sqlite import SqliteLedger
from tests.support.processes import Process
from tools.steps import ROOT


def start_appender(folder: Path) -> Process:
    command: list[str | Path] = [sys.executable, "-m", "tests.faults.appender", folder / "ledger.sqlite"]
    return Process(command, folder, name="appender", env={"PYTHONPATH": str(ROOT)})


async def test_every_acknowledged_append_is_there_after_kill_9_again_and_again(tmp_path: Path) -> None:
    acknowledged: list[int] = []
    for count in (1, 60, 0, 7, 250):
        with start_appender(tmp_path) as process:
            process.read_line()
            lines = [process.read_line() for _ in range(count)]
            process.kill()
            acknowledged += [int(line.split()[1]) for line in lines + process.read_lines()]
    ledger = await SqliteLedger.open(tmp_path / "ledger.sqlite", new_cluster_id="another")
    start = await ledger.load()
    assert (await ledger.identity()).cluster_id == "c"
    assert set(acknowledged) <= {row.position for row in start.records}
    assert start.head.appends_count == len(start.records)
    assert await ledger.open_session("appender") > start.head.position
    await ledger.close()


async def test_a_second_process_is_told_who_holds_the_ledger(tmp_path: Path) -> None:
    with start_appender(tmp_path) as process:
        process.read_line()
        with pytest.raises(SessionHeld, match=rf"process {process.pid} has the ledger .*ledger\.sqlite open"):
            await SqliteLedger.open(tmp_path / "ledger.sqlite", new_cluster_id="another")
        process.kill()
    ledger = await SqliteLedger.open(tmp_path / "ledger.sqlite", new_cluster_id="another")
    with pytest.raises(SessionHeld, match=f"process {os.getpid()}"):
        await SqliteLedger.open(tmp_path / "ledger.sqlite", new_cluster_id="another")
    await ledger.close()
