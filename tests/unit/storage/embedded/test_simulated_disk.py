"""The disk that the tests of packs lose power on: what it calls durable is what was synced, whichever thread did it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.packs.simulated_disk import PackDisk

WAIT_SECONDS_MAX = 0.2


def test_a_sync_that_ends_late_takes_back_nothing_of_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread appends and syncs, as puts do, while another syncs the same file, as deletions do."""
    folder = tmp_path / "packs"
    folder.mkdir()
    disk = PackDisk()
    descriptor = disk.create(str(folder / "pack"))
    disk.sync_directory(str(tmp_path))
    disk.sync_directory(str(folder))
    appending = threading.current_thread()
    has_read, may_go_on = threading.Event(), threading.Event()
    read_bytes = Path.read_bytes

    def read_slowly(path: Path) -> bytes:
        content = read_bytes(path)
        if threading.current_thread() is not appending:
            has_read.set()
            may_go_on.wait(WAIT_SECONDS_MAX)
        return content

    monkeypatch.setattr(Path, "read_bytes", read_slowly)
    with ThreadPoolExecutor(1) as other:
        syncing = other.submit(disk.sync_data, descriptor)
        assert has_read.wait(10)
        disk.write_at(descriptor, [b"acknowledged"], 0)
        disk.sync_data(descriptor)
        may_go_on.set()
        syncing.result()
    assert (disk.restore(folder, tmp_path / "restored") / "pack").read_bytes() == b"acknowledged"
    disk.close(descriptor)
