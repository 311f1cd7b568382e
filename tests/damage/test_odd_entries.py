"""Odd names and entries in every folder of a data folder: files that are no objects, links, FIFOs, sockets, folders.

What must hold (safety rule S20): the agent starts and serves, audit, recovery and doctor come to their ends in time and
without a traceback, the audit names each entry, and nothing counts as lost.
"""

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.damage import world
from tests.damage.world import LiveAgent
from tests.support.clients.raw_client import connected
from tests.support.odd_entries import ODD, make_all
from tests.support.services.local_services import PENSTOCK

ARCHIVED, WAITING = "archived", "waiting"
COMMAND_SECONDS_MAX = 40.0
"""Less than the minute for which a store that is away is asked again."""
NAMED = frozenset(ODD) - {"folder"}
"""Kinds that an audit names by their own names; of a folder it names what is in it."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with two topics, whose agent has stopped; nothing odd in it."""
    folder = tmp_path_factory.mktemp("odd")
    world.build(folder / "data", folder, archived=[ARCHIVED], waiting=[WAITING])
    return folder / "data"


def folders_below(data: Path) -> Iterator[Path]:
    """Every folder of the store, and the one that holds it. Those of packs have tests of their own."""
    yield data
    for path in sorted(data.rglob("*")):
        if path.is_dir() and ".packs" not in path.parts:
            yield path


def command(data: Path, *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr. It ends in time, and without a traceback."""
    done = subprocess.run(
        [PENSTOCK, *words, "--data-dir", data], capture_output=True, check=False, timeout=COMMAND_SECONDS_MAX
    )
    stderr = done.stderr.decode(errors="replace")
    assert "Traceback" not in stderr, stderr
    return done.returncode, done.stdout.decode(errors="replace"), stderr


def serves(data: Path, folder: Path, name: str) -> str:
    """Start an agent, read and write both topics, archive; returns its log."""

    async def use(agent: LiveAgent) -> None:
        async with connected(agent.bootstrap) as client:
            for topic in (ARCHIVED, WAITING):
                end = world.RECORDS
                read = await world.read_topic(client, topic, end)
                assert (read.offsets, read.wrong, read.error) == (set(range(end)), [], "")

    with world.running(data, folder, name) as agent:
        assert isinstance(agent, LiveAgent), agent
        asyncio.run(use(agent))
        status, text = world.post(agent, "/api/archive", {"topics": [ARCHIVED, WAITING], "wait": True})
        assert status == 200, text
        status, text = world.post(agent, "/api/audit", {"repair": False, "deep": True})
        assert status == 200, text
        assert agent.process.is_running
        log = agent.process.stderr
    assert "Traceback" not in log, log
    return log


def audited(data: Path) -> dict[str, set[str]]:
    """The audit's subjects by kind."""
    code, stdout, stderr = command(data, "audit", "--deep", "--json")
    assert code == 1, stderr
    found: dict[str, set[str]] = {}
    for row in json.loads(stdout)["disagreements"]:
        found.setdefault(row["what"], set()).add(row["subject"])
    return found


@pytest.mark.slow  # the next test goes through the same commands
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("damage")
def test_s20_odd_entries_in_every_folder_hold_up_nothing_and_are_no_loss(built: Path, tmp_path: Path) -> None:
    data = world.copied(built, tmp_path / "data")
    folders = list(folders_below(data))
    assert len(folders) > 8
    for folder in folders:
        make_all(folder)
        make_all(folder, "~odd-")
    make_all(data, "ledger.sqlite.odd-")
    serves(data, tmp_path, "odd")
    found = audited(data)
    assert found.keys() == {"unknown"}
    store = data / "store"
    for folder in folders:
        prefix = os.path.relpath(folder, store)
        if prefix.split("/")[0] not in {"lake", "ledger"}:
            continue
        for kind in NAMED:
            named = [subject for subject in found["unknown"] if subject.startswith(f"{prefix}/.odd-{kind}")]
            assert named, f"{kind} in {prefix}"
    code, text, stderr = command(data, "audit")
    assert code == 1
    assert r"\xff\xfe" in text
    assert "disagreements between" in stderr
    for words in (["--dry-run"], ["--store-timeout-s", "1"]):  # a recovery waits as long as a request may take
        code, text, stderr = command(data, "recover", "--force", "--json", *words)
        assert code == 0, stderr
        told = json.loads(text)
        assert (told["missing"], told["damaged"]) == ([], [])
        assert told["entries_passed_over"] == len(told["passed_over"]) > 0
    code, text, stderr = command(data, "doctor", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    assert code == 0, text + stderr
    serves(data, tmp_path, "recovered")
    assert audited(data).keys() == {"unknown"}


SHAPED = re.compile(r"(lake/[^/]+/(data|metadata)/[0-9a-f]{16}-|ledger/(snapshots|reached)/)")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("damage")
@pytest.mark.parametrize("kind", ["endless", "fifo", "folder", "dangling"])
def test_s20_odd_entries_in_the_place_of_objects_end_in_time_and_are_named(
    built: Path, tmp_path: Path, kind: str
) -> None:
    """Those of the lake and of marks: without its snapshot no agent starts, which says so."""
    data = world.copied(built, tmp_path / "data")
    store = data / "store"
    replaced = [
        path
        for path in sorted(store.rglob("*"))
        if path.is_file() and SHAPED.match(key := str(path.relative_to(store))) and "/snapshots/" not in key
    ]
    assert len(replaced) > 3
    for path in replaced:
        path.unlink()
        ODD[kind](path.parent, path.name)
    with world.running(data, tmp_path, "replaced") as agent:
        assert isinstance(agent, LiveAgent), agent

        async def use() -> None:
            async with connected(agent.bootstrap) as client:
                read = await world.read_topic(client, WAITING, world.RECORDS)
                assert (read.offsets, read.error) == (set(range(world.RECORDS)), "")
                assert (await world.read_topic(client, ARCHIVED, world.RECORDS)).offsets == set()

        asyncio.run(use())
        assert world.post(agent, "/api/audit", {"repair": False, "deep": True})[0] == 200
        assert agent.process.is_running
    found = audited(data)
    files = {str(path.relative_to(store)) for path in replaced if path.suffix == ".parquet"}
    what = "unreadable" if kind == "endless" else "missing"
    assert files <= found[what]
    code, text, stderr = command(data, "recover", "--dry-run", "--force", "--json")
    assert code == 0, stderr
    assert set(json.loads(text)["missing"]) >= (set() if kind == "endless" else files)
    code, text, _ = command(data, "doctor", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    assert code in {0, 1}, text
