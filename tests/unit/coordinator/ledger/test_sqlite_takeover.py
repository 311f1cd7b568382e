"""A ledger in SQLite that a journal takes over: all of it, once, or nothing."""

import errno
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from coordinator.ledger import journal_file, sqlite_takeover
from coordinator.ledger.journal import JournalLedger
from coordinator.ledger.port import (
    LedgerCorrupt,
    LedgerEntry,
    LedgerMissing,
    LedgerStart,
    LedgerUnavailable,
    LedgerUnsupported,
    SessionHeld,
    Trimmed,
)
from coordinator.ledger.sqlite import SqliteLedger
from coordinator.ledger.sqlite_marker import is_marker
from protocol.types import Position
from storage.embedded.journal.open_journal import OpenJournal
from storage.embedded.local_files import Files
from tests.support.journal.journal_files import files_of
from tests.support.journal.journal_ledgers import FILE_BYTES, STEP_BYTES, embedded_journal, entry
from tests.support.ledger.operations import append_singly, entries, numbers, pointer_at
from tests.support.packs.simulated_disk import PackDisk


async def write_sqlite(path: Path, *, appends: int = 5) -> LedgerStart:
    """A ledger with entries of one and of several records, a snapshot and trimmed entries."""
    ledger = await SqliteLedger.open(path, new_cluster_id="c")
    try:
        session = await ledger.open_session("a")
        positions = await append_singly(ledger, session, appends)
        await ledger.append(session, entries(b"x", b"", b"y" * 9_000, first=appends))
        assert await ledger.set_snapshot(None, pointer_at(positions[1], appends_count=2))
        await ledger.trim(positions[0])
        await ledger.claim_bucket("b")
        await ledger.open_session("another that appends nothing")
        return await ledger.load()
    finally:
        await ledger.close()


@asynccontextmanager
async def taken_over(
    folder: Path, *, files: Files | None = None, is_durable: bool = True
) -> AsyncIterator[JournalLedger]:
    """The ledger in the journal. Files that it gives back are removed at the end."""
    opened = await OpenJournal.open(
        folder / "journal",
        new_nonce=lambda: os.urandom(16),
        files=files,
        is_durable=is_durable,
        file_bytes_target=FILE_BYTES,
        allocated_bytes_step=STEP_BYTES,
    )
    try:
        predecessor = folder / "ledger.sqlite"
        yield await JournalLedger.open(opened, new_cluster_id="new", predecessor=predecessor, is_durable=is_durable)
        opened.journal.drop_spares()
    finally:
        await opened.close()


async def take_over(folder: Path) -> tuple[LedgerStart, Position]:
    """What the journal has, and the session that it gives next."""
    async with taken_over(folder) as ledger:
        start = await ledger.load()
        with pytest.raises(Trimmed):
            await anext(ledger.tail(Position(0)))
        return start, Position(await ledger.open_session("a"))


async def test_everything_is_taken_over_and_the_file_is_renamed(tmp_path: Path) -> None:
    before = await write_sqlite(tmp_path / "ledger.sqlite")
    assert (await take_over(tmp_path))[0] == before
    assert {path.name for path in files_of(tmp_path)} == {
        "journal",
        "ledger.sqlite",
        "ledger.sqlite.lock",
        "ledger.sqlite.upgraded",
    }
    assert is_marker(tmp_path / "ledger.sqlite")
    assert not is_marker(tmp_path / "ledger.sqlite.upgraded")
    async with embedded_journal(tmp_path / "journal") as one:
        assert await one.ledger.load() == before
        assert (await one.ledger.identity()).bucket_id == "b"
        session = await one.ledger.open_session("a")
        await one.ledger.append(session, entry(0))
        assert numbers((await one.ledger.load()).records)[-1] == 0


