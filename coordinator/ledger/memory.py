"""The ledger in memory: the reference for every other backend, for tests and for simulations.

Rule: no clock, no randomness, no thread. What goes wrong is chosen by a fault hook and by hand (`expire`,
`is_reachable`, `deliver_delayed`), so a run repeats exactly. Several agents of one process share a `MemoryLedgerCore`,
each through a `MemoryLedger` of its own. Contract: tests/contract/test_ledger.py.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Self, assert_never

from coordinator.ledger.append_rules import NewestGroup, check_group, is_next, position_of_repeat
from coordinator.ledger.ledger_contents import LedgerContents
from coordinator.ledger.port import (
    Fenced,
    Head,
    LedgerCorrupt,
    LedgerEntry,
    LedgerIdentity,
    LedgerRecord,
    LedgerSize,
    LedgerStart,
    LedgerUnavailable,
    SessionHeld,
    SnapshotPointer,
    Trimmed,
    another_incarnation,
    being_recovered,
    check_restart,
    not_fenced,
    position_first,
)
from protocol.limits import LEDGER_TAIL_RECORDS_MAX
from protocol.types import Position, SessionId


class AppendFate(Enum):
    """The fate of one append."""

    APPLIED = "applied"
    """Nothing goes wrong."""
    LOST = "lost"
    """It never arrives; the caller gets `LedgerUnavailable`."""
    ANSWER_LOST = "answer lost"
    """It is applied; the caller gets `LedgerUnavailable`."""
    DELAYED = "delayed"
    """The caller gets `LedgerUnavailable`; it arrives when `MemoryLedgerCore.deliver_delayed` is called."""


FateOfAppend = Callable[[SessionId, Sequence[LedgerEntry]], Awaitable[AppendFate]]
"""Chooses the fate of an append. It may await something of the test's own to make the append slow."""


@dataclass(frozen=True, slots=True)
class _Delayed:
    session: SessionId
    entries: tuple[LedgerEntry, ...]


