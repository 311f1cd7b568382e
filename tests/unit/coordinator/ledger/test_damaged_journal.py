"""The ledger in a journal that is damaged, and what a recovery makes of it.

The files themselves: tests/unit/storage/embedded/journal.
"""

import errno
from pathlib import Path

import pytest

from coordinator.ledger.port import (
    Ledger,
    LedgerCorrupt,
    LedgerIdentity,
    LedgerUnavailable,
    position_first,
)
from protocol.types import SessionId
from tests.support.journal.journal_bytes import flipped
from tests.support.journal.journal_files import contents_of, files_of, restore
from tests.support.journal.journal_ledgers import FILE_BYTES, an_intake_object, embedded_journal, entry
from tests.support.ledger.operations import append_singly, numbers, pointer_at
from tests.support.packs.simulated_disk import PackDisk

LARGE = b"l" * FILE_BYTES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


async def append_singly_large(ledger: Ledger) -> None:
    """Append three entries, each of which fills a file."""
    session = await ledger.open_session("a")
    for row in range(3):
        await ledger.append(session, entry(row, LARGE))


def make_a_link_that_dangles(folder: Path) -> None:
    """With the name of a file, beside one that was never begun."""
    folder.mkdir()
    (folder / f"{3 << 32:016x}.journal").symlink_to("gone")
    (folder / f"{4 << 32:016x}.journal").write_bytes(b"")


class TestDamage:
    """Safety rule S20: no damage is believed, and none costs an acknowledged entry without being noticed."""

    async def test_one_bit_anywhere_changes_nothing_or_is_noticed(self, folder: Path) -> None:
        async with embedded_journal(folder) as one:
            session = await one.ledger.open_session("a")
            for row in range(6):
                await one.ledger.append_with(session, entry(row, b"entry %d" % row * 9), [an_intake_object(f"i/{row}")])
            before = await one.ledger.load()
        rejected = 0
        for file in files_of(folder):
            whole = file.read_bytes()
            for byte in range(0, len(whole), 13):
                kept = contents_of(folder)
                file.write_bytes(flipped(whole, byte * 8 + byte % 8))
                try:
                    async with embedded_journal(folder) as one:
                        assert await one.ledger.load() == before, (file.name, byte)
                except LedgerCorrupt:
                    rejected += 1
                restore(folder, kept | {file.name: whole})
        assert rejected

    async def test_a_bad_sector_is_an_outage_of_an_open_ledger_and_damage_of_another(self, folder: Path) -> None:
        disk = PackDisk()
        async with embedded_journal(folder, files=disk) as one:
            await append_singly_large(one.ledger)
            spoilt = files_of(folder)[1]
            position = spoilt.read_bytes().index(LARGE) + len(LARGE) // 2
            disk.spoil(spoilt, position)
            with pytest.raises(LedgerUnavailable, match=r"could not be read .*Input/output error.*check the disk"):
                await one.ledger.untrimmed_entries()
            await one.ledger.keep_session(SessionId(1))
            await one.ledger.append(SessionId(1), entry(3))
            disk.bad.clear()
            assert numbers(await one.ledger.untrimmed_entries()) == [0, 1, 2, 3]
            disk.spoil(spoilt, position)
        with pytest.raises(LedgerCorrupt):
            async with embedded_journal(folder, files=disk):
                pass

    @pytest.mark.parametrize("row", range(3))
    async def test_a_file_that_is_missing_is_noticed(self, folder: Path, row: int) -> None:
        async with embedded_journal(folder) as one:
            await append_singly_large(one.ledger)
        files = files_of(folder)
        assert len(files) == 3
        files[row].unlink()
        with pytest.raises(LedgerCorrupt, match="do not remove it"):
            async with embedded_journal(folder):
                pass

    async def test_nothing_but_objects_can_be_read_of_a_damaged_ledger(self, folder: Path) -> None:
        async with embedded_journal(folder) as one:
            session = await one.ledger.open_session("a")
            await one.ledger.append_with(session, entry(0, b"damaged"), [an_intake_object("intake/1")])
        (file,) = files_of(folder)
        file.write_bytes(file.read_bytes().replace(b"damaged", b"dAmaged"))
        content = file.read_bytes()
        with pytest.raises(LedgerCorrupt, match="checksum"):
            async with embedded_journal(folder):
                pass
        assert file.read_bytes() == content

    async def test_a_journal_of_objects_whose_ledger_is_gone_is_no_new_one(self, folder: Path) -> None:
        async with embedded_journal(folder) as one:
            await append_singly_large(one.ledger)
        files = files_of(folder)
        for file in files[1:]:
            file.unlink()
        files[0].write_bytes(b"\xff" * 200)
        with pytest.raises(LedgerCorrupt, match="no state of its ledger"):
            async with embedded_journal(folder):
                pass

    @pytest.mark.parametrize("cluster", ["c", None])
    async def test_what_cannot_be_read_is_no_new_ledger(self, folder: Path, cluster: str | None) -> None:
        """A link to another disk, which is away."""
        make_a_link_that_dangles(folder)
        before = [path.name for path in files_of(folder)]
        with pytest.raises(LedgerCorrupt, match="nothing of its ledger can be read"):
            async with embedded_journal(folder, cluster=cluster, is_writer=cluster is not None):
                pass
        assert [path.name for path in files_of(folder)] == before


