"""Packs whose files somebody has renamed, swapped, copied or moved away while the broker was stopped (safety rule S20).

Rule: nothing is lost, everything that is there is served, what is wrong is reported, and right names end it.
"""

import errno
import shutil
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path

import pytest

from storage.embedded.pack_format import PACK_HEADER_BYTES, RECORD_HEADER_BYTES
from storage.embedded.pack_reader import PackReader
from storage.embedded.packs import PackObject
from storage.object_store import ObjectDamaged, ObjectMissing
from tests.support.packs.opened_packs import OLD, opened

FIRST, SECOND, THIRD, FOURTH = (f"{count:08x}00000000.pack" for count in range(4))
OTHER = "0000000700000000.pack"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "packs"


def payload(key: str) -> bytes:
    return key.encode() * 1_500


def written(folder: Path, *, is_killed: bool) -> Mapping[str, bytes]:
    """Three packs with an object each, and a deleted one in the second."""
    with opened(folder) as packs:
        packs.append("a", payload=payload("a"))
        (deleted, _) = packs.append("old", "b", payload=payload("b"))
        packs.folder.mark_dead([deleted])
        packs.append("c", payload=payload("c"))
        left = shutil.copytree(folder, folder.with_name("killed"))
    if is_killed:
        shutil.rmtree(folder)
        left.rename(folder)
    assert sorted(file.name for file in folder.iterdir()) == [FIRST, SECOND, THIRD]
    return {key: payload(key) for key in "abc"}


def renamed(folder: Path, names: Mapping[str, str]) -> None:
    for old in names:
        (folder / old).rename(folder / f"{old}~")
    for old, new in names.items():
        (folder / f"{old}~").rename(folder / new)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


NAMES = [
    *(dict(zip((FIRST, SECOND, THIRD), names, strict=True)) for names in permutations((FIRST, SECOND, THIRD))),
    *({name: new} for name in (FIRST, SECOND, THIRD) for new in (OTHER, "ffffffffffffffff.pack", FOURTH)),
]
NAMES = [names for names in NAMES if any(old != new for old, new in names.items())]


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("names", NAMES, ids=str)
class TestRenamed:
    def test_every_object_is_served_nothing_is_cut_and_it_is_reported(
        self, folder: Path, names: Mapping[str, str], *, is_killed: bool
    ) -> None:
        objects = written(folder, is_killed=is_killed)
        before = contents(folder)
        renamed(folder, names)
        wrong = {str(folder / new) for old, new in names.items() if old != new}
        for start in range(2):
            with opened(folder, nonce_first=50 + 50 * start) as packs:
                assert {key: found for key, found in packs.contents().items() if "new" not in key} == objects
                assert {damage.file for damage in packs.damages if damage.is_certain} >= wrong
                assert all("by its header" in damage.detail for damage in packs.damages if damage.file in wrong)
                assert packs.folder.find("b") == objects["b"]
                packs.folder.mark_dead([place for key, place in packs.found.items() if "new" in key])
                for count in range(6):
                    packs.append(f"new{count}", payload=OLD)
        renamed(folder, {new: old for old, new in names.items()})
        assert {name: content for name, content in contents(folder).items() if name in before} == before
        with opened(folder, nonce_first=900) as packs:
            assert packs.damages == []
            assert {key: value for key, value in packs.contents().items() if key in objects} == objects

    def test_readers_beside_the_broker_find_them(
        self, folder: Path, names: Mapping[str, str], *, is_killed: bool
    ) -> None:
        objects = written(folder, is_killed=is_killed)
        renamed(folder, names)
        reader = PackReader(str(folder))
        assert {key: reader.get(key) for key in objects} == objects


