"""A marker in the place of a SQLite ledger where the ledger is in a journal, for programs that know no journal.

Rule: blocking. Such a program finds a format that it does not know, changes nothing, and says that the version that
wrote it is to be used. Without the file it would take the ledger for lost, and offer to recover the cluster without the
records in the journal.
"""

import os
import sqlite3
from pathlib import Path
from typing import Final

from coordinator.ledger.port import LedgerUnavailable
from coordinator.ledger.sqlite_schema import APPLICATION_ID, FORMAT_IN_JOURNAL, create, sync_directory

_HEADER_BYTES: Final = 72
_MAGIC: Final = b"SQLite format 3\0"
# Offsets in the header of a file of SQLite: sqlite.org/fileformat.html, "The Database Header".
_USER_VERSION: Final = slice(60, 64)
_APPLICATION_ID: Final = slice(68, 72)
_NEW_SUFFIX: Final = ".new"


def is_marker(path: Path) -> bool:
    """Whether the file is a marker. False for a ledger, and where there is no file that can be read."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError:  # the ledger's adapter reports it
        return False
    return header.startswith(_MAGIC) and (header[_USER_VERSION], header[_APPLICATION_ID]) == (
        FORMAT_IN_JOURNAL.to_bytes(4),
        APPLICATION_ID.to_bytes(4),
    )


def write_marker(path: Path, cluster_id: str) -> None:
    """Make `path` a marker, atomically and durably, whatever it was before. Raises `LedgerUnavailable`."""
    new = path.with_name(path.name + _NEW_SUFFIX)
    try:
        new.unlink(missing_ok=True)  # a start was cut off
        connection = sqlite3.connect(new, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = MEMORY")  # no second file that a crash could leave
            connection.execute(f"PRAGMA user_version = {FORMAT_IN_JOURNAL}")
            create(connection, cluster_id, FORMAT_IN_JOURNAL)
        finally:
            connection.close()
        with new.open("rb") as file:
            os.fsync(file.fileno())
        new.replace(path)
        sync_directory(path.parent)
    except (OSError, sqlite3.Error) as error:
        raise LedgerUnavailable(f"{path} cannot be written ({error}): check its folder and the free space") from error
