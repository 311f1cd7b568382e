"""What a start finds after a kill or a loss of power, whatever a journal was doing."""

import errno
import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from storage.embedded.journal.format import RECORDS_FIRST
from storage.embedded.journal.scan import NO_WRITE
from storage.embedded.readable_bytes import SECTOR_BYTES
from tests.support.journal.journal_files import zero
from tests.support.journal.opened_journals import FILE_BYTES, Killed, kill, opened_journal
from tests.support.packs.simulated_disk import PackDisk, torn

LARGE = b"l" * FILE_BYTES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


class TestTorn:
    @pytest.mark.parametrize("seed", range(40))
    def test_of_a_last_write_any_sectors_may_be_missing(self, folder: Path, tmp_path: Path, seed: int) -> None:
        with opened_journal(folder) as user:
            for row in range(3):
                user.append(f"{row}", payload=bytes([row]) * 150, entry=b"%d" % row)
            path = user.last_file()
            before = path.read_bytes()
            end = user.append("x", "y", payload=b"x" * 700, entry=b"last").entries[0].end
            after = path.read_bytes()
            killed = shutil.copytree(folder, tmp_path / "killed" / "journal")
        is_new = [bool(seed * 0x9E3779B1 >> row & 1) for row in range(len(after) // 512 + 1)]
        left = torn(before, after, lambda row: is_new[row])
        is_whole = left[:end] == after[:end]
        (killed / path.name).write_bytes(left)
        with opened_journal(killed, nonce_first=10) as user:
            assert user.entries() == [b"0", b"1", b"2", *([b"last"] if is_whole else [])]
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
            copies: list[Path] = []

            def copy() -> None:
                copies.append(shutil.copytree(folder, tmp_path / str(len(copies)) / "journal"))

            user.disk.before["sync_data"] = copy
            end = user.append("x", payload=b"x" * 1_500, entry=b"last").entries[0].end
            path = user.last_file().name
        # Synced one after the other: the header, the write, and the end of the file before.
        header, killed, _ = copies[:3]
        before = max(header.iterdir(), key=lambda file: (file.name == path, file.stat().st_mtime_ns)).read_bytes()
        after = (killed / path).read_bytes()
        is_new = [bool(seed >> row % 4 & 1) for row in range(len(after) // 512 + 1)]
        left = torn(before, after, lambda row: is_new[row])
        is_whole = left[:end] == after[:end]
        (killed / path).write_bytes(left)
        with opened_journal(killed, nonce_first=10, released_write=0, state=b"s") as user:
            assert user.readable_entries()[-1] == (b"last" if is_whole else b"1")
            assert user.objects().keys() - {"old"} == ({"a", "x"} if is_whole else {"a"})
            assert user.details() == []
            user.append("next", entry=b"next")
            assert user.read("next", user.append("next").objects[0]) == b"payload"

    def test_a_start_names_the_file_that_was_begun_and_not_named_yet(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            user.append("a", payload=LARGE, entry=b"1")
            calls = iter([lambda: None, lambda: None, kill])  # its header, its first write, the end of the one before
            user.disk.before["sync_data"] = lambda: next(calls)()
            writes = iter([lambda: None, lambda: None, kill])
            user.disk.before["write_at"] = lambda: next(writes)()
            with pytest.raises(Killed):
                user.append("b", entry=b"2")
            user.disk.kill()
        with opened_journal(folder, nonce_first=10) as user:
            assert user.entries() == [b"1", b"2"]
        newest = max(folder.iterdir())
        newest.unlink()
        with opened_journal(folder, nonce_first=20) as user:
            assert [damage.file for damage in user.damages] == [str(newest)]

    def test_a_file_that_was_never_begun_is_used(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            user.append("a", payload=LARGE)
        for number, content in enumerate([b"", bytes(RECORDS_FIRST)]):
            (folder / f"{(number + 7) << 32:016x}.journal").write_bytes(content)
        with opened_journal(folder, nonce_first=10) as user:
            assert user.damages == []
            user.append("b", payload=LARGE)
            user.append("c")
            assert len(user.files()) == 3

    def test_a_file_whose_first_write_was_torn_is_not_missed_later(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            user.append("a", payload=LARGE, entry=b"1")
            calls = iter([lambda: None, kill])  # its header, its first write
            user.disk.before["sync_data"] = lambda: next(calls)()
            with pytest.raises(Killed):
                user.append("x", payload=b"x" * 1_500, entry=b"last")
            user.disk.kill()
        zero(max(folder.iterdir()), RECORDS_FIRST + 500, RECORDS_FIRST + 600)
        for start in range(2):
            with opened_journal(folder, nonce_first=10 + start) as user:
                assert (user.entries(), user.details(), user.content.damaged_write) == ([b"1"], [], NO_WRITE)
                user.journal.drop_spares()
                assert len(user.files()) == 1

    @pytest.mark.parametrize("operation", ["write_at", "sync_data", "rename", "sync_directory"])
    @pytest.mark.parametrize("is_reused", [False, True], ids=["a new file", "a file that was used before"])
    @pytest.mark.parametrize("skipped", range(3))
    def test_a_kill_while_a_file_is_begun_costs_nothing(
        self, folder: Path, operation: str, is_reused: bool, skipped: int
    ) -> None:
        with opened_journal(folder, released_write=0) as user:
            (old,) = user.append("old", payload=LARGE, entry=b"0").objects
            user.append("a", payload=LARGE, entry=b"1", state=b"s")
            if is_reused:
                user.delete("old", old)
            calls = iter([*[lambda: None] * skipped, kill])
            user.disk.before[operation] = lambda: next(calls, kill)()
            is_killed = False
            try:
                user.append("x", entry=b"last")
            except Killed:
                is_killed = True
            assert is_killed or skipped or (operation == "rename" and not is_reused)
            user.disk.kill()
        for start in range(2):
            with opened_journal(folder, user.disk, nonce_first=10 + start, released_write=0, state=b"s") as user:
                assert user.readable_entries()[-1] in ([b"1", b"last"] if is_killed else [b"last"])
                assert user.damages == []
                assert user.content.damaged_write == NO_WRITE
                user.journal.take_back_unneeded()
                assert len(user.files()) <= 4


class TestSettling:
    """What a process that was killed has written may be in the page cache alone. A start that counts it syncs it."""

    def test_what_a_start_counts_survives_a_loss_of_power(self, folder: Path, tmp_path: Path) -> None:
        disk = PackDisk()
        with opened_journal(folder, disk) as user:
            user.append("a", entry=b"1")
            disk.before["sync_data"] = kill
            with pytest.raises(Killed):
                user.append("b", entry=b"2")
            disk.kill()
        assert numbers_after_a_loss_of_power(disk, folder, tmp_path / "before") == [b"1"]
        with opened_journal(folder, disk, nonce_first=10) as user:
            assert user.entries() == [b"1", b"2"]
            assert numbers_after_a_loss_of_power(disk, folder, tmp_path / "after") == [b"1", b"2"]

    def test_so_it_is_where_its_sync_has_failed_and_dropped_its_pages(self, folder: Path, tmp_path: Path) -> None:
        disk = PackDisk()
        disk.drops_pages = True
        with opened_journal(folder, disk) as user:
            user.append("a", entry=b"1")
            disk.fail("sync_data", errno.EIO)
            disk.before["truncate"] = kill
            with pytest.raises(Killed):
                user.append("b", payload=b"b" * 2 * SECTOR_BYTES, entry=b"2")
            disk.kill()
        with opened_journal(folder, disk, nonce_first=10) as user:
            assert user.entries() == [b"1", b"2"]
            assert numbers_after_a_loss_of_power(disk, folder, tmp_path / "after") == [b"1", b"2"]

    def test_so_do_ends_and_marks_that_a_start_believes(self, folder: Path, tmp_path: Path) -> None:
        disk = PackDisk()
        with opened_journal(folder, disk, released_write=0) as user:
            (first, _) = user.append("a", "b", payload=LARGE, entry=b"0").objects
            calls = iter([lambda: None, lambda: None, kill])  # its header, its first write, the end of the one before
            disk.before["sync_data"] = lambda: next(calls)()
            with pytest.raises(Killed):
                user.append("c", payload=LARGE, state=b"s")
            disk.before["sync_data"] = kill
            with pytest.raises(Killed):
                user.journal.mark_dead([first])
            disk.kill()
        with opened_journal(folder, disk, nonce_first=10, released_write=0) as user:
            assert user.objects().keys() == {"b", "c"}
            assert not user.content.objects["b"].file.is_open_ended
            restored = disk.restore(folder, tmp_path / "restored" / "journal")
        with opened_journal(restored, nonce_first=100, released_write=0) as user:
            assert user.objects().keys() == {"b", "c"}
            assert not user.content.objects["b"].file.is_open_ended

    def test_a_mark_whose_sync_failed_is_believed_by_no_start(self, folder: Path, tmp_path: Path) -> None:
        disk = PackDisk()
        disk.drops_pages = True
        with opened_journal(folder, disk) as user:
            (location,) = user.append("a").objects
            user.append("b", payload=LARGE)
            user.append("c")
            disk.fail("sync_data", errno.EIO)
            with pytest.raises(OSError, match="Input/output"):
                user.journal.mark_dead([location])
            disk.kill()
        with opened_journal(folder, disk, nonce_first=10) as user:
            before = user.objects().keys()
            restored = disk.restore(folder, tmp_path / "restored" / "journal")
        with opened_journal(restored, nonce_first=100) as user:
            assert user.objects().keys() == before

    def test_so_it_is_in_a_file_that_is_set_aside(self, folder: Path, tmp_path: Path) -> None:
        disk = PackDisk()
        with opened_journal(folder, disk) as user:
            (damaged,) = user.append("a", entry=b"1").objects
            user.append("b", entry=b"2")
            path = user.path(damaged.file)
            disk.before["sync_data"] = kill
            with pytest.raises(Killed):
                user.append("c", entry=b"3")
            disk.kill()
        with path.open("r+b") as file:
            file.seek(damaged.record_first + 20)
            file.write(b"????")
        with opened_journal(folder, disk, nonce_first=10) as user:
            assert (user.entries(), list(user.objects())) == ([b"1", b"2", b"3"], ["b", "c"])
            assert numbers_after_a_loss_of_power(disk, folder, tmp_path / "after") == [b"1", b"2", b"3"]

    @pytest.mark.parametrize("operation", ["open_existing", "write_at", "sync_data"])
    def test_a_start_that_cannot_sync_it_fails_and_the_next_one_succeeds(
        self, folder: Path, tmp_path: Path, operation: str
    ) -> None:
        disk = PackDisk()
        disk.drops_pages = True
        with opened_journal(folder, disk) as user:
            user.append("a", entry=b"1")
            disk.before["sync_data"] = kill
            with pytest.raises(Killed):
                user.append("b", entry=b"2")
            disk.kill()
        (path,) = folder.iterdir()
        end = path.read_bytes()

        def fail_settling() -> None:
            """Once everything was read: the folder's lock is taken before, and files are opened twice."""
            if disk.calls[operation] > before[operation] + (2 if operation == "open_existing" else 0):
                raise OSError(errno.EIO, "Input/output error")

        before = disk.calls.copy()
        disk.before[operation] = fail_settling
        with pytest.raises(OSError, match="Input/output"), opened_journal(folder, disk, nonce_first=10):
            pass
        assert disk.open == set()
        assert path.read_bytes() == end, "no end vouches for it"
        disk.before.clear()
        with opened_journal(folder, disk, nonce_first=20) as user:
            assert user.entries() == [b"1", b"2"]
            assert numbers_after_a_loss_of_power(disk, folder, tmp_path / "after") == [b"1", b"2"]

    def test_so_it_is_with_an_end_whose_sync_has_failed(self, folder: Path, tmp_path: Path) -> None:
        """It says which file comes next: without it, that one could be lost without being noticed."""
        disk = PackDisk()
        disk.drops_pages = True
        with opened_journal(folder, disk) as user:
            user.append("a", payload=LARGE * 4, entry=b"1")
            syncs = iter(["its header", "its first write"])
            disk.before["sync_data"] = lambda: None if next(syncs, None) else disk.fail("sync_data", errno.EIO)
            user.append("b", entry=b"2")
            disk.kill()
        with opened_journal(folder, disk, nonce_first=10) as user:
            assert (user.entries(), user.damages) == ([b"1", b"2"], [])
            restored = disk.restore(folder, tmp_path / "after" / "journal")
        newest = max(restored.iterdir())
        newest.unlink()
        with opened_journal(restored, nonce_first=100) as user:
            assert [damage.file for damage in user.damages] == [str(newest)]

    def test_an_end_that_could_not_be_written_costs_nothing(self, folder: Path, tmp_path: Path) -> None:
        disk = PackDisk()
        with opened_journal(folder, disk) as user:
            user.append("a", entry=b"1")
            disk.before["sync_data"] = kill
            with pytest.raises(Killed):
                user.append("b", entry=b"2")
            disk.kill()
        writes = iter([None])
        disk.before["write_at"] = lambda: disk.fail("write_at", errno.EIO) if next(writes, 1) else None
        with opened_journal(folder, disk, nonce_first=10) as user:
            disk.before.clear()
            disk.failures.clear()
            assert user.content.objects["a"].file.is_open_ended
            user.append("c", entry=b"3")
        with opened_journal(folder, disk, nonce_first=20) as user:
            assert (user.entries(), user.damages) == ([b"1", b"2", b"3"], [])

    def test_what_was_written_without_syncs_is_synced_by_a_start_with_syncs(self, folder: Path, tmp_path: Path) -> None:
        disk = PackDisk()
        with opened_journal(folder, disk, is_durable=False) as user:
            user.append("a", payload=LARGE, entry=b"1")
            user.append("b", entry=b"2")
        assert numbers_after_a_loss_of_power(disk, folder, tmp_path / "before") == []
        with opened_journal(folder, disk, nonce_first=10) as user:
            assert user.entries() == [b"1", b"2"]
            user.append("c", entry=b"3")
            restored = disk.restore(folder, tmp_path / "after" / "journal")
        with opened_journal(restored, nonce_first=100) as user:
            assert (user.entries(), user.damages) == ([b"1", b"2", b"3"], [])


def numbers_after_a_loss_of_power(disk: PackDisk, folder: Path, target: Path) -> list[bytes]:
    with opened_journal(disk.restore(folder, target / "journal"), nonce_first=100) as user:
        return user.entries()


class TestWithoutSyncs:
    @pytest.mark.parametrize("seed", range(30))
    def test_a_loss_of_power_leaves_a_prefix_of_the_writes(self, folder: Path, tmp_path: Path, seed: int) -> None:
        """But for the first file of all, if all of it is lost: no other one names it."""
        disk = PackDisk()
        with opened_journal(folder, disk, is_durable=False) as user:
            first = user.append("0", payload=b"0" * 300, entry=b"0").entries[0].file
            with user.journal.records.opened(first) as descriptor:
                disk.sync_data(descriptor)
            for row in range(1, 12):
                user.append(f"{row}", payload=b"%d" % row * 300, entry=b"%d" % row)
            restored = disk.restore(folder, tmp_path / "restored" / "journal", random.Random(seed))
        for start in range(2):
            with opened_journal(restored, nonce_first=100 + start) as user:
                count = len(user.entries())
                assert user.entries() == [b"%d" % row for row in range(count)]
                assert user.objects().keys() == {str(row) for row in range(count)}
                assert (user.details(), user.content.damaged_write) == ([], NO_WRITE)

    @pytest.mark.parametrize("is_killed", [False, True])
    @pytest.mark.parametrize("seed", range(10))
    def test_it_takes_nothing_from_what_was_written_with_syncs(
        self, folder: Path, tmp_path: Path, seed: int, is_killed: bool
    ) -> None:
        """Files of a process with syncs, then of one without: what the second one wrote vouches for nothing."""
        disk = PackDisk()
        with opened_journal(folder, disk) as user:
            user.append("0", entry=b"0")
            disk.before |= {"sync_data": kill} if is_killed else {}
            with suppress(Killed):
                user.append("1", payload=b"1" * 2_000, entry=b"1")
            if is_killed:
                disk.kill()
        with opened_journal(folder, disk, nonce_first=10, is_durable=False) as user:
            assert user.entries() == [b"0", b"1"]
            user.append("2", payload=b"2" * 2_000, entry=b"2")
            user.append("3", payload=LARGE, entry=b"3")
            user.append("4", payload=LARGE, entry=b"4")
            restored = disk.restore(folder, tmp_path / "restored" / "journal", random.Random(seed))
        for start in range(2):
            with opened_journal(restored, nonce_first=100 + start) as user:
                count = len(user.entries())
                assert user.entries() == [b"%d" % row for row in range(count)]
                assert count >= (1 if is_killed else 2)
                assert (user.details(), user.content.damaged_write) == ([], NO_WRITE)

    def test_a_file_of_which_only_the_header_is_left_ends_the_journal(self, folder: Path, tmp_path: Path) -> None:
        with opened_journal(folder, is_durable=False) as user:
            for row in range(3):
                user.append(f"{row}", payload=LARGE, entry=b"%d" % row)
            killed = shutil.copytree(folder, tmp_path / "killed" / "journal")
        second = sorted(killed.iterdir())[1]
        zero(second, RECORDS_FIRST, second.stat().st_size)
        for start in range(3):
            (killed / f"{9 + start << 32:016x}.journal").write_bytes(b"")  # is used instead of the one that was lost
            with opened_journal(killed, nonce_first=10 + 10 * start, is_durable=False) as user:
                assert user.entries() == [b"0", *[b"new"] * start]
                user.append(entry=b"new")
                assert second.exists()

    def test_what_a_torn_file_has_behind_does_not_come_back_though_its_end_could_not_be_written(
        self, folder: Path, tmp_path: Path
    ) -> None:
        with opened_journal(folder, is_durable=False) as user:
            user.append("0", entry=b"0")
            lost = user.append("1", entry=b"1").entries[0]
            user.append("2", payload=LARGE, entry=b"2")
            user.append("3", entry=b"3")
            killed = shutil.copytree(folder, tmp_path / "killed" / "journal")
        zero(killed / user.path(lost.file).name, lost.record_first, lost.end)
        disk = PackDisk()
        disk.before["write_at"] = lambda: disk.fail("write_at", errno.EIO) if disk.calls["write_at"] > 1 else None
        with opened_journal(killed, disk, nonce_first=10) as user:
            disk.before.clear()
            assert (user.entries(), user.content.objects["0"].file.is_open_ended) == ([b"0"], True)
            for _ in range(5):
                user.append(entry=b"new")
        with opened_journal(killed, nonce_first=20) as user:
            assert (user.entries(), user.damages) == ([b"0", *[b"new"] * 5], [])

    def test_a_file_that_was_written_with_syncs_and_has_no_end_is_not_used_again(self, folder: Path) -> None:
        disk = PackDisk()
        with opened_journal(folder, disk) as user:
            user.append("0")
            disk.kill()
        with opened_journal(folder, disk, nonce_first=10, is_durable=False) as user:
            location = user.content.objects["0"]
            user.append("1")
            user.delete("0", location)
            assert len(user.files()) == 1

    def test_a_file_that_was_begun_and_left_does_not(self, folder: Path) -> None:
        """Its header names a write that other files have, and that is not needed any more."""
        with opened_journal(folder, is_durable=False, released_write=0) as user:
            (old,) = user.append("old", payload=LARGE, entry=b"0").objects
            user.append("a", payload=LARGE, entry=b"1")
            user.delete("old", old)
            user.disk.fail("rename", errno.EIO)
            (given_back,) = user.append("b", payload=LARGE).objects
            user.append("c", payload=LARGE)
            user.delete("b", given_back)
        for start in range(2):
            with opened_journal(folder, nonce_first=10 + start, is_durable=False, released_write=0) as user:
                assert (user.objects().keys(), user.damages) == ({"a", "c"}, [])

    def test_of_files_behind_one_that_was_torn_nothing_counts_then_or_later(self, folder: Path, tmp_path: Path) -> None:
        with opened_journal(folder, is_durable=False) as user:
            for row in range(3):
                user.append(f"{row}", payload=LARGE, entry=b"%d" % row)
            killed = shutil.copytree(folder, tmp_path / "killed" / "journal")
        second = sorted(killed.iterdir())[1]
        zero(second, RECORDS_FIRST + 200, second.stat().st_size)
        with opened_journal(killed, nonce_first=10, is_durable=False) as user:
            assert user.entries() == [b"0"]
            assert user.details(is_certain=False) == [
                f"its last write is not whole: it ends at byte {RECORDS_FIRST}",
                "it is left out, as an earlier file is not whole",
            ]
            user.append("new", entry=b"new")
        with opened_journal(killed, nonce_first=20) as user:
            assert (user.entries(), user.objects().keys()) == ([b"0", b"new"], {"0", "new"})
            assert user.damages == []


class TestMarksBesideAppends:
    @pytest.mark.parametrize("operation", ["open_existing", "write_at", "sync_data"])
    def test_a_mark_hits_its_own_file_though_another_one_is_begun_meanwhile(self, folder: Path, operation: str) -> None:
        with opened_journal(folder, released_write=100) as user:
            (first,) = user.append("a", payload=LARGE).objects
            (second,) = user.append("b", payload=LARGE).objects
            user.append("c", payload=LARGE)

            def go_on() -> None:
                user.disk.before.clear()
                user.delete("b", second)
                user.append("d", payload=LARGE)
                user.append("e", payload=LARGE)

            user.disk.before[operation] = go_on
            user.journal.mark_dead([first])
            user.journal.take_back_unneeded()
        with opened_journal(folder, nonce_first=10, released_write=100) as user:
            assert (user.objects().keys(), user.damages) == ({"c", "d", "e"}, [])
