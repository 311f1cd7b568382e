"""Ledger and intake of one journal, opened by the settings of an agent."""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent.bucket.disk_reserve import DiskReserves
from agent.bucket.open_journal import open_journal
from agent.bucket.open_store import open_store
from agent.bucket.store_damages import StoreDamages
from agent.config.settings import CliCommand, Settings, load_settings
from agent.ledger.open_ledger import WhereMissing, open_ledger
from agent.runtime.clock import SystemClock
from agent.runtime.ids import SystemIds
from agent.runtime.metrics import Metrics
from coordinator.ledger.port import JointLedger, LedgerEntry, LedgerFull, LedgerUnsupported
from storage.embedded.local_files import Files
from storage.object_store import ObjectStore, ObjectToPut, StoreMisconfigured
from tests.support.agent.ledger_parts import ManualClock
from tests.support.journal.journal_files import files_of


def settings(folder: Path, ledger: str) -> Settings:
    return load_settings(CliCommand.AGENT, {"ledger": ledger, "store": f"file://{folder}/store"}, environment={})


async def test_objects_that_the_ledger_puts_are_in_the_store(tmp_path: Path) -> None:
    places = settings(tmp_path, f"journal://{tmp_path}/journal")
    clock, ids, damages = SystemClock(), SystemIds(), StoreDamages()
    reserves = DiskReserves(clock=clock)
    async with (
        open_journal(places, ids, damages=damages, reserves=reserves) as journal,
        open_ledger(places, clock, ids, journal=journal) as ledger,
        open_store(places, clock, ids, Metrics(), damages=damages, reserves=reserves, journal=journal) as store,
    ):
        assert isinstance(ledger, JointLedger)
        session = await ledger.open_session("a")
        stored = ObjectToPut(key="intake/1", parts=[b"payload"], modified_ms=1)
        await ledger.append_with(session, [LedgerEntry(number=0, payload=b"x")], [stored])
        assert await store.get("intake/1") == b"payload"
        await store.put("lake/1", [b"a file of its own"])
        assert (tmp_path / "store" / "lake" / "1").exists()
        assert not (tmp_path / "store" / ".packs").exists()


@asynccontextmanager
async def opened_store(places: Settings, *, is_writer: bool = True) -> AsyncIterator[ObjectStore]:
    clock, ids = SystemClock(), SystemIds()
    async with (
        open_journal(places, ids, damages=StoreDamages(), is_writer=is_writer) as journal,
        open_ledger(places, clock, ids, WhereMissing.SUBSTITUTED, journal=journal),
        open_store(places, clock, ids, Metrics(), is_writer=is_writer, journal=journal) as store,
    ):
        yield store


class TestPacks:
    """The intake of a data folder that had no journal."""

    async def test_their_folder_goes_once_nothing_is_in_it(self, tmp_path: Path) -> None:
        async with opened_store(settings(tmp_path, f"sqlite://{tmp_path}/ledger.sqlite")) as store:
            await store.put("intake/1/0", [b"of before"])
        packs = tmp_path / "store" / ".packs"
        places = settings(tmp_path, f"journal://{tmp_path}/journal")
        (tmp_path / "journal").mkdir()
        async with opened_store(places) as store:
            assert await store.get("intake/1/0") == b"of before"
            await store.delete(["intake/1/0"])
        assert packs.exists()
        async with opened_store(places, is_writer=False) as store:
            assert [meta async for meta in store.list("intake/")] == []
        assert packs.exists()
        async with opened_store(places) as store:
            assert [meta async for meta in store.list("intake/")] == []
            assert not packs.exists()
        async with opened_store(places):
            assert not packs.exists()

    @pytest.mark.parametrize("name", ["0123456789abcdef.pack", "somebody's"])
    async def test_it_stays_where_something_in_it_is_not_known(self, tmp_path: Path, name: str) -> None:
        packs = tmp_path / "store" / ".packs"
        packs.mkdir(parents=True)
        (packs / name).write_bytes(b"x" * 5_000)
        (tmp_path / "journal").mkdir()
        async with opened_store(settings(tmp_path, f"journal://{tmp_path}/journal")) as store:
            assert [meta async for meta in store.list("intake/")] == []
        assert (packs / name).exists()

    @pytest.mark.parametrize("is_writer", [True, False])
    async def test_a_link_to_a_folder_that_is_away_is_not_no_folder(self, tmp_path: Path, is_writer: bool) -> None:
        leave_a_link(tmp_path / "store")
        places = settings(tmp_path, f"journal://{tmp_path}/journal")
        with pytest.raises(StoreMisconfigured, match="is no folder: the records that wait for the archive lie in it"):
            async with opened_store(places, is_writer=is_writer):
                pass


def leave_a_link(store: Path) -> None:
    store.mkdir()
    (store / ".packs").symlink_to("gone")
    (store.parent / "journal").mkdir()


async def test_another_ledger_has_no_journal(tmp_path: Path) -> None:
    places = settings(tmp_path, f"sqlite://{tmp_path}/ledger.sqlite")
    reserves = DiskReserves(clock=ManualClock())
    async with open_journal(places, SystemIds(), damages=StoreDamages(), reserves=reserves) as journal:
        assert journal is None
    assert files_of(tmp_path) == []


async def test_a_journal_that_finds_no_room_gives_the_reserve_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = settings(tmp_path, f"journal://{tmp_path}/journal")
    clock, ids = ManualClock(), SystemIds()
    reserves = DiskReserves(clock=clock)
    reserves.of(tmp_path).begin()
    async with (
        open_journal(places, ids, damages=StoreDamages(), reserves=reserves) as journal,
        open_ledger(places, clock, ids, journal=journal) as ledger,
    ):
        assert isinstance(ledger, JointLedger)
        session = await ledger.open_session("a")

        def no_room(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(Files, "allocate", no_room)
        stored = ObjectToPut(key="intake/1", parts=[bytes(8 << 20)], modified_ms=1)
        with pytest.raises(LedgerFull, match="no room for the objects"):
            await ledger.append_with(session, [LedgerEntry(number=0, payload=b"x")], [stored])
        assert reserves.is_full
        await ledger.append(session, [LedgerEntry(number=0, payload=b"x")])


@pytest.mark.parametrize("store", ["memory:", "s3://bucket/prefix", "file://{}/store", "file://{}/data/journal/store"])
async def test_a_journal_that_is_not_beside_the_store_is_rejected(tmp_path: Path, store: str) -> None:
    """Other readers of the store would not find the intake."""
    values = {"ledger": f"journal://{tmp_path}/data/journal", "store": store.format(tmp_path)}
    places = load_settings(CliCommand.AGENT, values, environment={})
    with pytest.raises(LedgerUnsupported, match="give --ledger journal://DIR/journal and --store file://DIR/NAME"):
        async with open_journal(places, SystemIds(), damages=StoreDamages()):
            pass
    assert not (tmp_path / "data").exists()


async def test_a_journal_beside_a_store_that_is_named_otherwise_is_found(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    values = {"ledger": f"journal://{tmp_path}/journal", "store": f"file://{tmp_path}/link/store"}
    places = load_settings(CliCommand.AGENT, values, environment={})
    async with open_journal(places, SystemIds(), damages=StoreDamages()) as journal:
        assert journal is not None
