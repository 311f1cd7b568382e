"""A ledger in files that one process holds: calls of the file in one thread, and tails from memory.

Rule: every call of the file runs in one thread of its own, in the order of the calls, so the event loop never waits for
the disk and every operation sees all earlier ones. Tails are served from the newest revisions in memory and wake on
appends; only a reader that is behind reads the file. Contract: tests/contract/test_ledger.py.

A session lives no longer than the process: opening the file ends all earlier ones. A call that is cancelled is still
carried out, as an append whose answer was lost.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from coordinator.ledger.append_rules import Appended, check_group
from coordinator.ledger.port import (
    Head,
    LedgerEntry,
    LedgerIdentity,
    LedgerRecord,
    LedgerSize,
    LedgerStart,
    LedgerUnavailable,
    SnapshotPointer,
)
from protocol.limits import LEDGER_RECENT_BYTES_MAX, LEDGER_TAIL_RECORDS_MAX
from protocol.types import Position, SessionId

Result = TypeVar("Result")
File = TypeVar("File", bound="BlockingLedger")


class BlockingLedger(Protocol):
    """The file of a ledger: the operations of `coordinator.ledger.port.Ledger`, blocking, used by one thread only."""

    @property
    def identity(self) -> LedgerIdentity: ...
    def claim_bucket(self, bucket_id: str) -> LedgerIdentity: ...
    def open_session(self, name: str) -> SessionId: ...
    def close_session(self, session: SessionId) -> None: ...
    def revoke_session(self, name: str, session: SessionId) -> None: ...
    def check_session(self, session: SessionId) -> None:
        """Raise `Fenced` where it is over."""
        ...

    def is_session_ended(self, name: str, session: SessionId) -> bool: ...
    def live_names(self) -> Sequence[str]: ...
    def append(self, session: SessionId, entries: Sequence[LedgerEntry]) -> Appended: ...
    def load(self) -> LedgerStart: ...
    def entries_above(self, after: Position) -> list[LedgerRecord]:
        """The records above `after` that were not trimmed."""
        ...

    def read_after(self, after: Position) -> list[LedgerRecord]:
        """Records above `after` by whole revisions, as many as a tail hands over at once; none where nothing is new."""
        ...

    def head(self) -> Head: ...
    def used_bytes(self) -> int: ...
    def pointer(self) -> SnapshotPointer | None: ...
    def set_snapshot(self, expected: SnapshotPointer | None, pointer: SnapshotPointer) -> bool: ...
    def trim_step(self, position: Position) -> tuple[Position, bool]:
        """Drop some of the entries at or below `position`, by whole revisions.

        Returns the position up to which everything is dropped now, and whether there may be more to drop.
        """
        ...

    def fence(self) -> None: ...
    def restart(self, identity: LedgerIdentity, pointer: SnapshotPointer) -> None: ...


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


class ThreadedLedger(Generic[File]):
    """Implements `coordinator.ledger.port.Ledger` over a file; subclasses open and close it."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._recent = RecentRevisions()
        self._changed = asyncio.Event()
        self._is_closed = False

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
        return await self._until_shown(session, group, appending)

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
        """Carry out what was begun, then release the file. Tails raise `LedgerUnavailable`."""
        if not self._is_closed:
            self._is_closed = True
            self._wake()
            await self._close_file()

    def _in_thread(self, call: Callable[[], Result]) -> asyncio.Future[Result]:
        """Carry out a call in the file's thread, behind all earlier ones."""
        raise NotImplementedError

    async def _close_file(self) -> None:
        raise NotImplementedError

    def _submit(self, call: Callable[[], Result]) -> asyncio.Future[Result]:
        if self._is_closed:
            raise _closed()
        return self._in_thread(call)

    async def _call(self, call: Callable[[], Result]) -> Result:
        return await self._submit(call)

    async def _until_shown(
        self, session: SessionId, group: tuple[LedgerEntry, ...], appending: asyncio.Future[Appended]
    ) -> Position:
        """The position of an append, once it is done and the tails can see it."""
        appending.add_done_callback(partial(self._show, session, group))
        return (await asyncio.shield(appending)).position

    def _show(self, session: SessionId, group: tuple[LedgerEntry, ...], appending: asyncio.Future[Appended]) -> None:
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


def _payload_bytes(revision: tuple[LedgerRecord, ...]) -> int:
    return sum(len(record.payload) for record in revision)


def _closed() -> LedgerUnavailable:
    return LedgerUnavailable("this ledger was closed")
