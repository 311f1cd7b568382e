"""A ledger whose outages are logged: once for each outage, however many loops use the ledger.

Appends and reads fail and recover independently, as a full etcd still answers reads. The outage is over when both are
answered. An error of the ledger is an answer, too; a cancelled call says nothing.
"""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager

from agent.runtime.outages import Outage, OutageWords
from coordinator.ledger.port import (
    Head,
    JointLedger,
    Ledger,
    LedgerEntry,
    LedgerError,
    LedgerIdentity,
    LedgerRecord,
    LedgerSize,
    LedgerStart,
    LedgerUnavailable,
    SnapshotPointer,
)
from protocol.types import Position, SessionId
from storage.object_store import ObjectToPut

WORDS = OutageWords(
    fails=(
        "the ledger does not answer: until it does, no record is acknowledged, nothing is created, and soon consumers "
        "get no new records. Clients get retriable errors, agents stay up, and no acknowledged record is lost. "
        'docs/operations/etcd.md, "etcd is slow, or members fail"'
    ),
    answers="the ledger answers again: clients go on",
)
APPENDING = "append"
READING = "read"


class OutageLoggingLedger:
    """A `Ledger` over another one."""

    def __init__(
        self, inner: Ledger, *, monotonic_s: Callable[[], float], count_error: Callable[[], None] = lambda: None
    ) -> None:
        self._inner = inner
        self._outage = Outage(WORDS, monotonic_s=monotonic_s)
        self._count_error = count_error

    @property
    def outage_seconds(self) -> float:
        """Seconds since it stopped answering; 0 while it answers."""
        return self._outage.seconds

    @contextmanager
    def _reported(self, operation: str) -> Iterator[None]:
        try:
            yield
        except LedgerUnavailable as error:
            self._count_error()
            self._outage.failed(operation, str(error))
            raise
        except LedgerError:
            self._outage.answered(operation)
            raise
        self._outage.answered(operation)

    async def identity(self) -> LedgerIdentity:
        return await self._inner.identity()

    async def claim_bucket(self, bucket_id: str) -> LedgerIdentity:
        with self._reported(APPENDING):
            return await self._inner.claim_bucket(bucket_id)

    async def open_session(self, name: str) -> SessionId:
        with self._reported(APPENDING):
            return await self._inner.open_session(name)

    async def keep_session(self, session: SessionId) -> None:
        with self._reported(READING):
            await self._inner.keep_session(session)

    async def close_session(self, session: SessionId) -> None:
        await self._inner.close_session(session)

    async def revoke_session(self, name: str, session: SessionId) -> None:
        with self._reported(APPENDING):
            await self._inner.revoke_session(name, session)

    async def is_session_ended(self, name: str, session: SessionId) -> bool:
        with self._reported(READING):
            return await self._inner.is_session_ended(name, session)

    async def released_names(self) -> AsyncGenerator[str, None]:
        with self._reported(READING):
            async for name in self._inner.released_names():
                yield name

    async def live_names(self) -> Sequence[str]:
        with self._reported(READING):
            return await self._inner.live_names()

    async def append(self, session: SessionId, entries: Sequence[LedgerEntry]) -> Position:
        with self._reported(APPENDING):
            return await self._inner.append(session, entries)

    async def load(self) -> LedgerStart:
        with self._reported(READING):
            return await self._inner.load()

    async def tail(self, after: Position) -> AsyncGenerator[Sequence[LedgerRecord], None]:
        with self._reported(READING):
            async for records in self._inner.tail(after):
                self._outage.answered(READING)
                yield records

    async def untrimmed_entries(self) -> Sequence[LedgerRecord]:
        with self._reported(READING):
            return await self._inner.untrimmed_entries()

    async def head(self) -> Head:
        with self._reported(READING):
            return await self._inner.head()

    async def pointer(self) -> SnapshotPointer | None:
        with self._reported(READING):
            return await self._inner.pointer()

    async def set_snapshot(self, expected: SnapshotPointer | None, pointer: SnapshotPointer) -> bool:
        with self._reported(APPENDING):
            return await self._inner.set_snapshot(expected, pointer)

    async def trim(self, position: Position) -> None:
        with self._reported(APPENDING):
            await self._inner.trim(position)

    async def size(self) -> LedgerSize:
        with self._reported(READING):
            return await self._inner.size()

    async def fence(self) -> None:
        await self._inner.fence()

    async def restart(self, identity: LedgerIdentity, pointer: SnapshotPointer) -> None:
        await self._inner.restart(identity, pointer)

    async def close(self) -> None:
        await self._inner.close()


class OutageLoggingJointLedger(OutageLoggingLedger):
    """A `JointLedger` over another one. A full disk is no outage: `agent.bucket.disk_reserve` reports it."""

    def __init__(
        self, inner: JointLedger, *, monotonic_s: Callable[[], float], count_error: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(inner, monotonic_s=monotonic_s, count_error=count_error)
        self._joint = inner

    async def append_with(
        self, session: SessionId, entries: Sequence[LedgerEntry], objects: Sequence[ObjectToPut]
    ) -> Position:
        with self._reported(APPENDING):
            return await self._joint.append_with(session, entries, objects)


def with_outages_logged(
    inner: Ledger, *, monotonic_s: Callable[[], float], count_error: Callable[[], None] = lambda: None
) -> OutageLoggingLedger:
    """The ledger with its outages logged; a joint one stays one."""
    if isinstance(inner, JointLedger):
        return OutageLoggingJointLedger(inner, monotonic_s=monotonic_s, count_error=count_error)
    return OutageLoggingLedger(inner, monotonic_s=monotonic_s, count_error=count_error)
