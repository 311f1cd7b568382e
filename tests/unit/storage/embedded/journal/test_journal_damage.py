"""What a start and a read do about bytes that have changed in a journal, and files that moved (safety rule S20)."""

import errno
import shutil
from pathlib import Path

import pytest

from storage.embedded.journal.format import (
    FILE_HEADER_BYTES,
    FILE_HEADER_POSITIONS,
    NUMBERS_END,
    RECORD_HEADER_BYTES,
    RECORDS_FIRST,
)
from storage.embedded.journal.opening import EVERY_WRITE
from storage.embedded.journal.records import FileFate, RecordLocation
from storage.embedded.journal.scan import NO_WRITE
from storage.embedded.readable_bytes import SECTOR_BYTES
from storage.object_store import ObjectDamaged
from tests.support.journal.journal_bytes import a_write, an_object, flipped
from tests.support.journal.journal_files import zero
from tests.support.journal.opened_journals import (
    FILE_BYTES,
    JournalUser,
    Killed,
    kill,
    leave_without_an_end,
    nonces,
    opened_journal,
)
from tests.support.packs.simulated_disk import PackDisk

LARGE = b"l" * FILE_BYTES
ROWS = 16


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def write_three_files(user: JournalUser) -> dict[str, bytes]:
    """Full files, one of which was used before, and the newest, with writes of several records; returns the objects."""
    (old,) = user.append("old", payload=LARGE).objects
    objects: dict[str, bytes] = {}
    for row in range(ROWS):
        keys = [f"{row}.{each}" for each in range(row % 3)]
        payload = f"payload {row}".encode() * 12
        user.append(*keys, payload=payload, entry=b"entry %d" % row, state=b"s%d" % row if row % 4 == 3 else None)
        objects |= dict.fromkeys(keys, payload)
        if row == 0:
            user.delete("old", old)
    assert len(user.files()) == 4
    return objects


def right_objects(user: JournalUser, objects: dict[str, bytes]) -> set[str]:
    """The keys of the objects that are given back as they were put; no other bytes are given."""
    right = set[str]()
    for key, location in user.content.objects.items():
        try:
            assert user.read(key, location) == objects[key], "wrong bytes"
        except ObjectDamaged:
            continue
        right.add(key)
    return right


