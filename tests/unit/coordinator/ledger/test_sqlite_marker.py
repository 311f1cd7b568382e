"""The file in the place of a SQLite ledger whose ledger is in a journal."""

import os
import sqlite3
from pathlib import Path

import pytest

from coordinator.ledger.port import LedgerCorrupt, LedgerUnavailable
from coordinator.ledger.sqlite import SqliteLedger
from coordinator.ledger.sqlite_marker import is_marker, write_marker
from coordinator.ledger.sqlite_schema import APPLICATION_ID, FORMAT_IN_JOURNAL
from tests.support.journal.journal_files import contents_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


async def test_no_program_reads_it_or_changes_it_into_a_ledger(path: Path) -> None:
    write_marker(path, "c")
    for new_cluster_id in ("another", None):
        with pytest.raises(LedgerCorrupt, match="in the journal beside it"):
            await SqliteLedger.open(path, new_cluster_id=new_cluster_id)
        assert is_marker(path)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("SELECT cluster_id, format_version FROM meta").fetchall() == [("c", FORMAT_IN_JOURNAL)]
    connection.close()


async def test_a_ledger_is_none(path: Path) -> None:
    await (await SqliteLedger.open(path, new_cluster_id="c")).close()
    assert not is_marker(path)


def test_nothing_else_is_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_marker(path)
    for content in (b"", b"x", b"SQLite format 3\0" + bytes(200)):
        path.write_bytes(content)
        assert not is_marker(path)
    path.unlink()
    path.mkdir()
    assert not is_marker(path)
    path.rmdir()
    write_marker(path, "c")

    def fail(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", fail)
    assert not is_marker(path), "the ledger's adapter says that it cannot be read"


def test_it_replaces_what_was_there_and_what_a_crash_has_left(path: Path) -> None:
    path.write_bytes(b"a ledger that was taken over")
    path.with_name("ledger.sqlite.new").write_bytes(b"half of one")
    write_marker(path, "c")
    assert is_marker(path)
    assert contents_of(path.parent).keys() == {"ledger.sqlite"}


def test_where_it_cannot_be_written_what_was_there_stays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"a ledger")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(LedgerUnavailable, match="free space"):
        write_marker(path, "c")
    assert path.read_bytes() == b"a ledger"
