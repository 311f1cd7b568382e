"""The ledger as tables of one SQLite file: every operation as statements.

Rule: blocking, and used by one thread only (`coordinator.ledger.sqlite` owns it). A transaction that failed is rolled
back and what is remembered is read again from the file before anything else is done. The connection is never replaced
after a failed write: a new one would recover frames of the write-ahead log that are in the page cache but not on the
disk (a failed fsync marks them clean), and take them for durable.

Write-ahead log, synchronous=FULL: a commit has written and synced its frames when it returns. SQLite syncs the folder
when it creates the log, and `coordinator.ledger.sqlite_schema` once more. Specification: sqlite.org/wal.html.
"""

import contextlib
import sqlite3
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import LiteralString

from coordinator.ledger.append_rules import Appended, NewestGroup, entries_of, is_next, position_of_repeat
from coordinator.ledger.ledger_contents import LedgerContents
from coordinator.ledger.live_sessions import LiveSessions
from coordinator.ledger.port import (
    Head,
    LedgerCorrupt,
    LedgerEntry,
    LedgerIdentity,
    LedgerRecord,
    LedgerStart,
    SnapshotPointer,
    Trimmed,
    being_recovered,
    check_restart,
    not_fenced,
    position_first,
)
from coordinator.ledger.sqlite_schema import (
    FORMATS_READ,
    FORMATS_WRITTEN,
    NO_CHECKSUM,
    REMEDY,
    checked_row,
    connect,
    create_if_empty,
    empty_log,
    entry_checksum,
    mapped_errors,
    only_read,
    read_identity,
    upgrade,
)
from protocol.limits import LEDGER_TAIL_RECORDS_MAX, LEDGER_TRIM_RECORDS_STEP
from protocol.types import Position, SessionId


