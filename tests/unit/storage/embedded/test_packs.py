"""The folder of packs, without an event loop: what a crash leaves, what a failing disk leaves, and files used again."""

import errno
import os
import re
import shutil
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from crc32c import crc32c

from protocol.limits import PACKS_SPARE_MAX
from storage.embedded.pack_format import encode_record_header, padding
from tests.support.packs.opened_packs import OLD, Packs, opened
from tests.support.packs.simulated_disk import PackDisk


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "packs"


def contents_of(folder: Path) -> dict[str, bytes]:
    """What the next start finds."""
    with opened(folder, nonce_first=1_000) as packs:
        return packs.contents()


class TestStart:
    def test_a_new_folder_is_empty(self, folder: Path) -> None:
        assert contents_of(folder) == {}
        assert list(folder.iterdir()) == []

    def test_objects_are_found_again_with_time_and_size(self, folder: Path) -> None:
        with opened(folder) as packs:
            before = packs.append("a", "b/ü", payload=b"12345")
            assert [packs.read("a", before[0]), packs.folder.read("b/ü", before[1], 1, 3)] == [b"12345", b"234"]
        with opened(folder) as packs:
            assert packs.contents() == {"a": b"12345", "b/ü": b"12345"}
            assert [(place.payload_bytes, place.modified_ms) for place in packs.found.values()] == [(5, 1), (5, 1)]
            assert {place.pack.live_count for place in packs.found.values()} == {2}

    def test_a_pack_of_an_earlier_run_is_never_written_again(self, folder: Path) -> None:
        with opened(folder) as packs:
            packs.append("a")
        before = (folder / "0000000000000000.pack").read_bytes()
        with opened(folder, nonce_first=7) as packs:
            packs.append("b")
            assert packs.files() == ["0000000000000000.pack", "0000000100000000.pack"]
        assert (folder / "0000000000000000.pack").read_bytes() == before

    def test_of_two_objects_with_one_key_the_later_is_found(self, folder: Path) -> None:
        with opened(folder) as packs:
            packs.append("a", "b", payload=b"first")
            packs.append("a", payload=b"second")
        with opened(folder, nonce_first=7) as packs:
            assert packs.contents() == {"a": b"second", "b": b"first"}
            packs.append("a", payload=b"third")
        with opened(folder) as packs:
            assert packs.contents() == {"a": b"third", "b": b"first"}
            assert [packs.found[key].pack.live_count for key in "ab"] == [1, 1]

    def test_what_is_marked_dead_stays_away(self, folder: Path) -> None:
        with opened(folder) as packs:
            first, second, third = packs.append("a", "b", "c")
            packs.folder.mark_dead([first, third])
            assert packs.read("b", second) == b"payload"
        assert contents_of(folder) == {"b": b"payload"}

    def test_files_that_are_no_packs_are_left_alone(self, folder: Path) -> None:
        with opened(folder) as packs:
            packs.append("a")
        for name in ("lost+found.pack", "1.pack", "0000000000000001.pack~"):
            (folder / name).write_bytes(b"x")
        assert contents_of(folder) == {"a": b"payload"}
        assert len(list(folder.iterdir())) == 4

    def test_another_process_is_kept_out(self, folder: Path) -> None:
        with opened(folder) as packs:
            packs.append("a")
            with pytest.raises(BlockingIOError), opened(folder):
                pass
            packs.append("b")
        assert contents_of(folder).keys() == {"a", "b"}

    @pytest.mark.parametrize("code", [errno.EACCES, errno.EMFILE, errno.ENOMEM, errno.ENXIO])
    def test_a_start_that_cannot_read_changes_nothing_and_lets_go(self, folder: Path, code: int) -> None:
        with opened(folder) as packs:
            packs.append("a", "b")
        disk = PackDisk()
        disk.fail("read_at", code)
        with pytest.raises(OSError, match=re.escape(os.strerror(code))):
            Packs(folder, disk, nonce_first=1, is_durable=True)
        assert disk.open == set()
        assert contents_of(folder).keys() == {"a", "b"}


