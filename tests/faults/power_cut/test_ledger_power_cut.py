"""The embedded ledgers and the loss of power: what was acknowledged is there, and it is the syncs that keep it."""

import sys
from pathlib import Path

import pytest

from coordinator.ledger.port import LedgerError, LedgerStart
from storage.object_store import StoreError
from tests.faults.appender import journal_halves, key, payload, sqlite_ledger
from tests.faults.power_cut.power_cut import PowerCut
from tests.support.processes import Process

FILES = {"sqlite": Path("new folder/ledger.sqlite"), "journal": Path("new folder/journal")}


async def load(power_cut: PowerCut, kind: str) -> LedgerStart:
    """The entries that are left. Each one's object is read, too, where the ledger is in a journal."""
    path = power_cut.root / FILES[kind]
    if kind == "sqlite":
        async with sqlite_ledger(path) as ledger:
            return await ledger.load()
    async with journal_halves(path) as (journal, store):
        start = await journal.load()
        for record in start.records:
            assert await store.get(key(record.number)) == payload(record.number)
        return start


def start_appender(power_cut: PowerCut, kind: str, *options: str, ignore: str = "") -> Process:
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "tests.faults.appender",
        power_cut.root / FILES[kind],
        kind,
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


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("count", [*(pytest.param(count, marks=pytest.mark.slow) for count in (0, 1, 17)), 600])
async def test_every_acknowledged_append_survives(power_cut: PowerCut, count: int, kind: str) -> None:
    with start_appender(power_cut, kind) as process:
        acknowledged = acknowledged_until_killed(process, count)
    power_cut.restore()
    start = await load(power_cut, kind)
    assert [(row.number, row.position) for row in start.records][: len(acknowledged)] == acknowledged
    assert all(row.payload == payload(row.number) for row in start.records)
    assert len(start.records) == start.head.appends_count <= len(acknowledged) + 1


@pytest.mark.parametrize("kind", FILES)
async def test_appends_survive_power_cut_after_power_cut(power_cut: PowerCut, kind: str) -> None:
    acknowledged: list[int] = []
    for count in (3, 150, 1):
        with start_appender(power_cut, kind) as process:
            acknowledged += [position for _, position in acknowledged_until_killed(process, count)]
        power_cut.restore()
    start = await load(power_cut, kind)
    positions = [row.position for row in start.records]
    assert set(acknowledged) <= set(positions)
    assert positions == sorted(set(positions))
    assert start.head.appends_count == len(positions)


@pytest.mark.parametrize(
    ("kind", "options", "ignore"),
    [
        pytest.param("sqlite", (), "ledger.sqlite", marks=pytest.mark.slow, id="no sync of the ledger"),
        pytest.param("sqlite", (), "file:ledger.sqlite-wal", id="no sync of its log"),
        pytest.param("sqlite", (), "dir:", id="no sync of its folder"),
        pytest.param("sqlite", ("fast",), "", marks=pytest.mark.slow, id="not durable by setting"),
        pytest.param("journal", (), "file:.journal", id="no sync of the journal"),
        pytest.param("journal", (), "dir:/journal", id="no sync of the journal's folder"),
        pytest.param("journal", (), "dir:new folder,dir:/root", id="no sync of the folders above"),
        pytest.param("journal", ("fast",), "", marks=pytest.mark.slow, id="not durable by setting, in a journal"),
    ],
)
async def test_without_a_sync_acknowledged_appends_are_lost(
    power_cut: PowerCut, kind: str, options: tuple[str, ...], ignore: str
) -> None:
    # Few enough that SQLite does not move its log into the file, which it syncs also where commits are not durable.
    with start_appender(power_cut, kind, *options, "17", ignore=ignore) as process:
        acknowledged = acknowledged_until_killed(process, 17)
    power_cut.restore()
    (power_cut.root / FILES[kind]).parent.mkdir(exist_ok=True)
    try:
        start = await load(power_cut, kind)
    except (LedgerError, StoreError):
        return  # nothing readable is left
    assert len(start.records) < len(acknowledged)
