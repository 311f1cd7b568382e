"""Journals of a folder, opened for a test."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from storage.embedded.journal.format import RECORDS_FIRST
from storage.embedded.journal.journal import Journal
from storage.embedded.journal.records import JournalEntry, JournalFile, RecordLocation, Written
from storage.object_store import ObjectDamaged, ObjectToPut
from storage.store_damage import StoreDamage
from tests.support.packs.simulated_disk import PackDisk

FILE_BYTES = RECORDS_FIRST + 1_000
"""Bytes after which a file is followed by another, here."""
STEP_BYTES = 4_608
"""Blocks for the beginning of a file, and for 448 bytes of records."""


def nonces(first: int) -> Callable[[], bytes]:
    """Nonces that differ in many bits, from the `first` on."""
    numbers = count(first)
    return lambda: (next(numbers) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128)).to_bytes(16, "big")


class Killed(BaseException):
    """The process was killed."""


def kill() -> None:
    raise Killed


class JournalUser:
    """A journal that is open, and its owner: it needs the entries above `released`, and its state is a number."""

    def __init__(
        self,
        folder: Path,
        disk: PackDisk,
        *,
        nonce_first: int,
        is_durable: bool = True,
        released_write: int = -1,
        state: bytes = b"",
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self.disk = disk
        self.folder = folder
        self.damages: list[StoreDamage] = []
        self.removed: list[str] = []
        self.state = state
        self.journal = Journal(
            str(folder),
            new_nonce=nonces(nonce_first),
            is_durable=is_durable,
            files=disk,
            file_bytes_target=file_bytes,
            allocated_bytes_step=STEP_BYTES,
            on_damage=self.damages.append,
            on_removed=self.removed.append,
        )
        try:
            self.content = self.journal.open()
            self.journal.settle(self.content, released_write=released_write, current_state=lambda: self.state)
        except BaseException:
            self.journal.close()
            raise

    def append(
        self, *keys: str, payload: bytes = b"payload", entry: bytes | None = None, state: bytes | None = None
    ) -> Written:
        objects = [ObjectToPut(key=key, parts=[payload], modified_ms=1) for key in keys]
        entries = () if entry is None else (JournalEntry(parts=[entry], stamp=7),)
        written = self.journal.append(objects, entries=entries, state=state)
        self.state = self.state if state is None else state
        return written

    def read(self, key: str, location: RecordLocation) -> bytes:
        return self.journal.records.read(key, location, 0, location.payload_bytes)

    def objects(self) -> dict[str, bytes]:
        """The objects that the start has found."""
        return {key: self.read(key, location) for key, location in self.content.objects.items()}

    def entries(self) -> list[bytes]:
        """The entries that the start has found."""
        return list(self.journal.records.payloads(self.content.entries))

    def readable_entries(self) -> list[bytes]:
        """The entries that the start has found, with `damaged` where one cannot be read."""
        entries: list[bytes] = []
        for location in self.content.entries:
            try:
                entries += self.journal.records.payloads([location])
            except ObjectDamaged:
                entries.append(b"damaged")
        return entries

    def states(self) -> list[bytes]:
        return list(self.journal.records.payloads(self.content.states))

    def details(self, *, is_certain: bool = True) -> list[str]:
        """The damages that were reported."""
        return [damage.detail for damage in self.damages if damage.is_certain is is_certain]

    def delete(self, key: str, location: RecordLocation) -> None:
        assert self.read(key, location) is not None
        self.journal.mark_dead([location])
        self.journal.take_back_unneeded()

    def path(self, file: JournalFile) -> Path:
        return Path(self.journal.path(file.number))

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def last_file(self) -> Path:
        return self.folder / self.files()[-1]


@contextmanager
def opened_journal(
    folder: Path,
    disk: PackDisk | None = None,
    *,
    nonce_first: int = 1,
    is_durable: bool = True,
    released_write: int = -1,
    state: bytes = b"",
    file_bytes: int = FILE_BYTES,
) -> Iterator[JournalUser]:
    """`nonce_first`: another one for each opening of a folder, as nonces do not come again. One that the test has
    killed is not closed."""
    disk = PackDisk() if disk is None else disk
    folder.mkdir(exist_ok=True)
    disk.sync_directory(str(folder.parent))
    user = JournalUser(
        folder,
        disk,
        nonce_first=nonce_first,
        is_durable=is_durable,
        released_write=released_write,
        state=state,
        file_bytes=file_bytes,
    )
    try:
        yield user
    finally:
        if disk.open:
            user.journal.close()
        assert disk.open == set(), "descriptors are left"


def leave_without_an_end(user: JournalUser, key: str, payload: bytes, entry: bytes | None = None) -> RecordLocation:
    """Let an append fail in its sync, and the mark that says where its file ends: at once, and behind the next file,
    which has the object of `key`. The write that failed is whole in its file. Returns where the object is."""
    writes = count()

    def fail_end() -> None:
        if next(writes) in (1, 4):  # the write and the end; a header, the write and the end
            raise OSError(errno.EIO, "Input/output error")

    user.disk.before["write_at"] = fail_end
    user.disk.fail("sync_data", errno.EIO)
    user.disk.fail("truncate", errno.EIO, times=2)
    with suppress(OSError):
        user.append("lost", entry=b"lost")
    (location,) = user.append(key, payload=payload, entry=entry).objects
    del user.disk.before["write_at"]
    assert user.disk.failures == []
    return location
