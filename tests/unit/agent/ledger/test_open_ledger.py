"""What becomes of a ledger that is not there: an agent makes one, whoever only looks makes nothing."""

import errno
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from agent.bucket.open_journal import open_journal
from agent.bucket.store_damages import StoreDamages
from agent.config.settings import CliCommand, Settings, load_settings
from agent.ledger.open_ledger import WhereMissing, before_takeover, held_ledger, open_ledger
from agent.runtime.clock import SystemClock
from agent.runtime.ids import SystemIds
from coordinator.ledger import journal_codec
from coordinator.ledger.port import Ledger, LedgerCorrupt, LedgerEntry, LedgerMissing, NewerRules, SessionHeld
from coordinator.ledger.sqlite import SqliteLedger
from coordinator.ledger.sqlite_marker import is_marker
from storage.embedded.journal.format import RECORDS_FIRST
from storage.embedded.journal.open_journal import is_empty
from storage.embedded.local_files import Files
from tests.support.journal.journal_files import contents_of


def settings(ledger: str) -> Settings:
    return load_settings(CliCommand.AGENT, {"ledger": ledger, "store": "memory:"})


def in_journal(folder: Path) -> Settings:
    values = {"ledger": f"journal://{folder}/journal", "store": f"file://{folder}/store"}
    return load_settings(CliCommand.AGENT, values, environment={})


@asynccontextmanager
async def opened(
    places: Settings, where_missing: WhereMissing = WhereMissing.CREATED, *, is_recovery: bool = False
) -> AsyncIterator[Ledger]:
    """The ledger in a journal, as an agent or a command opens it."""
    clock, ids, is_writer = SystemClock(), SystemIds(), where_missing is WhereMissing.CREATED
    async with (
        held_ledger(places, is_writer=is_writer),
        open_journal(places, ids, damages=StoreDamages(), is_writer=is_writer) as journal,
        open_ledger(places, clock, ids, where_missing, journal=journal, is_recovery=is_recovery) as ledger,
    ):
        yield ledger


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_whoever_only_looks_makes_no_ledger(tmp_path: Path) -> None:
    places = settings(f"sqlite://{tmp_path}/data/ledger.sqlite")
    with pytest.raises(LedgerMissing, match="does not exist"):
        async with open_ledger(places, SystemClock(), SystemIds(), WhereMissing.REJECTED):
            pass
    async with open_ledger(places, SystemClock(), SystemIds(), WhereMissing.SUBSTITUTED) as ledger:
        assert (await ledger.head()).appends_count == 0
    assert not files(tmp_path)


async def test_whoever_only_looks_finds_what_an_agent_made(tmp_path: Path) -> None:
    places = settings(f"sqlite://{tmp_path}/data/ledger.sqlite")
    async with open_ledger(places, SystemClock(), SystemIds()) as ledger:
        identity = await ledger.identity()
    for where_missing in (WhereMissing.REJECTED, WhereMissing.SUBSTITUTED):
        async with open_ledger(places, SystemClock(), SystemIds(), where_missing) as ledger:
            assert await ledger.identity() == identity


