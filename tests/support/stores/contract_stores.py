"""Stores of the embedded broker, an observer of a store, and numbers for buckets."""

import itertools
import os
import time
from pathlib import Path

from protocol.limits import JOURNAL_FILE_BYTES_TARGET
from storage.decorators.routed import RoutedStore
from storage.decorators.succeeded import SucceededStore
from storage.embedded.journal.open_journal import OpenJournal
from storage.embedded.journal.store import JournalStore
from storage.embedded.local_files import Files
from storage.embedded.local_store import PACKS_FOLDER, LocalStore
from storage.embedded.pack_store import PackStore
from storage.object_store import ObjectStore
from storage.refs import INTAKE_PREFIX

bucket_numbers = itertools.count()
"""Numbers of buckets, for names that no other test has."""


class NoObserver:
    """Checks that what it is given can be true, and records nothing."""

    def observe(self, object_bytes: int, seconds: float, *, failure: str | None) -> None:
        assert object_bytes >= 0
        assert seconds >= 0
        assert failure is None or failure


def packs(folder: Path, *, is_durable: bool = True) -> PackStore:
    """A pack store in a folder."""
    return PackStore(
        folder, now_ms=lambda: time.time_ns() // 1_000_000, new_nonce=lambda: os.urandom(16), is_durable=is_durable
    )


class OwnJournalStore(JournalStore):
    """A store whose journal is its own: it is opened before the first request, and closed with the store."""

    def __init__(self, opened: OpenJournal) -> None:
        super().__init__(opened, now_ms=lambda: time.time_ns() // 1_000_000)

    async def close(self) -> None:
        await super().close()
        await self._opened.close()


async def journal_store(
    folder: Path,
    *,
    is_durable: bool = True,
    files: Files | None = None,
    file_bytes_target: int = JOURNAL_FILE_BYTES_TARGET,
) -> JournalStore:
    """A store in a journal of its own, without a ledger. Its first file has the number 0."""
    opened = await OpenJournal.open(
        folder,
        new_nonce=lambda: bytes(4) + os.urandom(12),
        is_durable=is_durable,
        files=files,
        file_bytes_target=file_bytes_target,
    )
    await opened.write(lambda: opened.journal.settle(opened.content, released_write=-1))
    return OwnJournalStore(opened)


async def journal_with_packs(folder: Path) -> ObjectStore:
    """A journal that has succeeded packs."""
    newer = await journal_store(folder / "journal")
    return SucceededStore(newer, packs(folder / "packs"), is_newer=newer.has)


def with_packs(folder: Path) -> ObjectStore:
    """The store of an embedded broker: packs for the intake, files for the rest."""
    files = LocalStore(folder)
    return RoutedStore(INTAKE_PREFIX, packs(folder / PACKS_FOLDER), files)
