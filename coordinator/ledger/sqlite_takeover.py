"""Takes over the ledger of a SQLite file into a journal, once, all or nothing.

Rule: the journal gets everything by one write, which is durable then, also without `fsync`. Then the file gets another
name, and a marker stands in its place (`coordinator.ledger.sqlite_marker`): no program takes it for the ledger any
more. A crash in between leaves two ledgers that hold the same, and the next start goes on. Two that differ are
rejected: of them somebody has to say which one is right.
"""

import os
from pathlib import Path
from typing import Final

from coordinator.ledger.journal_file import REVISIONS_PER_WRITE, JournalLedgerFile
from coordinator.ledger.port import LedgerCorrupt, LedgerUnavailable
from coordinator.ledger.sqlite_file import LedgerFile
from coordinator.ledger.sqlite_log import log_of
from coordinator.ledger.sqlite_marker import is_marker, write_marker
from coordinator.ledger.sqlite_schema import sync_directory
from storage.embedded.journal.journal import Journal
from storage.embedded.journal.records import JournalContent

UPGRADED_SUFFIX: Final = ".upgraded"
_UNUSED_CLUSTER_ID: Final = "-"
"""Needed to open a file for writing, and not used: it has an identity."""


def take_over(journal: Journal, content: JournalContent, path: Path, *, is_durable: bool) -> JournalLedgerFile:
    """The ledger in `journal`, which gets what the SQLite file `path` holds, unless it has it.

    Blocking; the caller holds the ledger's lock (`coordinator.ledger.file_lock`). Raises `SessionHeld` where another
    process has the file open all the same, `LedgerCorrupt` where the file is damaged or the journal holds something
    else, and `LedgerUnavailable`.
    """
    upgraded = path.with_name(path.name + UPGRADED_SUFFIX)
    if upgraded.exists() and not upgraded.samefile(path):
        raise LedgerCorrupt(f"{upgraded} was taken over before, and here is another {path.name}: move one of them away")
    file = LedgerFile(path, new_cluster_id=_UNUSED_CLUSTER_ID, is_durable=is_durable)
    try:
        contents = file.contents().with_newest(REVISIONS_PER_WRITE)
    finally:
        file.close()  # moves the write-ahead log into the file, and removes it
    ledger = JournalLedgerFile(journal, content, new_cluster_id=None, predecessor=contents)
    if ledger.contents() != contents:
        raise LedgerCorrupt(
            f"the journal holds another ledger than {path}: move away the one that is not this cluster's newest, "
            "and nothing else"
        )
    _make_durable(journal)
    _replace(path, upgraded, contents.identity.cluster_id)
    return ledger


def mark_ledger(journal: Journal, path: Path, cluster_id: str) -> None:
    """Make `path` a marker for the ledger in `journal`, which is durable then, also without `fsync`.

    Blocking. Raises `LedgerUnavailable`.
    """
    _make_durable(journal)
    write_marker(path, cluster_id)


def was_in_journal(path: Path) -> bool:
    """Whether there was a ledger in the journal beside the SQLite file `path`: a marker or a former file says so."""
    return is_marker(path) or path.with_name(path.name + UPGRADED_SUFFIX).exists()


def _make_durable(journal: Journal) -> None:
    """A marker is durable. So is then what it says: that the ledger is in the journal."""
    try:
        journal.make_durable()
    except OSError as error:
        raise LedgerUnavailable(f"the journal could not be synced ({error}): check the disk") from error


def _replace(path: Path, upgraded: Path, cluster_id: str) -> None:
    """Give the file the name `upgraded`, and put a marker in its place."""
    if log_of(path).exists():
        raise LedgerUnavailable(f"{log_of(path)} is left although its file was closed: start again")
    try:
        if not upgraded.exists():
            try:
                os.link(path, upgraded)  # so that there is a file of either name at any time
            except OSError:
                path.rename(upgraded)  # on a file system without such links
        sync_directory(path.parent)
    except OSError as error:
        raise LedgerUnavailable(f"{path} was taken over and cannot be renamed ({error}): check its folder") from error
    write_marker(path, cluster_id)
