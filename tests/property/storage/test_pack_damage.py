"""Any bit of any pack, after a clean stop or a kill: one object at most is lost, and not in silence (safety rule S20).

Rule: `acknowledged` says what each key must hold. A bit that changed may make an object of these damaged, or, where a
killed process had written nothing after it, cut it off as torn; then the start has said so.
"""

import asyncio
import shutil
import tempfile
from itertools import count
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.embedded.pack_store import PackStore
from storage.object_store import ObjectDamaged, ObjectMissing
from storage.store_damage import StoreDamage
from tests.support.packs.simulated_disk import PackDisk

PACK_BYTES = 600
groups = st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=3), min_size=1, max_size=6)


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.nonces = count(1)
        self.damages: list[StoreDamage] = []

    def open(self) -> PackStore:
        self.damages.clear()
        return PackStore(
            self.path,
            now_ms=lambda: 0,
            new_nonce=lambda: (next(self.nonces) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128)).to_bytes(16, "big"),
            files=PackDisk(),
            pack_bytes_target=PACK_BYTES,
            on_damage=self.damages.append,
        )

    async def write(self, sizes: list[list[int]], deleted: set[int]) -> dict[str, bytes]:
        """What is acknowledged afterwards. The copy that a kill leaves is beside the folder."""
        store = self.open()
        acknowledged: dict[str, bytes] = {}
        serial = count()
        for group in sizes:
            keys = [f"intake/{next(serial)}" for _ in group]
            payloads = [f"{key} ".encode().ljust(size, b".") for key, size in zip(keys, group, strict=True)]
            await asyncio.gather(*(store.put(key, [payload]) for key, payload in zip(keys, payloads, strict=True)))
            acknowledged |= dict(zip(keys, payloads, strict=True))
            gone = [key for number, key in enumerate(acknowledged) if number in deleted]
            await store.delete(gone)
        shutil.copytree(self.path, self.path.with_name("killed"))
        await store.close()
        return {key: payload for number, (key, payload) in enumerate(acknowledged.items()) if number not in deleted}

    async def lost(self, acknowledged: dict[str, bytes]) -> tuple[set[str], set[str]]:
        """Which objects are damaged, and which are missing, after a start; nothing else is given instead."""
        store = self.open()
        damaged, missing = set[str](), set[str]()
        for key, payload in acknowledged.items():
            try:
                assert await store.get(key) == payload
            except ObjectDamaged:
                damaged.add(key)
            except ObjectMissing:
                missing.add(key)
        await store.put("intake/later", [b"later"])
        assert await store.get("intake/later") == b"later"
        await store.close()
        return damaged, missing


@settings(max_examples=100)
@given(
    sizes=groups,
    deleted=st.sets(st.integers(0, 8)),
    is_killed=st.booleans(),
    place=st.floats(0, 1),
    bit=st.integers(0, 7),
)
def test_one_bit_costs_one_object_and_is_reported(
    sizes: list[list[int]], deleted: set[int], is_killed: bool, place: float, bit: int
) -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = Folder(Path(root) / "packs")
        acknowledged = asyncio.run(folder.write(sizes, deleted))
        if is_killed:
            folder.path = folder.path.with_name("killed")
        files = sorted(folder.path.iterdir())
        at = int(place * sum(file.stat().st_size for file in files))
        for file in files:
            content = bytearray(file.read_bytes())
            if at < len(content):
                content[at] ^= 1 << bit
                file.write_bytes(content)
                break
            at -= len(content)
        for _ in range(3):
            damaged, missing = asyncio.run(folder.lost(acknowledged))
            reports = list(folder.damages)
            assert len(damaged | missing) <= 1
            assert not missing or is_killed, "after a clean stop nothing is missing: it is damaged"
            if damaged:
                assert reports
            if missing:
                assert any(not report.is_certain for report in reports)
                break  # it was cut, and the next start knows nothing of it


@settings(max_examples=100)
@given(
    sizes=groups,
    deleted=st.sets(st.integers(0, 18)),
    is_killed=st.booleans(),
    order=st.permutations(range(24)),
    starts=st.integers(1, 3),
)
def test_wrong_names_of_files_cost_nothing_and_right_ones_end_it(
    sizes: list[list[int]], deleted: set[int], is_killed: bool, order: list[int], starts: int
) -> None:
    """Files get names of each other, and such that no file had."""
    with tempfile.TemporaryDirectory() as root:
        folder = Folder(Path(root) / "packs")
        acknowledged = asyncio.run(folder.write(sizes, deleted))
        if is_killed:
            folder.path = folder.path.with_name("killed")
        right = sorted(file.name for file in folder.path.iterdir())
        pool = [*right, *(f"{0x500 + number:016x}.pack" for number in range(24 - len(right)))]
        wrong = dict(zip(right, (pool[place] for place in order if place < len(right) + 2), strict=False))
        rename(folder.path, wrong)
        for _ in range(starts):
            assert asyncio.run(folder.lost(acknowledged)) == (set(), set())
        kept = {new: old for old, new in wrong.items() if (folder.path / new).exists()}
        rename(folder.path, kept)
        assert asyncio.run(folder.lost(acknowledged)) == (set(), set())
        assert not [damage for damage in folder.damages if damage.is_certain]


def rename(folder: Path, names: dict[str, str]) -> None:
    for old in names:
        (folder / old).rename(folder / f"{old}~")
    for old, new in names.items():
        (folder / f"{old}~").rename(folder / new)