class TestBits:
    @pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
    def test_one_wrong_bit_anywhere_costs_one_record_and_is_reported(
        self, folder: Path, tmp_path: Path, is_killed: bool
    ) -> None:
        with opened_journal(folder) as user:
            objects = write_three_files(user)
            killed = shutil.copytree(folder, tmp_path / "killed" / "journal")
        folder = killed if is_killed else folder
        newest = max(folder.iterdir())
        entries = [b"entry %d" % row for row in range(ROWS)]
        for file in sorted(folder.iterdir()):
            whole = file.read_bytes()
            # Nothing lies between the two copies of the header.
            for byte in (*range(0, RECORDS_FIRST, 61), *range(RECORDS_FIRST, len(whole), 7)):
                file.write_bytes(flipped(whole, byte * 8 + byte % 8))
                kept = {path: path.read_bytes() for path in folder.iterdir()}
                with opened_journal(folder, nonce_first=500) as user:
                    lost = objects.keys() - right_objects(user, objects)
                    entries_right = user.readable_entries()
                    lost_entries = [entry for entry in entries if entry not in entries_right]
                    assert [entry for entry in entries_right if entry != b"damaged"] == [
                        entry for entry in entries if entry not in lost_entries
                    ], "the order"
                    certain, uncertain = user.details(), user.details(is_certain=False)
                    is_last_write = is_killed and file == newest and uncertain
                    assert len(lost) + len(lost_entries) <= (3 if is_last_write else 1), (file.name, byte)
                    if is_last_write:
                        assert lost_entries in ([], entries[-1:])
                    is_seen_by_readers = lost <= user.content.objects.keys() and (
                        not lost_entries or b"damaged" in entries_right
                    )
                    assert certain or uncertain or is_seen_by_readers, (file.name, byte)
                for path, content in kept.items():
                    path.write_bytes(content)
                file.write_bytes(whole)

    def test_a_file_with_damage_is_set_aside(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            location = user.append("a", payload=LARGE, entry=b"1").objects[0]
            user.append("b", entry=b"2")
            path = user.path(location.file)
        content = flipped(path.read_bytes(), RECORDS_FIRST * 8 + 100)
        path.write_bytes(content)
        for start in range(2):
            with opened_journal(folder, nonce_first=10 + start, released_write=100) as user:
                assert user.content.has_gaps
                assert user.details()[0].endswith("hold no readable record")
                user.journal.take_back_unneeded()
                assert path.read_bytes() == content, "it is neither cut nor used again"


class TestFilesThatMoved:
    @pytest.fixture
    def three(self, folder: Path) -> list[Path]:
        with opened_journal(folder) as user:
            for row in range(3):
                user.append(f"{row}", payload=LARGE, entry=b"%d" % row, state=b"s%d" % row)
        return sorted(folder.iterdir())

    def test_names_that_were_exchanged_cost_nothing_and_are_reported(self, folder: Path, three: list[Path]) -> None:
        one, two, _ = three
        one.rename(folder / "x")
        two.rename(one)
        (folder / "x").rename(two)
        for start in range(2):
            with opened_journal(folder, nonce_first=10 + start) as user:
                assert user.objects().keys() == {"0", "1", "2"}
                assert (user.entries(), user.states()[-1]) == ([b"0", b"1", b"2"], b"s2")
                assert user.details() == ["it is another file by its header"] * 2
                user.journal.release(100)
                user.journal.take_back_unneeded()
                assert set(three) <= set(folder.iterdir())
        with opened_journal(folder, nonce_first=20, released_write=100) as user:
            user.journal.mark_dead(list(user.content.objects.values()))
            user.append("next")
            user.journal.take_back_unneeded()
            user.journal.drop_spares()
            assert set(three[:2]) <= set(folder.iterdir()), "what it held is not known for certain"
            assert three[2] not in folder.iterdir()

    def test_a_copy_counts_for_nothing_and_stays(self, folder: Path, three: list[Path]) -> None:
        copy = folder / "00000009ffffffff.journal"
        shutil.copy(three[1], copy)
        with opened_journal(folder, nonce_first=10) as user:
            assert user.entries() == [b"0", b"1", b"2"]
            (detail,) = user.details()
            assert detail.startswith("it is a copy of")
            user.append("a")
            assert copy.exists()
            assert user.last_file() > copy

    def test_a_file_that_somebody_renamed_and_of_which_nothing_is_needed_is_used_again(
        self, folder: Path, three: list[Path]
    ) -> None:
        with opened_journal(folder, nonce_first=5, released_write=100) as user:
            user.journal.mark_dead([user.content.objects["1"]])
        three[1].rename(folder / "00000009ffffffff.journal")
        with opened_journal(folder, nonce_first=10, released_write=100) as user:
            assert user.damages == []
            user.journal.drop_spares()
            assert not (folder / "00000009ffffffff.journal").exists()

    def test_a_newest_file_that_is_missing_is_noticed(self, folder: Path, three: list[Path]) -> None:
        three[2].unlink()
        with opened_journal(folder, nonce_first=10) as user:
            assert user.content.damaged_write == EVERY_WRITE
            assert user.content.has_gaps
            assert [(damage.file, damage.detail) for damage in user.damages] == [
                (str(three[2]), "its records are missing")
            ]

    @pytest.mark.parametrize("is_sync_failed", [False, True])
    def test_so_it_is_where_the_file_before_was_over(self, folder: Path, is_sync_failed: bool) -> None:
        """It is an earlier start's, or its sync has failed."""
        with opened_journal(folder) as user:
            user.append("0", entry=b"0")
            if is_sync_failed:
                user.disk.fail("sync_data", errno.EIO)
                with pytest.raises(OSError, match="Input/output"):
                    user.append("lost", entry=b"lost")
                user.append("1", entry=b"1")
        if not is_sync_failed:
            with opened_journal(folder, nonce_first=10) as user:
                user.append("1", entry=b"1")
        newest = max(folder.iterdir())
        newest.unlink()
        with opened_journal(folder, nonce_first=20) as user:
            assert user.content.damaged_write == EVERY_WRITE
            assert [damage.file for damage in user.damages] == [str(newest)]

    def test_so_is_one_of_which_only_the_header_is_left(self, folder: Path, three: list[Path]) -> None:
        zero(three[2], RECORDS_FIRST, three[2].stat().st_size)
        content = three[2].read_bytes()
        for start in range(2):
            with opened_journal(folder, nonce_first=10 + start) as user:
                assert (user.content.damaged_write == EVERY_WRITE) is (start == 0), "later writes prove what is there"
                assert user.content.has_gaps
                assert "its records are missing" in user.details()
                user.append("next")
                assert three[2].read_bytes() == content

    def test_a_lost_tail_of_a_file_is_noticed(self, folder: Path) -> None:
        """It was ended: nothing but its own end, and what follows, says how long it was."""
        with opened_journal(folder) as user:
            user.append("0", payload=b"0" * 300, entry=b"0")
            (location,) = user.append("1", payload=LARGE, entry=b"1").objects
            user.append("2", payload=LARGE, entry=b"2")
            path = user.path(location.file)
        zero(path, location.record_first, path.stat().st_size)
        with opened_journal(folder, nonce_first=10) as user:
            assert (user.entries(), user.objects().keys()) == ([b"0", b"2"], {"0", "2"})
            assert user.details() == [f"from byte {location.record_first} on it holds no readable record"]
            assert user.content.damaged_write == 2

    @pytest.mark.parametrize("row", [1, 2])
    def test_a_file_of_which_nothing_is_readable_is_reported_and_stays(
        self, folder: Path, three: list[Path], row: int
    ) -> None:
        content = b"\xff" * three[row].stat().st_size
        three[row].write_bytes(content)
        for start in range(2):
            with opened_journal(folder, nonce_first=10 + start) as user:
                assert user.content.has_gaps
                assert "nothing of it is readable" in user.details()
                assert (user.content.damaged_write == EVERY_WRITE) is (row == 2 and start == 0)
                user.append("a")
                assert three[row].read_bytes() == content

    def test_one_that_somebody_gave_a_number_behind_all_others_keeps_no_ledger_from_opening(
        self, folder: Path, three: list[Path]
    ) -> None:
        """No file could follow it, so it would be the newest one indefinitely."""
        garbage = folder / f"{NUMBERS_END:016x}.journal"
        garbage.write_bytes(b"\xff" * 5_000)
        for start in range(2):
            with opened_journal(folder, nonce_first=10 + start) as user:
                assert user.content.damaged_write == NO_WRITE
                assert user.content.has_gaps
                assert user.details() == ["nothing of it is readable"]
                user.append("a")
        assert garbage.exists()

    def test_what_is_no_file_is_reported_and_passed_over(self, folder: Path, three: list[Path]) -> None:
        (folder / "00000009ffffffff.journal").mkdir()
        (folder / "notes").write_text("not ours")
        with opened_journal(folder, nonce_first=10) as user:
            assert user.content.has_gaps
            assert user.details() == ["it is no regular file, and has the name of one"]
            assert len(user.objects()) == len(three)

    def test_a_file_that_was_exchanged_under_the_journal_is_not_read_or_marked(
        self, folder: Path, three: list[Path]
    ) -> None:
        with opened_journal(folder, nonce_first=10) as user:
            location = user.content.objects["0"]
            shutil.copy(three[1], three[0])
            with pytest.raises(FileNotFoundError):
                user.read("0", location)
            with pytest.raises(FileNotFoundError):
                user.journal.mark_dead([location])


class TestSetAside:
    def test_files_behind_one_without_an_end_are_given_back_but_the_next(self, folder: Path, tmp_path: Path) -> None:
        """Nothing is written into a file with damage. The one behind it says where it ends, and no other has to."""
        with opened_journal(folder) as user:
            (damaged,) = user.append("a", entry=b"1").objects
            user.append("b", entry=b"2")
            killed = shutil.copytree(folder, tmp_path / "killed" / "journal")
        path = killed / user.path(damaged.file).name
        path.write_bytes(flipped(path.read_bytes(), damaged.record_first * 8 + 100))
        for start in range(3):
            with opened_journal(killed, nonce_first=10 + 10 * start, released_write=100) as user:
                assert user.content.has_gaps
                locations: list[RecordLocation] = []
                for row in range(4):
                    locations += user.append(f"{start} {row}", payload=LARGE).objects
                user.append("last")
                user.journal.mark_dead(locations)
                user.journal.take_back_unneeded()
                user.journal.drop_spares()
                assert path.exists()
                assert len(user.files()) == 3 + (start > 0), "with the next one, and those with the last objects"
                user.journal.mark_dead([each for key, each in user.content.objects.items() if key == "last"])

    def test_a_file_that_cannot_be_marked_where_it_ends_is_removed_durably_before_the_next(
        self, folder: Path, tmp_path: Path
    ) -> None:
        disk = PackDisk()
        with opened_journal(folder, disk, released_write=0) as user:
            (first,) = user.append("a", entry=b"1", state=b"s").objects
            second = leave_without_an_end(user, "b", LARGE)
            user.append("c", payload=LARGE, entry=b"2", state=b"s")
            user.journal.mark_dead([first, second])
            user.journal.take_back_unneeded()
            disk.before["rename"] = kill
            with pytest.raises(Killed):
                user.append("d")
            restored = disk.restore(folder, tmp_path / "restored" / "journal")
            disk.kill()
        with opened_journal(restored, nonce_first=10, released_write=0, state=b"s") as user:
            assert (user.objects().keys(), user.entries(), user.damages) == ({"c"}, [b"2"], [])

    def test_the_newest_state_stays_until_another_one_is_durable(self, folder: Path) -> None:
        """It may lie in a file of which nothing else is needed, where that of the newest file is damaged."""
        with opened_journal(folder, released_write=100) as user:
            user.append(entry=b"1" * FILE_BYTES, state=b"s")
            user.append(entry=b"2")
            newest = user.last_file()
        newest.write_bytes(flipped(newest.read_bytes(), RECORDS_FIRST * 8 + 100))
        disk = PackDisk()
        with opened_journal(folder, disk, nonce_first=10, released_write=100, state=b"s") as user:
            assert user.states() == [b"s"]
            writes = iter([lambda: None, kill])  # the header of a file, its first write
            disk.before["write_at"] = lambda: next(writes)()
            with pytest.raises(Killed):
                user.append("a")
            disk.kill()
        with opened_journal(folder, nonce_first=20, released_write=100, state=b"s") as user:
            assert user.states() == [b"s"]
            user.append("a")
            user.journal.take_back_unneeded()
            user.journal.drop_spares()
            assert len(user.files()) == 2, "the damaged one, and the newest one"


class TestForgedRecords:
    """A producer writes what looks like records into a payload: nothing but the header says whose they are."""

    FORGED = a_write(0, an_object("x" * 8), nonce=nonces(777)()) * 3

    @pytest.mark.parametrize("is_eio", [True, False], ids=["EIO", "zeros"])
    @pytest.mark.parametrize("lost", [(0,), (1,), (0, 1)], ids=["one copy", "the other copy", "both copies"])
    def test_they_are_not_believed_where_the_header_is_lost(
        self, folder: Path, is_eio: bool, lost: tuple[int, ...]
    ) -> None:
        disk = PackDisk()
        with opened_journal(folder, disk) as user:
            user.append("before", payload=LARGE, entry=b"1")
            forged = self.FORGED.replace(b"x" * 8, b"\xff" * 8)
            (location,) = user.append("a", payload=bytes(3) + self.FORGED + forged, entry=b"2").objects
            user.append(entry=b"3" * FILE_BYTES)
            user.append("behind", entry=b"4")
            path = user.path(location.file)
        for row in lost:
            first = FILE_HEADER_POSITIONS[row]
            if is_eio:
                disk.spoil(path, first)
            else:
                zero(path, first, first + FILE_HEADER_BYTES)
        with opened_journal(folder, disk, nonce_first=10) as user:
            assert user.content.objects.keys() <= {"before", "a", "behind"}
            assert user.entries()[0] == b"1"
            assert user.entries()[-1] == b"4"
            assert user.details()
            assert user.content.has_gaps
            assert path.exists()


class TestStaleHeaders:
    @pytest.mark.parametrize("row", [0, 1], ids=["the first copy", "the second copy"])
    def test_a_copy_that_the_disk_did_not_write_costs_nothing_and_is_reported(self, folder: Path, row: int) -> None:
        """The file was used before: the copy is that of its earlier use, and valid."""
        with opened_journal(folder, released_write=100, state=b"s") as user:
            (old,) = user.append("old", payload=LARGE).objects
            user.append("a", payload=LARGE)
            stale = user.path(old.file).read_bytes()
            user.delete("old", old)
            user.append("b", entry=b"1")
            newest = user.last_file()
        content = newest.read_bytes()
        assert content[:FILE_HEADER_BYTES] != stale[:FILE_HEADER_BYTES]
        first = FILE_HEADER_POSITIONS[row]
        end = first + FILE_HEADER_BYTES
        newest.write_bytes(content[:first] + stale[first:end] + content[end:])
        with opened_journal(folder, nonce_first=10, released_write=-1) as user:
            assert user.objects().keys() == {"a", "b"}
            assert user.entries() == [b"1"]
            assert user.details() == ["a copy of its header is that of an earlier file"]


class TestUnreadableSectors:
    @pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
    @pytest.mark.parametrize("is_eio", [True, False], ids=["EIO", "zeros"])
    def test_no_bad_sector_costs_an_acknowledged_entry_without_being_noticed(
        self, folder: Path, tmp_path: Path, is_eio: bool, is_killed: bool
    ) -> None:
        """But for zeros in the last sector: they look like writes that never came."""
        entries = [b"%d" % row * 600 for row in range(24)]
        disk = PackDisk()
        with opened_journal(folder, disk, file_bytes=5 * SECTOR_BYTES) as user:
            locations = [user.append(entry=entry).entries[0] for entry in entries]
            killed = shutil.copytree(folder, tmp_path / "killed" / "journal")
        folder = killed if is_killed else folder
        names = [path.name for path in sorted(folder.iterdir())]
        assert len(names) == 2
        last_sector = locations[-1].end // SECTOR_BYTES
        last_file = locations[-1].file
        lasting = [each for each in locations if each.file is not last_file or each.end <= last_sector * SECTOR_BYTES]
        for name in names:
            for sector in range((folder / name).stat().st_size // SECTOR_BYTES + 1):
                copy = shutil.copytree(folder, tmp_path / f"{name}.{sector}" / "journal")
                if is_eio:
                    disk.spoil(copy / name, sector * SECTOR_BYTES)
                else:
                    zero(copy / name, sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES)
                with opened_journal(copy, disk, nonce_first=10) as user:
                    found = user.readable_entries()
                    lost = [row for row, entry in enumerate(entries) if entry not in found]
                    newest = user.content.entries[-1].write if user.content.entries else -1
                    is_proved = newest >= user.content.damaged_write
                    if not is_eio and (name, sector) == (names[-1], last_sector):
                        assert found == entries[: len(lasting)]
                        continue
                    is_complete = not lost or b"damaged" in found or lost[-1] < newest
                    assert is_complete or not is_proved, (name, sector)
                    assert user.details() or not lost or b"damaged" in found, (name, sector)
                shutil.rmtree(copy.parent)

    def test_a_bad_sector_where_a_killed_file_ends_may_have_been_written(self, folder: Path, tmp_path: Path) -> None:
        disk = PackDisk()
        with opened_journal(folder, disk, file_bytes=5 * SECTOR_BYTES) as user:
            before = user.append(entry=b"1" * (2 * SECTOR_BYTES - RECORDS_FIRST - RECORD_HEADER_BYTES)).entries[0]
            assert before.end == 2 * SECTOR_BYTES
            user.append(entry=b"2")
            user.append(entry=b"3")
            killed = shutil.copytree(folder, tmp_path / "killed" / "journal")
        disk.spoil(next(killed.iterdir()), 2 * SECTOR_BYTES)
        with opened_journal(killed, disk, nonce_first=10) as user:
            assert len(user.entries()) == 1
            assert user.content.damaged_write == EVERY_WRITE
            assert len(user.details()) == 1

    def test_so_may_it_where_nothing_but_its_header_is_left(self, folder: Path, tmp_path: Path) -> None:
        disk = PackDisk()
        with opened_journal(folder, disk) as user:
            user.append(entry=b"1")
            killed = shutil.copytree(folder, tmp_path / "killed" / "journal")
        path = next(killed.iterdir())
        disk.spoil(path, SECTOR_BYTES)
        content = path.read_bytes()
        with opened_journal(killed, disk, nonce_first=10) as user:
            assert user.content.damaged_write == EVERY_WRITE
            user.append(entry=b"2")
            assert path.read_bytes() == content

    def test_a_bad_sector_costs_what_lies_in_it(self, folder: Path) -> None:
        disk = PackDisk()
        with opened_journal(folder, disk) as user:
            location = user.append("a", payload=b"a" * 3 * SECTOR_BYTES, entry=b"1").objects[0]
            user.append("b", entry=b"2")
            path = user.path(location.file)
            disk.spoil(path, 2 * SECTOR_BYTES)
            with pytest.raises(ObjectDamaged, match="cannot be read: Input/output error"):
                user.read("a", location)
            assert location.file.fate is FileFate.KEEP
        with opened_journal(folder, disk, nonce_first=10) as user:
            assert user.entries() == [b"1", b"2"]
            assert list(user.content.objects) == ["a", "b"]

    def test_a_bad_sector_in_a_last_write_was_not_torn_by_a_crash(self, folder: Path, tmp_path: Path) -> None:
        disk = PackDisk()
        with opened_journal(folder, disk) as user:
            user.append("a", payload=b"a" * 3 * SECTOR_BYTES, entry=b"1")
            killed = shutil.copytree(folder, tmp_path / "killed" / "journal")
        disk.spoil(next(killed.iterdir()), 2 * SECTOR_BYTES, errno.EIO)
        with opened_journal(killed, disk, nonce_first=10) as user:
            assert user.content.damaged_write == EVERY_WRITE
            assert user.details()[0].startswith(f"bytes {2 * SECTOR_BYTES} to {3 * SECTOR_BYTES} cannot be read")
