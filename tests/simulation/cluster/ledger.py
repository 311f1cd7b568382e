"""The ledger's server in the world, and each agent's connection to it.

Rule: the server is `coordinator.ledger.memory`, the reference of every backend, with leases in the world's time, and
one thing as etcd has it: a repeat of entries that were trimmed is appended again, and the state has to notice (safety
rule S10). Everything an agent asks goes over its link; what it learns of the log comes over a watch that may lag or
hang.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextvars import Context
from copy import copy
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

from coordinator.ledger.append_rules import is_next
from coordinator.ledger.memory import MemoryLedgerCore
from coordinator.ledger.port import (
    Head,
    LedgerCorrupt,
    LedgerEntry,
    LedgerIdentity,
    LedgerRecord,
    LedgerSize,
    LedgerStart,
    LedgerUnavailable,
    SnapshotPointer,
    another_incarnation,
)
from coordinator.state.state import NO_POSITION
from protocol.limits import LEDGER_SESSION_SECONDS
from protocol.types import Position, SessionId
from tests.simulation.audit.truth import Truth
from tests.simulation.cluster.links import Link, Unanswered
from tests.simulation.history import History

T = TypeVar("T")

WATCH_DEAD_SECONDS = 15.0
"""After so long without a sign of life a watch is given up, at the latest."""


COPIED = ("identity", "pointer", "head", "released", "_position_last", "_revisions", "_positions", "_trimmed")
COPIED_OF_SESSIONS = ("_sessions", "_newest")

LedgerCopy = Mapping[str, object]
"""Everything that a ledger held at a moment."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a connection knows of the ledger that it opened: `coordinator.ledger.etcd.lineage`."""

    identity: LedgerIdentity | None = None
    head: Position = NO_POSITION
    read: LedgerRecord | None = None