class TestSpares:
    def test_a_pack_under_the_name_of_a_spare_one_is_not_used_again(self, folder: Path) -> None:
        with opened(folder) as packs:
            packs.use_up()
            packs.append("a", payload=OLD)
            packs.append("b")
        renamed(folder, {FIRST: SECOND, SECOND: FIRST})
        with opened(folder, nonce_first=50) as packs:
            assert packs.contents() == {"a": OLD, "b": b"payload"}
            assert [damage.file for damage in packs.damages] == [str(folder / FIRST)]
            for count in range(6):
                packs.append(f"new{count}", payload=OLD)
            assert packs.disk.calls["rename"] == 1, "of the one whose objects are all deleted"
            assert packs.read("a", packs.found["a"]) == OLD

    def test_a_spare_pack_under_another_name_is_used_again_without_a_word(self, folder: Path) -> None:
        with opened(folder) as packs:
            packs.use_up()
        renamed(folder, {FIRST: OTHER})
        with opened(folder, nonce_first=50) as packs:
            packs.append("a")
            assert (packs.damages, packs.folder.has_gaps, len(packs.files())) == ([], False, 1)

    def test_a_renamed_pack_with_nothing_but_a_damaged_object_is_kept(self, folder: Path) -> None:
        with opened(folder) as packs:
            (deleted, damaged) = packs.append("a", "b")
            packs.folder.mark_dead([deleted])
        content = bytearray((folder / FIRST).read_bytes())
        content[damaged.record_first + 30] ^= 1
        (folder / FIRST).unlink()
        (folder / OTHER).write_bytes(content)
        for start in range(2):
            with opened(folder, nonce_first=50 + start) as packs:
                assert {damage.file for damage in packs.damages} == {str(folder / OTHER)}
                assert packs.folder.has_gaps
                packs.append("c")
        assert (folder / OTHER).read_bytes() == content


class TestTornReuse:
    """A spare file under its next name, whose first write a loss of power has torn: nothing in it was acknowledged."""

    STEP = 0x1B2C3D4_95A6B7C8_0D1E2F3A_4B5C6D7E
    """Between nonces, so that those of two packs differ in half of their bits, as random ones do."""

    def torn(self, folder: Path, edge: int, begin: int, *, new_count: int, live: int | None = None) -> Path:
        """What lies before `edge` is of the earlier use, with a record's header at `begin`; the rest was written."""
        with opened(folder, nonce_first=self.STEP, nonce_step=self.STEP) as packs:
            first_bytes = begin - PACK_HEADER_BYTES - RECORD_HEADER_BYTES - len("old0")
            payloads = (b"o" * first_bytes, b"o" * 100, b"o" * 9_000)
            old = [PackObject(key=f"old{at}", parts=[payload], modified_ms=1) for at, payload in enumerate(payloads)]
            places = packs.folder.append(old)
            packs.folder.mark_dead([place for at, place in enumerate(places) if at != live])
            assert places[1].record_first == begin
            packs.folder.end_pack(places[0].pack)
            before = packs.last_file().read_bytes()
            packs.folder.take_back(places[0].pack)
            packs.append(*(f"new{at}" for at in range(new_count)), payload=b"n" * (2 * edge + 8))
            (file,) = folder.iterdir()
            assert packs.disk.calls["rename"] == 1
            after = file.read_bytes()  # of a process that is killed
        file.write_bytes(before[:edge] + after[edge:])
        return file

    @pytest.mark.parametrize("edge", [512, 1_024, 1_536, 4_096, 8_192, 12_288])
    @pytest.mark.parametrize("in_header", range(8, 64, 8))
    def test_it_was_never_begun_and_its_file_is_used_again(self, folder: Path, edge: int, in_header: int) -> None:
        self.torn(folder, edge, edge - in_header, new_count=3)
        reader = PackReader(str(folder))
        for key in ("old1", "new0", "new2"):
            with pytest.raises(ObjectMissing):
                reader.get(key)
        with opened(folder, nonce_first=self.STEP * 9, nonce_step=self.STEP) as packs:
            assert (packs.found, packs.damages, packs.folder.has_gaps) == ({}, [], False)
            packs.append("next")
            assert len(packs.files()) == 1

    @pytest.mark.parametrize("edge", [512, 4_096])
    def test_so_it_is_without_a_record_of_its_own_where_the_earlier_one_says_it_is_deleted(
        self, folder: Path, edge: int
    ) -> None:
        self.torn(folder, edge, edge - RECORD_HEADER_BYTES, new_count=1)
        with opened(folder, nonce_first=self.STEP * 9, nonce_step=self.STEP) as packs:
            assert (packs.found, packs.damages, packs.folder.has_gaps) == ({}, [], False)

    def test_a_record_that_is_live_keeps_its_file(self, folder: Path) -> None:
        file = self.torn(folder, 1_024, 1_000, new_count=3, live=0)
        content = file.read_bytes()
        with opened(folder, nonce_first=self.STEP * 9, nonce_step=self.STEP) as packs:
            assert packs.found.keys() == {"old0"}
            assert {damage.file for damage in packs.damages} == {str(file)}
            packs.append("next")
        assert file.read_bytes() == content

    def test_what_an_earlier_use_has_left_is_no_next_use(self, folder: Path) -> None:
        """A damaged object in a pack that somebody has renamed, with records of a third pack behind its own."""
        with opened(folder, nonce_first=self.STEP, nonce_step=self.STEP) as packs:
            places = packs.append("old0", "old1", "old2", payload=OLD)
            packs.folder.mark_dead(places)
            packs.folder.end_pack(places[0].pack)
            packs.folder.take_back(places[0].pack)
            (damaged,) = packs.append("a")
            (file,) = folder.iterdir()
            content = bytearray(file.read_bytes())
        content[damaged.record_first + 30] ^= 1
        file.unlink()
        (folder / OTHER).write_bytes(content)
        with opened(folder, nonce_first=self.STEP * 9, nonce_step=self.STEP) as packs:
            assert {damage.file for damage in packs.damages} == {str(folder / OTHER)}
            assert packs.folder.has_gaps
            packs.append("next")
        assert (folder / OTHER).read_bytes() == content


