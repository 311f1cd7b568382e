"""A journal that is opened for its store and its ledger: the names of its folders, and what it keeps of the start."""

import gc
import weakref
from pathlib import Path

import pytest

from storage.embedded.journal.open_journal import OpenJournal
from tests.support.journal.opened_journals import nonces
from tests.support.packs.simulated_disk import PackDisk


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
