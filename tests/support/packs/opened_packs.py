"""Packs of a folder, opened for a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from storage.embedded.packs import Pack, PackFolder, PackLocation, PackObject
from storage.store_damage import StoreDamage
from tests.support.packs.simulated_disk import PackDisk

SMALL = 1_000
"""Bytes after which a pack is followed by another, here."""
OLD = b"o" * 3_000


class Packs:
    """A folder that is open."""

    def __init__(
        self, folder: Path, disk: PackDisk, *, nonce_first: int, is_durable: bool, nonce_step: int = 1
    ) -> None:
        nonces = count(nonce_first, nonce_step)
        self.disk = disk
        self.path = folder
        self.damages: list[StoreDamage] = []
        self.folder = PackFolder(
            str(folder),
            new_nonce=lambda: next(nonces).to_bytes(16, "big"),
            is_durable=is_durable,
            files=disk,
            pack_bytes_target=SMALL,
            on_damage=self.damages.append,
        )
        self.found = self.folder.open()

    def append(self, *keys: str, payload: bytes = b"payload") -> list[PackLocation]:
        return self.folder.append([PackObject(key=key, parts=[payload], modified_ms=1) for key in keys])

    def read(self, key: str, place: PackLocation) -> bytes:
        return self.folder.read(key, place, 0, place.payload_bytes)

    def contents(self) -> dict[str, bytes]:
        """What the start has found."""
        return {key: self.read(key, place) for key, place in self.found.items()}

    def use_up(self) -> Pack:
        """Fill a pack with one object, which is deleted; the next append begins another."""
        (place,) = self.append("old", payload=OLD)
        self.folder.mark_dead([place])
        return place.pack

    def last_file(self) -> Path:
        return self.path / self.files()[-1]

    def files(self) -> list[str]:
        return sorted(path.name for path in self.path.iterdir())


@contextmanager
def opened(
    folder: Path, disk: PackDisk | None = None, *, nonce_first: int = 1, is_durable: bool = True, nonce_step: int = 1
) -> Iterator[Packs]:
    disk = PackDisk() if disk is None else disk
    folder.mkdir(exist_ok=True)
    disk.sync_directory(str(folder.parent))
    packs = Packs(folder, disk, nonce_first=nonce_first, is_durable=is_durable, nonce_step=nonce_step)
    try:
        yield packs
    finally:
        packs.folder.close()
        assert disk.open == set(), "descriptors are left"
