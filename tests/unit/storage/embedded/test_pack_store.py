"""What is the pack store's own: groups, races, cancelled calls, its end, and packs that come back.

What it shares with the others: tests/contract/test_object_store.py. Crashes and failing disks: test_packs.py.
"""

import asyncio
import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.limits import PACKS_SPARE_MAX
from storage.embedded.pack_store import PackStore
from storage.object_store import ObjectExists, ObjectMissing, ObjectsNotDeleted, StoreMisconfigured, StoreUnavailable
from tests.support.packs.pack_stores import FULL, SMALL, contents, open_store, opened
from tests.support.packs.simulated_disk import PackDisk


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "packs"


async def contents_of(folder: Path) -> dict[str, bytes]:
    """What the next start finds."""
    async with opened(folder) as store:
        return await contents(store)


class Held:
    """Where a thread waits in front of an operation."""

    def __init__(self) -> None:
        self._is_reached = threading.Event()
        self._may_go_on = threading.Event()

    def __call__(self) -> None:
        self._is_reached.set()
        assert self._may_go_on.wait(30)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._is_reached.wait, 30)

    def let_go(self) -> None:
        self._may_go_on.set()


@contextmanager
def held(disk: PackDisk, operation: str) -> Iterator[Held]:
    """The operation waits until it is let go, at the latest at the end."""
    gate = Held()
    disk.before[operation] = gate
    try:
        yield gate
    finally:
        disk.before.pop(operation, None)
        gate.let_go()


