"""The SQLite ledger and the loss of power: what was acknowledged is there, and it is the syncs that keep it."""

import sys
from pathlib import Path

import pytest

from coordinator.ledger.port import LedgerError, LedgerStart
from coordinator.ledger.sqlite import SqliteLedger
from tests.faults.appender import payload
from tests.faults.power_cut.power_cut import PowerCut
from tests.support.processes import Process

FILE = Path("new folder/ledger.sqlite")


async def load(path: Path) -> LedgerStart:
    ledger = await SqliteLedger.open(path, new_cluster_id="another")
    try:
        return await ledger.load()
    finally:
        await ledger.close()


def start_appender(power_cut: PowerCut, *options: str, ignore: str = "") -> Process:
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "tests.faults.appender",
        power_cut.root / FILE,
        *options,
    ]
    return power_cut.start(command, ignore=ignore)


def acknowledged_until_killed(process: Process, count: int) -> list[tuple[int, int]]:
    """(number, position) of what the appender acknowledged, at least `count` of them."""
    assert process.read_line().startswith("open ")
    lines = [process.read_line() for _ in range(count)]
    process.kill()
    lines += process.read_lines()
    return [(int(number), int(position)) for number, position in map(str.split, lines)]


@pytest.mark.parametrize("count", [*(pytest.param(count, marks=pytest.mark.slow) for count in (0, 1, 17)), 600])
async def test_every_acknowledged_append_survives(power_cut: PowerCut, count: int) -> None:
    with start_appender(power_cut) as process:
        acknowledged = acknowledged_until_killed(process, count)
    power_cut.restore()
    start = await load(power_cut.root / FILE)
    assert [(row.number, row.position) for row in start.records][: len(acknowledged)] == acknowledged
    assert all(row.payload == payload(row.number) for row in start.records)
    assert len(start.records) == start.head.appends_count <= len(acknowledged) + 1


async def test_appends_survive_power_cut_after_power_cut(power_cut: PowerCut) -> None:
    acknowledged: list[int] = []
    for count in (3, 150, 1):
        with start_appender(power_cut) as process:
            acknowledged += [position for _, position in acknowledged_until_killed(process, count)]
        power_cut.restore()
    start = await load(power_cut.root / FILE)
    positions = [row.position for row in start.records]
    assert set(acknowledged) <= set(positions)
    assert positions == sorted(set(positions))
    assert start.head.appends_count == len(positions)


@pytest.mark.parametrize(
    ("options", "ignore"),
    [
        pytest.param((), "ledger.sqlite", marks=pytest.mark.slow),
        ((), "file:ledger.sqlite-wal"),
        ((), "dir:"),
        pytest.param(("fast",), "", marks=pytest.mark.slow),
    ],
    ids=["no sync of the ledger", "no sync of its log", "no sync of its folder", "not durable by setting"],
)
async def test_without_a_sync_acknowledged_appends_are_lost(
    power_cut: PowerCut, options: tuple[str, ...], ignore: str
) -> None:
    # Few enough that SQLite does not move its log into the file, which it syncs also where commits are not durable.
    with start_appender(power_cut, *options, "17", ignore=ignore) as process:
        acknowledged = acknowledged_until_killed(process, 17)
    power_cut.restore()
    try:
        start = await load(power_cut.root / FILE)
    except LedgerError:
        return  # nothing readable is left
    assert len(start.records) < len(acknowledged)