class TestTornEnds:
    """The newest pack after a crash in the middle of a write: `a` was acknowledged, `b` was on its way."""

    @pytest.fixture
    def whole(self, folder: Path) -> tuple[bytes, int, int]:
        """The pack with both, where the record of `b` begins and where its payload ends."""
        with opened(folder) as packs:
            packs.append("a", payload=b"x" * 13)
            (place,) = packs.append("b", payload=b"y" * 13)
            (file,) = folder.iterdir()
            content = file.read_bytes()  # of a process that is killed: it says nowhere that it ends
        return content, place.record_first, place.payload_first + place.payload_bytes

    @pytest.mark.parametrize("rest", [b"", b"\0", b"\xff", b"PREC"], ids=["cut", "zeros", "ones", "magic"])
    def test_what_is_not_whole_goes_at_every_length(
        self, folder: Path, whole: tuple[bytes, int, int], rest: bytes
    ) -> None:
        content, first, payload_end = whole
        (file,) = folder.iterdir()
        for length in range(first, payload_end):
            file.write_bytes(content[:length] + (rest * len(content))[: len(content) - length])
            assert contents_of(folder) == {"a": b"x" * 13}, length
            assert file.read_bytes() == content[:first]

    def test_what_is_whole_may_appear_without_its_padding(self, folder: Path, whole: tuple[bytes, int, int]) -> None:
        content, _, payload_end = whole
        (file,) = folder.iterdir()
        for length in range(payload_end, len(content) + 1):
            file.write_bytes(content[:length])
            assert contents_of(folder) == {"a": b"x" * 13, "b": b"y" * 13}
            assert file.read_bytes() == content

    @pytest.mark.parametrize("rest", [b"\0", b"\xff"])
    def test_in_the_last_write_what_is_whole_stays_whatever_is_not(self, folder: Path, rest: bytes) -> None:
        """Writes reach the disk in any order: `c` may be there, and not `b`, which was written with it."""
        with opened(folder, nonce_first=7) as packs:
            packs.append("a")
            first = packs.append("b", "c")[0].record_first
            content = packs.last_file().read_bytes()
            end = content.index(b"payload", first) + len(b"payload")
        for byte in range(first, end):
            packs.last_file().write_bytes(content[:byte] + rest * (end - byte) + content[end:])
            with opened(folder, nonce_first=9) as again:
                assert again.found.keys() - {"b"} == {"a", "c"}
                assert again.read("c", again.found["c"]) == b"payload"
                assert [damage.is_certain for damage in again.damages] == [False], "it may never have been acknowledged"

    def test_a_start_after_that_goes_on(self, folder: Path, whole: tuple[bytes, int, int]) -> None:
        content, first, _ = whole
        (file,) = folder.iterdir()
        file.write_bytes(content[: first + 20])
        with opened(folder, nonce_first=7) as packs:
            packs.append("c")
        assert contents_of(folder) == {"a": b"x" * 13, "c": b"payload"}


