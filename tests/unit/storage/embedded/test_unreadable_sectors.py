"""A disk that does not give back some sectors of a pack: damage of what lies there, and of nothing else (S20)."""

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.embedded.local_files import Files
from storage.embedded.local_store import LocalStore
from storage.embedded.pack_opening import PackFiles
from storage.embedded.pack_reader import PackReader
from storage.embedded.pack_store import PackStore
from storage.embedded.packs import PackLocation, PackObject
from storage.embedded.readable_bytes import SECTOR_BYTES
from storage.object_store import ObjectDamaged
from storage.store_damage import StoreDamage
from tests.support.packs.opened_packs import OLD, Packs, opened
from tests.support.packs.simulated_disk import PackDisk

LARGE = {key: key.encode() * 10_000 for key in "abcdef"}
"""Objects of some sectors each. `SMALL` bytes fill a pack, so `a` to `c` share one, `d` has one, `e` and `f` one."""
GROUPS = ("abc", "d", "ef")


class Made:
    """Three packs, the newest with and without its end: of a broker that was stopped or killed."""

    def __init__(self, folder: Path, places: dict[str, PackLocation]) -> None:
        self.folder = folder
        self.places = places

    def path(self, key: str) -> Path:
        return self.folder / f"{self.places[key].pack.number:016x}.pack"

    def in_sector(self, path: Path, sector: int) -> set[str]:
        """The objects that have bytes in a sector."""
        first, end = sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES
        return {
            key
            for key, place in self.places.items()
            if self.path(key) == path and place.record_first < end and place.payload_first + place.payload_bytes > first
        }


@pytest.fixture(params=["stopped", "killed"])
def made(tmp_path: Path, request: pytest.FixtureRequest) -> Made:
    places: dict[str, PackLocation] = {}
    with opened(tmp_path / "packs") as packs:
        for group in GROUPS:
            found = packs.folder.append([_object(key) for key in group])
            places |= dict(zip(group, found, strict=True))
        shutil.copytree(tmp_path / "packs", tmp_path / "killed")
    return Made(tmp_path / ("killed" if request.param == "killed" else "packs"), places)


def _object(key: str) -> PackObject:
    return PackObject(key=key, parts=[LARGE[key]], modified_ms=1)


def readable(packs: Packs) -> set[str]:
    """What a start found, and gives as it was put; what it does not give is said to be damaged."""
    right: set[str] = set()
    for key, place in packs.found.items():
        try:
            assert packs.read(key, place) == LARGE[key]
            right.add(key)
        except ObjectDamaged:
            continue
    return right