class TestJournal:
    async def test_whoever_only_looks_makes_no_ledger(self, tmp_path: Path) -> None:
        places = in_journal(tmp_path / "data")
        with pytest.raises(LedgerMissing, match="does not exist, or is empty"):
            async with opened(places, WhereMissing.REJECTED):
                pass
        async with opened(places, WhereMissing.SUBSTITUTED) as ledger:
            assert (await ledger.head()).appends_count == 0
        assert not files(tmp_path)

    async def test_a_process_that_has_it_is_named(self, tmp_path: Path) -> None:
        places = in_journal(tmp_path)
        async with opened(places):
            for where_missing in (WhereMissing.CREATED, WhereMissing.REJECTED):
                with pytest.raises(SessionHeld, match=f"process {os.getpid()} has the ledger"):
                    async with opened(places, where_missing):
                        pass
            with pytest.raises(SessionHeld):  # a program that knows no journal
                await SqliteLedger.open(tmp_path / "ledger.sqlite", new_cluster_id="another")
        async with opened(places):
            pass

    async def test_another_ledger_is_held_by_its_adapter(self, tmp_path: Path) -> None:
        async with held_ledger(settings(f"sqlite://{tmp_path}/data/ledger.sqlite")):
            assert not files(tmp_path)

    async def test_a_program_that_knows_no_journal_finds_a_format_that_it_does_not_know(self, tmp_path: Path) -> None:
        for _ in range(2):
            async with opened(in_journal(tmp_path)) as ledger:
                assert (await ledger.identity()).incarnation == 1
            for new_cluster_id in ("another", None):
                with pytest.raises(LedgerCorrupt, match="is in the journal beside it"):
                    await SqliteLedger.open(tmp_path / "ledger.sqlite", new_cluster_id=new_cluster_id)
            (tmp_path / "ledger.sqlite").unlink()  # the next start makes it again

    async def test_a_file_that_cannot_be_made_keeps_no_agent_from_starting(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(sqlite3, "connect", fail)
        async with opened(in_journal(tmp_path)):
            assert not (tmp_path / "ledger.sqlite").exists()

    @pytest.mark.parametrize("name", ["ledger.sqlite", "ledger.sqlite-wal"])
    async def test_what_has_the_name_of_the_former_ledger_and_is_no_file_is_no_new_cluster(
        self, tmp_path: Path, name: str
    ) -> None:
        (tmp_path / name).mkdir()
        with pytest.raises(LedgerCorrupt, match="no regular file"):
            async with opened(in_journal(tmp_path)):
                pass
        assert is_empty(tmp_path / "journal")

    async def test_a_log_without_its_file_is_no_new_cluster(self, tmp_path: Path) -> None:
        (tmp_path / "ledger.sqlite-wal").write_bytes(bytes(10_000))
        with pytest.raises(LedgerCorrupt, match=r"ledger\.sqlite-wal"):
            async with opened(in_journal(tmp_path)):
                pass
        assert is_empty(tmp_path / "journal")

    async def test_until_an_agent_has_taken_it_over_the_former_ledger_counts(self, tmp_path: Path) -> None:
        places = in_journal(tmp_path)
        assert before_takeover(places) is places
        async with open_ledger(settings(f"sqlite://{tmp_path}/ledger.sqlite"), SystemClock(), SystemIds()) as ledger:
            identity = await ledger.identity()
        (tmp_path / "journal").mkdir()
        before = before_takeover(places)
        assert before.ledger_url == f"sqlite://{tmp_path}/ledger.sqlite"
        assert before_takeover(before) is before
        async with opened(places) as ledger:
            assert await ledger.identity() == identity
        assert before_takeover(places) is places


class TestGone:
    """A marker, or the file that was taken over, says that there was a ledger in the journal."""

    @pytest.mark.parametrize("name", ["ledger.sqlite", "ledger.sqlite.upgraded"])
    @pytest.mark.parametrize("left_bytes", [None, 0, RECORDS_FIRST], ids=["no file", "an empty file", "a header"])
    async def test_none_is_begun_where_there_was_one(self, tmp_path: Path, name: str, left_bytes: int | None) -> None:
        places = in_journal(tmp_path)
        async with opened(places):
            pass
        (tmp_path / "ledger.sqlite").rename(tmp_path / name)
        (file,) = files(tmp_path / "journal")
        os.truncate(file, left_bytes or 0)
        if left_bytes is None:
            file.unlink()
        before = contents_of(tmp_path / "journal")
        for _ in range(2):
            with pytest.raises(LedgerCorrupt, match=r"bring its files back.*penstock recover.*nothing was changed"):
                async with opened(places):
                    pass
        assert contents_of(tmp_path / "journal") == before
        async with opened(places, is_recovery=True) as ledger:
            assert (await ledger.head()).appends_count == 0
            assert contents_of(tmp_path / "journal") == before
            await ledger.fence()

    async def test_no_marker_is_left_that_is_more_durable_than_the_ledger(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        values = {"ledger": f"journal://{tmp_path}/journal", "store": f"file://{tmp_path}/store", "fsync": False}
        places = load_settings(CliCommand.AGENT, values, environment={})

        def fail(_: Files, _descriptor: int) -> None:
            if next(syncs) > 0:  # the first one is that of the header
                raise OSError(errno.EIO, "Input/output error")

        syncs = count()
        with monkeypatch.context() as patch:
            patch.setattr(Files, "sync_data", fail)
            async with opened(places):
                assert not (tmp_path / "ledger.sqlite").exists()
        async with opened(places):
            assert is_marker(tmp_path / "ledger.sqlite")


class TestRecovery:
    async def test_a_ledger_that_is_missing_is_begun_by_the_first_write(self, tmp_path: Path) -> None:
        async with opened(in_journal(tmp_path), is_recovery=True) as ledger:
            assert (await ledger.head()).appends_count == 0
            assert is_empty(tmp_path / "journal")
            await ledger.fence()
        assert not is_empty(tmp_path / "journal")

    async def test_one_that_is_damaged_stays_until_the_first_write(self, tmp_path: Path) -> None:
        places = in_journal(tmp_path)
        async with opened(places) as ledger:
            session = await ledger.open_session("a")
            for number in range(3):
                await ledger.append(session, [LedgerEntry(number=number, payload=b"p" * 100)])
        (file,) = files(tmp_path / "journal")
        file.write_bytes(file.read_bytes().replace(b"ppp", b"ppq", 1))
        before = file.read_bytes()
        async with opened(places, is_recovery=True) as ledger:
            assert (await ledger.head()).appends_count == 0
        assert (files(tmp_path / "journal"), file.read_bytes()) == ([file], before)
        with pytest.raises(LedgerMissing, match="is damaged"):
            async with opened(places, WhereMissing.REJECTED, is_recovery=True):
                pass
        async with opened(places, is_recovery=True) as ledger:
            await ledger.fence()
        async with opened(places) as ledger:
            with pytest.raises(LedgerCorrupt, match="being recovered"):
                await ledger.open_session("a")

    async def test_one_of_a_newer_program_is_not_begun_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        places = in_journal(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(journal_codec, "FORMAT", 2)
            async with opened(places):
                pass
        with pytest.raises(NewerRules, match="use the version that wrote it"):
            async with opened(places, is_recovery=True):
                pass


async def test_a_ledger_in_memory_cannot_be_looked_at() -> None:
    with pytest.raises(LedgerMissing, match="in memory"):
        async with open_ledger(settings("memory:"), SystemClock(), SystemIds(), WhereMissing.REJECTED):
            pass