class TestLossOfPower:
    def test_an_append_that_returned_survives(self, folder: Path, tmp_path: Path) -> None:
        with opened(folder) as packs:
            packs.append("a")
            packs.append("b", "c")
        assert contents_of(packs.disk.restore(folder, tmp_path / "left")).keys() == {"a", "b", "c"}

    def test_in_a_pack_that_is_used_again_too(self, folder: Path, tmp_path: Path) -> None:
        with opened(folder) as packs:
            packs.folder.take_back(packs.use_up())
            packs.append("a")
            assert packs.disk.calls["rename"] == 1
            packs.append("b")
        assert contents_of(packs.disk.restore(folder, tmp_path / "left")) == {"a": b"payload", "b": b"payload"}

    @pytest.mark.parametrize(
        ("left_out", "is_used_again"), [("sync_data", False), ("sync_data", True), ("sync_directory", False)]
    )
    def test_without_either_sync_it_is_lost(
        self, folder: Path, tmp_path: Path, left_out: str, *, is_used_again: bool
    ) -> None:
        with opened(folder) as packs:
            if is_used_again:
                packs.folder.take_back(packs.use_up())
            packs.disk.left_out = left_out
            packs.append("a")
        assert contents_of(packs.disk.restore(folder, tmp_path / "left")) == {}

    def test_a_disk_that_loses_the_new_name_of_a_pack_costs_no_object(self, folder: Path, tmp_path: Path) -> None:
        """It says that the folder was synced, and keeps the name that the file had before."""
        with opened(folder) as packs:
            packs.folder.take_back(packs.use_up())
            packs.disk.left_out = "sync_directory"
            packs.append("a")
        left = packs.disk.restore(folder, tmp_path / "left")
        with opened(left, nonce_first=7) as packs:
            assert packs.contents() == {"a": b"payload"}
            assert [damage.is_certain for damage in packs.damages] == [True]

    def test_what_a_killed_process_has_not_synced_a_start_makes_durable(self, folder: Path, tmp_path: Path) -> None:
        with opened(folder, PackDisk(left_out="sync_data")) as packs:
            packs.append("a")
        with opened(folder) as packs:
            assert packs.contents() == {"a": b"payload"}
        assert contents_of(packs.disk.restore(folder, tmp_path / "left")) == {"a": b"payload"}

    @pytest.mark.parametrize(("left_out", "left"), [("", {"b"}), ("sync_data", {"a", "b"})])
    def test_a_deleted_object_does_not_come_back(
        self, folder: Path, tmp_path: Path, left_out: str, left: set[str]
    ) -> None:
        with opened(folder) as packs:
            deleted, _ = packs.append("a", "b")
            packs.disk.left_out = left_out
            packs.folder.mark_dead([deleted])
        assert contents_of(packs.disk.restore(folder, tmp_path / "left")).keys() == left

    def test_who_prefers_speed_syncs_nothing(self, folder: Path) -> None:
        disk = PackDisk()
        for _ in range(2):
            with opened(folder, disk, is_durable=False) as packs:
                packs.append("a")
        assert (disk.calls["sync_data"], disk.calls["sync_file"], disk.calls["sync_directory"]) == (0, 0, 2)

    def test_objects_that_are_written_together_cost_one_write_and_one_sync(self, folder: Path) -> None:
        with opened(folder) as packs:
            packs.append(*"abcdefgh")
            assert (packs.disk.calls["write_at"], packs.disk.calls["sync_data"]) == (1, 1)


