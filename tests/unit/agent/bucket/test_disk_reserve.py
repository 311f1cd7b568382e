"""A full disk: what is kept for the ledger is given up, records are refused, and both come back with the room."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from agent.bucket.disk_reserve import RESERVE_FILE, Disk, DiskReserve, DiskReserves
from agent.bucket.full_disk import FullDiskStore, WatchedFiles
from agent.bucket.open_store import open_store
from agent.config.settings import CliCommand, load_settings
from agent.runtime.clock import SystemClock
from agent.runtime.ids import SystemIds
from agent.runtime.metrics import Metrics
from protocol.limits import DISK_CHECK_INTERVAL_S, DISK_INODES_WANTED, DISK_RESERVE_BYTES, DISK_RESERVE_DIVISOR, MIB
from storage.decorators.retrying import RetryPolicy
from storage.embedded.local_files import Files
from storage.memory_store import MemoryStore
from storage.object_store import StoreFull, StoreUnavailable
from storage.refs import INTAKE_PREFIX
from tests.support.agent.ledger_parts import ManualClock


class SmallDisk(Disk):
    """A disk of `size` bytes, on which others have `used`."""

    def __init__(self, size: int, used: int = 0) -> None:
        self.size = size
        self.used = used
        self.code = 0
        self.file_bytes = 0
        self.inodes: int | None = None

    def free_inodes(self, folder: Path) -> int | None:
        return self.inodes

    def free_bytes(self, folder: Path) -> int:
        if self.code:
            raise OSError(self.code, "broken")
        return self.size - self.used - self.file_bytes

    def size_bytes(self, folder: Path) -> int:
        return self.size

    def make_file(self, path: Path, byte_count: int, room_bytes: int) -> None:
        if room_bytes > self.free_bytes(path.parent) + self.file_bytes:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        path.write_bytes(b"all of it")
        self.file_bytes = byte_count

    def remove_file(self, path: Path) -> None:
        super().remove_file(path)
        self.file_bytes = 0


def reserve_on(folder: Path, disk: Disk) -> DiskReserve:
    reserve = DiskReserve(folder, clock=ManualClock(), disk=disk)
    reserve.begin()
    return reserve


@pytest.mark.parametrize(
    ("size", "expected"), [(1_000 * MIB, DISK_RESERVE_BYTES), (64 * MIB, 64 * MIB // DISK_RESERVE_DIVISOR)]
)
def test_a_part_of_the_disk_is_kept(tmp_path: Path, size: int, expected: int) -> None:
    disk = SmallDisk(size)
    reserve = reserve_on(tmp_path / "new", disk)
    assert (disk.file_bytes, reserve.is_full) == (expected, False)
    assert (tmp_path / "new" / RESERVE_FILE).exists()


def test_the_file_really_has_its_blocks(tmp_path: Path) -> None:
    reserve = DiskReserve(tmp_path, clock=ManualClock())
    reserve.begin()
    status = (tmp_path / RESERVE_FILE).stat()
    assert not reserve.is_full
    assert status.st_size == DISK_RESERVE_BYTES
    assert status.st_blocks * 512 >= DISK_RESERVE_BYTES
    reserve.find_full()
    assert not (tmp_path / RESERVE_FILE).exists()


@pytest.mark.parametrize("byte_count", [0, DISK_RESERVE_BYTES])
def test_a_file_that_has_only_its_name_gets_its_blocks(byte_count: int, tmp_path: Path) -> None:
    """It was made as the process was killed, or copied by a program that leaves holes."""
    (tmp_path / RESERVE_FILE).touch()
    os.truncate(tmp_path / RESERVE_FILE, byte_count)
    assert not reserve_on(tmp_path, Disk()).is_full
    status = (tmp_path / RESERVE_FILE).stat()
    assert min(status.st_size, status.st_blocks * 512) >= DISK_RESERVE_BYTES


def test_one_that_has_only_its_name_on_a_disk_without_room_is_given_up(tmp_path: Path) -> None:
    disk = SmallDisk(64 * MIB)
    (tmp_path / RESERVE_FILE).touch()
    disk.used = disk.size - disk.size // DISK_RESERVE_DIVISOR // 2
    assert reserve_on(tmp_path, disk).is_full
    assert not (tmp_path / RESERVE_FILE).exists()


def test_it_is_given_up_where_a_write_finds_no_room_and_made_again_when_there_is_twice_as_much(tmp_path: Path) -> None:
    disk = SmallDisk(64 * MIB)
    reserve = reserve_on(tmp_path, disk)
    kept = disk.file_bytes
    disk.used = disk.size - kept
    reserve.find_full()
    assert (disk.free_bytes(tmp_path), reserve.is_full) == (kept, True)
    disk.used = disk.size - 2 * kept + 1
    reserve.check()
    assert reserve.is_full, "there is not enough room yet"
    disk.used -= 1
    reserve.check()
    assert (disk.file_bytes, reserve.is_full) == (kept, False)


def test_it_is_given_up_before_the_ledger_is_the_first_to_find_no_room(tmp_path: Path) -> None:
    disk = SmallDisk(64 * MIB)
    reserve = reserve_on(tmp_path, disk)
    kept = disk.file_bytes
    disk.used = disk.size - kept - kept // 4
    reserve.check()
    assert not reserve.is_full
    disk.used += 1
    reserve.check()
    assert (disk.file_bytes, reserve.is_full) == (0, True)


def test_a_start_on_a_full_disk_gives_it_up_first(tmp_path: Path) -> None:
    disk = SmallDisk(64 * MIB)
    reserve_on(tmp_path, disk)
    disk.used = disk.size - disk.file_bytes
    assert reserve_on(tmp_path, disk).is_full
    assert disk.file_bytes == 0


def test_what_has_room_by_count_and_not_by_quota_is_full(tmp_path: Path) -> None:
    class Quota(SmallDisk):
        def free_bytes(self, folder: Path) -> int:
            return self.size

        def make_file(self, path: Path, byte_count: int, room_bytes: int) -> None:
            path.write_bytes(b"half")
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

    assert reserve_on(tmp_path, Quota(64 * MIB)).is_full
    assert not (tmp_path / RESERVE_FILE).exists(), "nothing of it is left"


def test_it_is_said_once_at_the_beginning_and_at_the_end_and_what_can_be_made_again_is_released(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    disk = SmallDisk(64 * MIB)
    reserve = reserve_on(tmp_path, disk)
    released: list[None] = []
    reserve.when_full(lambda: released.append(None))
    reserve.check()
    disk.used = disk.size - disk.file_bytes
    for _ in range(3):
        reserve.check()
    disk.used = 0
    reserve.check()
    reserve.check()
    assert len(released) == 3
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "the disk is full",
        "there is room on the disk again",
    ]


def test_a_folder_that_cannot_be_looked_at_changes_nothing_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    disk = SmallDisk(64 * MIB)
    reserve = reserve_on(tmp_path, disk)
    disk.code = errno.EIO
    for _ in range(3):
        reserve.check()
    assert not reserve.is_full
    disk.code = 0
    reserve.check()
    assert [record.message.partition(",")[0] for record in caplog.records] == [
        "the free space of a data folder cannot be read",
        "the free space of the data folder can be read again",
    ]


def test_a_disk_without_inodes_says_so_and_takes_records_when_it_has_some(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Removing the reserve gives one back, which does not count as room."""
    caplog.set_level("INFO")
    disk = SmallDisk(1_000 * MIB)
    disk.inodes = 0
    reserves = DiskReserves(clock=ManualClock(), disk=disk)
    reserve = reserves.of(tmp_path)
    reserve.begin()
    assert (reserve.is_full, reserves.full_text) == (False, "")  # a file system may count none, and have them
    reserve.find_full()
    disk.inodes = 1
    for _ in range(3):
        reserve.check()
        assert (reserve.is_full, reserve.lacks_inodes) == (True, True)
    assert reserves.full_text.startswith("the disk is full: no inode is left")
    assert "df -i" in reserves.full_text
    disk.inodes = DISK_INODES_WANTED
    reserve.check()
    assert (reserve.is_full, reserve.lacks_inodes, reserves.full_text) == (False, False, "")
    (full, _) = caplog.records
    assert "df -i" in full.__dict__["reason"]


