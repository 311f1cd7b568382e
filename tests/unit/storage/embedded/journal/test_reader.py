"""Objects of a journal that another process writes."""

from pathlib import Path

import pytest

from protocol.limits import JOURNAL_SCANS_MAX
from storage.embedded.journal.format import RECORDS_FIRST
from storage.embedded.journal.reader import JournalReader
from storage.object_store import ObjectDamaged, ObjectMissing, StoreUnavailable
from tests.support.journal.journal_bytes import flipped
from tests.support.journal.opened_journals import FILE_BYTES, JournalUser, opened_journal
from tests.support.packs.simulated_disk import PackDisk

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
        first.write_bytes(flipped(first.read_bytes(), RECORDS_FIRST * 8 + 100))
        with pytest.raises(ObjectDamaged, match="not all of the journal can be read"):
            JournalReader(str(folder)).get("a")
        assert JournalReader(str(folder)).get("b") == b"payload"


def test_what_was_found_is_known_without_looking_again(folder: Path) -> None:
    disk = PackDisk()
    reader = JournalReader(str(folder), files=disk)
    with opened_journal(folder) as user:
        user.append("a", "b")
        assert not reader.knows("a")
        reader.get("a")
        assert (reader.knows("a"), reader.knows("b"), reader.knows("c")) == (True, True, False)
        before = disk.calls["open_existing"]
        reader.get("b")
        assert disk.calls["open_existing"] == before + 1


def use_a_file_again(user: JournalUser) -> None:
    """Let the oldest file become the newest."""
    location = user.append("x", payload=LARGE).objects[0]
    user.append("y", payload=LARGE)
    user.delete("x", location)
    user.append("z", payload=LARGE)


@pytest.mark.parametrize("reads_left", range(16))
def test_a_file_that_is_used_again_while_it_is_looked_through_is_no_damage(folder: Path, reads_left: int) -> None:
    """Its records lie so far apart that each is read by itself."""
    disk = PackDisk()
    payload = b"l" * 20_000
    with opened_journal(folder, released_write=100, file_bytes=70_000) as user:
        old = [user.append(f"old {number}", payload=payload).objects[0] for number in range(4)]
        user.append("b", payload=payload * 4)
        user.append("c")

        with pytest.raises(ObjectMissing):
            JournalReader(str(folder), files=disk).get("none")
        reads = disk.calls["read_at"]

        def use_again() -> None:
            if disk.calls["read_at"] == 2 * reads - reads_left:
                disk.before.clear()
                user.journal.mark_dead(old)
                user.journal.take_back_unneeded()
                user.append("d", payload=payload * 4)
                user.append("e", payload=payload * 4)
                assert user.path(old[0].file).name not in user.files()

        disk.before["read_at"] = use_again
        reader = JournalReader(str(folder), files=disk)
        with pytest.raises(ObjectMissing):
            reader.get("old 0")
        assert disk.before == {}
        assert reader.get("c") == b"payload"


@pytest.mark.parametrize("is_quiet_at_last", [True, False])
def test_a_journal_that_changes_all_the_time_is_not_taken_for_one_without_the_object(
    folder: Path, is_quiet_at_last: bool
) -> None:
    disk = PackDisk()
    with opened_journal(folder, released_write=10_000) as user:
        user.append("a", payload=LARGE)
        use_a_file_again(user)
        scans_left = iter(range(JOURNAL_SCANS_MAX - is_quiet_at_last))

        def change() -> None:
            if next(scans_left, None) is not None:
                raise FileNotFoundError

        disk.before["open_existing"] = change
        reader = JournalReader(str(folder), files=disk)
        if is_quiet_at_last:
            assert reader.get("a") == LARGE
        else:
            with pytest.raises(StoreUnavailable, match="changes while it is read"):
                reader.get("a")
