"""The SQLite file of the embedded ledger: how it is opened and created, and what an error of SQLite means.

Rule: a file that is not a Penstock ledger of a known format is never written to.
"""

import contextlib
import os
import sqlite3
import struct
from collections.abc import Container, Generator, Sequence
from pathlib import Path
from typing import Any, Final

from coordinator.ledger.port import LedgerCorrupt, LedgerIdentity, LedgerUnavailable, SessionHeld
from coordinator.ledger.sqlite_log import LOG_HEADER_BYTES, find_damage, log_of
from protocol.limits import LEDGER_WAL_BYTES_KEPT, LEDGER_WAL_PAGES_MAX
from protocol.records.crc import crc32c

APPLICATION_ID: Final = 0x50454E53
"""`PENS`: marks the file among SQLite databases."""
FORMAT_VERSION: Final = 2
FORMAT_WITHOUT_CHECKSUMS: Final = 1
FORMAT_IN_JOURNAL: Final = 100
"""The file has no ledger, which is in a journal beside it. No program reads this format."""
FORMATS_WRITTEN: Final = frozenset({FORMAT_VERSION})
FORMATS_READ: Final = frozenset({FORMAT_WITHOUT_CHECKSUMS, FORMAT_VERSION})
NO_CHECKSUM: Final = -1
"""The entry was written before entries had one."""
INCARNATION_FIRST: Final = 1
REMEDY: Final = (
    "move the file away, with its -wal, and recover the cluster from its bucket with `penstock recover` "
    '(docs/operations/recovery.md, "The embedded ledger is damaged")'
)

_TABLES: Final = (
    "CREATE TABLE meta (cluster_id TEXT NOT NULL, incarnation INTEGER NOT NULL, format_version INTEGER NOT NULL,"
    " is_fenced INTEGER NOT NULL, bucket_id TEXT NOT NULL)",
    "CREATE TABLE entries (position INTEGER NOT NULL, number INTEGER NOT NULL, session INTEGER NOT NULL,"
    " payload BLOB NOT NULL, checksum INTEGER NOT NULL DEFAULT -1, PRIMARY KEY (position, number)) WITHOUT ROWID",
    # position_last: of an append or a session; position: of the newest append; trimmed: of the newest dropped entry.
    "CREATE TABLE head (position_last INTEGER NOT NULL, position INTEGER NOT NULL, appends_count INTEGER NOT NULL,"
    " trimmed INTEGER NOT NULL)",
    # So an append is one statement, and its thread waits for the interpreter's lock once instead of five times.
    "CREATE TRIGGER append AFTER INSERT ON entries BEGIN UPDATE head SET position_last = new.position,"
    " appends_count = appends_count + (position < new.position), position = new.position; END",
    "CREATE TABLE snapshot (position INTEGER NOT NULL, object_key TEXT NOT NULL, appends_count INTEGER NOT NULL,"
    " digest BLOB NOT NULL)",
)
_ENTRIES_WITHOUT_CHECKSUMS: Final = (
    "CREATE TEMP VIEW entries AS SELECT position, number, session, payload, -1 AS checksum FROM main.entries"
)
_PRIMARY_CODE_MASK: Final = 0xFF
_CORRUPT_CODES: Final = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_ERROR,  # a statement that the schema in the file does not fit
    }
)
_ENTRY_NUMBERS: Final = struct.Struct("<qqq")