class MemoryLedgerCore:
    """The contents of the ledger. Synchronous; owned by one event loop."""

    def __init__(self, *, cluster_id: str = "memory", incarnation: int = 1) -> None:
        self._changed = asyncio.Event()
        self._begin(LedgerIdentity(cluster_id=cluster_id, incarnation=incarnation), None)

    def _begin(self, identity: LedgerIdentity, pointer: SnapshotPointer | None) -> None:
        first = position_first(identity.incarnation)
        self.identity = identity
        self.pointer = pointer
        self.head = Head(position=first, appends_count=0)
        self._position_last: int = first  # of an append or of a session
        self._revisions: list[tuple[LedgerRecord, ...]] = []
        self._positions: list[Position] = []  # of the revisions, for bisection
        self._trimmed = Position(0) if pointer is None else first  # of the newest revision that was dropped
        self._sessions: dict[str, SessionId] = {}
        self.released: list[str] = []  # names, as their sessions ended
        self._newest: dict[SessionId, NewestGroup | None] = {}  # of live sessions
        self._delayed: list[_Delayed] = []
        self._is_fenced = False

    @classmethod
    def of(cls, contents: LedgerContents) -> Self:
        """A copy of another ledger."""
        core = cls()
        core.identity, core.pointer, core.head = contents.identity, contents.pointer, contents.head
        core._position_last, core._trimmed = contents.position_last, contents.trimmed
        core._is_fenced = contents.is_fenced
        core._revisions = [tuple(revision) for revision in contents.revisions()]
        core._positions = [revision[0].position for revision in core._revisions]
        return core

    @property
    def used_bytes(self) -> int:
        """Bytes of all entries."""
        return sum(len(record.payload) for revision in self._revisions for record in revision)

    def fence(self) -> None:
        if self._sessions:
            raise SessionHeld(f"agents still run under the names {sorted(self._sessions)}: stop them first")
        self._is_fenced = True

    def restart(self, identity: LedgerIdentity, pointer: SnapshotPointer) -> None:
        check_restart(identity, pointer)
        if (self.identity, self.pointer) == (identity, pointer):
            return
        if not self._is_fenced:
            raise not_fenced()
        self._begin(identity, pointer)
        self.wake()

    def claim_bucket(self, bucket_id: str) -> LedgerIdentity:
        if not self.identity.bucket_id:
            self._check_open()
            self.identity = replace(self.identity, bucket_id=bucket_id)
        return self.identity

    def open_session(self, name: str) -> SessionId:
        self._check_open()
        if name in self._sessions:
            raise SessionHeld(f"session {self._sessions[name]} lives under the name {name!r}", self._sessions[name])
        self._position_last += 1
        session = SessionId(self._position_last)
        self._sessions[name] = session
        self._newest[session] = None
        return session

    def expire(self, session: SessionId) -> None:
        """End a session as if its lease had run out. One that is over already stays over."""
        self.released += [name for name, owner in self._sessions.items() if owner == session]
        self._sessions = {name: owner for name, owner in self._sessions.items() if owner != session}
        self._newest.pop(session, None)
        self.wake()

    def revoke_session(self, name: str, session: SessionId) -> None:
        if self._sessions.get(name) == session:
            self.expire(session)

    def is_session_ended(self, name: str, session: SessionId) -> bool:
        return self._sessions.get(name) != session

    def live_names(self) -> Sequence[str]:
        return sorted(self._sessions)

    def check_session(self, session: SessionId) -> None:
        """Raise `Fenced` where it is over."""
        if session not in self._newest:
            raise Fenced(f"session {session} is over")

    def append(self, session: SessionId, entries: Sequence[LedgerEntry]) -> Position:
        self._check_open()
        self.check_session(session)
        newest = self._newest[session]
        if not is_next(newest, entries):
            return position_of_repeat(session, newest, self._revision_of(session, entries[0].number), entries)
        position = self._add(session, entries)
        self._newest[session] = NewestGroup(position=position, entries=tuple(entries))
        return position

    def _add(self, session: SessionId, entries: Sequence[LedgerEntry]) -> Position:
        """Add a revision to the log."""
        self._position_last += 1
        position = Position(self._position_last)
        self._revisions.append(
            tuple(
                LedgerRecord(position=position, session=session, number=entry.number, payload=entry.payload)
                for entry in entries
            )
        )
        self._positions.append(position)
        self.head = Head(position=position, appends_count=self.head.appends_count + 1)
        self.wake()
        return position

    def delay(self, session: SessionId, entries: Sequence[LedgerEntry]) -> None:
        """Keep an append on its way."""
        self._delayed.append(_Delayed(session, tuple(entries)))

    def deliver_delayed(self) -> None:
        """Let every append that is on its way arrive. One that was overtaken (repeated, fenced) changes nothing, unless
        the copy that was faster is trimmed: as etcd, whose only memory of an entry is its key, this adds it again.
        """
        delayed, self._delayed = self._delayed, []
        for late in delayed:
            if self._is_fenced or late.session not in self._newest:
                continue
            if is_next(self._newest[late.session], late.entries):
                self.append(late.session, late.entries)
            elif not self._revision_of(late.session, late.entries[0].number):
                self._add(late.session, late.entries)

    def load(self) -> LedgerStart:
        after = Position(0) if self.pointer is None else self.pointer.position
        return LedgerStart(pointer=self.pointer, head=self.head, records=self.entries_above(after))

    def entries_above(self, after: Position) -> list[LedgerRecord]:
        """The records above `after` that were not trimmed."""
        return [record for revision in self._revisions[self._row_after(after) :] for record in revision]

    def read_after(self, after: Position) -> list[LedgerRecord]:
        """Records above `after` by whole revisions, as many as a tail hands over at once; none where nothing is new."""
        if after < self._trimmed:
            raise Trimmed(f"position {after} was asked for, everything up to {self._trimmed} is trimmed")
        records: list[LedgerRecord] = []
        for row in range(self._row_after(after), len(self._revisions)):
            records.extend(self._revisions[row])
            if len(records) >= LEDGER_TAIL_RECORDS_MAX:
                break
        return records

    def set_snapshot(self, expected: SnapshotPointer | None, pointer: SnapshotPointer) -> bool:
        self._check_open()
        if self.pointer != expected:
            return False
        self.pointer = pointer
        return True

    def trim(self, position: Position) -> None:
        self._check_open()
        covered = Position(0) if self.pointer is None else self.pointer.position
        if position > covered:
            raise LedgerCorrupt(f"trim up to {position} was asked for, but the snapshot covers only up to {covered}")
        row = self._row_after(position)
        if row:
            self._trimmed = self._positions[row - 1]
            del self._revisions[:row], self._positions[:row]
            self.wake()

    def wake(self) -> None:
        """Make every waiting tail look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def changed(self) -> asyncio.Event:
        """Set at the next change. Take it before looking, then wait for it, and no change is missed."""
        return self._changed

    def _check_open(self) -> None:
        """Raise `LedgerCorrupt` where it is fenced."""
        if self._is_fenced:
            raise being_recovered()

    def _revision_of(self, session: SessionId, number: int) -> Sequence[LedgerRecord]:
        for revision in self._revisions:
            if revision[0].session == session and revision[0].number <= number <= revision[-1].number:
                return revision
        return ()

    def _row_after(self, position: Position) -> int:
        return bisect_right(self._positions, position)


async def _always_applied(_session: SessionId, _entries: Sequence[LedgerEntry]) -> AppendFate:
    return AppendFate.APPLIED


class MemoryLedger:
    """One agent's connection to a ledger in memory. Implements `coordinator.ledger.port.Ledger`."""

    def __init__(self, core: MemoryLedgerCore | None = None, *, fate_of_append: FateOfAppend = _always_applied) -> None:
        self.core = MemoryLedgerCore() if core is None else core
        self.fate_of_append = fate_of_append
        self._identity = self.core.identity
        self._is_reachable = True
        self._is_closed = False

    @property
    def is_reachable(self) -> bool:
        """Whether this agent gets through to the ledger. While it is False everything raises `LedgerUnavailable`."""
        return self._is_reachable

    @is_reachable.setter
    def is_reachable(self, is_reachable: bool) -> None:
        self._is_reachable = is_reachable
        self.core.wake()

    async def identity(self) -> LedgerIdentity:
        return self._reach().identity

    async def claim_bucket(self, bucket_id: str) -> LedgerIdentity:
        return self._reach().claim_bucket(bucket_id)

    async def open_session(self, name: str) -> SessionId:
        return self._reach().open_session(name)

    async def keep_session(self, session: SessionId) -> None:
        self._reach().check_session(session)

    async def close_session(self, session: SessionId) -> None:
        self._reach().expire(session)

    async def revoke_session(self, name: str, session: SessionId) -> None:
        self._reach().revoke_session(name, session)

    async def is_session_ended(self, name: str, session: SessionId) -> bool:
        return self._reach().is_session_ended(name, session)

    async def released_names(self) -> AsyncGenerator[str, None]:
        appended_count = len(self._reach().released)
        while True:
            core = self._reach()
            changed = core.changed
            while appended_count < len(core.released):
                appended_count += 1
                yield core.released[appended_count - 1]
            await changed.wait()

    async def live_names(self) -> Sequence[str]:
        return self._reach().live_names()

    async def append(self, session: SessionId, entries: Sequence[LedgerEntry]) -> Position:
        check_group(entries)
        self._reach()
        fate = await self.fate_of_append(session, entries)
        core = self._reach()
        match fate:
            case AppendFate.APPLIED:
                return core.append(session, entries)
            case AppendFate.LOST:
                pass
            case AppendFate.ANSWER_LOST:
                core.append(session, entries)
            case AppendFate.DELAYED:
                core.delay(session, entries)
            case _:
                assert_never(fate)
        raise LedgerUnavailable(f"the append of session {session} from number {entries[0].number} was not answered")

    async def load(self) -> LedgerStart:
        return self._reach().load()

    async def untrimmed_entries(self) -> Sequence[LedgerRecord]:
        return self._reach().entries_above(Position(0))

    async def tail(self, after: Position) -> AsyncGenerator[Sequence[LedgerRecord], None]:
        while True:
            core = self._reach()
            changed = core.changed
            records = core.read_after(after)
            if records:
                after = records[-1].position
                yield records
            else:
                await changed.wait()

    async def head(self) -> Head:
        return self._reach().head

    async def pointer(self) -> SnapshotPointer | None:
        return self._reach().pointer

    async def set_snapshot(self, expected: SnapshotPointer | None, pointer: SnapshotPointer) -> bool:
        return self._reach().set_snapshot(expected, pointer)

    async def trim(self, position: Position) -> None:
        self._reach().trim(position)

    async def size(self) -> LedgerSize:
        return LedgerSize(used_bytes=self._reach().used_bytes, quota_bytes=None)

    async def fence(self) -> None:
        self._reach().fence()

    async def restart(self, identity: LedgerIdentity, pointer: SnapshotPointer) -> None:
        self._reach().restart(identity, pointer)
        self._identity = identity

    async def close(self) -> None:
        self._is_closed = True
        self.core.wake()

    def _reach(self) -> MemoryLedgerCore:
        if self._is_closed:
            raise LedgerUnavailable("this ledger was closed")
        if not self._is_reachable:
            raise LedgerUnavailable("the ledger cannot be reached")
        if not self.core.identity.is_incarnation_of(self._identity):
            raise LedgerCorrupt(another_incarnation(self._identity, self.core.identity))
        return self.core