class TestGroups:
    async def test_puts_that_wait_are_written_and_synced_together(self, folder: Path) -> None:
        disk = PackDisk()
        async with opened(folder, disk) as store:
            with held(disk, "sync_data") as gate:
                first = asyncio.create_task(store.put("first", [b"1"]))
                await gate.reached()
                others = [asyncio.create_task(store.put(f"{number}", [b"x"])) for number in range(20)]
                await asyncio.sleep(0)
                gate.let_go()
                await asyncio.gather(first, *others)
            assert (disk.calls["write_at"], disk.calls["sync_data"]) == (2, 2)
            assert len(await contents(store)) == 21

    async def test_a_put_that_returned_survives_the_loss_of_power(self, folder: Path, tmp_path: Path) -> None:
        disk = PackDisk()
        async with opened(folder, disk) as store:
            await asyncio.gather(*(store.put(f"{number}", [b"%d" % number]) for number in range(200)))
        left = disk.restore(folder, tmp_path / "left")
        assert await contents_of(left) == {f"{number}": b"%d" % number for number in range(200)}

    async def test_a_put_returns_after_the_sync_and_not_before(self, folder: Path) -> None:
        disk = PackDisk()
        async with opened(folder, disk) as store:
            with held(disk, "sync_data") as gate:
                put = asyncio.create_task(store.put("a", [b"x"]))
                await gate.reached()
                assert not put.done()
                with pytest.raises(ObjectMissing):
                    await store.get("a")
                gate.let_go()
                await put
            assert await store.get("a") == b"x"

    @pytest.mark.parametrize(
        ("code", "error"),
        [(errno.ENOSPC, StoreUnavailable), (errno.EIO, StoreUnavailable), (errno.EROFS, StoreMisconfigured)],
    )
    async def test_a_group_that_fails_fails_for_all_of_it_and_for_nobody_else(
        self, folder: Path, code: int, error: type[Exception]
    ) -> None:
        disk = PackDisk()
        async with opened(folder, disk) as store:
            with held(disk, "sync_data") as gate:
                first = asyncio.create_task(store.put("first", [b"1"]))
                await gate.reached()
                others = [asyncio.create_task(store.put(f"{number}", [b"x"])) for number in range(3)]
                await asyncio.sleep(0)
                disk.before.clear()
                disk.before["write_at"] = lambda: disk.fail("sync_data", code) if disk.calls["write_at"] == 2 else None
                gate.let_go()
                await first
                outcomes = await asyncio.gather(*others, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [error] * 3
            await store.put("0", [b"again"])
            assert await contents(store) == {"first": b"1", "0": b"again"}
        assert await contents_of(folder) == {"first": b"1", "0": b"again"}


class TestIfAbsent:
    async def test_exactly_one_wins_a_race(self, folder: Path) -> None:
        async with opened(folder) as store:
            puts = [store.put("a", [b"%d" % number], if_absent=True) for number in range(10)]
            outcomes = await asyncio.gather(*puts, return_exceptions=True)
            assert [outcome for outcome in outcomes if outcome is None] == [None]
            assert sum(isinstance(outcome, ObjectExists) for outcome in outcomes) == 9
            assert await store.get("a") == b"%d" % outcomes.index(None)

    async def test_where_the_first_fails_another_wins(self, folder: Path) -> None:
        disk = PackDisk()
        disk.fail("write_at", errno.EIO)
        async with opened(folder, disk) as store:
            puts = [store.put("a", [b"%d" % number], if_absent=True) for number in range(5)]
            outcomes = await asyncio.gather(*puts, return_exceptions=True)
            kinds = sorted(type(outcome).__name__ for outcome in outcomes)
            assert kinds == ["NoneType", "ObjectExists", "ObjectExists", "ObjectExists", "StoreUnavailable"]
            assert await store.get("a") == b"%d" % outcomes.index(None)

    async def test_what_was_deleted_is_absent(self, folder: Path) -> None:
        async with opened(folder) as store:
            await store.put("a", [b"1"])
            deleting = asyncio.create_task(store.delete(["a"]))
            await asyncio.sleep(0)
            await store.put("a", [b"2"], if_absent=True)
            await deleting
            assert await store.get("a") == b"2"
        assert await contents_of(folder) == {"a": b"2"}


class TestDelete:
    async def test_deletes_survive_a_restart(self, folder: Path) -> None:
        async with opened(folder) as store:
            for key in "abc":
                await store.put(key, [b"x"])
            await store.delete(["a", "c", "c", "never there"])
        assert await contents_of(folder) == {"b": b"x"}

    async def test_of_objects_that_were_put_again_too(self, folder: Path) -> None:
        async with opened(folder) as store:
            for content in (b"1", b"2", FULL, b"4"):
                await store.put("a", [content])
            await store.delete(["a"])
        assert await contents_of(folder) == {}

    async def test_of_objects_whose_earlier_copies_a_kill_kept_from_being_marked_too(self, folder: Path) -> None:
        disk = PackDisk()
        async with opened(folder, disk) as store:
            await store.put("a", [b"1"])
            disk.fail("open_existing", errno.EIO)
            await store.put("a", [b"2"])
        async with opened(folder) as store:
            await store.delete(["a"])
        assert await contents_of(folder) == {}

    @pytest.mark.parametrize("operation", ["open_existing", "write_at"])
    async def test_a_delete_that_failed_can_be_repeated(self, folder: Path, operation: str) -> None:
        disk = PackDisk()
        async with opened(folder, disk) as store:
            await store.put("a", [b"x"])
            disk.fail(operation, errno.EIO)
            with pytest.raises(ObjectsNotDeleted, match="can be repeated"):
                await store.delete(["a"])
            assert await store.get("a") == b"x"
            await store.delete(["a"])
            with pytest.raises(ObjectMissing):
                await store.get("a")
        assert await contents_of(folder) == {}

    async def test_a_delete_that_failed_leaves_what_was_put_meanwhile(self, folder: Path) -> None:
        disk = PackDisk()
        async with opened(folder, disk) as store:
            await store.put("a", [b"1"])
            with held(disk, "open_existing") as gate:
                disk.fail("open_existing", errno.EIO)
                deleting = asyncio.create_task(store.delete(["a"]))
                await gate.reached()
                disk.before.clear()
                await store.put("a", [b"2"])
                gate.let_go()
                with pytest.raises(ObjectsNotDeleted):
                    await deleting
            assert await store.get("a") == b"2"
        assert await contents_of(folder) == {"a": b"2"}


class TestPacks:
    @staticmethod
    def files(folder: Path) -> int:
        return len(list(folder.iterdir()))

    async def test_what_is_put_and_deleted_again_and_again_needs_few_files(self, folder: Path) -> None:
        disk = PackDisk()
        async with opened(folder, disk) as store:
            for number in range(60):
                await store.put(f"{number}", [FULL])
                if number >= 3:
                    await store.delete([f"{number - 3}"])
            assert disk.calls["create"] <= 3 + 2 + PACKS_SPARE_MAX
            assert self.files(folder) <= 3 + 2 + PACKS_SPARE_MAX
        assert await contents_of(folder) == {"57": FULL, "58": FULL, "59": FULL}

    async def test_no_more_than_a_few_wait_whoever_takes_them_back(self, folder: Path) -> None:
        async with opened(folder) as store:
            keys = [f"{number}" for number in range(40)]
            for key in keys:
                await store.put(key, [FULL])
            await asyncio.gather(*(store.delete([key]) for key in keys))
        # The newest, too: it is kept as it is.
        assert self.files(folder) == PACKS_SPARE_MAX + 1

    async def test_a_pack_whose_last_objects_go_as_another_begins_comes_back_once(self, folder: Path) -> None:
        async with opened(folder) as store:
            for _ in range(30):
                await store.put("a", [FULL])
                await store.put("a", [FULL])
                await store.put("b", [b"x"])
                await store.delete(["b"])
            assert await contents(store) == {"a": FULL}
        assert await contents_of(folder) == {"a": FULL}

    async def test_a_reader_whose_pack_is_taken_back_finds_the_object_missing(self, folder: Path) -> None:
        disk = PackDisk()
        async with opened(folder, disk) as store:
            await store.put("a", [FULL])
            await store.put("b", [FULL])
            with held(disk, "read_at") as gate:
                reading = asyncio.create_task(store.get("a"))
                await gate.reached()
                disk.before.clear()
                await store.delete(["a"])
                while not disk.calls["rename"]:
                    await store.put(f"c{disk.calls['create']}", [b"n" * SMALL])
                gate.let_go()
                with pytest.raises(ObjectMissing):
                    await reading

    async def test_packs_without_objects_come_back_after_a_failed_sync(self, folder: Path) -> None:
        disk = PackDisk()
        async with opened(folder, disk) as store:
            for _ in range(20):
                await store.put("a", [b"x"])
                await store.delete(["a"])
                disk.fail("sync_data", errno.EIO)
                with pytest.raises(StoreUnavailable):
                    await store.put("b", [b"x"])
            assert self.files(folder) <= PACKS_SPARE_MAX + 2


class TestRoom:
    async def test_a_full_disk_gets_back_what_holds_no_object_without_a_restart(self, folder: Path) -> None:
        async with opened(folder) as store:
            for number in range(6):
                await store.put(f"{number}", [FULL])
            await store.delete([f"{number}" for number in range(6)])
            assert TestPacks.files(folder) > 1
            await self.released(store, folder)
            await store.put("later", [b"x"])
            assert await contents(store) == {"later": b"x"}
        assert await contents_of(folder) == {"later": b"x"}

    async def test_what_holds_one_stays(self, folder: Path) -> None:
        async with opened(folder) as store:
            await store.put("a", [b"1"])
            await store.put("b", [b"2"])
            await store.delete(["a"])
            for _ in range(3):
                store.release_room()
                await asyncio.sleep(0)
            assert await contents(store) == {"b": b"2"}
            await store.put("c", [b"3"])
        assert await contents_of(folder) == {"b": b"2", "c": b"3"}

    async def test_a_put_that_comes_in_between_keeps_its_pack(self, folder: Path) -> None:
        disk = PackDisk()
        async with opened(folder, disk) as store:
            await store.put("a", [b"1"])
            await store.delete(["a"])
            with held(disk, "write_at") as gate:  # the pack's end
                store.release_room()
                await gate.reached()
                disk.before.clear()
                putting = asyncio.create_task(store.put("b", [b"2"]))
                await asyncio.sleep(0)
                gate.let_go()
                await putting
            assert await contents(store) == {"b": b"2"}
        store.release_room()
        assert await contents_of(folder) == {"b": b"2"}

    async def test_a_disk_that_does_not_take_the_end_of_a_pack_keeps_it(self, folder: Path) -> None:
        disk = PackDisk()
        async with opened(folder, disk) as store:
            await store.put("a", [b"1"])
            await store.delete(["a"])
            disk.fail("write_at", errno.ENOSPC)
            await self.released(store, folder)

    @staticmethod
    async def released(store: PackStore, folder: Path) -> None:
        """Ask until no file is left: one second is between two of these calls in a broker."""
        for _ in range(2_000):
            store.release_room()
            if await asyncio.to_thread(TestPacks.files, folder) == 0:
                return
        pytest.fail("files without objects are left")


class TestEnd:
    async def test_a_second_process_is_refused(self, folder: Path) -> None:
        async with opened(folder) as store:
            await store.put("a", [b"x"])
            with pytest.raises(StoreMisconfigured, match="in use by another process"):
                open_store(folder)
            await store.put("b", [b"x"])
        assert await contents_of(folder) == {"a": b"x", "b": b"x"}

    async def test_a_folder_that_cannot_be_read_is_named(self, folder: Path) -> None:
        disk = PackDisk()
        async with opened(folder, disk) as store:
            await store.put("a", [b"x"])
        disk.fail("read_at", errno.ENXIO)
        with pytest.raises(StoreUnavailable, match="packs"):
            open_store(folder, disk)
        assert disk.open == set()

    @pytest.mark.parametrize(
        "ask",
        [
            lambda store: store.put("b", [b"x"]),
            lambda store: store.get("a"),
            lambda store: store.get_range("a", 0, 1),
            lambda store: store.delete(["a"]),
        ],
    )
    async def test_after_the_end_it_says_so(self, folder: Path, ask: Callable[[PackStore], Any]) -> None:
        async with opened(folder) as store:
            await store.put("a", [b"x"])
        for _ in range(2):
            with pytest.raises(StoreMisconfigured, match="was closed"):
                await asyncio.wait_for(ask(store), 10)
        assert await contents_of(folder) == {"a": b"x"}

    async def test_a_store_can_be_closed_twice_and_unused(self, folder: Path) -> None:
        async with opened(folder) as store:
            await store.close()

    async def test_what_was_begun_is_carried_out_and_what_waits_behind_it_is_told(self, folder: Path) -> None:
        disk = PackDisk()
        async with opened(folder, disk) as store:
            with held(disk, "sync_data") as gate:
                first = asyncio.create_task(store.put("a", [b"1"]))
                await gate.reached()
                second = asyncio.create_task(store.put("b", [b"2"]))
                behind = asyncio.create_task(store.put("a", [b"3"]))
                await asyncio.sleep(0)
                closing = asyncio.create_task(store.close())
                await asyncio.sleep(0)
                gate.let_go()
                outcomes = await asyncio.gather(first, second, behind, closing, return_exceptions=True)
        assert [type(outcome).__name__ for outcome in outcomes] == [
            "NoneType",
            "NoneType",
            "StoreMisconfigured",
            "NoneType",
        ]
        assert await contents_of(folder) == {"a": b"1", "b": b"2"}

    @pytest.mark.parametrize("is_failing", [False, True])
    async def test_cancelled_puts_are_whole_or_not_there(self, folder: Path, *, is_failing: bool) -> None:
        disk = PackDisk()
        async with opened(folder, disk) as store:
            with held(disk, "sync_data") as gate:
                puts = [asyncio.create_task(store.put("a", [FULL]))]
                await gate.reached()
                puts += [asyncio.create_task(store.put(key, [FULL])) for key in "bc"]
                await asyncio.sleep(0)
                for put in puts:
                    put.cancel()
                outcomes = await asyncio.gather(*puts, return_exceptions=True)
                if is_failing:
                    disk.fail("sync_data", errno.EIO, times=2)
                gate.let_go()
            assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError}
            del outcomes, puts, put
        assert await contents_of(folder) == ({} if is_failing else {"a": FULL, "b": FULL, "c": FULL})

    @pytest.mark.parametrize("is_failing", [False, True])
    async def test_cancelled_deletes_are_carried_out_before_the_end(self, folder: Path, *, is_failing: bool) -> None:
        disk = PackDisk()
        async with opened(folder, disk) as store:
            await store.put("a", [FULL])
            await store.put("b", [FULL])
            with held(disk, "open_existing") as gate:
                if is_failing:
                    disk.fail("open_existing", errno.EIO)
                deleting = asyncio.create_task(store.delete(["a"]))
                await gate.reached()
                deleting.cancel()
                closing = asyncio.create_task(store.close())
                await asyncio.sleep(0)
                gate.let_go()
                await closing
            with pytest.raises(asyncio.CancelledError):
                await deleting
            del deleting
        assert await contents_of(folder) == ({"a": FULL, "b": FULL} if is_failing else {"b": FULL})