class TestRecovery:
    """S9: a damaged ledger is begun again in the same journal, where the intake is."""

    async def test_a_damaged_ledger_is_begun_again_above_what_it_left(self, folder: Path) -> None:
        async with embedded_journal(folder) as one:
            session = await one.ledger.open_session("a")
            for row in range(3):
                await one.ledger.append_with(session, entry(row, LARGE), [an_intake_object(f"intake/{row}")])
        (_, damaged, *_) = files_of(folder)
        damaged.write_bytes(damaged.read_bytes().replace(b"llll", b"llLl", 1))
        with pytest.raises(LedgerCorrupt):
            async with embedded_journal(folder):
                pass
        async with embedded_journal(folder, cluster="new", is_begun_again=True) as one:
            assert await one.ledger.identity() == LedgerIdentity(cluster_id="new", incarnation=1)
            assert (await one.ledger.load()).records == []
            assert (await one.ledger.head()).appends_count == 0
            await one.ledger.fence()
            identity = LedgerIdentity(cluster_id="c", incarnation=2, bucket_id="b")
            await one.ledger.restart(identity, pointer_at(position_first(2), appends_count=0))
            assert [meta.key async for meta in one.store.list("intake/")] == [f"intake/{row}" for row in range(3)]
        async with embedded_journal(folder) as one:
            assert await one.ledger.identity() == identity
            session = await one.ledger.open_session("a")
            await one.ledger.append(session, entry(0))
            assert await one.store.get("intake/1") == b"payload"
        async with embedded_journal(folder) as one:
            assert numbers((await one.ledger.load()).records) == [0]

    async def test_before_its_first_write_nothing_is_changed(self, folder: Path) -> None:
        async with embedded_journal(folder) as one:
            await append_singly_large(one.ledger)
        (_, damaged, *_) = files_of(folder)
        damaged.write_bytes(damaged.read_bytes().replace(b"llll", b"llLl", 1))
        before = contents_of(folder)
        async with embedded_journal(folder, cluster="new", is_begun_again=True) as one:
            assert await one.ledger.identity() == LedgerIdentity(cluster_id="new", incarnation=1)
            assert (await one.ledger.load()).records == []
            assert (await one.ledger.head()).appends_count == 0
            assert await one.ledger.pointer() is None
            assert await one.ledger.live_names() == []
        assert contents_of(folder) == before

    async def test_files_of_the_former_ledger_are_used_again_once_the_new_one_is_durable(
        self, folder: Path, tmp_path: Path
    ) -> None:
        async with embedded_journal(folder) as one:
            await append_singly_large(one.ledger)
        before = contents_of(folder)
        disk = PackDisk()
        async with embedded_journal(folder, cluster="new", is_begun_again=True, files=disk) as one:
            disk.fail("write_at", errno.ENOSPC)
            with pytest.raises(LedgerUnavailable):
                await one.ledger.fence()
            one.opened.journal.drop_spares()
            for name, content in before.items():
                assert content == contents_of(folder)[name], name
            await one.ledger.fence()
            one.opened.journal.drop_spares()
            assert not before.keys() & contents_of(folder).keys()

    async def test_a_file_that_is_missing_hinders_no_new_ledger(self, folder: Path) -> None:
        async with embedded_journal(folder) as one:
            await append_singly_large(one.ledger)
        files_of(folder)[-1].unlink()
        async with embedded_journal(folder, cluster="new", is_begun_again=True) as one:
            await append_singly(one.ledger, await one.ledger.open_session("a"), 2)
        async with embedded_journal(folder) as one:
            assert numbers((await one.ledger.load()).records) == [0, 1]

    @pytest.mark.parametrize("is_restarted", [True, False], ids=["restarted", "cut off behind its fence"])
    async def test_a_file_that_comes_back_takes_nothing_from_the_new_ledger(
        self, folder: Path, tmp_path: Path, is_restarted: bool
    ) -> None:
        async with embedded_journal(folder) as one:
            session = await one.ledger.open_session("a")
            for row in range(3):
                await one.ledger.append_with(session, entry(row, LARGE), [an_intake_object(f"intake/{row}")])
        away = files_of(folder)[-1]
        away.rename(tmp_path / "away")
        identity = LedgerIdentity(cluster_id="c", incarnation=2, bucket_id="b")
        async with embedded_journal(folder, cluster="new", is_begun_again=True) as one:
            await one.ledger.fence()
            if is_restarted:
                await one.ledger.restart(identity, pointer_at(position_first(2), appends_count=0))
        if is_restarted:
            async with embedded_journal(folder) as one:
                session = await one.ledger.open_session("a")
                await one.ledger.append_with(session, entry(0), [an_intake_object("intake/new")])
        (tmp_path / "away").rename(away)
        if not is_restarted:
            with pytest.raises(LedgerCorrupt):
                async with embedded_journal(folder):
                    pass
            async with embedded_journal(folder, cluster="new", is_begun_again=True) as one:
                await one.ledger.fence()
            return
        for _ in range(2):
            async with embedded_journal(folder) as one:
                assert await one.ledger.identity() == identity
                assert numbers((await one.ledger.load()).records) == [0]
                for key in ("0", "1", "2", "new"):
                    assert await one.store.get(f"intake/{key}") == b"payload"
                assert one.damages == []