class LedgerFile:
    """The open file, for reading only where `new_cluster_id` is None: nothing in it changes, not even its format.

    `connection_type` lets a test replace SQLite's connection by a failing one.
    """

    identity: LedgerIdentity

    def __init__(
        self,
        path: Path,
        *,
        new_cluster_id: str | None,
        is_durable: bool,
        connection_type: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> None:
        self._path = path
        self._sessions = LiveSessions()
        self._position_last = 0  # of an append or a session
        self._trimmed = Position(0)
        self._head = Head(position=Position(0), appends_count=0)
        self._is_fenced = False
        self._is_stale = False  # what is remembered may differ from the file
        self._formats = FORMATS_READ if new_cluster_id is None else FORMATS_WRITTEN
        with mapped_errors(path):
            self._connection = connect(path, is_durable=is_durable, connection_type=connection_type)
        try:
            with mapped_errors(path):
                if new_cluster_id is None:
                    only_read(self._connection)
                else:
                    create_if_empty(self._connection, path, new_cluster_id)
                    upgrade(self._connection)
                self._read_again()
                if new_cluster_id is not None and not is_durable:
                    empty_log(self._connection)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        with mapped_errors(self._path):
            self._connection.close()

    def claim_bucket(self, bucket_id: str) -> LedgerIdentity:
        if not self.identity.bucket_id:
            with self._transaction():
                self._check_open()
                self._connection.execute("UPDATE meta SET bucket_id = ?", (bucket_id,))
            self.identity = replace(self.identity, bucket_id=bucket_id)
        return self.identity

    # Sessions.

    def open_session(self, name: str) -> SessionId:
        self._sessions.check_free(name)
        with self._transaction():
            self._check_open()
            session = SessionId(self._position_last + 1)
            self._connection.execute("UPDATE head SET position_last = ?", (session,))
        self._position_last = session
        self._sessions.add(name, session)
        return session

    def close_session(self, session: SessionId) -> None:
        self._sessions.close(session)

    def revoke_session(self, name: str, session: SessionId) -> None:
        self._sessions.revoke(name, session)

    def check_session(self, session: SessionId) -> None:
        """Raise `Fenced` where it is over."""
        self._sessions.check(session)

    def is_session_ended(self, name: str, session: SessionId) -> bool:
        return self._sessions.is_ended(name, session)

    def live_names(self) -> Sequence[str]:
        return self._sessions.names()

    # Entries.

    def append(self, session: SessionId, entries: Sequence[LedgerEntry]) -> Appended:
        with self._statement():
            self._check_open()
            self.check_session(session)
            newest = self._sessions.newest[session]
            if not is_next(newest, entries):
                first_copy = self._revision_of(session, entries[0].number)
                return Appended(position_of_repeat(session, newest, first_copy, entries), is_new=False)
            position = Position(self._position_last + 1)
            appends_count = self._head.appends_count + 1
            rows = ", ".join(["(?, ?, ?, ?, ?)"] * len(entries))
            values: list[int | bytes] = []
            for entry in entries:
                checksum = entry_checksum(position, session, entry.number, entry.payload)
                values += (position, entry.number, session, entry.payload, checksum)
            self._connection.execute(f"INSERT INTO entries VALUES {rows}", values)  # noqa: S608 - only placeholders
        self._position_last = position
        self._head = Head(position=position, appends_count=appends_count)
        self._sessions.newest[session] = NewestGroup(position=position, entries=tuple(entries))
        return Appended(position, is_new=True)

    def load(self) -> LedgerStart:
        with self._reading():
            pointer = self._read_pointer()
            after = Position(0) if pointer is None else pointer.position
            return LedgerStart(pointer=pointer, head=self._head, records=self.entries_above(after))

    def contents(self) -> LedgerContents:
        """Everything that is in the file."""
        with self._reading():
            return LedgerContents(
                identity=self.identity,
                is_fenced=self._is_fenced,
                position_last=self._position_last,
                head=self._head,
                trimmed=self._trimmed,
                pointer=self._read_pointer(),
                records=self.entries_above(Position(0)),
            )

    def entries_above(self, after: Position) -> list[LedgerRecord]:
        """The records above `after` that were not trimmed."""
        with self._reading():
            return self._select("WHERE position > ? ORDER BY position, number", (after,))

    def read_after(self, after: Position) -> list[LedgerRecord]:
        """Records above `after` by whole revisions, as many as a tail hands over at once; none where nothing is new."""
        with self._reading():
            if after < self._trimmed:
                raise Trimmed(f"position {after} was asked for, everything up to {self._trimmed} is trimmed")
            clauses = "WHERE position > ? ORDER BY position, number LIMIT ?"
            records = self._select(clauses, (after, LEDGER_TAIL_RECORDS_MAX))
            if len(records) == LEDGER_TAIL_RECORDS_MAX:
                last = records[-1].position
                rest = self._select("WHERE position = ? AND number > ? ORDER BY number", (last, records[-1].number))
                records.extend(rest)
            return records

    def head(self) -> Head:
        with self._reading():
            return self._head

    def used_bytes(self) -> int:
        """Bytes of the file's pages that are in use."""
        with self._reading():
            row = self._connection.execute(
                "SELECT (page_count - freelist_count) * page_size"
                " FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()"
            ).fetchone()
        return int(row[0])

    # Snapshots.

    def pointer(self) -> SnapshotPointer | None:
        with self._reading():
            return self._read_pointer()

    def set_snapshot(self, expected: SnapshotPointer | None, pointer: SnapshotPointer) -> bool:
        with self._transaction():
            self._check_open()
            if self._read_pointer() != expected:
                return False
            self._write_pointer(pointer)
        return True

    def trim_step(self, position: Position) -> tuple[Position, bool]:
        """Drop some of the entries at or below `position`, by whole revisions.

        Returns the position up to which everything is dropped now, and whether there may be more to drop.
        """
        with self._transaction():
            self._check_open()
            pointer = self._read_pointer()
            covered = Position(0) if pointer is None else pointer.position
            if position > covered:
                raise LedgerCorrupt(
                    f"trim up to {position} was asked for, but the snapshot covers only up to {covered}"
                )
            rows: list[tuple[int]] = self._connection.execute(
                "SELECT position FROM entries WHERE position <= ? ORDER BY position LIMIT ?",
                (position, LEDGER_TRIM_RECORDS_STEP),
            ).fetchall()
            if not rows:
                return self._trimmed, False
            trimmed = Position(rows[-1][0])
            self._connection.execute("DELETE FROM entries WHERE position <= ?", (trimmed,))
            self._connection.execute("UPDATE head SET trimmed = ?", (trimmed,))
        self._trimmed = trimmed
        return trimmed, len(rows) == LEDGER_TRIM_RECORDS_STEP

    def fence(self) -> None:
        self._sessions.check_none()
        with self._transaction():
            self._connection.execute("UPDATE meta SET is_fenced = 1")
        self._is_fenced = True

    def restart(self, identity: LedgerIdentity, pointer: SnapshotPointer) -> None:
        check_restart(identity, pointer)
        first = position_first(identity.incarnation)
        with self._transaction():
            if (self.identity, self._read_pointer()) == (identity, pointer):
                return
            if not self._is_fenced:
                raise not_fenced()
            self._connection.execute("DELETE FROM entries")
            self._connection.execute(
                "UPDATE head SET position_last = ?, position = ?, appends_count = 0, trimmed = ?", (first, first, first)
            )
            self._connection.execute(
                "UPDATE meta SET cluster_id = ?, incarnation = ?, bucket_id = ?, is_fenced = 0",
                (identity.cluster_id, identity.incarnation, identity.bucket_id),
            )
            self._write_pointer(pointer)
        self._is_stale = True  # identity, fence, head and the trimmed position are others now
        with self._reading():
            pass

    def _check_open(self) -> None:
        """Raise `LedgerCorrupt` where it is fenced."""
        if self._is_fenced:
            raise being_recovered()

    # Transactions and errors.

    @contextlib.contextmanager
    def _transaction(self) -> Generator[None, None, None]:
        with self._reading():
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except sqlite3.Error:
                self._is_stale = True
                raise
            finally:
                self._roll_back()

    @contextlib.contextmanager
    def _statement(self) -> Generator[None, None, None]:
        """For one statement that writes: it is a transaction of its own."""
        with self._reading():
            try:
                yield
            except sqlite3.Error:
                self._is_stale = True
                raise

    @contextlib.contextmanager
    def _reading(self) -> Generator[None, None, None]:
        with mapped_errors(self._path):
            if self._is_stale:
                self._roll_back()
                self._read_again()
                self._is_stale = False
            yield

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _read_again(self) -> None:
        """Remember what the file says. At most one append can be unknown: a revision above the head remembered."""
        self.identity = read_identity(self._connection, self._path, formats=self._formats)
        self._is_fenced = bool(self._connection.execute("SELECT is_fenced FROM meta").fetchone()[0])
        rows = self._connection.execute("SELECT position_last, position, appends_count, trimmed FROM head").fetchall()
        if len(rows) != 1:
            raise LedgerCorrupt(f"{self._path} has {len(rows)} heads instead of one: {REMEDY}")
        position_last, position, appends_count, trimmed = checked_row(rows[0], (int, int, int, int), self._path)
        (newest,) = self._connection.execute("SELECT max(position) FROM entries").fetchone()
        if not trimmed <= position <= position_last or newest not in (None, position):
            raise LedgerCorrupt(f"{self._path} is damaged (its head is {rows[0]}, its newest entry {newest}): {REMEDY}")
        self._position_last = position_last
        self._trimmed = Position(trimmed)
        self._head = Head(position=Position(position), appends_count=appends_count)
        revision = self._select("WHERE position = ? ORDER BY number", (position,))
        if revision and revision[0].session in self._sessions.newest:
            group = NewestGroup(position=Position(position), entries=entries_of(revision))
            self._sessions.newest[revision[0].session] = group

    # Reading.

    def _read_pointer(self) -> SnapshotPointer | None:
        row = self._connection.execute("SELECT position, object_key, appends_count, digest FROM snapshot").fetchone()
        if row is None:
            return None
        position, object_key, appends_count, digest = checked_row(row, (int, str, int, bytes), self._path)
        return SnapshotPointer(
            position=Position(position), object_key=object_key, appends_count=appends_count, digest=digest
        )

    def _write_pointer(self, pointer: SnapshotPointer) -> None:
        self._connection.execute("DELETE FROM snapshot")
        self._connection.execute(
            "INSERT INTO snapshot VALUES (?, ?, ?, ?)",
            (pointer.position, pointer.object_key, pointer.appends_count, pointer.digest),
        )

    def _revision_of(self, session: SessionId, number: int) -> list[LedgerRecord]:
        """The revision that holds an entry; empty where there is none. Reads everything: only for a late repeat."""
        clauses = "WHERE position = (SELECT position FROM entries WHERE session = ? AND number = ?) ORDER BY number"
        return self._select(clauses, (session, number))

    def _select(self, clauses: LiteralString, values: tuple[int, ...]) -> list[LedgerRecord]:
        query = "SELECT position, session, number, payload, checksum FROM entries "
        # All of them first: a statement that an error leaves open keeps the file locked.
        rows = self._connection.execute(query + clauses, values).fetchall()
        return [
            LedgerRecord(position=Position(position), session=SessionId(session), number=number, payload=payload)
            for position, session, number, payload, _ in map(self._checked_entry, rows)
        ]

    def _checked_entry(self, row: tuple[int, int, int, bytes, int]) -> tuple[int, int, int, bytes, int]:
        position, session, number, payload, checksum = row
        if not (type(position) is type(session) is type(number) is type(checksum) is int and type(payload) is bytes):
            checked_row(row, (int, int, int, bytes, int), self._path)
        if checksum not in (NO_CHECKSUM, entry_checksum(position, session, number, payload)):
            raise LedgerCorrupt(f"{self._path} is damaged (the checksum of entry {number} at {position}): {REMEDY}")
        return row