async def test_no_session_comes_again(tmp_path: Path) -> None:
    await write_sqlite(tmp_path / "ledger.sqlite")
    ledger = await SqliteLedger.open(tmp_path / "ledger.sqlite", new_cluster_id="c")
    last = await ledger.open_session("a")
    await ledger.close()
    assert (await take_over(tmp_path))[1] > last


async def test_a_start_that_was_cut_off_before_the_rename_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await write_sqlite(tmp_path / "ledger.sqlite")

    def cut_off(*_: object) -> None:
        raise LedgerUnavailable("the power was cut")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_takeover, "_replace", cut_off)
        with pytest.raises(LedgerUnavailable, match="the power was cut"):
            await take_over(tmp_path)
    assert (tmp_path / "ledger.sqlite").exists()
    assert (await take_over(tmp_path))[0] == before
    assert is_marker(tmp_path / "ledger.sqlite")


@pytest.mark.parametrize("has_links", [True, False])
async def test_one_that_was_cut_off_before_the_marker_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    before = await write_sqlite(tmp_path / "ledger.sqlite")

    def cut_off(*_: object) -> None:
        raise LedgerUnavailable("the power was cut")

    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_takeover, "write_marker", cut_off)
        if not has_links:
            patch.setattr(os, "link", no_links)
        with pytest.raises(LedgerUnavailable, match="the power was cut"):
            await take_over(tmp_path)
    assert (tmp_path / "ledger.sqlite").exists() == has_links
    if has_links:
        assert (await take_over(tmp_path))[0] == before
        assert is_marker(tmp_path / "ledger.sqlite")
    assert (tmp_path / "ledger.sqlite.upgraded").exists()
    async with embedded_journal(tmp_path / "journal") as one:
        assert await one.ledger.load() == before


async def test_a_file_that_cannot_be_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await write_sqlite(tmp_path / "ledger.sqlite")

    def fail(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(sqlite_takeover, "sync_directory", fail)
    with pytest.raises(LedgerUnavailable, match="cannot be renamed"):
        await take_over(tmp_path)


async def test_two_ledgers_that_differ_are_rejected_and_left_as_they_are(tmp_path: Path) -> None:
    await write_sqlite(tmp_path / "ledger.sqlite")
    shutil.copy(tmp_path / "ledger.sqlite", tmp_path / "older")
    await take_over(tmp_path)
    (tmp_path / "ledger.sqlite.upgraded").rename(tmp_path / "upgraded")
    (tmp_path / "older").replace(tmp_path / "ledger.sqlite")
    with pytest.raises(LedgerCorrupt, match="holds another ledger"):
        await take_over(tmp_path)
    assert (tmp_path / "ledger.sqlite").exists()


async def test_a_second_file_of_the_name_is_rejected(tmp_path: Path) -> None:
    await write_sqlite(tmp_path / "ledger.sqlite")
    await take_over(tmp_path)
    (tmp_path / "ledger.sqlite").unlink()
    await write_sqlite(tmp_path / "ledger.sqlite")
    with pytest.raises(LedgerCorrupt, match="taken over before"):
        await take_over(tmp_path)


async def test_a_file_that_a_process_has_open_is_not_taken_over(tmp_path: Path) -> None:
    await write_sqlite(tmp_path / "ledger.sqlite")
    ledger = await SqliteLedger.open(tmp_path / "ledger.sqlite", new_cluster_id="c")
    with pytest.raises(SessionHeld):
        await take_over(tmp_path)
    await ledger.close()
    with pytest.raises(LedgerMissing):
        async with embedded_journal(tmp_path / "journal", cluster=None):
            pass


async def test_a_damaged_file_is_not_taken_over(tmp_path: Path) -> None:
    await write_sqlite(tmp_path / "ledger.sqlite")
    path = tmp_path / "ledger.sqlite"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"y" * 100, b"y" * 99 + b"z", 1))
    with pytest.raises(LedgerCorrupt, match="checksum"):
        await take_over(tmp_path)
    assert path.exists()
    path.write_bytes(content)
    await take_over(tmp_path)


