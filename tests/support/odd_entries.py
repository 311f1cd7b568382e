"""Entries that no put makes, for every folder of an embedded store (safety rule S20: one of them holds up no other)."""

import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import chdir
from pathlib import Path

from storage.memory_store import MemoryStore
from storage.object_store import ObjectDamaged, ObjectMeta, ObjectMissing

NO_KEY = b"\xff\xfe"
"""A file's name that is no UTF-8."""


def _text(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"Bud1")


def _bytes_name(folder: Path, name: str) -> None:
    Path(os.fsdecode(os.fsencode(folder / name) + NO_KEY)).write_bytes(b"x")


def _line_name(folder: Path, name: str) -> None:
    (folder / f"{name}\nline").write_bytes(b"x")


def _fifo(folder: Path, name: str) -> None:
    os.mkfifo(folder / name)


def _socket(folder: Path, name: str) -> None:
    with chdir(folder), socket.socket(socket.AF_UNIX) as bound:  # the whole path is too long for an address
        bound.bind(name)


def _folder(folder: Path, name: str) -> None:
    (folder / name).mkdir()
    (folder / name / "within").write_bytes(b"x")


def _endless(folder: Path, name: str) -> None:
    """A link that `stat` answers with an error (ELOOP), as it does for an inode that the disk does not give back."""
    (folder / name).symlink_to(name)


def _loop(folder: Path, name: str) -> None:
    (folder / name).symlink_to(".")


def _dangling(folder: Path, name: str) -> None:
    (folder / name).symlink_to("gone")


ODD: Mapping[str, Callable[[Path, str], None]] = {
    "file": _text,
    "bytes": _bytes_name,
    "line": _line_name,
    "fifo": _fifo,
    "socket": _socket,
    "folder": _folder,
    "endless": _endless,
    "loop": _loop,
    "dangling": _dangling,
}
"""How each is made: the folder that gets it, and its name."""


def make_all(folder: Path, stem: str = ".odd-") -> None:
    """One of each kind in a folder. `stem` begins the names: it may sort before others, or behind them."""
    for kind, make in ODD.items():
        make(folder, stem + kind)


class OddStore(MemoryStore):
    """A store of which some entries cannot be looked at: `faults`, by name. A name that ends with `/` is a folder that
    cannot be listed; what is below such a name can be had by its key where `is_readable_behind`, as behind a link."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: dict[str, str] = {}
        self.is_readable_behind = False

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        """Objects, and the faults in their order."""
        found = {meta.key: meta async for meta in super().list(prefix, after=after) if not self._fault(meta.key)}
        for name, fault in self.faults.items():
            if name.startswith(prefix) and name > after:
                found[name] = ObjectMeta(key=name, size_bytes=0, modified_ms=0, fault=fault)
        for _, meta in sorted(found.items()):
            yield meta

    async def get(self, key: str) -> bytes:
        self._check(key)
        return await super().get(key)

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        self._check(key)
        return await super().get_range(key, byte_first, byte_count)

    async def head(self, key: str) -> ObjectMeta:
        self._check(key)
        return await super().head(key)

    def _fault(self, key: str) -> str:
        names = (name for name in self.faults if key == name or key.startswith(f"{name.removesuffix('/')}/"))
        return next((self.faults[name] for name in names), "")

    def _check(self, key: str) -> None:
        fault = self._fault(key)
        if fault.startswith("a link that leads nowhere"):
            raise ObjectMissing(f"{key} does not exist")
        if fault and not self.is_readable_behind:
            raise ObjectDamaged(f"{key}: {fault}")
