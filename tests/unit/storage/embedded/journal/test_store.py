"""The store in a journal: opened again, with puts that wait for each other, damaged, on a disk that fails.

What it shares with other stores: tests/contract/test_object_store.py.
"""

import asyncio
import errno
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import storage.embedded.journal.store as store_module
from storage.embedded.journal.format import RECORDS_FIRST
from storage.embedded.journal.open_journal import OpenJournal, is_empty
from storage.embedded.journal.store import JournalStore
from storage.object_store import (
    ObjectDamaged,
    ObjectMissing,
    ObjectsNotDeleted,
    StoreMisconfigured,
    StoreUnavailable,
)
from storage.store_damage import StoreDamage
from tests.support.journal.journal_bytes import flipped
from tests.support.journal.journal_files import files_of
from tests.support.journal.opened_journals import FILE_BYTES, STEP_BYTES, nonces
from tests.support.packs.simulated_disk import PackDisk

LARGE = b"l" * FILE_BYTES


class OneStore:
    def __init__(self, opened: OpenJournal, disk: PackDisk, damages: list[StoreDamage]) -> None:
        self.opened = opened
        self.disk = disk
        self.damages = damages
        self.store = JournalStore(opened, now_ms=lambda: 7)


@asynccontextmanager
async def one_store(folder: Path, disk: PackDisk | None = None, *, nonce_first: int = 1) -> AsyncIterator[OneStore]:
    disk = PackDisk() if disk is None else disk
    damages: list[StoreDamage] = []
    opened = await OpenJournal.open(
        folder,
        new_nonce=nonces(nonce_first),
        files=disk,
        file_bytes_target=FILE_BYTES,
        allocated_bytes_step=STEP_BYTES,
        on_damage=damages.append,
    )
    await opened.write(lambda: opened.journal.settle(opened.content, released_write=-1))
    one = OneStore(opened, disk, damages)
    try:
        yield one
    finally:
        await one.store.close()
        await opened.close()
        assert disk.open == set()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


async def test_everything_is_there_again_but_what_was_deleted(folder: Path) -> None:
    async with one_store(folder) as one:
        for key in "abc":
            await one.store.put(key, [key.encode() * 10])
        await one.store.put("a", [b"again"])
        await one.store.delete(["b"])
    async with one_store(folder, nonce_first=10) as one:
        assert [meta.key async for meta in one.store.list("")] == ["a", "c"]
        assert await one.store.get("a") == b"again"
        assert (await one.store.head("c")).modified_ms == 7


async def test_puts_that_wait_together_are_one_write(folder: Path) -> None:
    async with one_store(folder) as one:
        before = one.disk.calls["sync_data"]
        await asyncio.gather(*(one.store.put(f"{row}", [b"x"]) for row in range(50)))
        assert one.disk.calls["sync_data"] <= before + 3, "the first one alone, and the rest together"


async def test_two_puts_of_one_key_are_carried_out_in_their_order(folder: Path) -> None:
    async with one_store(folder) as one:
        await asyncio.gather(*(one.store.put("a", [b"%d" % row]) for row in range(5)))
        assert await one.store.get("a") == b"4"


async def test_a_put_that_failed_is_none_and_others_go_on(folder: Path) -> None:
    async with one_store(folder) as one:
        await one.store.put("a", [b"1"])
        one.disk.fail("sync_data", errno.EIO)
        with pytest.raises(StoreUnavailable):
            await one.store.put("b", [b"2"])
        with pytest.raises(ObjectMissing):
            await one.store.get("b")
        await one.store.put("b", [b"3"])
        assert await one.store.get("b") == b"3"


async def test_a_delete_that_failed_leaves_the_object(folder: Path) -> None:
    async with one_store(folder) as one:
        await one.store.put("a", [LARGE])
        await one.store.put("b", [b"x"])
        one.disk.fail("sync_data", errno.EIO)
        with pytest.raises(ObjectsNotDeleted) as raised:
            await one.store.delete(["a"])
        assert list(raised.value.reasons) == ["a"]
        assert await one.store.get("a") == LARGE
        await one.store.delete(["a"])
        with pytest.raises(ObjectMissing):
            await one.store.get("a")


async def test_an_object_whose_file_somebody_has_removed_is_deleted_and_the_file_is_reported(folder: Path) -> None:
    async with one_store(folder) as one:
        await one.store.put("a", [LARGE])
        await one.store.put("b", [b"x"])
        gone = min(files_of(folder))
        gone.unlink()
        await one.store.delete(["a", "b"])
        assert [meta.key async for meta in one.store.list("")] == []
        ((file, detail),) = [(damage.file, damage.detail) for damage in one.damages]
        assert file == str(gone)
        assert detail.startswith("it is gone, with what it held")


@pytest.mark.parametrize("failures", range(3))
async def test_an_object_that_was_replaced_does_not_come_back(folder: Path, failures: int) -> None:
    """It is marked as deleted before the one that replaced it."""
    async with one_store(folder) as one:
        await one.store.put("a", [LARGE])
        await one.store.put("b", [LARGE])
        await one.store.put("a", [b"2"])
        await one.store.put("a", [b"3"])
        for _ in range(failures):
            one.disk.fail("sync_data", errno.EIO, times=2)
            with pytest.raises(ObjectsNotDeleted):
                await one.store.delete(["a"])
            assert await one.store.get("a") == b"3"
            one.disk.failures.clear()
        if failures:
            killed = shutil.copytree(folder, folder.parent / "killed")
            async with one_store(killed, nonce_first=100) as two:
                assert await two.store.get("a") == b"3"
        await one.store.delete(["a"])
        with pytest.raises(ObjectMissing):
            await one.store.get("a")
    async with one_store(folder, nonce_first=10) as one:
        assert [meta.key async for meta in one.store.list("")] == ["b"]


