"""Processes that hold an embedded ledger: killed at any point, and two at a time."""

import os
import sys
from pathlib import Path

import pytest

from coordinator.ledger.port import SessionHeld
from coordinator.ledger.sqlite import SqliteLedger
from storage.object_store import StoreMisconfigured
from tests.faults.appender import journal_halves, key, payload, sqlite_ledger
from tests.support.processes import Process
from tools.steps import ROOT

FILES = {"sqlite": "ledger.sqlite", "journal": "journal"}


def start_appender(folder: Path, kind: str) -> Process:
    command: list[str | Path] = [sys.executable, "-m", "tests.faults.appender", folder / FILES[kind], kind]
    return Process(command, folder, name="appender", env={"PYTHONPATH": str(ROOT)})


def killed_again_and_again(folder: Path, kind: str) -> list[int]:
    """The positions that were acknowledged."""
    acknowledged: list[int] = []
    for count in (1, 60, 0, 7, 250):
        with start_appender(folder, kind) as process:
            process.read_line()
            lines = [process.read_line() for _ in range(count)]
            process.kill()
            acknowledged += [int(line.split()[1]) for line in lines + process.read_lines()]
    return acknowledged


async def test_every_acknowledged_append_is_there_after_kill_9_again_and_again(tmp_path: Path) -> None:
    acknowledged = killed_again_and_again(tmp_path, "sqlite")
    async with sqlite_ledger(tmp_path / "ledger.sqlite") as ledger:
        start = await ledger.load()
        assert set(acknowledged) <= {row.position for row in start.records}
        assert start.head.appends_count == len(start.records)
        assert await ledger.open_session("appender") > start.head.position


async def test_so_is_every_entry_and_its_object_in_a_journal(tmp_path: Path) -> None:
    acknowledged = killed_again_and_again(tmp_path, "journal")
    async with journal_halves(tmp_path / "journal") as (ledger, store):
        start = await ledger.load()
        assert set(acknowledged) <= {row.position for row in start.records}
        assert start.head.appends_count == len(start.records)
        for record in start.records:
            assert record.payload == await store.get(key(record.number)) == payload(record.number)
        assert await ledger.open_session("appender") > start.head.position


async def test_a_second_process_is_told_who_holds_the_ledger(tmp_path: Path) -> None:
    with start_appender(tmp_path, "sqlite") as process:
        process.read_line()
        with pytest.raises(SessionHeld, match=rf"process {process.pid} has the ledger .*ledger\.sqlite open"):
            await SqliteLedger.open(tmp_path / "ledger.sqlite", new_cluster_id="another")
        process.kill()
    async with sqlite_ledger(tmp_path / "ledger.sqlite"):
        with pytest.raises(SessionHeld, match=f"process {os.getpid()}"):
            await SqliteLedger.open(tmp_path / "ledger.sqlite", new_cluster_id="another")


async def test_a_second_process_does_not_open_the_journal(tmp_path: Path) -> None:
    with start_appender(tmp_path, "journal") as process:
        process.read_line()
        with pytest.raises(StoreMisconfigured, match="in use by another process"):
            async with journal_halves(tmp_path / "journal"):
                pass
        process.kill()
    async with journal_halves(tmp_path / "journal"):
        pass
