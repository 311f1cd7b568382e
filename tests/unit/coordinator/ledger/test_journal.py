"""The ledger in a journal: opened again, with the intake, on a disk that fails. Damaged: test_damaged_journal.py.

What it shares with the other backends: tests/contract/test_ledger.py.
"""

import asyncio
import errno
import shutil
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from coordinator.ledger.port import (
    Fenced,
    Ledger,
    LedgerCorrupt,
    LedgerIdentity,
    LedgerMissing,
    LedgerRecord,
    LedgerUnavailable,
    SnapshotPointer,
    Trimmed,
    position_first,
)
from protocol.types import Position, SessionId
from storage.object_store import ObjectMissing, ObjectsNotDeleted, StoreMisconfigured, StoreUnavailable
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


class TestReopening:
    async def test_everything_but_the_sessions_is_there_again(self, folder: Path) -> None:
        async with embedded_journal(folder) as one:
            ledger = one.ledger
            session = await ledger.open_session("a")
            first = await ledger.append(session, entry(0))
            second = await ledger.append(session, entry(1, b"\x00\xff"))
            pointer = SnapshotPointer(position=first, object_key="k", appends_count=1, digest=b"\x00d")
            assert await ledger.set_snapshot(None, pointer)
            await ledger.trim(first)
            await ledger.claim_bucket("b")
            before = await ledger.load()
        async with embedded_journal(folder, cluster="another") as two:
            ledger = two.ledger
            assert await ledger.identity() == LedgerIdentity(cluster_id="c", incarnation=1, bucket_id="b")
            assert await ledger.load() == before
            assert before.records == [LedgerRecord(position=second, session=session, number=1, payload=b"\x00\xff")]
            with pytest.raises(Fenced):
                await ledger.append(session, entry(2))
            assert await ledger.is_session_ended("a", session)
            with pytest.raises(Trimmed):
                await anext(ledger.tail(Position(0)))
            assert await ledger.open_session("a") > second

    async def test_a_session_never_comes_twice_even_if_it_appended_nothing(self, folder: Path) -> None:
        sessions: list[SessionId] = []
        for _ in range(3):
            async with embedded_journal(folder) as one:
                sessions.append(await one.ledger.open_session("a"))
        assert len(set(sessions)) == 3

    async def test_a_fence_and_another_incarnation_last(self, folder: Path) -> None:
        identity = LedgerIdentity(cluster_id="c", incarnation=2, bucket_id="b")
        async with embedded_journal(folder) as one:
            await append_singly(one.ledger, await one.ledger.open_session("a"), 3)
            await one.ledger.close_session(SessionId(1))
            await one.ledger.fence()
        async with embedded_journal(folder) as one:
            with pytest.raises(LedgerCorrupt, match="being recovered"):
                await one.ledger.open_session("a")
            await one.ledger.restart(identity, pointer_at(position_first(2), appends_count=0))
        async with embedded_journal(folder) as one:
            assert await one.ledger.identity() == identity
            assert (await one.ledger.load()).records == []
            await one.ledger.open_session("a")

    async def test_where_there_is_no_ledger_none_is_begun_for_a_reader(self, folder: Path) -> None:
        with pytest.raises(LedgerMissing):
            async with embedded_journal(folder, cluster=None):
                pass
        async with embedded_journal(folder):
            pass
        async with embedded_journal(folder, cluster=None) as one:
            assert (await one.ledger.identity()).cluster_id == "c"

    async def test_a_ledger_that_is_opened_for_reading_does_not_change_where_objects_may_be_deleted(
        self, folder: Path
    ) -> None:
        async with embedded_journal(folder) as one:
            session = await one.ledger.open_session("a")
            await one.ledger.append_with(session, entry(0), [an_intake_object("intake/1")])
            before = await one.ledger.load()
        async with embedded_journal(folder, cluster=None) as one:
            for change in (one.ledger.open_session("a"), one.ledger.claim_bucket("b"), one.ledger.fence()):
                with pytest.raises(LedgerUnavailable, match="opened for reading only"):
                    await change
            await one.store.delete(["intake/1"])
        async with embedded_journal(folder) as one:
            assert await one.ledger.load() == before
            assert (await one.ledger.identity()).bucket_id == ""
            with pytest.raises(ObjectMissing):
                await one.store.get("intake/1")

    async def test_a_reader_changes_nothing(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(LedgerMissing):
            async with embedded_journal(folder, cluster=None, is_writer=False):
                pass
        assert files_of(tmp_path) == []
        async with embedded_journal(folder) as one:
            session = await one.ledger.open_session("a")
            await one.ledger.append_with(session, entry(0), [an_intake_object("intake/1")])
            killed = shutil.copytree(folder, tmp_path / "killed")
        before = contents_of(killed)
        async with embedded_journal(killed, cluster=None, is_writer=False) as one:
            assert numbers((await one.ledger.load()).records) == [0]
            assert await one.store.get("intake/1") == b"payload"
            with pytest.raises(LedgerUnavailable, match="for reading only"):
                await one.ledger.open_session("b")
            with pytest.raises(StoreMisconfigured):
                await one.store.put("intake/2", [b"x"])
            with pytest.raises(ObjectsNotDeleted):
                await one.store.delete(["intake/1"])
        assert contents_of(killed) == before

    async def test_two_processes_do_not_share_it(self, folder: Path) -> None:
        async with embedded_journal(folder):
            with pytest.raises(StoreMisconfigured, match="in use by another process"):
                async with embedded_journal(folder):
                    pass

    async def test_what_has_its_name_and_is_no_folder(self, folder: Path) -> None:
        restore(folder.parent, {folder.name: b"x"})
        with pytest.raises(StoreMisconfigured, match="is no folder"):
            async with embedded_journal(folder):
                pass


class TestWithObjects:
    async def test_objects_and_the_entry_that_names_them_are_one_write(self, folder: Path) -> None:
        disk = PackDisk()
        async with embedded_journal(folder, files=disk) as one:
            session = await one.ledger.open_session("a")
            before = dict(disk.calls)
            objects = [an_intake_object("intake/1", b"1" * 300), an_intake_object("intake/2")]
            position = await one.ledger.append_with(session, entry(0, b"names them"), objects)
            assert disk.calls["write_at"] == before["write_at"] + 1
            assert disk.calls["sync_data"] == before["sync_data"] + 1
            assert await one.store.get("intake/1") == b"1" * 300
            assert await one.store.get_range("intake/2", 3, 2) == b"lo"
        async with embedded_journal(folder) as one:
            (record,) = (await one.ledger.load()).records
            assert (record.position, record.payload) == (position, b"names them")
            assert [meta.key async for meta in one.store.list("intake/")] == ["intake/1", "intake/2"]

    async def test_a_tail_shows_the_entry_when_the_objects_can_be_read(self, folder: Path) -> None:
        async with embedded_journal(folder) as one:
            session = await one.ledger.open_session("a")

            async def read_what_is_named() -> bytes:
                async with aclosing(one.ledger.tail(Position(0))) as tail:
                    (record,) = await anext(tail)
                return await one.store.get(record.payload.decode())

            async with asyncio.TaskGroup() as group:
                reading = group.create_task(read_what_is_named())
                appending = one.ledger.append_with(session, entry(0, b"intake/1"), [an_intake_object("intake/1")])
                group.create_task(appending)
            assert reading.result() == b"payload"

    async def test_a_repeat_puts_nothing_again(self, folder: Path) -> None:
        async with embedded_journal(folder) as one:
            session = await one.ledger.open_session("a")
            objects = [an_intake_object("intake/1")]
            positions = {await one.ledger.append_with(session, entry(0), objects) for _ in range(3)}
            assert len(positions) == 1
            used = one.opened.journal.used_bytes
            assert await one.ledger.append(session, entry(0)) in positions
            assert one.opened.journal.used_bytes == used
            assert await one.store.get("intake/1") == b"payload"

    async def test_a_write_that_failed_is_settled_by_a_repeat(self, folder: Path) -> None:
        disk = PackDisk()
        async with embedded_journal(folder, files=disk) as one:
            session = await one.ledger.open_session("a")
            await one.ledger.append(session, entry(0))
            objects = [an_intake_object("intake/1")]
            for operation in ("write_at", "sync_data"):
                disk.fail(operation, errno.EIO)
                with pytest.raises(LedgerUnavailable, match="Input/output error"):
                    await one.ledger.append_with(session, entry(1), objects)
                with pytest.raises(ObjectMissing):
                    await one.store.get("intake/1")
            await one.ledger.append_with(session, entry(1), objects)
            assert numbers((await one.ledger.load()).records) == [0, 1]
            assert await one.store.get("intake/1") == b"payload"
        async with embedded_journal(folder) as one:
            assert numbers((await one.ledger.load()).records) == [0, 1]
            assert (await one.ledger.head()).appends_count == 2

    async def test_one_that_is_cancelled_is_carried_out(self, folder: Path) -> None:
        async with embedded_journal(folder) as one:
            session = await one.ledger.open_session("a")
            async with asyncio.TaskGroup() as group:
                objects = [an_intake_object("intake/1")]
                appending = group.create_task(one.ledger.append_with(session, entry(0), objects))
                await asyncio.sleep(0)
                appending.cancel()
            assert (await one.ledger.head()).appends_count == 1
            assert await one.store.get("intake/1") == b"payload"

    async def test_puts_and_appends_share_the_files_in_the_order_of_the_calls(self, folder: Path) -> None:
        async with embedded_journal(folder) as one:
            session = await one.ledger.open_session("a")
            async with asyncio.TaskGroup() as group:
                for row in range(20):
                    group.create_task(one.store.put(f"intake/{row}", [b"%d" % row]))
                group.create_task(append_singly(one.ledger, session, 20))
        async with embedded_journal(folder) as one:
            assert numbers((await one.ledger.load()).records) == list(range(20))
            for row in range(20):
                assert await one.store.get(f"intake/{row}") == b"%d" % row


class TestTrimming:
    async def test_files_are_given_back_once_entries_are_trimmed_and_objects_deleted(self, folder: Path) -> None:
        async with embedded_journal(folder) as one:
            session = await one.ledger.open_session("a")
            positions = [
                await one.ledger.append_with(session, entry(row, LARGE), [an_intake_object(f"intake/{row}")])
                for row in range(6)
            ]
            assert await one.ledger.set_snapshot(None, pointer_at(positions[-1], appends_count=6))
            await one.ledger.trim(positions[-1])
            one.opened.journal.drop_spares()
            assert len(files_of(folder)) == 7, "objects are left in all but the newest"
            await one.store.delete([f"intake/{row}" for row in range(6)])
            one.opened.journal.drop_spares()
            assert len(files_of(folder)) == 1
            assert (await one.ledger.size()).used_bytes < 500
        async with embedded_journal(folder) as one:
            assert (await one.ledger.head()).position == positions[-1]
            assert (await one.ledger.load()).records == []

    async def test_entries_in_files_that_were_given_back_do_not_come_again(self, folder: Path) -> None:
        async with embedded_journal(folder) as one:
            session = await one.ledger.open_session("a")
            for row in range(30):
                position = await one.ledger.append(session, entry(row, b"x" * 400))
                if row % 7 == 6:
                    before = await one.ledger.pointer()
                    assert await one.ledger.set_snapshot(before, pointer_at(position, appends_count=row + 1))
                    await one.ledger.trim(position)
        async with embedded_journal(folder) as one:
            assert numbers((await one.ledger.load()).records) == [28, 29]
            assert (await one.ledger.head()).appends_count == 30
            assert one.damages == []


class TestAtRest:
    async def test_a_session_that_is_kept_writes_the_state_once_behind_the_newest_entry(self, folder: Path) -> None:
        disk = PackDisk()
        async with embedded_journal(folder, files=disk) as one:
            session = await one.ledger.open_session("a")
            await one.ledger.append(session, entry(0))
            before = disk.calls["sync_data"]
            for _ in range(3):
                await one.ledger.keep_session(session)
            assert disk.calls["sync_data"] == before + 1

    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
    async def test_a_session_lives_where_the_state_cannot_be_written(self, folder: Path, code: int) -> None:
        """On a full disk, what frees space needs the session. It is written with a later renewal."""
        disk = PackDisk()
        async with embedded_journal(folder, files=disk) as one:
            session = await one.ledger.open_session("a")
            await one.ledger.append(session, entry(0))
            before = disk.calls["write_at"]
            disk.fail("write_at", code)
            for _ in range(3):
                await one.ledger.keep_session(session)
            assert disk.calls["write_at"] == before + 2

    async def test_so_damage_in_the_newest_entry_is_noticed(self, folder: Path, tmp_path: Path) -> None:
        async with embedded_journal(folder) as one:
            session = await one.ledger.open_session("a")
            await one.ledger.append(session, entry(0))
            await one.ledger.append(session, entry(1, b"newest"))
            await one.ledger.keep_session(session)
            killed = shutil.copytree(folder, tmp_path / "killed")
        (file,) = files_of(killed)
        file.write_bytes(file.read_bytes().replace(b"newest", b"newesT"))
        with pytest.raises(LedgerCorrupt, match="checksum"):
            async with embedded_journal(killed):
                pass


class TestFailing:
    @pytest.mark.parametrize("operation", ["create", "allocate", "write_at", "sync_data", "sync_directory"])
    async def test_a_ledger_that_cannot_be_begun_is_begun_later(self, folder: Path, operation: str) -> None:
        disk = PackDisk()
        times = {"allocate": 3, "sync_directory": 3}.get(operation, 1)
        disk.fail(operation, errno.ENOSPC, times=times)
        with pytest.raises((LedgerUnavailable, StoreUnavailable), match="No space left"):
            async with embedded_journal(folder, files=disk):
                pass
        assert disk.open == set()
        disk.failures.clear()
        async with embedded_journal(folder, files=disk) as one:
            await append_singly(one.ledger, await one.ledger.open_session("a"), 2)

    async def test_a_change_that_failed_changed_nothing(self, folder: Path) -> None:
        disk = PackDisk()
        async with embedded_journal(folder, files=disk) as one:
            ledger = one.ledger
            session = await ledger.open_session("a")
            (position,) = await append_singly(ledger, session, 1)
            pointer = pointer_at(position, appends_count=1)
            changes: list[Callable[[], Awaitable[object]]] = [
                lambda: ledger.open_session("b"),
                lambda: ledger.claim_bucket("b"),
                lambda: ledger.set_snapshot(None, pointer),
            ]
            for change in changes:
                disk.fail("sync_data", errno.EIO)
                with pytest.raises(LedgerUnavailable):
                    await change()
            assert await ledger.live_names() == ["a"]
            assert (await ledger.identity()).bucket_id == ""
            assert await ledger.pointer() is None
            assert await ledger.set_snapshot(None, pointer)
            disk.fail("sync_data", errno.EIO)
            with pytest.raises(LedgerUnavailable):
                await ledger.trim(position)
            assert numbers(await ledger.untrimmed_entries()) == [0]
            before = await ledger.load()
        async with embedded_journal(folder) as one:
            assert await one.ledger.load() == before