async def test_so_it_is_after_a_start(folder: Path) -> None:
    async with one_store(folder) as one:
        await one.store.put("a", [LARGE])
        await one.store.put("a", [b"2"])
    async with one_store(folder, nonce_first=10) as one:
        assert await one.store.get("a") == b"2"
        await one.store.delete(["a"])
    async with one_store(folder, nonce_first=20) as one:
        assert [meta.key async for meta in one.store.list("")] == []


async def test_one_that_could_not_be_deleted_before_it_was_replaced_does_not_come_back(folder: Path) -> None:
    async with one_store(folder) as one:
        await one.store.put("a", [b"1"])
        is_replaced = threading.Event()

        def wait() -> None:
            one.disk.before.clear()
            assert is_replaced.wait(10)

        one.disk.before["open_existing"] = wait
        one.disk.fail("open_existing", errno.EIO)
        deleting = asyncio.ensure_future(one.store.delete(["a"]))
        await asyncio.sleep(0)
        await one.store.put("a", [b"2"])
        is_replaced.set()
        with pytest.raises(ObjectsNotDeleted):
            await deleting
        assert await one.store.get("a") == b"2"
        await one.store.delete(["a"])
    async with one_store(folder, nonce_first=10) as one:
        assert [meta.key async for meta in one.store.list("")] == []


async def test_more_puts_than_one_write_takes_are_two_writes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "RECORDS_PER_WRITE_MAX", 11)
    async with one_store(folder) as one:
        await asyncio.gather(*(one.store.put(f"{row}", [b""]) for row in range(31)))
        writes = {location.write for location in one.opened.objects.values()}
        assert len(writes) == 4, "the first one alone, and ten each"


async def test_an_opening_that_is_cancelled_leaves_nothing_open(folder: Path) -> None:
    disk = PackDisk()
    reading, going_on = threading.Event(), threading.Event()

    def wait() -> None:
        reading.set()
        assert going_on.wait(10)

    async with one_store(folder) as one:
        await one.store.put("a", [b"1"])
    disk.before["read_at"] = wait
    threads = set(threading.enumerate())
    opening = asyncio.ensure_future(OpenJournal.open(folder, new_nonce=nonces(10), files=disk))
    await asyncio.to_thread(reading.wait, 10)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    going_on.set()
    (thread,) = [each for each in set(threading.enumerate()) - threads if each.name == "journal"]
    await asyncio.to_thread(thread.join, 10)
    assert disk.open == set()


async def test_a_damaged_object_is_reported_and_not_returned(folder: Path) -> None:
    async with one_store(folder) as one:
        await one.store.put("a", [LARGE])
        await one.store.put("b", [b"x"])
    (first, _) = files_of(folder)
    first.write_bytes(first.read_bytes().replace(b"llll", b"llLl", 1))
    async with one_store(folder, nonce_first=10) as one:
        with pytest.raises(ObjectDamaged, match="checksum"):
            await one.store.get("a")
        assert [damage.key for damage in one.damages] == ["a"]
        assert await one.store.get("b") == b"x"


async def test_an_object_that_is_not_found_may_be_what_cannot_be_read(folder: Path) -> None:
    async with one_store(folder) as one:
        await one.store.put("a", [LARGE])
        await one.store.put("b", [b"x"])
    (first, _) = files_of(folder)
    first.write_bytes(flipped(first.read_bytes(), RECORDS_FIRST * 8 + 100))
    async with one_store(folder, nonce_first=10) as one:
        with pytest.raises(ObjectDamaged, match="not all of the journal can be read"):
            await one.store.get("a")


async def test_a_store_that_is_closed_says_so_and_has_carried_out_what_was_begun(folder: Path) -> None:
    async with one_store(folder) as one:
        putting = asyncio.ensure_future(one.store.put("a", [b"1"]))
        await asyncio.sleep(0)
        await one.store.close()
        await putting
        with pytest.raises(StoreMisconfigured, match="closed"):
            await one.store.put("b", [b"2"])
        one.store.release_room()
    async with one_store(folder, nonce_first=10) as one:
        assert await one.store.get("a") == b"1"


async def test_spare_files_are_given_back_when_the_disk_is_full(folder: Path) -> None:
    async with one_store(folder) as one:
        await one.store.put("a", [LARGE])
        await one.store.put("b", [LARGE])
        await one.store.delete(["a"])
        assert len(files_of(folder)) == 2
        one.store.release_room()
    assert len(files_of(folder)) == 1, "closing waits for what was begun"


async def test_a_journal_without_a_file_is_empty(folder: Path) -> None:
    assert is_empty(folder)
    async with one_store(folder):
        assert is_empty(folder)
    async with one_store(folder, nonce_first=10) as one:
        await one.store.put("a", [b"1"])
        assert not is_empty(folder)