class TestUsedAgain:
    def test_packs_are_used_again_and_no_more_than_a_few_wait(self, folder: Path) -> None:
        with opened(folder) as packs:
            for pack in [packs.use_up() for _ in range(10)]:
                packs.folder.take_back(pack)
            assert len(packs.files()) == PACKS_SPARE_MAX
            for number in range(PACKS_SPARE_MAX + 2):
                packs.append(f"{number}", payload=OLD)
            assert packs.disk.calls["rename"] == PACKS_SPARE_MAX
            assert len(packs.files()) == PACKS_SPARE_MAX + 2
        assert contents_of(folder) == {f"{number}": OLD for number in range(PACKS_SPARE_MAX + 2)}

    def test_packs_that_a_start_finds_without_objects_are_too(self, folder: Path) -> None:
        with opened(folder) as packs:
            for _ in range(10):
                packs.use_up()
        with opened(folder, nonce_first=100) as packs:
            assert packs.found == {}
            assert len(packs.files()) == PACKS_SPARE_MAX
            packs.append("a")
            assert len(packs.files()) == PACKS_SPARE_MAX
        assert contents_of(folder) == {"a": b"payload"}

    def test_a_pack_that_was_taken_back_is_missing_for_readers(self, folder: Path) -> None:
        with opened(folder) as packs:
            (place,) = packs.append("a", payload=OLD)
            packs.folder.take_back(place.pack)
            assert packs.read("a", place) == OLD, "nobody has written to it"
            packs.append("a", payload=b"n" * len(OLD))
            with pytest.raises(FileNotFoundError):
                packs.read("a", place)

    @pytest.mark.parametrize("reads_before", [0, 1])
    def test_a_reader_that_it_is_taken_from_gets_nothing_else(self, folder: Path, reads_before: int) -> None:
        """Same key, same place, other bytes, while the file is open: before the payload is read, or right after."""
        with opened(folder) as packs:
            (place,) = packs.append("a", payload=OLD)
            packs.folder.take_back(place.pack)
            reads = count()

            def use_again() -> None:
                if next(reads) == reads_before:
                    packs.append("a", payload=b"n" * len(OLD))

            packs.disk.before["read_at"] = use_again
            with pytest.raises(FileNotFoundError):
                packs.read("a", place)

    @staticmethod
    def looks_like_records(nonce: bytes) -> bytes:
        """What a producer sends who wants it to be taken for objects: one record after the other."""
        payload = b"never put"
        header = encode_record_header("evil", nonce, len(payload), crc32c(payload), 1)
        record = header + payload + padding(len(header) + len(payload))
        return record * 40

    def start_after_a_reuse(self, folder: Path, *, guessed: int) -> dict[str, bytes]:
        """What a start finds where a pack with crafted payload was used again by something short."""
        with opened(folder, nonce_first=1) as packs:
            crafted = b"...." + self.looks_like_records(guessed.to_bytes(16, "big"))
            (old,) = packs.append("old!", payload=crafted)
            packs.folder.take_back(old.pack)
            (new,) = packs.append("new!", payload=b"n" * (4 + 64))
            assert (new.payload_first + new.payload_bytes - old.payload_first - 4) % 64 == 0, (
                "where a crafted one begins"
            )
            assert packs.disk.calls["rename"] == 1
            killed = shutil.copytree(folder, folder.with_name("killed"))
        return contents_of(killed)

    def test_what_a_producer_has_crafted_is_not_taken_for_an_object(self, folder: Path) -> None:
        assert self.start_after_a_reuse(folder, guessed=1).keys() == {"new!"}

    def test_it_would_be_if_the_nonce_could_be_guessed(self, folder: Path) -> None:
        assert self.start_after_a_reuse(folder, guessed=2) == {"new!": b"n" * 68, "evil": b"never put"}