def connect(path: Path, *, is_durable: bool, connection_type: type[sqlite3.Connection]) -> sqlite3.Connection:
    """Open `path`, creating it where it is missing. Every commit is durable, or in the write-ahead log's file at least.

    Locking is exclusive, which also keeps the log's index in this process's memory: no other file beside the log.
    Raises `LedgerCorrupt` where the log is damaged: opening it would end it there.
    """
    check_log(path, is_each_commit_synced=is_durable)
    if is_durable:
        with _as_unavailable(path):
            _sync_log(path)
    connection = sqlite3.connect(path, timeout=0.0, isolation_level=None, factory=connection_type)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        application_id = connection.execute("PRAGMA application_id").fetchone()[0]
        if application_id != APPLICATION_ID and not _is_empty(connection):
            raise LedgerCorrupt(f"{path} is not a Penstock ledger (application id {application_id:#x}): {REMEDY}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
        connection.execute("PRAGMA secure_delete = OFF")
        # Bounds the log: beyond the pages a commit moves them into the file and begins the log from its start again.
        connection.execute(f"PRAGMA wal_autocheckpoint = {LEDGER_WAL_PAGES_MAX}")
        connection.execute(f"PRAGMA journal_size_limit = {LEDGER_WAL_BYTES_KEPT}")
    except BaseException:
        connection.close()
        raise
    return connection


def check_log(path: Path, *, is_each_commit_synced: bool) -> None:
    """Raise `LedgerCorrupt` where the write-ahead log of the file `path` is damaged, or has lost its file: SQLite would
    remove it then. Raise `LedgerUnavailable` where it cannot be read. Nothing is changed, and no log is fine.
    """
    log = log_of(path)
    with _as_unavailable(log):
        try:
            content = log.read_bytes()
        except FileNotFoundError:
            return
        is_alone = len(content) > LOG_HEADER_BYTES and not (path.is_file() and path.stat().st_size)
    damage = find_damage(content, is_each_commit_synced=is_each_commit_synced)
    if damage is not None:
        raise LedgerCorrupt(
            f"{log} is damaged ({damage}): SQLite would drop what was acknowledged from there on. Move {path.name} and "
            f"{log.name} away, together, and recover the cluster from its bucket with `penstock recover` "
            '(docs/operations/recovery.md, "The embedded ledger is damaged")'
        )
    if is_alone:
        raise LedgerCorrupt(
            f"{log} is there, but not its {path.name}, and SQLite would begin a new one: put it back. "
            f"If it is lost, {REMEDY}"
        )


def create_if_empty(connection: sqlite3.Connection, path: Path, new_cluster_id: str) -> None:
    """An empty file becomes the ledger of a new cluster, in one transaction."""
    if _is_empty(connection):
        create(connection, new_cluster_id)
        for folder in path.resolve().parents:  # they may have been created for this file, and their names not synced
            sync_directory(folder)


def upgrade(connection: sqlite3.Connection) -> None:
    """Give the entries of an older file a place for their checksums (safety rule S20). Older programs reject it then.

    The values stay `NO_CHECKSUM` until the entries are trimmed: a checksum made now would vouch for what is there now.
    """
    if _formats(connection) != [(FORMAT_WITHOUT_CHECKSUMS,)]:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute("ALTER TABLE entries ADD COLUMN checksum INTEGER NOT NULL DEFAULT -1")
        connection.execute("UPDATE meta SET format_version = ?", (FORMAT_VERSION,))
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def empty_log(connection: sqlite3.Connection) -> None:
    """Move the log's commits into the file, and cut it to nothing.

    Where commits are not synced one by one, whole ones may lie behind the torn one that ends the log. They have its
    salts: for a later start that relies on syncs they would be damage.
    """
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def only_read(connection: sqlite3.Connection) -> None:
    """Reject every write from now on, and read an older file as if it had been upgraded: older programs still know it.

    What goes by the name `entries` in this connection is a view then.
    """
    if _formats(connection) == [(FORMAT_WITHOUT_CHECKSUMS,)]:
        connection.execute(_ENTRIES_WITHOUT_CHECKSUMS)
    connection.execute("PRAGMA query_only = ON")


def entry_checksum(position: int, session: int, number: int, payload: bytes) -> int:
    """The checksum that stands beside an entry: one changed bit of it would be applied as another command (S20)."""
    return crc32c(payload, crc32c(_ENTRY_NUMBERS.pack(position, session, number)))


def read_identity(connection: sqlite3.Connection, path: Path, *, formats: Container[int]) -> LedgerIdentity:
    """Whose ledger the file is. Raises `LedgerCorrupt` where its format is none of `formats`."""
    rows = connection.execute("SELECT cluster_id, incarnation, format_version, bucket_id FROM meta").fetchall()
    if len(rows) != 1:
        raise LedgerCorrupt(f"{path} names {len(rows)} clusters instead of one: {REMEDY}")
    cluster_id, incarnation, format_version, bucket_id = checked_row(rows[0], (str, int, int, str), path)
    if format_version == FORMAT_IN_JOURNAL:
        raise LedgerCorrupt(
            f"{path} has no ledger: that is in the journal beside it, with the records that wait for the archive. Use "
            "that: penstock run without --store, or --ledger journal:///PATH with the bucket beside it"
        )
    if format_version not in formats:
        raise LedgerCorrupt(
            f"{path} has format {format_version}, this program knows {FORMAT_VERSION}: use the version that wrote it"
        )
    return LedgerIdentity(cluster_id=cluster_id, incarnation=incarnation, bucket_id=bucket_id)


def checked_row(row: Sequence[Any], kinds: Sequence[type], path: Path) -> Sequence[Any]:
    """The row, where its values have these types; SQLite itself takes any type in any column (S20).

    Raises `LedgerCorrupt`.
    """
    if [type(value) for value in row] != list(kinds):
        raise LedgerCorrupt(f"{path} is damaged (a row of {[type(value).__name__ for value in row]}): {REMEDY}")
    return row


@contextlib.contextmanager
def mapped_errors(path: Path) -> Generator[None, None, None]:
    """Turn SQLite's errors into the ledger's. What is not corruption may pass (a full disk, an I/O error)."""
    try:
        yield
    except UnicodeDecodeError as error:  # in the text of one of SQLite's own messages about a damaged schema
        raise LedgerCorrupt(f"{path} is damaged ({error}): {REMEDY}") from error
    except sqlite3.Error as error:
        if str(error).startswith("Could not decode to UTF-8"):
            # An error of Python's module, without a code of SQLite's: a damaged TEXT (S20).
            raise LedgerCorrupt(f"{path} is damaged ({error}): {REMEDY}") from error
        code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE_MASK
        if code in _CORRUPT_CODES:
            raise LedgerCorrupt(f"{path} is damaged ({error}): {REMEDY}") from error
        if code == sqlite3.SQLITE_BUSY:
            raise SessionHeld(f"another program has the ledger {path} open: close it, or use another folder") from error
        raise LedgerUnavailable(
            f"{path} could not be read or written ({error}): check the disk and its free space"
        ) from error


@contextlib.contextmanager
def _as_unavailable(path: Path) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise LedgerUnavailable(f"{path} could not be read or synced ({error}): check the disk") from error


def _formats(connection: sqlite3.Connection) -> list[tuple[int]]:
    return connection.execute("SELECT format_version FROM meta").fetchall()


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT name FROM sqlite_schema LIMIT 1").fetchone() is None


def create(connection: sqlite3.Connection, cluster_id: str, format_version: int = FORMAT_VERSION) -> None:
    """Make the tables of a new cluster's ledger in an empty file, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute("INSERT INTO meta VALUES (?, ?, ?, 0, '')", (cluster_id, INCARNATION_FIRST, format_version))
        connection.execute("INSERT INTO head VALUES (0, 0, 0, 0)")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _sync_log(path: Path) -> None:
    """Sync the log of the file `path`, if there is one. Raises OSError.

    The last commit of a process that was killed may be in the page cache alone. SQLite takes it for durable, and the
    next one would be the second that a loss of power can tear: damage, for `find_damage`.
    """
    try:
        descriptor = os.open(log_of(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make the names in a folder durable. One that this process may not open was not made by it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