async def test_a_journal_of_which_nothing_can_be_read_takes_nothing_over(tmp_path: Path) -> None:
    await write_sqlite(tmp_path / "ledger.sqlite")
    (tmp_path / "journal").mkdir()
    link = tmp_path / "journal" / f"{3 << 32:016x}.journal"
    link.symlink_to("gone")
    with pytest.raises(LedgerCorrupt, match="nothing of its ledger can be read"):
        await take_over(tmp_path)
    assert not is_marker(tmp_path / "ledger.sqlite")
    link.unlink()
    await take_over(tmp_path)


@pytest.mark.parametrize("is_started_again", [False, True])
async def test_a_trim_of_some_entries_keeps_the_file_that_has_the_others(
    tmp_path: Path, is_started_again: bool
) -> None:
    """They were taken over by one write."""
    before = await write_sqlite(tmp_path / "ledger.sqlite")
    async with taken_over(tmp_path) as ledger:
        session = await ledger.open_session("a")
        for number in range(3):  # each fills a file
            await ledger.append(session, [LedgerEntry(number=number, payload=b"l" * FILE_BYTES)])
        pointer = await ledger.pointer()
        assert pointer is not None
        await ledger.trim(pointer.position)
    if is_started_again:
        async with embedded_journal(tmp_path / "journal") as one:
            one.opened.journal.drop_spares()
    async with embedded_journal(tmp_path / "journal") as one:
        assert (await one.ledger.load()).records[:-3] == before.records


def fail_behind_the_header(disk: PackDisk) -> None:
    if disk.calls["sync_data"] > 1:
        raise OSError(errno.EIO, "Input/output error")


class TestWithoutSyncs:
    """The file is gone durably. So what replaces it has to be durable before."""

    @pytest.mark.parametrize("is_cut_off", [False, True], ids=["at once", "by the next start"])
    async def test_a_loss_of_power_costs_nothing_of_what_was_taken_over(self, tmp_path: Path, is_cut_off: bool) -> None:
        before = await write_sqlite(tmp_path / "ledger.sqlite")
        disk = PackDisk()
        disk.drops_pages = True
        if is_cut_off:
            disk.before["sync_data"] = lambda: fail_behind_the_header(disk)
            with pytest.raises(LedgerUnavailable, match="could not be synced"):
                async with taken_over(tmp_path, files=disk, is_durable=False):
                    pass
            assert not is_marker(tmp_path / "ledger.sqlite"), "it is not durable"
            disk.before.clear()
        async with taken_over(tmp_path, files=disk, is_durable=False):
            disk.sync_directory(str(tmp_path))
            restored = disk.restore(tmp_path / "journal", tmp_path / "restored" / "journal")
        assert is_marker(tmp_path / "ledger.sqlite")
        async with embedded_journal(restored) as one:
            assert await one.ledger.load() == before


class TestManyAppends:
    """One write has a record for each append, so there is a limit."""

    async def test_the_oldest_ones_that_a_snapshot_covers_are_trimmed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite_takeover, "REVISIONS_PER_WRITE", 4)
        before = await write_sqlite(tmp_path / "ledger.sqlite", appends=5)
        assert (await take_over(tmp_path))[0] == before
        async with embedded_journal(tmp_path / "journal") as one:
            assert numbers(await one.ledger.untrimmed_entries()) == [2, 3, 4, 5, 6, 7]

    async def test_what_no_snapshot_covers_is_not_dropped(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(journal_file, "REVISIONS_PER_WRITE", 3)
        monkeypatch.setattr(sqlite_takeover, "REVISIONS_PER_WRITE", 3)
        await write_sqlite(tmp_path / "ledger.sqlite", appends=5)
        with pytest.raises(LedgerUnsupported, match="no snapshot covers 4 appends"):
            await take_over(tmp_path)
        assert (tmp_path / "ledger.sqlite").exists()