class TestCopies:
    @pytest.mark.parametrize("copied", [FIRST, SECOND, THIRD])
    @pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
    def test_a_copy_replaces_nothing(self, folder: Path, copied: str, *, is_killed: bool) -> None:
        objects = written(folder, is_killed=is_killed)
        before = contents(folder)
        shutil.copy(folder / copied, folder / OTHER)
        with opened(folder, nonce_first=50) as packs:
            assert packs.contents() == objects
            assert {place.pack.number for place in packs.found.values()} == {0, 1 << 32, 2 << 32}
            assert {damage.file for damage in packs.damages if damage.is_certain} == {str(folder / OTHER)}
        assert (folder / OTHER).read_bytes() == before[copied]
        (folder / OTHER).unlink()
        with opened(folder, nonce_first=60) as packs:
            assert (packs.contents(), packs.damages) == (objects, [])

    def test_an_older_object_is_not_marked_on_the_word_of_a_wrong_name(self, folder: Path) -> None:
        with opened(folder) as packs:
            packs.append("a", payload=b"1" * 1_500)
            packs.append("a", payload=b"2" * 1_500)
        before = (folder / FIRST).read_bytes()
        renamed(folder, {SECOND: OTHER})
        with opened(folder, nonce_first=50) as packs:
            assert packs.contents() == {"a": b"2" * 1_500}
            packs.append("b")
            assert (folder / FIRST).read_bytes() == before


class TestMovedAway:
    @pytest.mark.parametrize("moved", [{THIRD}, {SECOND, THIRD}, {FIRST, SECOND, THIRD}], ids=["newest", "two", "all"])
    def test_a_number_is_not_used_twice(self, folder: Path, tmp_path: Path, moved: set[str]) -> None:
        """The lower half of a number is random, so that even who begins with nothing finds another one."""
        objects = dict(written(folder, is_killed=False))
        for name in moved:
            shutil.move(folder / name, tmp_path / name)
        with opened(folder, nonce_first=5 << 96) as packs:
            for key in "def":
                packs.append(key, payload=payload(key))
                objects[key] = payload(key)
            assert not moved & set(packs.files())
        for name in moved:
            shutil.move(tmp_path / name, folder / name)
        with opened(folder, nonce_first=7 << 96) as packs:
            assert (packs.contents(), packs.damages) == (objects, [])

    def test_what_is_put_there_meanwhile_is_not_overwritten(self, folder: Path) -> None:
        with opened(folder) as packs:
            packs.append("a", payload=OLD)
            packs.folder.take_back(packs.use_up())
            (folder / THIRD).write_bytes(b"moved back")
            packs.append("b", payload=OLD)
            assert (folder / THIRD).read_bytes() == b"moved back"
            assert FOURTH in packs.files()


class TestWhileItRuns:
    def test_nothing_is_marked_or_taken_back_in_a_file_that_is_another_packs(self, folder: Path) -> None:
        with opened(folder) as packs:
            (a,) = packs.append("a", payload=OLD)
            (b,) = packs.append("b", payload=OLD[1:])
            packs.append("c")
            renamed(folder, {FIRST: SECOND, SECOND: FIRST})
            before = contents(folder)
            with pytest.raises(FileNotFoundError) as raised:
                packs.folder.mark_dead([a])
            assert raised.value.errno == errno.ENOENT
            packs.folder.take_back(a.pack)
            assert contents(folder) == before
            with pytest.raises(ObjectDamaged, match="it was renamed"):
                packs.read("a", a)
            renamed(folder, {FIRST: SECOND, SECOND: FIRST})
            assert (packs.read("a", a), packs.read("b", b)) == (OLD, OLD[1:])
