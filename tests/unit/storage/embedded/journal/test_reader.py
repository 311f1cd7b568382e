"""Objects of a journal that another process writes."""

from pathlib import Path

import pytest

from storage.embedded.journal.reader import JournalReader
from storage.object_store import ObjectDamaged, ObjectMissing
from tests.support.journal.journal_bytes import flipped
from tests.support.journal.opened_journals import FILE_BYTES, opened_journal

LARGE = b"l" * FILE_BYTES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def test_objects_are_read_while_their_writer_goes_on(folder: Path) -> None:
    reader = JournalReader(str(folder))
    with pytest.raises(ObjectMissing):
        reader.get("a")
    with opened_journal(folder) as user:
        for key in "abc":
            with pytest.raises(ObjectMissing):
                reader.get(key)
            user.append(key, payload=key.encode() * 10, entry=b"1")
            assert reader.get(key) == key.encode() * 10
            assert reader.get_range(key, 8, 2) == key.encode() * 2
        with pytest.raises(ObjectDamaged, match="it was cut"):
            reader.get_range("a", 8, 3)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        JournalReader(str(folder)).get("a")
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_an_object_whose_file_was_used_again_is_missing(folder: Path) -> None:
    with opened_journal(folder, released_write=100) as user:
        reader = JournalReader(str(folder))
        (location,) = user.append("old", payload=LARGE).objects
        user.append("b", payload=LARGE)
        assert reader.get("old") == LARGE
        user.delete("old", location)
        user.append("c", payload=LARGE)
        assert user.path(location.file).name not in user.files()
        with pytest.raises(ObjectMissing):
            reader.get("old")
        assert reader.get("c") == LARGE


def test_what_cannot_be_read_may_be_what_is_looked_for(folder: Path) -> None:
    with opened_journal(folder) as user:
        user.append("a", payload=LARGE)
        user.append("b")
        (first, _) = sorted(folder.iterdir())
        first.write_bytes(flipped(first.read_bytes(), 64 * 8 + 100))
        with pytest.raises(ObjectDamaged, match="not all of the journal can be read"):
            JournalReader(str(folder)).get("a")
        assert JournalReader(str(folder)).get("b") == b"payload"
