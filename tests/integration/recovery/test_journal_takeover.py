"""A data folder with packs and a ledger in SQLite that a broker with a journal takes over, with all its records."""

import json
from pathlib import Path

import pytest

from coordinator.ledger.sqlite_marker import is_marker
from storage.embedded.journal.opening import JournalFiles
from storage.embedded.local_files import Files
from tests.support.cluster.recovery import consume, produce
from tests.support.journal.journal_bytes import flipped
from tests.support.processes import Process, ProcessFailed
from tests.support.services.local_services import PENSTOCK, PenstockFactory

OPTIONS = {"archive-interval-s": "3600"}
"""Nothing is archived: the records stay in packs and in the journal."""


def values(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def test_records_of_before_are_read_and_further_ones_follow_them(penstock: PenstockFactory, tmp_path: Path) -> None:
    data = tmp_path / "data"
    before = penstock(data=data, options=OPTIONS, has_journal=False)
    produce(before, "t", values(0, 50))
    assert before.process.stop() == 0

    killed = penstock(data=data, options=OPTIONS)
    assert consume(killed, "t", 50) == values(0, 50)
    produce(killed, "t", values(50, 80))
    killed.process.kill()

    after = penstock(data=data, options=OPTIONS)
    produce(after, "t", values(80, 90))
    assert consume(after, "t", 90) == values(0, 90)
    assert after.process.stop() == 0
    assert (data / "ledger.sqlite.upgraded").exists()
    assert is_marker(data / "ledger.sqlite")
    assert not (data / "store" / ".packs").exists() or any((data / "store" / ".packs").iterdir())


@pytest.mark.slow
def test_a_damaged_ledger_is_recovered_in_its_journal(penstock: PenstockFactory, tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = penstock(data=data, options=OPTIONS)
    produce(broker, "t", values(0, 5))
    snapshots = data / "store" / "ledger" / "snapshots"
    broker.process.wait_until(lambda: snapshots.is_dir() and any(snapshots.iterdir()), "a snapshot with the topic")
    produce(broker, "t", values(5, 20))
    broker.process.kill()
    damage_an_entry(data / "journal")
    with pytest.raises(ProcessFailed, match="the journal is damaged"):
        penstock(data=data, options=OPTIONS)
    places = ("--data-dir", str(data))
    with Process([PENSTOCK, "recover", "--force", *places], tmp_path, name="recover") as process:
        assert process.wait_ended(seconds_max=60) == 0, process.stdout
    recovered = penstock(data=data, options=OPTIONS)
    assert consume(recovered, "t", 20) == values(0, 20)
    produce(recovered, "t", values(20, 25))
    assert consume(recovered, "t", 25) == values(0, 25)


def damage_an_entry(folder: Path) -> None:
    """Change a bit in the payload of an entry behind the snapshot, with other entries behind it."""
    opened = JournalFiles(str(folder), Files()).read_all()
    location = opened.content.entries[-5]
    path = folder / f"{location.file.number:016x}.journal"
    path.write_bytes(flipped(path.read_bytes(), (location.payload_first + 60) * 8))


def test_tools_read_a_journal_beside_its_broker(penstock: PenstockFactory, tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = penstock(data=data, options=OPTIONS)
    produce(broker, "t", values(0, 20))

    def run(*command: str, code: int = 0) -> str:
        with Process([PENSTOCK, *command], tmp_path, name=command[0]) as process:
            assert process.wait_ended() == code, process.stderr
            return process.stderr if code else process.stdout

    in_folder = ("--data-dir", str(data), "--json")
    assert json.loads(run("inspect", "state", *in_folder))["topics"] >= 1
    objects = json.loads(run("inspect", "objects", *in_folder))["objects"]
    assert json.loads(run("inspect", "object", objects[0]["key"], *in_folder))["file"] == objects[0]["key"]
    places = ("--data-dir", str(data))
    checked = run("doctor", *places, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    assert "ledger and bucket name each other" in checked
    assert f"process {broker.process.pid} has the ledger" in run("recover", "--force", *places, code=1)
    assert consume(broker, "t", 20) == values(0, 20)


def test_an_audit_reads_a_journal_whose_broker_is_stopped(penstock: PenstockFactory, tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = penstock(data=data, options=OPTIONS)
    produce(broker, "t", values(0, 20))
    assert broker.process.stop() == 0
    before = {path.name: path.read_bytes() for path in (data / "journal").iterdir()}
    places = ("--data-dir", str(data))
    with Process([PENSTOCK, "audit", *places], tmp_path, name="audit") as process:
        assert process.wait_ended() == 0, process.stdout
    assert {path.name: path.read_bytes() for path in (data / "journal").iterdir()} == before
