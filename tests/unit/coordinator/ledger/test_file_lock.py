"""A file that one process holds at a time."""

import os
from pathlib import Path

import pytest

from coordinator.ledger.file_lock import FileHeld, FileLock


def test_a_held_file_names_its_holder(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    with pytest.raises(FileHeld, match=f"held by process {os.getpid()}") as held:
        FileLock(tmp_path / "lock")
    assert held.value.holder == os.getpid()
    lock.release()
    FileLock(tmp_path / "lock").release()


def test_a_holder_that_left_no_name_is_another_process(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    (tmp_path / "lock").write_text("nonsense")
    with pytest.raises(FileHeld, match="held by another process") as held:
        FileLock(tmp_path / "lock")
    assert held.value.holder is None
    lock.release()


def test_a_longer_name_of_an_earlier_holder_does_not_show_through(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("123456789012\n")
    lock = FileLock(tmp_path / "lock")
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    lock.release()


def test_a_folder_that_is_missing_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileLock(tmp_path / "missing" / "lock")
