"""A journal: what is written is there again, and what fails on the way does not count."""

import errno
import shutil
from pathlib import Path

import pytest

from protocol.limits import JOURNAL_FILES_SPARE_MAX
from storage.embedded.journal.format import DEAD, RECORDS_FIRST, STATE_POSITION, FileHeader, encode_file_header
from storage.embedded.journal.records import FileFate
from storage.object_store import ObjectDamaged, StoreMisconfigured
from tests.support.journal.journal_files import contents_of
from tests.support.journal.opened_journals import (
    FILE_BYTES,
    STEP_BYTES,
    JournalUser,
    leave_without_an_end,
    opened_journal,
)
from tests.support.packs.simulated_disk import PackDisk

LARGE = b"l" * FILE_BYTES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def needed_files(user: JournalUser) -> list[str]:
    """The files, without those that wait to be used again."""
    user.journal.drop_spares()
    return user.files()


def fail_write(disk: PackDisk, operation: str) -> None:
    """Blocks are asked for as a new file gets its first ones, ahead of use, and as far as they are needed."""
    disk.fail(operation, errno.EIO, times=3 if operation == "allocate" else 1)


class TestAppending:
    def test_everything_is_there_again_in_its_order(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            user.append(state=b"s0")
            user.append("a", "b", entry=b"1")
            user.append(entry=b"2")
            user.append("c", payload=b"", state=b"s1")
        with opened_journal(folder, nonce_first=10) as user:
            assert user.objects() == {"a": b"payload", "b": b"payload", "c": b""}
            assert (user.entries(), user.states()) == ([b"1", b"2"], [b"s0", b"s1"])
            assert [location.stamp for location in user.content.entries] == [7, 7]
            assert user.content.write_next == 4
            assert user.damages == []

    def test_a_write_is_one_call_and_one_sync(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            user.append("a")
            before = dict(user.disk.calls)
            user.append("b", "c", entry=b"1")
            assert user.disk.calls["write_at"] == before["write_at"] + 1
            assert user.disk.calls["sync_data"] == before["sync_data"] + 1
            assert user.disk.calls["sync_directory"] == before["sync_directory"]

    def test_without_syncs_nothing_but_the_beginning_of_a_file_is_synced(self, folder: Path) -> None:
        with opened_journal(folder, is_durable=False) as user:
            user.append("a", entry=b"1")
            before = dict(user.disk.calls)
            assert before["sync_data"] == 1
            (location,) = user.append("b", entry=b"2").objects
            user.journal.mark_dead([location])
            assert user.disk.calls["sync_data"] == 1
            assert user.disk.calls["sync_directory"] == before["sync_directory"]

    def test_a_whole_payload_is_checked_and_a_part_is_the_readers_to_check(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            (location,) = user.append("a").objects
            path = user.last_file()
            path.write_bytes(path.read_bytes().replace(b"payload", b"PAYLOAD"))
            with pytest.raises(ObjectDamaged, match="checksum"):
                user.read("a", location)
            assert user.journal.records.read("a", location, 1, 3) == b"AYL"
            with pytest.raises(ObjectDamaged, match="ends within it"):
                user.journal.records.read("a", location, 0, 10_000)

    def test_a_record_whose_header_is_damaged_is_not_read(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            (location,) = user.append("a").objects
            with user.last_file().open("r+b") as file:
                file.seek(location.record_first + 5)
                file.write(b"?")
            with pytest.raises(ObjectDamaged, match="its header"):
                user.read("a", location)

    def test_one_process_has_it_open(self, folder: Path) -> None:
        with opened_journal(folder), pytest.raises(BlockingIOError), opened_journal(folder):
            pass

    def test_the_largest_object_is_larger_than_a_file(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            user.append("a", payload=LARGE * 3, entry=b"1")
            user.append("b")
            assert len(user.files()) == 2
        with opened_journal(folder, nonce_first=10) as user:
            assert user.objects() == {"a": LARGE * 3, "b": b"payload"}

    def test_blocks_are_given_ahead_of_use_and_those_that_are_not_needed_go_at_the_end(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            user.append("a")
            assert user.last_file().stat().st_size == STEP_BYTES
            user.append("b", payload=b"b" * 400)
            assert user.last_file().stat().st_size == 2 * STEP_BYTES
            used = user.journal.used_bytes
        assert (folder / user.files()[-1]).stat().st_size == used + 64, "the record that ends it"

    def test_an_object_that_is_put_again_counts_once(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            (first,) = user.append("a", payload=b"1").objects
            user.append("a", payload=b"2")
        for start in range(2):
            with opened_journal(folder, nonce_first=10 + start) as user:
                assert user.objects() == {"a": b"2"}
                (replaced,) = user.content.replaced["a"]
                assert replaced.record_first == first.record_first
                assert replaced.file.objects_live == 2, "it is there until it is marked"


class TestFiles:
    def test_a_file_is_needed_while_it_has_an_object(self, folder: Path) -> None:
        with opened_journal(folder, released_write=100) as user:
            (location,) = user.append("a", payload=LARGE).objects
            user.append("b")
            user.journal.take_back_unneeded()
            assert len(needed_files(user)) == 2
            user.delete("a", location)
            assert len(needed_files(user)) == 1
            assert len(user.removed) == 1

    def test_a_file_is_needed_while_an_entry_is_not_released(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            written = user.append(entry=LARGE)
            user.append(entry=b"2")
            user.journal.take_back_unneeded()
            assert len(needed_files(user)) == 2
            user.journal.release(written.write)
            user.journal.take_back_unneeded()
            assert len(needed_files(user)) == 1
        with opened_journal(folder, nonce_first=10, released_write=written.write) as user:
            assert user.entries() == [b"2"]

    def test_the_newest_file_stays_for_it_has_the_state(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            written = user.append(entry=LARGE, state=b"s")
            user.journal.release(written.write)
            user.journal.take_back_unneeded()
            assert len(needed_files(user)) == 1
        for start in range(2):
            with opened_journal(folder, nonce_first=10 + start, released_write=written.write, state=b"s") as user:
                assert user.states() == [b"s"]

    def test_each_file_begins_with_the_state(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            user.append(state=b"s0")
            user.append(entry=LARGE)
            user.append(entry=LARGE, state=b"s1")
            written = user.append("a", entry=b"3")
            user.journal.release(written.write - 1)
            user.journal.take_back_unneeded()
            assert len(needed_files(user)) == 1
        with opened_journal(folder, nonce_first=10) as user:
            assert (user.states(), user.entries(), user.objects()) == ([b"s1"], [b"3"], {"a": b"payload"})

    def test_a_file_that_is_not_needed_is_written_again_from_its_beginning(self, folder: Path) -> None:
        with opened_journal(folder, released_write=100) as user:
            (location,) = user.append("old", payload=LARGE).objects
            user.append("b", payload=LARGE)
            inode = user.path(location.file).stat().st_ino
            user.delete("old", location)
            user.append("c")
            assert user.last_file().stat().st_ino == inode
            with pytest.raises(FileNotFoundError):
                user.read("old", location)
        with opened_journal(folder, nonce_first=10, released_write=100) as user:
            assert user.objects().keys() == {"b", "c"}
            assert user.damages == []

    def test_some_files_wait_to_be_used_again_and_no_more(self, folder: Path) -> None:
        with opened_journal(folder, released_write=10_000) as user:
            locations = [user.append(f"{row}", payload=LARGE).objects[0] for row in range(JOURNAL_FILES_SPARE_MAX + 5)]
            user.append("last")
            for row, location in enumerate(locations):
                user.delete(f"{row}", location)
            assert len(user.files()) == JOURNAL_FILES_SPARE_MAX + 1
            assert len(needed_files(user)) == 1

    def test_a_start_takes_back_what_is_not_needed(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            for _ in range(3):
                written = user.append(entry=LARGE)
            user.append(entry=b"2")
        with opened_journal(folder, nonce_first=10, released_write=written.write) as user:
            assert user.entries()[-1] == b"2"
            assert len(needed_files(user)) == 1

    def test_a_newest_file_of_which_only_the_state_is_needed_can_be_left(self, folder: Path) -> None:
        with opened_journal(folder, state=b"s") as user:
            user.append(entry=b"0")
            user.journal.leave_unneeded()
            written = user.append("a", payload=b"x" * 2 * STEP_BYTES, entry=b"1")
            user.journal.leave_unneeded()
            assert len(user.files()) == 1, "it is small; then the object and the entry are needed"
            user.journal.release(written.write)
            user.delete("a", written.objects[0])
            user.journal.leave_unneeded()
            user.journal.leave_unneeded()
            (left,) = user.files()
            assert not user.path(written.objects[0].file).exists()
            assert (folder / left).stat().st_size == STEP_BYTES
        with opened_journal(folder, nonce_first=10, released_write=written.write, state=b"s") as user:
            assert (user.states(), user.entries(), user.damages) == ([b"s"], [], [])

    def test_a_start_never_appends_to_a_file_of_an_earlier_one(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            user.append("a")
            before = user.last_file()
            content = before.read_bytes()
        with opened_journal(folder, nonce_first=10) as user:
            user.append("b")
            assert len(user.files()) == 2
            assert before.read_bytes()[: len(content.rstrip(b"\0"))] == content.rstrip(b"\0")

    def test_a_number_that_is_taken_is_passed_over(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            user.append("a")
            (taken,) = user.files()
            (folder / taken).rename(folder / f"{int(taken[:16], 16) + (1 << 32):016x}.journal")
        with opened_journal(folder, nonce_first=1) as user:
            user.append("b")
            assert len(user.files()) == 2

    @pytest.mark.parametrize("version", [1, 3])
    def test_another_format_is_rejected_by_name(self, folder: Path, version: int) -> None:
        folder.mkdir()
        other = FileHeader(number=3, nonce=bytes(16), write_first=0, is_synced=True, format=version)
        content = encode_file_header(other) + bytes(200)
        (folder / "0000000000000003.journal").write_bytes(content)
        with (
            pytest.raises(StoreMisconfigured, match=f"has format {version}, this program knows 2"),
            opened_journal(folder),
        ):
            pass
        assert contents_of(folder) == {"0000000000000003.journal": content}


class TestFailures:
    @pytest.mark.parametrize("operation", ["allocate", "write_at", "sync_data"])
    @pytest.mark.parametrize("is_first", [True, False])
    def test_a_write_that_failed_does_not_count_and_the_next_one_does(
        self, folder: Path, operation: str, is_first: bool
    ) -> None:
        with opened_journal(folder) as user:
            if not is_first:
                user.append("a", payload=b"a" * 100, entry=b"1")
            user.disk.before["create"] = lambda: user.disk.failures.clear()
            user.disk.before["sync_directory"] = lambda: fail_write(user.disk, operation)
            if not is_first:
                fail_write(user.disk, operation)
            with pytest.raises(OSError, match="Input/output"):
                user.append("lost", payload=b"x" * 600, entry=b"lost")
            user.disk.before.clear()
            user.disk.failures.clear()
            user.append("b", entry=b"2")
            assert len(user.files()) == (2 if operation == "sync_data" and not is_first else 1)
        with opened_journal(folder, nonce_first=10) as user:
            assert user.objects().keys() == ({"b"} if is_first else {"a", "b"})
            assert user.entries() == ([b"2"] if is_first else [b"1", b"2"])
            assert user.damages == []
            assert user.content.write_next == (1 if is_first else 2), "its number was given again"

    @pytest.mark.parametrize("operation", ["create", "sync_data", "sync_directory", "allocate"])
    def test_a_file_that_cannot_be_followed_goes_on(self, folder: Path, operation: str) -> None:
        """On a full disk: it may have blocks left."""
        with opened_journal(folder) as user:
            user.append("a", payload=LARGE)
            user.disk.fail(operation, errno.ENOSPC)
            user.append("b")
            assert len(user.files()) == (2 if operation == "sync_directory" else 1), "or a spare one"
            user.append("c")
            assert len(user.files()) == 2
        with opened_journal(folder, nonce_first=10) as user:
            assert user.objects().keys() == {"a", "b", "c"}
            assert user.damages == []

    @pytest.mark.parametrize("operation", ["create", "sync_directory"])
    def test_the_first_file_that_could_not_be_begun_is_begun_again(self, folder: Path, operation: str) -> None:
        with opened_journal(folder) as user:
            user.disk.fail(operation, errno.ENOSPC)
            with pytest.raises(OSError, match="No space"):
                user.append("lost")
            user.append("b")
            assert len(user.files()) == 1

    def test_the_first_file_on_a_full_disk_gets_the_blocks_that_it_needs(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            user.disk.fail("allocate", errno.ENOSPC)
            user.append("a")
            assert user.last_file().stat().st_size == STEP_BYTES
            user.disk.fail("allocate", errno.ENOSPC)
            user.append("b", payload=b"b" * 600)
            assert STEP_BYTES < user.last_file().stat().st_size < 2 * STEP_BYTES

    @pytest.mark.parametrize("operation", ["write_at", "sync_data"])
    @pytest.mark.parametrize("is_removed", [True, False])
    def test_the_first_write_of_a_file_that_failed_does_not_come_back(
        self, folder: Path, tmp_path: Path, operation: str, is_removed: bool
    ) -> None:
        """It is whole on the disk, and has the number of the write behind it."""
        with opened_journal(folder) as user:
            user.append("a", payload=LARGE, entry=b"1")

            def fail_first_write() -> None:
                user.disk.before.clear()
                user.disk.fail(operation, errno.EIO)

            user.disk.before["sync_directory"] = fail_first_write
            if not is_removed:
                user.disk.fail("unlink", errno.EIO)
            with pytest.raises(OSError, match="Input/output"):
                user.append("lost", entry=b"lost")
            assert len(user.files()) == (1 if is_removed else 2)
            user.append("b", entry=b"2")
            restored = user.disk.restore(folder, tmp_path / "restored" / "journal")
            user.journal.take_back_unneeded()
            assert len(user.files()) == 2
        for start in range(2):
            with opened_journal(restored, nonce_first=10 + start) as user:
                assert (user.entries(), user.objects().keys()) == ([b"1", b"2"], {"a", "b"})
                assert user.damages == []

    def test_nor_does_the_file_before_go_on_where_it_could_not_be_removed(self, folder: Path, tmp_path: Path) -> None:
        """Its header says that what the file before has from its first write on does not count."""
        with opened_journal(folder) as user:
            user.append("a", payload=LARGE, entry=b"1")

            def fail_first_write() -> None:
                user.disk.before.clear()
                user.disk.fail("sync_data", errno.EIO)

            user.disk.before["sync_directory"] = fail_first_write
            user.disk.fail("unlink", errno.EIO)
            with pytest.raises(OSError, match="Input/output"):
                user.append("lost", entry=b"lost")
            user.disk.fail("create", errno.ENOSPC)
            with pytest.raises(OSError, match="No space"):
                user.append("b", entry=b"2")
            restored = user.disk.restore(folder, tmp_path / "restored" / "journal")
        with opened_journal(restored, nonce_first=10) as user:
            assert user.entries() == [b"1", b"lost"], "it may count, as no other write has its number"

    def test_a_file_that_was_begun_and_has_no_writes_cuts_nothing(self, folder: Path) -> None:
        with opened_journal(folder, released_write=100) as user:
            (location,) = user.append("old", payload=LARGE).objects
            user.append("b", payload=LARGE)
            user.delete("old", location)
            user.disk.fail("rename", errno.EIO)
            user.disk.fail("create", errno.ENOSPC)
            user.append("c")
            assert len(user.files()) == 2, "the spare one has got its header"
        with opened_journal(folder, nonce_first=10, released_write=100) as user:
            assert (user.objects().keys(), user.damages) == ({"b", "c"}, [])

    def test_a_file_whose_descriptor_cannot_be_closed_is_over_all_the_same(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            user.append("a", payload=LARGE)
            user.disk.fail("close", errno.EIO)
            user.append("b")
            user.append("c")
            user.disk.fail("close", errno.EIO)
        with opened_journal(folder, nonce_first=10) as user:
            assert user.objects().keys() == {"a", "b", "c"}

    @pytest.mark.parametrize("operation", ["rename", "open_existing", "write_at", "sync_data"])
    def test_where_a_spare_file_could_not_be_used_another_one_is_begun(self, folder: Path, operation: str) -> None:
        with opened_journal(folder, released_write=100) as user:
            (location,) = user.append("old", payload=LARGE).objects
            user.append("b", payload=LARGE)
            user.delete("old", location)
            user.disk.fail(operation, errno.EIO)
            user.append("c")
            assert len(user.files()) == 3
        with opened_journal(folder, nonce_first=10, released_write=100) as user:
            assert (user.objects().keys(), user.damages) == ({"b", "c"}, [])

    def test_a_spare_file_that_somebody_removed_is_replaced(self, folder: Path) -> None:
        with opened_journal(folder, released_write=100) as user:
            (location,) = user.append("old", payload=LARGE).objects
            user.append("b", payload=LARGE)
            user.delete("old", location)
            user.path(location.file).unlink()
            assert user.read("c", user.append("c").objects[0]) == b"payload"

    def test_a_file_that_cannot_be_looked_at_or_removed_is_given_back_later(self, folder: Path) -> None:
        with opened_journal(folder, released_write=100) as user:
            (location,) = user.append("a", payload=LARGE).objects
            user.append("b")
            user.journal.mark_dead([location])
            user.disk.fail("open_existing", errno.EMFILE)
            user.journal.take_back_unneeded()
            location.file.raise_fate(FileFate.REMOVE)
            user.disk.fail("unlink", errno.EIO)
            user.journal.take_back_unneeded()
            user.disk.fail("sync_directory", errno.EIO, times=2)
            assert (len(user.files()), user.removed) == (2, [])
            for _ in range(2):
                user.journal.take_back_unneeded()
                assert (len(user.files()), user.removed) == (1, [])
                assert user.journal.used_bytes > FILE_BYTES, "it may be there again after a loss of power"
            user.journal.take_back_unneeded()
            assert user.journal.used_bytes < FILE_BYTES

    def test_on_a_full_disk_the_blocks_that_are_there_are_used(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            user.append("a")
            user.disk.fail("allocate", errno.ENOSPC, times=2)
            with pytest.raises(OSError, match="No space"):
                user.append("large", payload=b"x" * 500)
            user.append(entry=b"1")
            user.disk.fail("allocate", errno.ENOSPC)
            user.append("less than a step", payload=b"x" * 300)
            assert user.last_file().stat().st_size < 2 * STEP_BYTES
            assert len(user.files()) == 1
        with opened_journal(folder, nonce_first=10) as user:
            assert (list(user.objects()), user.entries()) == (["a", "less than a step"], [b"1"])

    def test_after_a_failed_sync_nothing_is_added_to_the_file(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            user.append("a")
            user.disk.fail("sync_data", errno.EIO)
            with pytest.raises(OSError, match="Input/output"):
                user.append("lost")
            user.append("b")
            assert len(user.files()) == 2

    def test_a_file_that_cannot_be_marked_where_it_ends_ends_by_the_next_one(
        self, folder: Path, tmp_path: Path
    ) -> None:
        """The write is whole in the file, and was not acknowledged: the next file has another one with its number."""
        with opened_journal(folder) as user:
            user.append("a", entry=b"1")
            leave_without_an_end(user, "b", b"payload", b"2")
            killed = shutil.copytree(folder, tmp_path / "killed" / "journal")
        for start in range(3):
            with opened_journal(killed, nonce_first=10 + 10 * start) as user:
                assert user.objects().keys() == {"a", "b"}
                assert (user.entries(), user.content.write_next, user.damages) == ([b"1", b"2"], 2, [])

    def test_a_file_behind_one_without_an_end_stays_as_long(self, folder: Path) -> None:
        with opened_journal(folder, released_write=100) as user:
            (first,) = user.append("a").objects
            second = leave_without_an_end(user, "b", LARGE)
            assert first.file.is_open_ended
            user.append("c")
            user.delete("b", second)
            assert len(needed_files(user)) == 3
            user.delete("a", first)
            assert len(needed_files(user)) == 1
            assert not user.path(first.file).exists(), "it is not used again"

    def test_marking_that_failed_leaves_the_objects_counted(self, folder: Path) -> None:
        with opened_journal(folder, released_write=100) as user:
            (location,) = user.append("a", payload=LARGE).objects
            user.append("b")
            user.disk.fail("sync_data", errno.EIO)
            with pytest.raises(OSError, match="Input/output"):
                user.journal.mark_dead([location])
            user.journal.take_back_unneeded()
            assert len(needed_files(user)) == 2
            user.delete("a", location)
            assert len(needed_files(user)) == 1

    def test_a_journal_that_cannot_be_read_is_closed_again(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            user.append("a")
        disk = PackDisk()
        disk.fail("read_at", errno.EACCES)
        with pytest.raises(OSError, match="Permission denied"), opened_journal(folder, disk, nonce_first=10):
            pass
        assert disk.open == set()


class TestDeletedBytes:
    def test_a_deleted_object_is_marked_in_place(self, folder: Path) -> None:
        with opened_journal(folder) as user:
            (location,) = user.append("a").objects
            user.journal.mark_dead([location])
            content = user.last_file().read_bytes()
            assert content[location.record_first + STATE_POSITION : location.record_first + STATE_POSITION + 1] == DEAD
            assert location.record_first == RECORDS_FIRST
        with opened_journal(folder, nonce_first=10) as user:
            assert user.objects() == {}
