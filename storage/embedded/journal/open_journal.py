"""A journal that is open: the one thread that writes it, threads that read it, and where its objects are.

Rule: what is where belongs to the event loop; files are touched by threads. Writes are carried out in the order of the
calls. A store (`storage.embedded.journal.store`) and a ledger share one of these, so that one call may take bytes of
both.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from protocol.limits import JOURNAL_ALLOCATED_BYTES_STEP, JOURNAL_FILE_BYTES_TARGET
from storage.embedded.journal.journal import Journal
from storage.embedded.journal.opening import JournalFiles
from storage.embedded.journal.records import JournalContent, RecordLocation
from storage.embedded.local_files import Files, errors_of
from storage.embedded.one_thread import OneThread
from storage.object_store import ObjectToPut, StoreMisconfigured
from storage.store_damage import OnDamage, OnRemoved, ignore_damage, ignore_removed

READ_THREADS = 8
_Result = TypeVar("_Result")


class OpenJournal:
    """Made by `open`. Its owner closes it after the store and the ledger that use it."""

    def __init__(self, journal: Journal, writer: OneThread, on_damage: OnDamage) -> None:
        content = journal.content
        self.journal = journal
        self.on_damage = on_damage
        self.objects = content.objects.copy()
        """Where each object is."""
        self.replaced = content.replaced.copy()
        """Where earlier objects with the same keys are, in their order. They are marked as deleted before the newest
        one is: else they would be back."""
        self.has_gaps = content.has_gaps
        """Whether an object that was not found may be there, unreadable."""
        self._writer = writer
        self._readers = ThreadPoolExecutor(READ_THREADS, "journal-read")
        self._is_closed = False

    @classmethod
    async def open(
        cls,
        folder: Path,
        *,
        new_nonce: Callable[[], bytes],
        is_durable: bool = True,
        is_writer: bool = True,
        files: Files | None = None,
        file_bytes_target: int = JOURNAL_FILE_BYTES_TARGET,
        allocated_bytes_step: int = JOURNAL_ALLOCATED_BYTES_STEP,
        on_damage: OnDamage = ignore_damage,
        on_removed: OnRemoved = ignore_removed,
    ) -> Self:
        """Open the journal in `folder`, whose parent exists; a writer makes a new folder. For the arguments: `Journal`.

        `on_damage` is called with each unreadable part, at the start and when a read finds it; `on_removed` with each
        file that is not needed any more; both by any thread. Raises `StoreMisconfigured`, also where another process
        has the journal open, and `StoreUnavailable`.
        """
        files = Files() if files is None else files
        journal = Journal(
            str(folder),
            new_nonce=new_nonce,
            is_durable=is_durable,
            is_writer=is_writer,
            files=files,
            file_bytes_target=file_bytes_target,
            allocated_bytes_step=allocated_bytes_step,
            on_damage=on_damage,
            on_removed=on_removed,
        )
        writer = OneThread("journal")
        try:
            await writer.submit(partial(_open, journal, folder, files, is_durable=is_durable, is_writer=is_writer))
        except BaseException:
            writer.submit(journal.close)  # if this was cancelled, it may be opened by now
            writer.end()
            raise
        return cls(journal, writer, on_damage)

    @property
    def content(self) -> JournalContent:
        """The contents that the start found, until the ledger has settled them (`Journal.settle`)."""
        return self.journal.content

    def write(self, work: Callable[[], _Result]) -> "asyncio.Future[_Result]":
        """Carry out `work` in the writing thread, behind everything that was handed over before. It is carried out,
        even if the future is cancelled."""
        assert not self._is_closed, "the journal was closed"
        return self._writer.submit(work)

    def read(self, work: Callable[[], _Result]) -> "asyncio.Future[_Result]":
        """Carry out `work`, which appends nothing, in one of the reading threads."""
        assert not self._is_closed, "the journal was closed"
        return asyncio.get_running_loop().run_in_executor(self._readers, work)

    def keep(self, objects: Sequence[ObjectToPut], locations: Sequence[RecordLocation]) -> None:
        """Note where objects are that were written."""
        for stored, location in zip(objects, locations, strict=True):
            earlier = self.objects.get(stored.key)
            if earlier is not None:
                self.replaced.setdefault(stored.key, []).append(earlier)
            self.objects[stored.key] = location

    async def close(self) -> None:
        """Carry out what was handed over, and release the folder."""
        if not self._is_closed:
            self._is_closed = True
            await asyncio.to_thread(self._shut_down)

    def _shut_down(self) -> None:
        self._readers.shutdown()
        self._writer.join()
        self.journal.close()


def is_empty(folder: Path) -> bool:
    """Whether there is no journal: no folder, or one in which no file has anything of a record.

    False where that cannot be found out: its adapter reports why.
    """
    try:
        return JournalFiles(str(folder), Files()).is_empty()
    except (FileNotFoundError, NotADirectoryError):
        return not folder.is_dir()  # else a process uses a file again meanwhile
    except OSError:
        return False


def _open(journal: Journal, folder: Path, files: Files, *, is_durable: bool, is_writer: bool) -> None:
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise StoreMisconfigured(f"{folder} is no folder: move away what has its name, and bring back the journal")
    with errors_of(str(folder)):
        if is_writer:
            files.make_directory(str(folder))
        if is_writer and is_durable:
            # The folders may have been created for this journal, by a start without syncs or one that was cut off.
            for parent in folder.resolve().parents:
                with suppress(PermissionError):  # this process has not made it
                    files.sync_directory(str(parent))
        journal.open()
