"""The embedded ledgers and the ledger in memory do the same, whatever is asked of them and is lost on the way."""

import asyncio
import sqlite3
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from coordinator.ledger.append_rules import Appended
from coordinator.ledger.journal import JournalLedger
from coordinator.ledger.journal_file import JournalLedgerFile
from coordinator.ledger.memory import AppendFate, MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import Fenced, Ledger, LedgerEntry, LedgerError, LedgerUnavailable, SnapshotPointer
from coordinator.ledger.sqlite import SqliteLedger
from protocol.types import Position, SessionId
from storage.embedded.journal.open_journal import OpenJournal
from tests.support.journal.opened_journals import nonces

if TYPE_CHECKING:
    from sqlite3 import _Parameters

NAMES = ("a", "b")


@dataclass(frozen=True, slots=True)
class Open:
    name: str


@dataclass(frozen=True, slots=True)
class Close:
    row: int


@dataclass(frozen=True, slots=True)
class Revoke:
    """As another agent does, who knows a session's name, or takes another one for it."""

    name: str
    row: int


@dataclass(frozen=True, slots=True)
class Append:
    """`back` groups before the next one: 0 is new, 1 repeats the newest."""

    row: int
    back: int
    count: int
    fate: AppendFate


@dataclass(frozen=True, slots=True)
class PublishedSnapshot:
    back: int


@dataclass(frozen=True, slots=True)
class Trim:
    back: int


Step = Open | Close | Revoke | Append | PublishedSnapshot | Trim

ROWS = st.integers(0, 4)
FATES = st.sampled_from([AppendFate.APPLIED, AppendFate.APPLIED, AppendFate.LOST, AppendFate.ANSWER_LOST])
STEPS = st.one_of(
    st.builds(Open, st.sampled_from(NAMES)),
    st.builds(Close, ROWS),
    st.builds(Revoke, st.sampled_from(NAMES), ROWS),
    st.builds(Append, ROWS, st.integers(0, 2), st.integers(1, 3), FATES),
    st.builds(Append, ROWS, st.integers(0, 1), st.integers(1, 3), FATES),
    st.builds(PublishedSnapshot, st.integers(0, 3)),
    st.builds(Trim, st.integers(0, 3)),
)


class Losses:
    """Loses the appends of both ledgers alike."""

    def __init__(self) -> None:
        self.fates: deque[AppendFate] = deque()

    async def of_memory(self, _session: SessionId, _entries: Sequence[LedgerEntry]) -> AppendFate:
        return self.fates.popleft() if self.fates else AppendFate.APPLIED

    def connection_type(self) -> type[sqlite3.Connection]:
        fates = self.fates

        class LosingConnection(sqlite3.Connection):
            def execute(self, sql: str, parameters: "_Parameters" = (), /) -> sqlite3.Cursor:
                fate = fates.popleft() if fates and sql.startswith("INSERT INTO entries") else AppendFate.APPLIED
                if fate is AppendFate.LOST:
                    raise sqlite3.OperationalError("lost")
                cursor = super().execute(sql, parameters)
                if fate is AppendFate.ANSWER_LOST:
                    raise sqlite3.OperationalError("the answer is lost")
                return cursor

        return LosingConnection

    def journal_file(self, opened: OpenJournal) -> JournalLedgerFile:
        fates = self.fates

        class LosingFile(JournalLedgerFile):
            def append(self, session: SessionId, entries: Sequence[LedgerEntry]) -> Appended:
                fate = fates.popleft() if fates else AppendFate.APPLIED
                if fate is AppendFate.LOST:
                    raise LedgerUnavailable("lost")
                appended = super().append(session, entries)
                if fate is AppendFate.ANSWER_LOST:
                    raise LedgerUnavailable("the answer is lost")
                return appended

        return LosingFile(opened.journal, opened.content, new_cluster_id="memory")