def test_a_disk_without_room_is_not_one_without_inodes(tmp_path: Path) -> None:
    disk = SmallDisk(64 * MIB)
    disk.inodes = 0
    reserve = reserve_on(tmp_path, disk)
    disk.used = disk.size - disk.file_bytes
    reserve.find_full()
    disk.used = disk.size
    reserve.check()
    assert (reserve.is_full, reserve.lacks_inodes) == (True, False)
    disk.used = 0
    reserve.check()
    assert not reserve.is_full


@pytest.mark.timeout(60)
def test_a_pipe_in_the_place_of_the_reserve_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / RESERVE_FILE)
    reserve = DiskReserve(tmp_path, clock=ManualClock())
    reserve.begin()
    assert not reserve.is_full


def test_inodes_are_counted_where_the_file_system_counts_them(tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    assert Disk().free_inodes(tmp_path) == (found.f_favail if found.f_files else None)


class TwoDisks(Disk):
    """The folders `ledger` and `store` lie on a disk each."""

    def __init__(self, folder: Path) -> None:
        self.disks = {folder / name: SmallDisk(64 * MIB) for name in ("ledger", "store")}

    def _disk(self, path: Path) -> SmallDisk:
        return next(disk for folder, disk in self.disks.items() if path.is_relative_to(folder))

    def file_system(self, folder: Path) -> int:
        return id(self._disk(folder))

    def free_bytes(self, folder: Path) -> int:
        return self._disk(folder).free_bytes(folder)

    def size_bytes(self, folder: Path) -> int:
        return self._disk(folder).size

    def make_file(self, path: Path, byte_count: int, room_bytes: int) -> None:
        self._disk(path).make_file(path, byte_count, room_bytes)

    def remove_file(self, path: Path) -> None:
        self._disk(path).remove_file(path)


def test_a_store_on_another_disk_has_a_reserve_of_its_own_and_the_ledger_keeps_its(tmp_path: Path) -> None:
    disk = TwoDisks(tmp_path)
    ledger_disk, store_disk = disk.disks.values()
    reserves = DiskReserves(clock=ManualClock(), disk=disk)
    ledger, store = reserves.of(tmp_path / "ledger"), reserves.of(tmp_path / "store" / ".incomplete")
    assert ledger is not store
    for reserve in (ledger, store):
        reserve.begin()
    kept = ledger_disk.file_bytes
    assert not reserves.is_full
    store_disk.used = store_disk.size - kept
    store.find_full()
    for _ in range(3):  # seconds
        for reserve in (ledger, store):
            reserve.check()
        assert (ledger_disk.file_bytes, store_disk.file_bytes) == (kept, 0)
        assert (ledger.is_full, store.is_full, reserves.is_full) == (False, True, True)
    store_disk.used = 0
    store.check()
    assert (store_disk.file_bytes, reserves.is_full) == (kept, False)


def test_a_store_on_the_disk_of_the_ledger_shares_its_reserve(tmp_path: Path) -> None:
    reserves = DiskReserves(clock=ManualClock())
    ledger = reserves.of(tmp_path / "not" / "there" / "yet")
    assert reserves.of(tmp_path / "store") is ledger
    ledger.begin()
    assert (tmp_path / "not" / "there" / "yet" / RESERVE_FILE).exists()


class ClockOfSixSleeps(ManualClock):
    """Two reserves check three times each; a seventh sleep does not end."""

    def __init__(self) -> None:
        super().__init__()
        self.is_over = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if len(self.slept) == 6:
            self.is_over.set()
            await asyncio.Event().wait()
        await super().sleep(seconds)


async def test_a_full_disk_of_the_store_is_seen_and_logged_once_by_a_running_check(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The reserve of the ledger's disk was given up and made again each second instead, with a warning each time."""
    caplog.set_level("INFO")
    disk, clock = TwoDisks(tmp_path), ClockOfSixSleeps()
    reserves = DiskReserves(clock=clock, disk=disk)
    for name in ("ledger", "store"):
        reserves.of(tmp_path / name).begin()
    disk.disks[tmp_path / "store"].used = 64 * MIB
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(reserves.run())
        await clock.is_over.wait()
        assert reserves.is_full
        running.cancel()
    assert [(record.levelname, vars(record)["key"]) for record in caplog.records] == [
        ("WARNING", str(tmp_path / "store"))
    ]


async def test_while_the_disk_is_full_records_are_refused_and_everything_else_goes_on() -> None:
    inner, is_full = MemoryStore(), False
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    store = FullDiskStore(inner, lambda: is_full, sleep=sleep)
    await store.put("intake/1/1", [b"before"])
    is_full = True
    with pytest.raises(StoreFull, match="the disk is full: docs/operations/disk"):
        await store.put("intake/1/2", [b"x"])
    with pytest.raises(StoreUnavailable, match="the disk is full: docs/operations/disk"):
        await store.put("lake/t/data/1", [b"x"])
    assert pauses == [DISK_CHECK_INTERVAL_S]
    await store.put("ledger/snapshots/1", [b"frees room"])
    assert await store.get("intake/1/1") == b"before"
    assert await store.get_range("intake/1/1", 1, 2) == b"ef"
    assert (await store.head("intake/1/1")).size_bytes == 6
    assert [meta.key async for meta in store.list("", after="intake/1/1")] == ["ledger/snapshots/1"]
    await store.delete(["intake/1/1"])
    assert [meta.key async for meta in store.list("intake/")] == []
    is_full = False
    await store.put("intake/1/2", [b"x"])
    assert await store.server_time_ms() == await inner.server_time_ms()
    await store.close()


async def test_a_put_that_waits_when_the_room_comes_is_carried_out() -> None:
    inner, is_full = MemoryStore(), True

    async def sleep(_: float) -> None:
        nonlocal is_full
        is_full = False

    await FullDiskStore(inner, lambda: is_full, sleep=sleep).put("intake/1/1", [b"x"])
    assert await inner.get("intake/1/1") == b"x"


def test_files_say_when_they_find_no_room_and_nothing_else(tmp_path: Path) -> None:
    found: list[None] = []
    files = WatchedFiles(lambda: found.append(None))
    descriptor = files.create(str(tmp_path / "a"))
    files.write(descriptor, [b"x"])
    files.write_at(descriptor, [b"y"], 1)
    files.sync_data(descriptor)
    files.sync_file(descriptor)
    files.close(descriptor)
    files.make_directory(str(tmp_path / "d"))
    files.link(str(tmp_path / "a"), str(tmp_path / "b"))
    files.rename(str(tmp_path / "b"), str(tmp_path / "c"))
    with pytest.raises(FileExistsError):
        files.create(str(tmp_path / "a"))
    assert found == []
    full = os.open("/dev/full", os.O_RDWR)
    with pytest.raises(OSError, match="No space left"):
        files.write(full, [b"x"])
    files.close(full)
    assert len(found) == 1


async def test_the_reserve_of_a_store_on_another_disk_is_no_object_and_is_made_again_at_a_start(tmp_path: Path) -> None:
    disk = TwoDisks(tmp_path)
    settings = load_settings(
        CliCommand.RUN,
        {"data-dir": str(tmp_path / "ledger"), "store": f"file://{tmp_path}/store"},
        environment={},
    )
    path = tmp_path / "store" / ".incomplete" / RESERVE_FILE
    for _ in range(2):
        reserves = DiskReserves(clock=ManualClock(), disk=disk)
        reserves.of(settings.data_dir).begin()
        async with open_store(settings, SystemClock(), SystemIds(), Metrics(), reserves=reserves) as store:
            assert path.exists()
            assert [meta.key async for meta in store.list("")] == []


async def test_records_for_a_bucket_are_refused_too_while_the_disk_of_the_ledger_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their entries would use up what is kept for the entries that free room."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "unused")
    options = {"data-dir": str(tmp_path), "store": "s3://bucket"}
    settings = load_settings(CliCommand.RUN, options, environment={})
    disk, clock = SmallDisk(64 * MIB), ManualClock()
    disk.used = disk.size
    reserves = DiskReserves(clock=clock, disk=disk)
    reserves.of(settings.data_dir).begin()
    async with open_store(settings, clock, SystemIds(), Metrics(), reserves=reserves) as store:
        with pytest.raises(StoreFull):
            await store.put(f"{INTAKE_PREFIX}1", [b"x"])


async def test_a_write_of_the_embedded_store_that_finds_no_room_gives_the_reserve_up_and_packs_give_theirs_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(CliCommand.RUN, {"data-dir": str(tmp_path)}, environment={})
    disk, clock, policy = SmallDisk(64 * MIB), ManualClock(), RetryPolicy(deadline_s=0)
    reserves = DiskReserves(clock=clock, disk=disk)
    reserve = reserves.of(settings.data_dir)
    reserve.begin()
    key = f"{INTAKE_PREFIX}1"
    async with open_store(settings, clock, SystemIds(), Metrics(), policy=policy, reserves=reserves) as store:
        await store.put(key, [b"x"])
        await store.delete([key])
        assert has_packs(tmp_path)

        def no_room(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(Files, "write", no_room)
        disk.used = disk.size
        with pytest.raises(StoreUnavailable):
            await store.put("snapshots/1", [b"x"])
        assert (reserves.is_full, disk.file_bytes, (tmp_path / RESERVE_FILE).exists()) == (True, 0, False)

        for _ in range(2_000):
            reserve.check()  # a running agent does once a second
            if not await asyncio.to_thread(has_packs, tmp_path):
                break
        assert not has_packs(tmp_path)


def has_packs(folder: Path) -> bool:
    return any(folder.rglob("*.pack"))
