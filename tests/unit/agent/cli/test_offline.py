"""A data folder with a journal, read beside the broker that has it open."""

import os
from pathlib import Path

import pytest

from agent.cli.failure import CommandFailed
from agent.cli.offline import read_ledger, read_object, read_state
from coordinator.ledger.sqlite import SqliteLedger
from coordinator.ledger.sqlite_marker import write_marker
from tests.support.agent.ledger_parts import running_parts
from tests.support.commands.commands import create
from tests.support.journal.journal_bytes import flipped, header
from tests.support.journal.journal_files import contents_of, files_of, restore
from tests.support.journal.journal_ledgers import embedded_journal
from tests.support.ledger.operations import append_singly
from tests.support.packs.pack_files import plant_object


async def test_state_and_entries_are_those_of_the_broker(tmp_path: Path) -> None:
    async with embedded_journal(tmp_path / "journal") as one, running_parts(one.ledger) as parts:
        await parts.ledger.propose(create("t"))
        before = contents_of(tmp_path / "journal")
        assert list((await read_state(tmp_path)).topic_ids) == ["t"]
        assert await read_ledger(tmp_path) == await one.ledger.untrimmed_entries()
        assert contents_of(tmp_path / "journal") == before


async def test_a_damaged_ledger_is_named(tmp_path: Path) -> None:
    async with embedded_journal(tmp_path / "journal") as one, running_parts(one.ledger) as parts:
        await parts.ledger.propose(create("t"))
        await parts.ledger.propose(create("another"))
    file = files_of(tmp_path / "journal")[0]
    content = file.read_bytes()
    file.write_bytes(flipped(content, content.index(b"another") * 8))
    with pytest.raises(CommandFailed, match=rf"{tmp_path}/journal: the journal is damaged"):
        await read_ledger(tmp_path)


async def test_a_folder_without_a_ledger(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(CommandFailed, match=f"there is no ledger in {tmp_path}"):
            await read_ledger(tmp_path)
        (tmp_path / "journal").mkdir(exist_ok=True)


async def test_a_journal_that_is_gone_is_named(tmp_path: Path) -> None:
    write_marker(tmp_path / "ledger.sqlite", "c")
    with pytest.raises(CommandFailed, match=rf"{tmp_path}/journal has the ledger, and does not exist"):
        await read_ledger(tmp_path)


async def test_a_journal_that_was_never_written_hides_no_ledger_in_sqlite(tmp_path: Path) -> None:
    """A takeover that was cut off has left the header of its file."""
    restore(tmp_path / "journal", {f"{3 << 32:016x}.journal": header()})
    ledger = await SqliteLedger.open(tmp_path / "ledger.sqlite", new_cluster_id="c")
    await append_singly(ledger, await ledger.open_session("a"), 2)
    await ledger.close()
    assert len(await read_ledger(tmp_path)) == 2


async def test_an_object_is_read_wherever_it_is(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "lake").mkdir(parents=True)
    (store / "lake" / "file").write_bytes(b"a file")
    (store / ".packs").mkdir()
    plant_object(store, "intake/1/0", b"of before")
    async with embedded_journal(tmp_path / "journal") as one:
        await one.store.put("intake/1/1", [b"in the journal"])
        await one.store.put("intake/1/2", [b"deleted"])
        await one.store.delete(["intake/1/2"])
        keys = ("lake/file", "intake/1/0", "intake/1/1", "intake/1/2")
        assert [read_object(tmp_path, key) for key in keys] == [b"a file", b"of before", b"in the journal", None]


async def test_an_object_that_is_damaged_in_the_journal_is_none_that_is_missing(tmp_path: Path) -> None:
    async with embedded_journal(tmp_path / "journal") as one:
        await one.store.put("intake/1/1", [os.urandom(500)])
        await one.store.put("intake/1/2", [b"behind"])
    (file, *_) = files_of(tmp_path / "journal")
    content = file.read_bytes()
    file.write_bytes(flipped(content, (content.index(b"intake/1/1") + 100) * 8))
    with pytest.raises(CommandFailed, match="intake/1/1 cannot be read"):
        read_object(tmp_path, "intake/1/1")
    (tmp_path / "store" / ".packs").mkdir(parents=True)
    plant_object(tmp_path / "store", "intake/1/1", b"of before")
    assert read_object(tmp_path, "intake/1/1") == b"of before"


def test_a_file_in_the_place_of_the_packs_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / ".packs").touch()
    with pytest.raises(CommandFailed, match="is no folder"):
        read_object(tmp_path, "intake/1/1")