class LedgerCaller:
    """Carries out steps on one ledger and remembers what a caller would."""

    def __init__(self, ledger: Ledger, losses: Losses) -> None:
        self.ledger = ledger
        self._losses = losses
        self._sessions: list[SessionId] = []
        self._live: set[SessionId] = set()
        self._unknown: set[SessionId] = set()
        self._groups: dict[SessionId, list[list[LedgerEntry]]] = {}
        self._positions: list[Position] = [Position(0)]
        self._pointer: SnapshotPointer | None = None

    async def take(self, step: Step) -> object:
        """What the step answers: a value, or the type of the error."""
        match step:
            case Open(name=name):
                session = await answer(lambda: self.ledger.open_session(name))
                if isinstance(session, int):
                    self._sessions.append(SessionId(session))
                    self._live.add(SessionId(session))
                return session
            case Close(row=row):
                self._live.discard(self._session(row))
                return await answer(lambda: self.ledger.close_session(self._session(row)))
            case Revoke(name=name, row=row):
                answered = await answer(lambda: self.ledger.revoke_session(name, self._session(row)))
                self._live = {session for session in self._live if not await self._is_over(session)}
                return answered
            case Append():
                return await self._append(step)
            case PublishedSnapshot(back=back):
                head = await self.ledger.head()
                position = self._positions[max(0, len(self._positions) - 1 - back)]
                pointer = SnapshotPointer(
                    position=position, object_key="k", appends_count=head.appends_count, digest=b""
                )
                expected = self._pointer
                is_set = await answer(lambda: self.ledger.set_snapshot(expected, pointer))
                self._pointer = pointer if is_set is True else self._pointer
                return is_set
            case Trim(back=back):
                position = self._positions[max(0, len(self._positions) - 1 - back)]
                return await answer(lambda: self.ledger.trim(position))

    async def end_sessions(self) -> None:
        """End all sessions, as a start of the process does."""
        for session in self._live:
            await self.ledger.close_session(session)
        self._live.clear()

    async def move_to(self, ledger: Ledger) -> None:
        """Go on with the ledger as a start has opened it."""
        self.ledger = ledger
        self._live.clear()

    async def _append(self, step: Append) -> object:
        session = self._session(step.row)
        groups = self._groups.setdefault(session, [])
        is_unknown = session in self._unknown
        back = 1 if is_unknown else step.back  # what is unknown is repeated before anything else (safety rule S10)
        is_new = not 0 < back <= len(groups)
        if not is_new:
            group = groups[-back]
        else:
            first = groups[-1][-1].number + 1 if groups else 0
            group = [LedgerEntry(number=number, payload=b"%d" % number) for number in range(first, first + step.count)]
            groups.append(group)
        # Only what would be carried out can get lost: a repeat may find its first copy, the rest is refused at once.
        if session in self._live and is_new:
            self._losses.fates.append(step.fate)
        answered = await answer(lambda: self.ledger.append(session, group))
        self._losses.fates.clear()
        if isinstance(answered, int):
            self._positions = sorted({*self._positions, Position(answered)})
            self._unknown.discard(session)
        elif answered is LedgerUnavailable:
            self._unknown.add(session)
        return answered

    async def _is_over(self, session: SessionId) -> bool:
        return await answer(lambda: self.ledger.keep_session(session)) is Fenced

    def _session(self, row: int) -> SessionId:
        return self._sessions[row % len(self._sessions)] if self._sessions else SessionId(99)


async def answer(call: Callable[[], Awaitable[object]]) -> object:
    try:
        return await call()
    except LedgerError as error:
        return type(error)


async def run_both(steps: Sequence[Step], folder: Path) -> None:
    losses = Losses()
    memory = LedgerCaller(MemoryLedger(MemoryLedgerCore(), fate_of_append=losses.of_memory), losses)
    file = await SqliteLedger.open(
        folder / "ledger.sqlite",
        new_cluster_id="memory",
        is_durable=False,
        connection_type=losses.connection_type(),
    )
    try:
        sqlite = LedgerCaller(file, losses)
        for step in steps:
            assert await memory.take(step) == await sqlite.take(step), step
            assert await memory.ledger.load() == await sqlite.ledger.load(), step
        assert await memory.ledger.identity() == await file.identity()
    finally:
        await file.close()


async def run_journal(steps: Sequence[Step], folder: Path) -> None:
    """The journal is opened again behind every third step: sessions end by it, and nothing else changes."""
    losses = Losses()
    memory = LedgerCaller(MemoryLedger(MemoryLedgerCore(), fate_of_append=losses.of_memory), losses)
    nonce_of = nonces(1)

    async def open_again() -> tuple[OpenJournal, JournalLedger]:
        opened = await OpenJournal.open(
            folder / "journal",
            new_nonce=nonce_of,
            is_durable=False,
            file_bytes_target=2_000,
            allocated_bytes_step=512,
        )
        return opened, JournalLedger(losses.journal_file(opened), opened)

    opened, ledger = await open_again()
    journal = LedgerCaller(ledger, losses)
    try:
        for number, step in enumerate(steps):
            assert await memory.take(step) == await journal.take(step), step
            assert await memory.ledger.load() == await ledger.load(), step
            if number % 3 == 2:
                await memory.end_sessions()
                before = await ledger.load()
                await ledger.close()
                await opened.close()
                opened, ledger = await open_again()
                await journal.move_to(ledger)
                assert await ledger.load() == before
    finally:
        await ledger.close()
        await opened.close()


@given(st.lists(STEPS, max_size=30))
def test_the_ledger_in_sqlite_answers_like_that_in_memory(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run_both([Open("a"), *steps], Path(folder)))


@given(st.lists(STEPS, max_size=30))
def test_the_ledger_in_a_journal_answers_like_that_in_memory(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run_journal([Open("a"), *steps], Path(folder)))