def sectors(folder: Path) -> Iterator[tuple[Path, int]]:
    for path in sorted(folder.iterdir()):
        yield from ((path, sector) for sector in range(-(-path.stat().st_size // SECTOR_BYTES)))


@pytest.mark.parametrize("code", [errno.EIO, errno.EBADMSG, errno.EUCLEAN])
def test_one_sector_anywhere_costs_what_lies_in_it_and_the_file_stays(made: Made, code: int) -> None:
    content = {path: path.read_bytes() for path in made.folder.iterdir()}
    for path, sector in sectors(made.folder):
        disk = PackDisk()
        disk.spoil(path, sector * SECTOR_BYTES, code)
        with opened(made.folder, disk, nonce_first=500) as packs:
            lost = LARGE.keys() - readable(packs)
            assert lost == made.in_sector(path, sector), (path.name, sector)
            unknown = LARGE.keys() - packs.found.keys()
            assert not unknown or packs.folder.has_gaps
            is_noticed = any(damage.is_certain and damage.file == str(path) for damage in packs.damages)
            assert is_noticed or lost <= packs.found.keys(), "it is told at the start, or by the read"
        assert {each: each.read_bytes() for each in content} == content, "nothing is cut"


@pytest.mark.parametrize("key", ["b", "e", "f"])
def test_a_pack_with_a_bad_sector_is_never_used_again_nor_removed(made: Made, key: str) -> None:
    path, place = made.path(key), made.places[key]
    disk = PackDisk()
    disk.spoil(path, place.payload_first + 5_000)
    with opened(made.folder, disk, nonce_first=500) as packs:
        with pytest.raises(ObjectDamaged, match=f"^{key}: bytes .* of .*{path.name} cannot be read: Input/output"):
            packs.read(key, packs.found[key])
        with pytest.raises(ObjectDamaged, match="cannot be read"):
            packs.folder.read(key, packs.found[key], 4_000, 3_000)
        assert packs.folder.read(key, packs.found[key], 0, 100) == LARGE[key][:100]
        packs.folder.mark_dead(list(packs.found.values()))
        for pack in {found.pack.number: found.pack for found in packs.found.values()}.values():
            packs.folder.take_back(pack)
        for _ in range(5):
            packs.append("new", payload=OLD)
        assert path.exists()
    with opened(made.folder, disk, nonce_first=900) as packs:
        assert path.exists(), "nor by the next start"


def test_an_error_that_goes_away_is_no_damage(made: Made) -> None:
    disk = PackDisk()
    disk.fail("read_at", errno.EIO)
    with opened(made.folder, disk, nonce_first=500) as packs:
        assert readable(packs) == LARGE.keys()
        assert [damage for damage in packs.damages if damage.is_certain] == []
        assert not packs.folder.has_gaps


def test_a_bad_header_is_reported_by_doctor_and_what_is_behind_it_is_found(made: Made) -> None:
    disk = PackDisk()
    disk.spoil(made.path("a"), 0)
    files = PackFiles(str(made.folder), disk)
    where = f"bytes 0 to {SECTOR_BYTES} cannot be read: Input/output error"
    assert where in [damage.detail for damage in files.damages() if damage.file == str(made.path("a"))]
    for key in "bcdef":
        found = files.find(key)
        assert found is not None
    with pytest.raises(ObjectDamaged, match="not all of the packs can be read"):
        files.find("a")


def test_a_bad_payload_is_found_by_whoever_looks_for_the_object(made: Made) -> None:
    disk = PackDisk()
    disk.spoil(made.path("b"), made.places["b"].payload_first + 5_000)
    folder, reader = (
        Packs(made.folder, disk, nonce_first=500, is_durable=True).folder,
        PackReader(str(made.folder), files=disk),
    )
    folder.close()
    for key in "acdef":
        assert folder.find(key) == reader.get(key) == LARGE[key]
    for find in (folder.find, reader.get):
        with pytest.raises(ObjectDamaged, match=r"^b: bytes .* cannot be read: Input/output error"):
            find("b")
    assert reader.get_range("b", 0, 50) == LARGE["b"][:50]


@pytest.mark.parametrize("key", LARGE)
def test_a_job_reads_past_a_bad_header(made: Made, key: str) -> None:
    disk = PackDisk()
    disk.spoil(made.path(key), made.places[key].record_first)
    reader = PackReader(str(made.folder), files=disk)
    hit = made.in_sector(made.path(key), made.places[key].record_first // SECTOR_BYTES)
    for each, content in LARGE.items():
        if each in hit:
            with pytest.raises(ObjectDamaged):
                reader.get(each)
        else:
            assert reader.get(each) == content


async def test_while_it_runs_a_bad_sector_is_damage_that_is_told_and_no_outage(tmp_path: Path) -> None:
    disk, damages = PackDisk(), list[StoreDamage]()
    store = PackStore(
        tmp_path / "packs",
        now_ms=lambda: 1,
        new_nonce=lambda: bytes(16),
        files=disk,
        on_damage=damages.append,
        pack_bytes_target=1_000,
    )
    for key, content in LARGE.items():
        await store.put(key, [content])
    (path,) = [path for path in (tmp_path / "packs").iterdir() if LARGE["c"][:20] in path.read_bytes()]
    disk.spoil(path, 2 * SECTOR_BYTES)
    with pytest.raises(ObjectDamaged, match=r"^c: bytes 8192 to 10144 of .* cannot be read: Input/output error"):
        await store.get("c")
    assert [(damage.file, damage.key, damage.is_certain) for damage in damages] == [(str(path), "c", True)]
    assert await store.get("d") == LARGE["d"]
    await store.delete(list(LARGE))
    for number in range(20):
        await store.put(f"new/{number}", [OLD])
    await store.close()
    assert path.exists(), "its sectors are not written again"


async def test_no_record_follows_in_a_pack_whose_sector_was_found_bad(tmp_path: Path) -> None:
    """It is the newest, and below its target: the disk may lose what is written there, too."""
    disk = PackDisk()
    store = PackStore(tmp_path / "packs", now_ms=lambda: 1, new_nonce=lambda: bytes(16), files=disk)
    await store.put("a", [LARGE["a"]])
    await store.put("b", [LARGE["b"]])
    (path,) = (tmp_path / "packs").iterdir()
    disk.spoil(path, SECTOR_BYTES)
    with pytest.raises(ObjectDamaged, match="cannot be read: Input/output error"):
        await store.get("a")
    before = path.read_bytes()
    await store.put("c", [LARGE["c"]])
    await store.put("d", [LARGE["d"]])
    assert LARGE["c"] not in path.read_bytes()
    assert path.read_bytes().startswith(before), "nothing in front of its end has changed"
    assert len(list((tmp_path / "packs").iterdir())) == 2, "one other pack takes what follows"
    assert [await store.get(key) for key in "bcd"] == [LARGE[key] for key in "bcd"]
    await store.close()


class BadFiles(Files):
    """Every file has a bad sector."""

    def read(self, path: str) -> bytes:
        raise OSError(errno.EIO, "Input/output error", path)

    def read_at(self, descriptor: int, byte_count: int, position: int) -> bytes:
        raise OSError(errno.EUCLEAN, "Structure needs cleaning")


async def test_a_file_of_the_local_store_that_the_disk_does_not_give_back_is_damaged(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, files=BadFiles())
    await store.put("lake/file", [b"content"])
    with pytest.raises(ObjectDamaged, match="lake/file: the disk does not give back its bytes: Input/output error"):
        await store.get("lake/file")
    with pytest.raises(ObjectDamaged, match="lake/file: the disk does not give back its bytes: Structure needs"):
        await store.get_range("lake/file", 1, 2)
    await store.close()
