"""What a start and a read do about bytes that have changed in a journal, and files that moved (safety rule S20)."""

import errno
import shutil
from pathlib import Path

import pytest

from storage.embedded.journal.opening import EVERY_WRITE
from storage.embedded.readable_bytes import SECTOR_BYTES
from storage.object_store import ObjectDamaged
from tests.support.journal.journal_bytes import flipped
from tests.support.journal.opened_journals import FILE_BYTES, JournalUser, opened_journal, torn
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


def right_entries(user: JournalUser) -> list[bytes]:
    entries: list[bytes] = []
    for location in user.content.entries:
        try:
            entries += user.journal.records.payloads([location])
        except ObjectDamaged:
            entries.append(b"damaged")
    return entries


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
            for byte in range(0, len(whole), 7):
                file.write_bytes(flipped(whole, byte * 8 + byte % 8))
                kept = {path: path.read_bytes() for path in folder.iterdir()}
                with opened_journal(folder, nonce_first=500) as user:
                    lost = objects.keys() - right_objects(user, objects)
                    entries_right = right_entries(user)
                    lost_entries = [entry for entry in entries if entry not in entries_right]
                    assert [entry for entry in entries_right if entry != b"damaged"] == [
                        entry for entry in entries if entry not in lost_entries
                    ], "the order"
                    certain, uncertain = user.details(), user.details(is_certain=False)
                    is_last_write = is_killed and file == newest and uncertain
                    assert len(lost) + len(lost_entries) <= (3 if is_last_write else 1), (file.name, byte)
                    if is_last_write:
                        assert lost_entries in ([], entries[-1:])
                    is_noticed = bool(certain or uncertain) or b"damaged" in entries_right
                    assert is_noticed or lost <= user.content.objects.keys(), (file.name, byte)
                for path, content in kept.items():
                    path.write_bytes(content)
                file.write_bytes(whole)

    def test_a_file_with_damage_is_set_aside(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            location = user.append("a", payload=LARGE, entry=b"1").objects[0]
            user.append("b", entry=b"2")
            path = user.path(location.file)
        content = flipped(path.read_bytes(), 64 * 8 + 100)
        path.write_bytes(content)
        for start in range(2):
            with opened_journal(folder, nonce_first=10 + start, released_write=100) as user:
                assert user.content.has_gaps
                assert user.details()[0].endswith("hold no readable record")
                user.journal.take_back_unneeded()
                assert path.read_bytes() == content, "it is neither cut nor used again"


class TestTorn:
    @pytest.mark.parametrize("seed", range(40))
    def test_of_a_last_write_any_sectors_may_be_missing(self, folder: Path, tmp_path: Path, seed: int) -> None:
        with opened_journal(folder) as user:
            for row in range(3):
                user.append(f"{row}", payload=bytes([row]) * 150, entry=b"%d" % row)
            path = user.last_file()
            before = path.read_bytes()
            user.append("x", "y", payload=b"x" * 700, entry=b"last")
            after = path.read_bytes()
            killed = shutil.copytree(folder, tmp_path / "killed" / "journal")
        is_new = [bool(seed * 0x9E3779B1 >> row & 1) for row in range(len(after) // 512 + 1)]
        (killed / path.name).write_bytes(torn(before, after, lambda row: is_new[row]))
        with opened_journal(killed, nonce_first=10) as user:
            is_whole = user.entries() == [b"0", b"1", b"2", b"last"]
            assert is_whole or user.entries() == [b"0", b"1", b"2"]
            assert user.objects().keys() == {"0", "1", "2"} | ({"x", "y"} if is_whole else set())
            assert user.details() == []
            user.append("next", entry=b"next")
        with opened_journal(killed, nonce_first=20) as user:
            assert user.entries()[3:] == ([b"last", b"next"] if is_whole else [b"next"])
            assert user.damages == [], "the start has marked where the file ends"

    @pytest.mark.parametrize("is_reused", [False, True], ids=["a new file", "a file that was used before"])
    @pytest.mark.parametrize("seed", range(16))
    def test_of_the_first_write_of_a_file_any_sectors_may_be_missing(
        self, folder: Path, tmp_path: Path, seed: int, is_reused: bool
    ) -> None:
        with opened_journal(folder, released_write=0) as user:
            (old,) = user.append("old", payload=LARGE * 2, entry=b"0").objects
            user.append("a", payload=LARGE, entry=b"1", state=b"s")
            if is_reused:
                user.delete("old", old)
            before = user.path(old.file).read_bytes() if is_reused else b""
            killed = tmp_path / "killed" / "journal"

            def kill() -> None:
                if not killed.exists():
                    shutil.copytree(folder, killed)

            user.disk.before["sync_data"] = kill
            user.append("x", payload=b"x" * 1_500, entry=b"last")
            path = killed / user.last_file().name
            after = path.read_bytes()
        is_new = [bool(seed >> row % 4 & 1) for row in range(len(after) // 512 + 1)]
        path.write_bytes(torn(before, after, lambda row: is_new[row]))
        with opened_journal(killed, nonce_first=10, released_write=0, state=b"s") as user:
            is_whole = "x" in user.content.objects
            assert right_entries(user)[-1] == (b"last" if is_whole else b"1")
            assert user.objects().keys() - {"old"} == {"a", "x"} - (set() if is_whole else {"x"})
            assert user.details() == []
            user.append("next", entry=b"next")
            assert user.read("next", user.append("next").objects[0]) == b"payload"


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
                user.journal.mark_dead(list(user.content.objects.values())[:0])
                user.journal.release(100)
                user.journal.take_back_unneeded()
                assert set(three) <= set(folder.iterdir())

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
            assert user.details() == [f"it is missing: it was begun behind {three[1]}"]

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


class TestUnreadableSectors:
    def test_a_bad_sector_costs_what_lies_in_it(self, folder: Path) -> None:
        disk = PackDisk()
        with opened_journal(folder, disk) as user:
            location = user.append("a", payload=b"a" * 3 * SECTOR_BYTES, entry=b"1").objects[0]
            user.append("b", entry=b"2")
            path = user.path(location.file)
            disk.spoil(path, SECTOR_BYTES)
            with pytest.raises(ObjectDamaged, match="cannot be read: Input/output error"):
                user.read("a", location)
            assert location.file.is_set_aside
        with opened_journal(folder, disk, nonce_first=10) as user:
            assert user.entries() == [b"1", b"2"]
            assert list(user.content.objects) == ["a", "b"]

    def test_a_bad_sector_in_a_last_write_was_not_torn_by_a_crash(self, folder: Path, tmp_path: Path) -> None:
        disk = PackDisk()
        with opened_journal(folder, disk) as user:
            user.append("a", payload=b"a" * 3 * SECTOR_BYTES, entry=b"1")
            killed = shutil.copytree(folder, tmp_path / "killed" / "journal")
        disk.spoil(next(killed.iterdir()), SECTOR_BYTES, errno.EIO)
        with opened_journal(killed, disk, nonce_first=10) as user:
            assert user.content.damaged_write == EVERY_WRITE
            assert user.details()[0].startswith(f"bytes {SECTOR_BYTES} to {2 * SECTOR_BYTES} cannot be read")
