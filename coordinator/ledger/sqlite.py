"""The embedded ledger: one SQLite file, held by one process.

Rule: every call of SQLite runs in one thread of its own, in the order of the calls, so the event loop never waits for
the disk and every operation sees all earlier ones. Tails are served from the newest revisions in memory and wake on
appends; only a reader that is behind reads the file. Contract: tests/contract/test_ledger.py.

A session lives no longer than the process: opening the file ends all earlier ones. A call that is cancelled is still
carried out, as an append whose answer was lost.
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from coordinator.ledger.append_rules import check_group
from coordinator.ledger.file_lock import FileHeld, FileLock
from coordinator.ledger.port import (
    Head,
    LedgerCorrupt,
    LedgerEntry,
    LedgerIdentity,
    LedgerMissing,
    LedgerRecord,
    LedgerSize,
    LedgerStart,
    LedgerUnavailable,
    SessionHeld,
    SnapshotPointer,
)
from coordinator.ledger.sqlite_file import LedgerFile
from coordinator.ledger.sqlite_log import log_of
from protocol.limits import LEDGER_RECENT_BYTES_MAX, LEDGER_TAIL_RECORDS_MAX
from protocol.types import Position, SessionId
from storage.embedded.one_thread import OneThread

Result = TypeVar("Result")


class RecentRevisions:
    """The newest revisions without a gap: all above `floor`. Bounded in bytes by forgetting the oldest."""

    def __init__(self, bytes_max: int = LEDGER_RECENT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._revisions: deque[tuple[LedgerRecord, ...]] = deque()
        self._bytes = 0
        self._floor: Position | None = None  # None: not known until the next revision is added

    def add(self, revision: tuple[LedgerRecord, ...]) -> None:
        """Remember the revision that follows all others."""
        position = revision[0].position
        if self._floor is None:
            self._floor = Position(position - 1)
        self._revisions.append(revision)
        self._bytes += _payload_bytes(revision)
        while self._bytes > self._bytes_max and len(self._revisions) > 1:
            self._drop_oldest()

    def drop(self, position: Position) -> None:
        """Forget the revisions at or below `position`, which were trimmed."""
        while self._revisions and self._revisions[0][0].position <= position:
            self._drop_oldest()
        if self._floor is not None:
            self._floor = max(self._floor, position)

    def forget(self) -> None:
        """Revisions may be missing here: an append's outcome is unknown."""
        self._revisions.clear()
        self._bytes = 0
        self._floor = None

    def after(self, position: Position) -> list[LedgerRecord] | None:
        """Records above `position`, as many as a tail hands over at once; None where the file must be read."""
        if self._floor is None or position < self._floor:
            return None
        newer: list[tuple[LedgerRecord, ...]] = []
        for revision in reversed(self._revisions):
            if revision[0].position <= position:
                break
            newer.append(revision)
        records: list[LedgerRecord] = []
        while newer and len(records) < LEDGER_TAIL_RECORDS_MAX:
            records.extend(newer.pop())
        return records

    def _drop_oldest(self) -> None:
        oldest = self._revisions.popleft()
        self._bytes -= _payload_bytes(oldest)
        self._floor = oldest[0].position


