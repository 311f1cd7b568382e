"""A journal that is opened for its store and its ledger: the names of its folders, and what it keeps of the start."""

import gc
import os
import weakref
from pathlib import Path

import pytest

from storage.embedded.journal.open_journal import OpenJournal
from storage.object_store import ObjectToPut
from tests.support.journal.journal_files import files_of
from tests.support.journal.opened_journals import nonces
from tests.support.packs.simulated_disk import PackDisk


class SyncedFolders(PackDisk):
    def __init__(self) -> None:
        super().__init__()
        self.folders: list[str] = []

    def sync_directory(self, path: str) -> None:
        self.folders.append(path)
        super().sync_directory(path)


async def append(folder: Path, disk: PackDisk, *, is_durable: bool) -> None:
    opened = await OpenJournal.open(folder, new_nonce=lambda: os.urandom(16), files=disk, is_durable=is_durable)
    await opened.write(lambda: opened.journal.settle(opened.content, released_write=-1))
    await opened.write(lambda: opened.journal.append([ObjectToPut(key="a", parts=[b"1"], modified_ms=1)]))
    await opened.close()


async def test_the_names_of_its_folders_are_durable_though_a_start_without_syncs_has_made_it(tmp_path: Path) -> None:
    disk, folder = SyncedFolders(), tmp_path / "journal"
    await append(folder, disk, is_durable=False)
    assert set(disk.folders) == {str(folder)}
    await append(folder, disk, is_durable=True)
    assert {str(path) for path in folder.resolve().parents} <= set(disk.folders)
    restored = disk.restore(folder, tmp_path / "restored" / "journal")
    assert len(files_of(restored)) == 2


async def test_what_a_start_has_found_is_not_kept_once_it_is_settled(tmp_path: Path) -> None:
    """A journal may have a location for each of a million entries."""
    disk = PackDisk()
    opened = await OpenJournal.open(tmp_path / "journal", new_nonce=nonces(1), files=disk)
    content = weakref.ref(opened.content.entries)
    assert content() is not None
    await opened.write(lambda: opened.journal.settle(opened.content, released_write=-1))
    gc.collect()
    assert content() is None
    with pytest.raises(AssertionError, match="from `open` until `settle`"):
        opened.content.write_next  # noqa: B018 -- a property that raises
    await opened.close()