class TestFailingDisk:
    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
    @pytest.mark.parametrize(
        "operations",
        [
            ["create"],
            ["sync_directory"],
            ["write_at"],
            ["write_at", "truncate"],
            ["sync_data"],
            ["sync_data", "truncate"],
            ["sync_data", "sync_file"],
            ["sync_data", "sync_file", "unlink"],
            ["rename"],
            ["open_existing"],
        ],
        ids="+".join,
    )
    @pytest.mark.parametrize("is_begun", [False, True], ids=["a new pack", "a pack that has objects"])
    @pytest.mark.parametrize("has_spare", [False, True], ids=["no spare pack", "a spare pack"])
    def test_nothing_acknowledged_is_lost_and_what_follows_works(
        self, folder: Path, tmp_path: Path, operations: list[str], code: int, *, is_begun: bool, has_spare: bool
    ) -> None:
        with opened(folder) as packs:
            kept = dict(zip("ab", packs.append("a", "b", payload=OLD), strict=True))
            if has_spare:
                packs.folder.take_back(packs.use_up())
            if is_begun:
                kept |= dict(zip("cd", packs.append("c", "d"), strict=True))
            for operation in operations:
                packs.disk.fail(operation, code)
            with suppress(OSError):  # not every operation is needed in every case
                kept |= dict(zip("xy", packs.append("x", "y"), strict=True))
            packs.disk.failures.clear()
            for key in "efg":
                kept |= dict(zip(key, packs.append(key), strict=True))
            acknowledged = {key: packs.read(key, place) for key, place in kept.items()}
        for found in (contents_of(packs.disk.restore(folder, tmp_path / "left")), contents_of(folder)):
            assert {key: found.get(key) for key in acknowledged} == acknowledged
            # What cannot be taken away may be back.
            assert found == acknowledged or {"truncate", "sync_file"} & set(operations)

    @pytest.mark.parametrize(
        ("operation", "has_spare"),
        [
            ("create", False),
            ("sync_directory", False),
            ("sync_directory", True),
            ("write_at", False),
            ("write_at", True),
            ("sync_data", False),
            ("sync_data", True),
            ("open_existing", True),
            ("rename", True),
        ],
    )
    def test_a_disk_that_fails_for_long_is_not_filled_with_empty_files(
        self, folder: Path, operation: str, *, has_spare: bool
    ) -> None:
        with opened(folder) as packs:
            if has_spare:
                packs.folder.take_back(packs.use_up())
            packs.disk.fail("truncate", errno.EIO, times=30)
            for _ in range(30):
                packs.disk.fail(operation, errno.EIO)
                with suppress(OSError):  # a spare pack that failed is gone: the next is a new one
                    packs.append("a")
            assert len(packs.files()) <= 2
            packs.disk.failures.clear()
            packs.append("a")
        assert contents_of(folder) == {"a": b"payload"}

    def test_what_a_failed_write_left_of_a_record_is_not_found(self, folder: Path) -> None:
        with opened(folder) as packs:
            packs.append("a")
            packs.disk.fail("write_at", errno.ENOSPC)
            with pytest.raises(OSError, match="No space"):
                packs.append("b", "c", "d")
            packs.append("e")
            assert packs.files() == ["0000000000000000.pack"]
        assert contents_of(folder).keys() == {"a", "e"}

    @pytest.mark.parametrize("is_full", [False, True], ids=["in the same pack", "in another pack"])
    def test_what_was_acknowledged_is_not_replaced_by_a_torn_put_that_failed(
        self, folder: Path, *, is_full: bool
    ) -> None:
        """The failed put can be neither written nor cut, and its header is whole."""
        with opened(folder) as packs:
            packs.append("a", payload=OLD if is_full else b"old")
            packs.append("b")
            packs.disk.fail("write_at", errno.EIO)
            packs.disk.fail("truncate", errno.EIO)
            with pytest.raises(OSError, match="Input/output"):
                packs.append("a", payload=b"n" * 700)
            packs.append("c")
            assert packs.folder.find("a") == (OLD if is_full else b"old")
        for _ in range(2):
            assert contents_of(folder) == {"a": OLD if is_full else b"old", "b": b"payload", "c": b"payload"}

    def test_a_pack_whose_sync_failed_is_not_written_again(self, folder: Path) -> None:
        with opened(folder) as packs:
            (first,) = packs.append("a")
            packs.disk.fail("sync_data", errno.EIO)
            with pytest.raises(OSError, match="Input/output"):
                packs.append("b")
            (second,) = packs.append("c")
            assert first.pack is not second.pack
            assert packs.read("a", first) == b"payload"
        assert contents_of(folder).keys() == {"a", "c"}

    def test_a_pack_that_cannot_be_removed_is_found_by_the_next_start(self, folder: Path) -> None:
        with opened(folder) as packs:
            used = [packs.use_up() for _ in range(PACKS_SPARE_MAX + 1)]
            packs.disk.fail("unlink", errno.EIO)
            for pack in used:
                packs.folder.take_back(pack)
            assert len(packs.files()) == PACKS_SPARE_MAX + 1
        assert contents_of(folder) == {}
        assert len(list(folder.iterdir())) == PACKS_SPARE_MAX