class SqliteLedger:
    """Implements `coordinator.ledger.port.Ledger`. Made by `open`."""

    def __init__(self, file: LedgerFile, lock: FileLock, thread: OneThread) -> None:
        self._file = file
        self._lock = lock
        self._thread = thread
        self._recent = RecentRevisions()
        self._changed = asyncio.Event()
        self._is_closed = False

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

    async def identity(self) -> LedgerIdentity:
        return self._file.identity

    async def claim_bucket(self, bucket_id: str) -> LedgerIdentity:
        return await self._call(partial(self._file.claim_bucket, bucket_id))

    async def open_session(self, name: str) -> SessionId:
        return await self._call(partial(self._file.open_session, name))

    async def keep_session(self, session: SessionId) -> None:
        await self._call(partial(self._file.check_session, session))

    async def close_session(self, session: SessionId) -> None:
        await self._call(partial(self._file.close_session, session))

    async def revoke_session(self, name: str, session: SessionId) -> None:
        await self._call(partial(self._file.revoke_session, name, session))

    async def is_session_ended(self, name: str, session: SessionId) -> bool:
        return await self._call(partial(self._file.is_session_ended, name, session))

    async def live_names(self) -> Sequence[str]:
        return await self._call(self._file.live_names)

    async def released_names(self) -> AsyncGenerator[str, None]:
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # all sessions end with this process
        yield await never

    async def append(self, session: SessionId, entries: Sequence[LedgerEntry]) -> Position:
        group = tuple(entries)
        check_group(group)
        appending = self._submit(partial(self._file.append, session, group))
        appending.add_done_callback(partial(self._show, session, group))
        position, _ = await asyncio.shield(appending)
        return position

    async def load(self) -> LedgerStart:
        return await self._call(self._file.load)

    async def untrimmed_entries(self) -> Sequence[LedgerRecord]:
        return await self._call(partial(self._file.entries_above, Position(0)))

    async def tail(self, after: Position) -> AsyncGenerator[Sequence[LedgerRecord], None]:
        while True:
            changed = self._changed
            recent = self._recent.after(after)
            records = await self._call(partial(self._file.read_after, after)) if recent is None else recent
            if records:
                after = records[-1].position
                yield records
            elif self._is_closed:
                raise _closed()
            else:
                await changed.wait()

    async def head(self) -> Head:
        return await self._call(self._file.head)

    async def pointer(self) -> SnapshotPointer | None:
        return await self._call(self._file.pointer)

    async def set_snapshot(self, expected: SnapshotPointer | None, pointer: SnapshotPointer) -> bool:
        return await self._call(partial(self._file.set_snapshot, expected, pointer))

    async def trim(self, position: Position) -> None:
        has_more = True
        while has_more:
            trimmed, has_more = await self._call(partial(self._file.trim_step, position))
            self._recent.drop(trimmed)

    async def size(self) -> LedgerSize:
        return LedgerSize(used_bytes=await self._call(self._file.used_bytes), quota_bytes=None)

    async def fence(self) -> None:
        await self._call(self._file.fence)

    async def restart(self, identity: LedgerIdentity, pointer: SnapshotPointer) -> None:
        self._recent.forget()
        await self._call(partial(self._file.restart, identity, pointer))
        self._wake()

    async def close(self) -> None:
        """Carry out what was begun, then let the file go. Tails raise `LedgerUnavailable`."""
        if self._is_closed:
            return
        self._is_closed = True
        self._wake()
        try:
            await self._thread.submit(self._file.close)
        finally:
            self._lock.release()
            self._thread.end()

    def _submit(self, call: Callable[[], Result]) -> asyncio.Future[Result]:
        if self._is_closed:
            raise _closed()
        return self._thread.submit(call)

    async def _call(self, call: Callable[[], Result]) -> Result:
        return await self._submit(call)

    def _show(
        self, session: SessionId, group: tuple[LedgerEntry, ...], appending: asyncio.Future[tuple[Position, bool]]
    ) -> None:
        """Let the tails see an append. Called in the order of the appends, awaited or not."""
        if appending.cancelled() or appending.exception() is not None:
            self._recent.forget()
        else:
            position, is_new = appending.result()
            if is_new:
                self._recent.add(
                    tuple(
                        LedgerRecord(position=position, session=session, number=entry.number, payload=entry.payload)
                        for entry in group
                    )
                )
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


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
    try:
        lock = FileLock(path.with_name(path.name + ".lock"))
    except FileHeld as error:
        holder = "another process" if error.holder is None else f"process {error.holder}"
        raise SessionHeld(f"{holder} has the ledger {path} open: stop it, or use another data folder") from error
    except OSError as error:
        raise LedgerUnavailable(f"{path} cannot be opened ({error}): check that its folder exists") from error
    try:
        file = LedgerFile(path, new_cluster_id=new_cluster_id, is_durable=is_durable, connection_type=connection_type)
    except BaseException:
        lock.release()
        raise
    return lock, file


def _payload_bytes(revision: tuple[LedgerRecord, ...]) -> int:
    return sum(len(record.payload) for record in revision)


def _closed() -> LedgerUnavailable:
    return LedgerUnavailable("this ledger was closed")
