"""The embedded ledger in SQLite: one file, held by one process. Threads and tails: `coordinator.ledger.threaded`.

Contract: tests/contract/test_ledger.py.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self

from coordinator.ledger.file_lock import FileLock, lock_ledger
from coordinator.ledger.port import LedgerCorrupt, LedgerMissing
from coordinator.ledger.sqlite_file import LedgerFile
from coordinator.ledger.sqlite_log import log_of
from coordinator.ledger.threaded import Result, ThreadedLedger
from storage.embedded.one_thread import OneThread


class SqliteLedger(ThreadedLedger[LedgerFile]):
    """Implements `coordinator.ledger.port.Ledger`. Made by `open`."""

    def __init__(self, file: LedgerFile, lock: FileLock, thread: OneThread) -> None:
        super().__init__(file)
        self._lock = lock
        self._thread = thread

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        new_cluster_id: str | None,
        is_durable: bool = True,
        connection_type: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> Self:
        """Open the ledger at `path`; where there is none, create that of the cluster `new_cluster_id`. Without one it
        is opened for reading only: `LedgerMissing` is raised where there is none, and an older file keeps its format.

        The folder must exist to create one. Not durable means that a loss of power (not of the process) may lose the
        newest appends. Raises `SessionHeld` while another process has it open, `LedgerCorrupt` where the file is
        damaged or foreign, `LedgerUnavailable` where it cannot be opened or written.
        """
        thread = OneThread("ledger")
        opening = partial(
            _open_file, path, new_cluster_id=new_cluster_id, is_durable=is_durable, connection_type=connection_type
        )
        try:
            lock, file = await thread.submit(opening)
        except BaseException:
            thread.end()
            raise
        return cls(file, lock, thread)

    def _in_thread(self, call: Callable[[], Result]) -> asyncio.Future[Result]:
        return self._thread.submit(call)

    async def _close_file(self) -> None:
        try:
            await self._thread.submit(self._file.close)
        finally:
            self._lock.release()
            self._thread.end()


def is_missing(path: Path) -> bool:
    """Whether there is no ledger: no file, or an empty one, whose write-ahead log SQLite would delete."""
    return not path.exists() or (path.is_file() and not path.stat().st_size)


def check_regular(path: Path) -> None:
    """Raise `LedgerCorrupt` where the ledger's file, or its log, is a pipe or the like: SQLite would wait for it."""
    for part in (path, log_of(path)):
        if part.exists() and not part.is_file():
            raise LedgerCorrupt(f"{part} is no regular file: move away what has its name, and bring back the ledger")


def _open_file(
    path: Path, *, new_cluster_id: str | None, is_durable: bool, connection_type: type[sqlite3.Connection]
) -> tuple[FileLock, LedgerFile]:
    if new_cluster_id is None and is_missing(path):
        raise LedgerMissing(f"{path} does not exist, or is empty: name the folder that an agent uses")
    check_regular(path)
    opening = partial(
        LedgerFile, path, new_cluster_id=new_cluster_id, is_durable=is_durable, connection_type=connection_type
    )
    lock = lock_ledger(path)
    try:
        return lock, opening()
    except BaseException:
        lock.release()
        raise
