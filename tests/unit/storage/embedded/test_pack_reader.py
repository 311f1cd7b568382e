"""A job reads packs while their owner writes them."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest

from storage.embedded.pack_reader import PackReader
from storage.object_store import ObjectDamaged, ObjectMissing, StoreUnavailable
from tests.support.packs.pack_files import plant_object
from tests.support.packs.pack_stores import FULL, opened
from tests.support.packs.simulated_disk import PackDisk


def reader_of(folder: Path, disk: PackDisk | None = None) -> PackReader:
    return PackReader(str(folder), files=disk)


async def test_what_was_put_is_found_before_and_after_more_is_put(tmp_path: Path) -> None:
    folder, disk = tmp_path / "packs", PackDisk()
    reader = reader_of(folder, disk)
    with pytest.raises(ObjectMissing):
        reader.get("a")
    async with opened(folder) as store:
        for number in range(20):
            await store.put(f"key/{number}", [b"%d-" % number, FULL])
            assert reader.get(f"key/{number}") == b"%d-" % number + FULL
        for number in range(20):
            assert reader.get_range(f"key/{number}", 0, 3) == (b"%d-" % number + FULL)[:3]
        with pytest.raises(ObjectMissing):
            reader.get("key/20")
    assert reader.get("key/7") == b"7-" + FULL
    assert disk.open == set()


async def test_what_is_known_is_read_without_another_look(tmp_path: Path) -> None:
    disk = PackDisk()
    reader = reader_of(tmp_path / "packs", disk)
    async with opened(tmp_path / "packs") as store:
        for number in range(10):
            await store.put(f"key/{number}", [FULL])
        reader.get("key/9")
        disk.calls.clear()
        for number in range(10):
            reader.get(f"key/{number}")
    assert disk.calls["open_existing"] == 10


async def test_what_was_deleted_is_missing_and_a_file_that_was_taken_back_gives_nothing_else(tmp_path: Path) -> None:
    reader = reader_of(tmp_path / "packs")
    async with opened(tmp_path / "packs") as store:
        for number in range(6):
            await store.put(f"key/{number}", [b"%d" % number, FULL])
            reader.get(f"key/{number}")
        await store.delete([f"key/{number}" for number in range(5)])
        for number in range(10, 30):  # in the files of the spare packs
            await store.put(f"key/{number}", [b"%d" % number, FULL])
            assert reader.get(f"key/{number}") == b"%d" % number + FULL
        for number in range(5):
            with pytest.raises(ObjectMissing):
                reader.get(f"key/{number}")
        assert reader.get("key/5") == b"5" + FULL


async def test_of_two_objects_under_one_key_the_later_whole_one_counts(tmp_path: Path) -> None:
    reader = reader_of(tmp_path / "packs")
    async with opened(tmp_path / "packs") as store:
        await store.put("a", [b"first"])
        await store.put("a", [b"second"])
        assert reader.get("a") == b"second"


async def test_a_torn_object_does_not_take_the_place_of_a_whole_one(tmp_path: Path) -> None:
    folder = tmp_path / ".packs"
    async with opened(folder) as store:
        await store.put("a", [b"whole"])
    plant_object(tmp_path, "a", b"torn")
    (newest,) = (path for path in folder.iterdir() if b"torn" in path.read_bytes())
    newest.write_bytes(newest.read_bytes().replace(b"torn", b"to\0\0"))
    assert reader_of(folder).get("a") == b"whole"


async def test_a_range_beyond_the_object_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path / "packs") as store:
        await store.put("a", [b"abc"])
        for byte_first, byte_count in ((1, 3), (5, 1)):
            with pytest.raises(ObjectDamaged, match="it was cut"):
                reader_of(tmp_path / "packs").get_range("a", byte_first, byte_count)


@pytest.mark.parametrize("operation", ["write_at", "sync_data"])
async def test_an_append_that_failed_and_was_cut_off_is_not_read_for_what_took_its_place(
    tmp_path: Path, operation: str
) -> None:
    disk = PackDisk()
    reader = reader_of(tmp_path / "packs")
    async with opened(tmp_path / "packs", disk) as store:
        await store.put("a", [b"1"])
        # Written and then cut off, as by a full disk: the reader has seen it meanwhile.
        disk.before["truncate"] = lambda: _seen(reader)
        disk.fail(operation, errno.EIO)
        with pytest.raises(StoreUnavailable):
            await store.put("b", [b"x" * 100])
        await store.put("b", [b"other", FULL])
        assert reader.get("b") == b"other" + FULL
        assert reader.get("a") == b"1"


def _seen(reader: PackReader) -> None:
    with suppress(ObjectDamaged):  # torn
        assert reader.get("b") == b"x" * 100


async def test_a_folder_that_begins_again_has_other_packs_under_the_same_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "packs"
    reader = reader_of(folder)
    async with opened(folder) as store:
        await store.put("a", [b"1"])
    assert reader.get("a") == b"1"
    for pack in folder.iterdir():
        pack.unlink()
    async with opened(folder) as store:
        await store.put("b", [b"22"])
        assert reader.get("b") == b"22"
        with pytest.raises(ObjectMissing):
            reader.get("a")


@pytest.mark.parametrize("known", [False, True])
async def test_a_file_that_cannot_be_opened_once_says_nothing_of_an_object(tmp_path: Path, *, known: bool) -> None:
    disk = PackDisk()
    reader = reader_of(tmp_path / "packs", disk)
    async with opened(tmp_path / "packs") as store:
        await store.put("a", [b"1"])
        if known:
            reader.get("a")
        disk.fail("open_existing", errno.EIO)
        with pytest.raises(StoreUnavailable, match="a: Input/output error"):
            reader.get("a")
        assert reader.get("a") == b"1"


async def test_a_folder_that_cannot_be_listed_once_says_nothing_of_an_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: str) -> list[str]:
        raise OSError(errno.EIO, "Input/output error")

    reader = reader_of(tmp_path / "packs")
    async with opened(tmp_path / "packs") as store:
        await store.put("a", [b"1"])
        with monkeypatch.context() as patched:
            patched.setattr(os, "scandir", failing)
            with pytest.raises(StoreUnavailable, match="a: Input/output error"):
                reader.get("a")
            with pytest.raises(StoreUnavailable, match="a: Input/output error"):
                reader.get_range("a", 0, 1)
        assert reader.get("a") == b"1"


class TestDamage:
    """The agent that has the packs open has not met it yet."""

    async def folder_of_three(self, tmp_path: Path) -> tuple[Path, bytes]:
        folder = tmp_path / "packs"
        async with opened(folder) as store:
            for key in "abc":
                await store.put(key, [key.encode() * 100])
        (pack,) = folder.iterdir()
        return pack, pack.read_bytes()

    async def test_what_lies_behind_an_unreadable_header_is_found_and_what_it_was_of_is_damaged(
        self, tmp_path: Path
    ) -> None:
        pack, content = await self.folder_of_three(tmp_path)
        header_first = content.index(b"b" * 100) - 49
        pack.write_bytes(content[:header_first] + b"\xff" * 8 + content[header_first + 8 :])
        reader = reader_of(tmp_path / "packs")
        assert reader.get("c") == b"c" * 100
        assert reader.get("a") == b"a" * 100
        with pytest.raises(ObjectDamaged, match="b is in no pack"):
            reader.get("b")

    async def test_a_wrong_byte_is_an_error(self, tmp_path: Path) -> None:
        pack, content = await self.folder_of_three(tmp_path)
        pack.write_bytes(content.replace(b"bbb", b"bab"))
        reader = reader_of(tmp_path / "packs")
        with pytest.raises(ObjectDamaged, match="checksum"):
            reader.get("b")
        assert reader.get("c") == b"c" * 100

    async def test_a_pack_whose_own_header_is_unreadable_is_read(self, tmp_path: Path) -> None:
        pack, content = await self.folder_of_three(tmp_path)
        pack.write_bytes(b"?" + content[1:])
        assert reader_of(tmp_path / "packs").get("b") == b"b" * 100