class LedgerServer(MemoryLedgerCore):
    """Holds the log and the leases, and tells the truth of each append."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        history: History,
        outside: Context,
        lease_s: float = LEDGER_SESSION_SECONDS,
    ) -> None:
        """`lease_s`: how long a session lives without a renewal; of an embedded broker it ends with the process."""
        super().__init__(cluster_id="simulated")
        self._lease_s = lease_s
        self._loop = loop
        self._history = history
        self._outside = outside
        self._leases: dict[SessionId, asyncio.TimerHandle] = {}
        self.truth = Truth(self.identity, history, self._leases.__contains__)
        self.connections_broken_count = 0
        self.trusted_s: float | None = -1.0
        """Since when it is the ledger of its bucket; None while it is lost, or being recovered."""
        self.lost_s: float | None = None
        """Since when it is another one."""
        self.is_full = False
        """Whether it takes no writes (etcd's NOSPACE). Leases are renewed, and entries read."""
        self.on_restart: Callable[[SnapshotPointer, Position], None] = lambda pointer, head: None
        """Told where a recovery begins an incarnation, and how far the ledger of the one before went."""

    def copied(self) -> LedgerCopy:
        """A backup."""
        return {name: copy(getattr(self, name)) for name in (*COPIED, *COPIED_OF_SESSIONS)}

    def lose(self, backup: LedgerCopy | None) -> None:
        """Be as it was then, or empty and of another cluster. All connections break."""
        for session in list(self._leases):
            self._leases.pop(session).cancel()
        if backup is None:
            self._begin(LedgerIdentity(cluster_id="another", incarnation=1), None)
        else:
            for name, value in backup.items():
                setattr(self, name, value)
            for session in self._newest:
                self._renew(session)
        self.trusted_s = None
        self.lost_s = self._loop.time()
        self._history.note("ledger", "lost", str(self.head.position))
        self._break_connections()

    def fence(self) -> None:
        super().fence()
        self._history.note("ledger", "fenced")

    def restart(self, identity: LedgerIdentity, pointer: SnapshotPointer) -> None:
        is_new = (self.identity, self.pointer) != (identity, pointer)
        before = self.truth.state
        is_same = (self.identity.cluster_id, self.identity.incarnation) == (before.cluster_id, before.incarnation)
        head = self.head.position if is_same else Position(0)
        super().restart(identity, pointer)
        if is_new:
            for session in list(self._leases):
                self._leases.pop(session).cancel()
            self._history.note("ledger", "restarted", str(identity.incarnation))
            self.lost_s = None
            self.on_restart(pointer, head)
            self._break_connections()

    def judge(self, seen: Seen) -> None:
        """Raise `LedgerCorrupt` where this is not the ledger that was seen."""
        opened = seen.identity
        if opened is not None and not _is_same(opened, self.identity):
            raise LedgerCorrupt(another_incarnation(opened, self.identity))
        if self.head.position < seen.head:
            raise LedgerCorrupt(f"the ledger ends at {self.head.position}, but {seen.head} was there before")
        read = seen.read
        if read is not None and read.position > self._trimmed:
            row = self._row_after(Position(read.position - 1))
            if row == len(self._revisions) or read not in self._revisions[row]:
                raise LedgerCorrupt(f"what was read at {read.position} is not there any more")

    def _break_connections(self) -> None:
        self.connections_broken_count += 1
        self.wake()

    def _check_room(self) -> None:
        """Raise where it is full: nothing is written then."""
        if self.is_full:
            raise LedgerUnavailable("etcd is full (NOSPACE) and takes no writes")

    def set_snapshot(self, expected: SnapshotPointer | None, pointer: SnapshotPointer) -> bool:
        self._check_room()
        return super().set_snapshot(expected, pointer)

    def open_session(self, name: str) -> SessionId:
        self._check_room()
        session = super().open_session(name)
        self._history.note("ledger", "session opened", f"{session} {name}")
        self._renew(session)
        return session

    def revoke_session(self, name: str, session: SessionId) -> None:
        if self._sessions.get(name) == session:
            self._history.note("ledger", "session revoked", str(session))
        super().revoke_session(name, session)

    def keep(self, session: SessionId) -> None:
        self.check_session(session)
        self._renew(session)

    def expire(self, session: SessionId) -> None:
        if session in self._leases:
            self._leases.pop(session).cancel()
            self._history.note("ledger", "lease gone", str(session))
        super().expire(session)

    def append(self, session: SessionId, entries: Sequence[LedgerEntry]) -> Position:
        self._check_room()
        newest = self._newest.get(session)
        appends_count = self.head.appends_count
        if newest is not None and not is_next(newest, entries) and not self._revision_of(session, entries[0].number):
            position = self._add(session, entries)
        else:
            position = super().append(session, entries)
        if self.head.appends_count > appends_count and self.lost_s is not None:
            self._history.violation(f"session {session} appends to a ledger that is not its bucket's (S9)")
        elif self.head.appends_count > appends_count:
            self.truth.receive(self._revisions[-1], self._loop.time())
        else:
            self._history.note("ledger", "repeat recognised", f"{session}/{entries[0].number}")
        return position

    def trim(self, position: Position) -> None:
        self._check_room()  # etcd's notes how far it goes before it drops entries
        super().trim(position)
        self._history.note("ledger", "trimmed", str(position))

    def _renew(self, session: SessionId) -> None:
        lease = self._leases.get(session)
        if lease is not None:
            lease.cancel()
        self._leases[session] = self._loop.call_later(self._lease_s, self.expire, session, context=self._outside)


def _is_same(one: LedgerIdentity, other: LedgerIdentity) -> bool:
    return (one.cluster_id, one.incarnation) == (other.cluster_id, other.incarnation)


class SimulatedLedger:
    """One agent's connection. Implements `coordinator.ledger.port.Ledger`."""

    def __init__(self, server: LedgerServer, link: Link) -> None:
        self._server = server
        self._link = link
        self.lag_s = 0.0
        """How much later than others this agent reads."""
        self._seen = Seen()

    def reopen(self) -> None:
        """Forget what was seen: another process opens it."""
        self._seen = Seen()

    @property
    def head_seen(self) -> Position:
        """The newest append that this connection knows of."""
        return self._seen.head

    async def identity(self) -> LedgerIdentity:
        identity = await self._ask_known("identity", lambda: self._server.identity)
        self._seen = replace(self._seen, identity=identity)
        return identity

    async def claim_bucket(self, bucket_id: str) -> LedgerIdentity:
        return await self._ask_known(f"claim bucket {bucket_id}", lambda: self._server.claim_bucket(bucket_id))

    async def open_session(self, name: str) -> SessionId:
        return await self._ask_known(f"open session {name}", lambda: self._server.open_session(name))

    async def keep_session(self, session: SessionId) -> None:
        await self._ask(f"keep session {session}", lambda: self._server.keep(session))

    async def close_session(self, session: SessionId) -> None:
        await self._ask(f"close session {session}", lambda: self._server.expire(session))

    async def revoke_session(self, name: str, session: SessionId) -> None:
        await self._ask_known(f"revoke session {session}", lambda: self._server.revoke_session(name, session))

    async def is_session_ended(self, name: str, session: SessionId) -> bool:
        return await self._ask(f"is session {session} ended", lambda: self._server.is_session_ended(name, session))

    async def released_names(self) -> AsyncGenerator[str, None]:
        """Told late, and not to whoever is cut off."""
        told_count = len(self._server.released)
        while True:
            changed = self._server.changed
            while told_count < len(self._server.released):
                await self._link.pause(self._link.delay() + self.lag_s)
                if self._link.is_cut:
                    raise LedgerUnavailable(f"{self._link.name}: the watch broke")
                told_count += 1
                yield self._server.released[told_count - 1]
            await changed.wait()

    async def live_names(self) -> Sequence[str]:
        return await self._ask("who lives", self._server.live_names)

    async def append(self, session: SessionId, entries: Sequence[LedgerEntry]) -> Position:
        copied = tuple(entries)
        position = await self._ask_known(
            f"append {session}/{copied[0].number}+{len(copied)}", lambda: self._server.append(session, copied)
        )
        self._see(position)
        return position

    async def load(self) -> LedgerStart:
        start = await self._ask_known("load", self._server.load, is_reading=True)
        self._see(start.head.position)
        return start

    async def untrimmed_entries(self) -> Sequence[LedgerRecord]:
        return await self._ask("untrimmed_entries", lambda: self._server.entries_above(Position(0)))

    async def head(self) -> Head:
        head = await self._ask_known("head", lambda: self._server.head, is_reading=True)
        self._see(head.position)
        return head

    async def pointer(self) -> SnapshotPointer | None:
        return await self._ask_known("pointer", lambda: self._server.pointer, is_reading=True)

    async def set_snapshot(self, expected: SnapshotPointer | None, pointer: SnapshotPointer) -> bool:
        return await self._ask_known(
            f"set snapshot {pointer.position}", lambda: self._server.set_snapshot(expected, pointer)
        )

    async def trim(self, position: Position) -> None:
        await self._ask_known(f"trim {position}", lambda: self._server.trim(position))

    async def size(self) -> LedgerSize:
        return await self._ask("size", lambda: LedgerSize(used_bytes=int(self._server.is_full), quota_bytes=1))

    async def fence(self) -> None:
        await self._ask_known("fence", self._server.fence)

    async def restart(self, identity: LedgerIdentity, pointer: SnapshotPointer) -> None:
        await self._ask(f"restart {identity.incarnation}", lambda: self._server.restart(identity, pointer))
        self._seen = Seen(identity=identity)

    async def tail(self, after: Position) -> AsyncGenerator[Sequence[LedgerRecord], None]:
        """Whole revisions, some at a time, a little late."""
        link = self._link
        looked_count = -1
        while True:
            if link.is_cut:
                await self._hang()
            if looked_count != self._server.connections_broken_count:
                self._server.judge(self._seen)
                looked_count = self._server.connections_broken_count
            changed = self._server.changed
            records = self._server.read_after(after)
            if not records:
                await changed.wait()
                continue
            await link.pause(link.delay() + self.lag_s)
            if link.is_cut:
                continue
            taken = self._some(records)
            after = taken[-1].position
            self._see(after)
            self._seen = replace(self._seen, read=taken[-1])
            yield taken

    async def close(self) -> None:
        """Nothing is held open."""

    async def _hang(self) -> None:
        """A watch over a cut link breaks at once, or nobody tells for a while."""
        link = self._link
        if link.is_silent:
            waited_s = 0.0
            while link.is_cut and waited_s < WATCH_DEAD_SECONDS:
                await link.pause(1.0)
                waited_s += 1.0
        if link.is_cut or not link.is_silent:
            raise LedgerUnavailable(f"{link.name}: the watch broke")

    def _some(self, records: Sequence[LedgerRecord]) -> Sequence[LedgerRecord]:
        revisions = [list(revision) for _, revision in groupby(records, key=attrgetter("position"))]
        count = 1 + self._link.choose(len(revisions))
        return [record for revision in revisions[:count] for record in revision]

    def _see(self, head: Position) -> None:
        self._seen = replace(self._seen, head=max(self._seen.head, head))

    async def _ask_known(self, what: str, act: Callable[[], T], *, is_reading: bool = False) -> T:
        """As `_ask`, of the ledger that was seen until now. Raises `LedgerCorrupt` if it is another one."""
        seen = self._seen if is_reading else replace(self._seen, read=None)
        broken_count = self._server.connections_broken_count

        def act_if_known() -> T:
            if broken_count != self._server.connections_broken_count:
                raise LedgerUnavailable(f"{self._link.name}: the connection broke")
            self._server.judge(seen)
            return act()

        return await self._ask(what, act_if_known)

    async def _ask(self, what: str, act: Callable[[], T]) -> T:
        try:
            return await self._link.call(what, act)
        except Unanswered as error:
            raise LedgerUnavailable(str(error)) from error
