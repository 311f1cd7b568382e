"""The ledger in a journal, read while an agent has it open and writes to it."""

import asyncio
from pathlib import Path

import pytest

from coordinator.ledger.journal_copy import copy_ledger
from coordinator.ledger.ledger_contents import LedgerContents
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import (
    Ledger,
    LedgerCorrupt,
    LedgerMissing,
    LedgerUnavailable,
    LedgerUnsupported,
    Trimmed,
)
from protocol.types import Position
from storage.embedded.journal import opening
from storage.embedded.journal.journal import Journal
from storage.embedded.journal.records import JournalContent
from tests.support.journal.journal_files import contents_of, files_of
from tests.support.journal.journal_ledgers import FILE_BYTES, an_intake_object, embedded_journal, entry
from tests.support.ledger.operations import numbers, pointer_at


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


async def everything(ledger: Ledger) -> tuple[object, ...]:
    start, records = await ledger.load(), await ledger.untrimmed_entries()
    return await ledger.identity(), start, records, await ledger.head(), await ledger.pointer()


async def test_it_is_what_the_agent_has_and_nothing_is_locked_or_changed(folder: Path) -> None:
    async with embedded_journal(folder) as one:
        session = await one.ledger.open_session("a")
        positions = [
            await one.ledger.append_with(session, entry(row, b"p" * 400), [an_intake_object(f"intake/{row}")])
            for row in range(9)
        ]
        await one.ledger.claim_bucket("b")
        await one.ledger.set_snapshot(None, pointer_at(positions[4], appends_count=5))
        await one.ledger.trim(positions[2])
        before = contents_of(folder)
        contents = await asyncio.to_thread(copy_ledger, folder)
        assert await asyncio.to_thread(copy_ledger, folder) == contents
        copy = MemoryLedger(MemoryLedgerCore.of(contents))
        assert await everything(copy) == await everything(one.ledger)
        assert contents_of(folder) == before
        assert contents.position_last == positions[-1]
        with pytest.raises(Trimmed):
            await anext(copy.tail(Position(0)))
        assert await copy.open_session("b") > positions[-1]


async def test_each_copy_is_of_one_moment_while_files_are_begun_and_used_again(folder: Path) -> None:
    copies: list[LedgerContents] = []
    is_over, is_copied = asyncio.Event(), asyncio.Event()

    async def copy_again_and_again() -> None:
        while not is_over.is_set():
            copies.append(await asyncio.to_thread(copy_ledger, folder))
            is_copied.set()

    async with embedded_journal(folder) as one, asyncio.TaskGroup() as tasks:
        session = await one.ledger.open_session("a")
        tasks.create_task(copy_again_and_again())
        for row in range(600):
            position = await one.ledger.append(session, entry(row, b"%d" % row * 40))
            if row % 10 == 9:
                pointer = pointer_at(position, appends_count=row + 1)
                await one.ledger.set_snapshot(await one.ledger.pointer(), pointer)
                await one.ledger.trim(Position(position - 10))
                # A file is begun every dozen appends: while a copy is made, a look or two find one gone, never all.
                is_copied.clear()
                await is_copied.wait()
        is_over.set()
    assert len(copies) >= 30
    for contents in copies:
        count = contents.head.appends_count
        assert numbers(contents.records) == list(range(count - len(contents.records), count))
        assert all(record.payload == b"%d" % record.number * 40 for record in contents.records)
    assert copies == sorted(copies, key=lambda contents: contents.head.position)


async def test_a_fence_is_copied(folder: Path) -> None:
    async with embedded_journal(folder) as one:
        await one.ledger.fence()
        copy = MemoryLedger(MemoryLedgerCore.of(copy_ledger(folder)))
        with pytest.raises(LedgerCorrupt, match="being recovered"):
            await copy.open_session("a")


@pytest.mark.parametrize("has_folder", [False, True])
def test_there_is_none(folder: Path, has_folder: bool) -> None:
    if has_folder:
        folder.mkdir()
    with pytest.raises(LedgerMissing):
        copy_ledger(folder)
    assert folder.exists() == has_folder


async def test_damage_counts_after_several_looks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with embedded_journal(folder) as one:
        session = await one.ledger.open_session("a")
        for row in range(3):
            await one.ledger.append(session, entry(row, b"l" * FILE_BYTES))
    damaged = files_of(folder)[1]
    whole = damaged.read_bytes()
    damaged.write_bytes(whole.replace(b"lll", b"llL", 1))
    with pytest.raises(LedgerCorrupt, match="checksum"):
        copy_ledger(folder)
    looks = 0
    open_journal = Journal.open

    def open_later(journal: Journal) -> JournalContent:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise FileNotFoundError(2, "a file was used again")
        if looks == 3:
            damaged.write_bytes(whole)
        return open_journal(journal)

    monkeypatch.setattr(Journal, "open", open_later)
    assert numbers(copy_ledger(folder).records) == [0, 1, 2]
    assert looks == 3


async def test_what_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with embedded_journal(folder):
        pass
    with monkeypatch.context() as patch:
        patch.setattr(opening, "FORMAT", 0)
        with pytest.raises(LedgerUnsupported, match="use the version that wrote it"):
            copy_ledger(folder)

    def fail(_: Journal) -> JournalContent:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Journal, "open", fail)
    with pytest.raises(LedgerUnavailable, match="Permission denied"):
        copy_ledger(folder)

    def miss(_: Journal) -> JournalContent:
        raise FileNotFoundError(2, "a file was used again")

    monkeypatch.setattr(Journal, "open", miss)
    with pytest.raises(LedgerUnavailable, match="changes faster than it can be read"):
        copy_ledger(folder)
