"""A full disk: what is kept for the ledger is given up, records are refused, and both come back with the room."""

import errno
from pathlib import Path

import pytest

from agent.disk_reserve import RESERVE_FILE, Disk, DiskReserve
from agent.full_disk import RecordsRefused, WatchedFiles
from protocol.limits import DISK_CHECK_INTERVAL_S, DISK_RESERVE_BYTES, DISK_RESERVE_DIVISOR, MIB
from storage.memory_store import MemoryStore
from storage.object_store import StoreFull, StoreUnavailable
from tests.unit.agent.ledger_parts import ManualClock


class SmallDisk(Disk):
    """A disk of `size` bytes, on which others have `used`."""

    def __init__(self, size: int, used: int = 0) -> None:
        self.size = size
        self.used = used
        self.code = 0
        self.file_bytes = 0

    def free_bytes(self, folder: Path) -> int:
        if self.code:
            raise OSError(self.code, "broken")
        return self.size - self.used - self.file_bytes

    def size_bytes(self, folder: Path) -> int:
        return self.size

    def make_file(self, path: Path, byte_count: int, room_bytes: int) -> None:
        if room_bytes > self.free_bytes(path.parent):
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


def test_a_folder_that_cannot_be_looked_at_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = SmallDisk(64 * MIB)
    reserve = reserve_on(tmp_path, disk)
    disk.code = errno.EIO
    reserve.check()
    assert not reserve.is_full
    assert "cannot be looked at" in caplog.text


async def test_while_the_disk_is_full_records_are_refused_and_everything_else_goes_on() -> None:
    inner, is_full = MemoryStore(), False
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    store = RecordsRefused(inner, lambda: is_full, sleep=sleep)
    await store.put("intake/1/1", [b"before"])
    is_full = True
    with pytest.raises(StoreFull, match="the disk is full: docs/RUNBOOK"):
        await store.put("intake/1/2", [b"x"])
    with pytest.raises(StoreUnavailable, match="the disk is full: docs/RUNBOOK"):
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

    await RecordsRefused(inner, lambda: is_full, sleep=sleep).put("intake/1/1", [b"x"])
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
    full = files.open_existing("/dev/full", is_writing=True)
    with pytest.raises(OSError, match="No space left"):
        files.write(full, [b"x"])
    files.close(full)
    assert len(found) == 1
