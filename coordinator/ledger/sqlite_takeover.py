"""Takes over the ledger of a SQLite file into a journal, once, all or nothing.

Rule: the journal gets everything by one write. Then the file is renamed: no program takes it for the ledger any more.
A crash in between leaves two ledgers that hold the same, and the next start goes on. Two that differ are rejected: of
them somebody has to say which one is right.
"""

import os
from functools import partial
from pathlib import Path
from typing import Final

from coordinator.ledger.journal_file import TAKEN_OVER_REVISIONS_MAX, JournalLedgerFile
from coordinator.ledger.port import LedgerCorrupt, LedgerUnavailable
from coordinator.ledger.sqlite import hold
from coordinator.ledger.sqlite_file import LedgerFile
from coordinator.ledger.sqlite_log import log_of
from storage.embedded.journal.journal import Journal
from storage.embedded.journal.records import JournalContent

UPGRADED_SUFFIX: Final = ".upgraded"
_UNUSED_CLUSTER_ID: Final = "-"
"""Needed to open a file for writing, and not used: it has an identity."""


def take_over(journal: Journal, content: JournalContent, path: Path, *, is_durable: bool) -> JournalLedgerFile:
    """The ledger in `journal`, which gets what the SQLite file `path` holds, unless it has it.

    Blocking. Raises `SessionHeld` while another process has the file open, `LedgerCorrupt` where the file is damaged or
    the journal holds something else, and `LedgerUnavailable`.
    """
    upgraded = path.with_name(path.name + UPGRADED_SUFFIX)
    if upgraded.exists():
        raise LedgerCorrupt(f"{upgraded} was taken over before, and here is another {path.name}: move one of them away")
    lock, file = hold(path, partial(LedgerFile, path, new_cluster_id=_UNUSED_CLUSTER_ID, is_durable=is_durable))
    try:
        try:
            contents = file.contents().with_newest(TAKEN_OVER_REVISIONS_MAX)
        finally:
            file.close()  # moves the write-ahead log into the file, and removes it
        ledger = JournalLedgerFile(journal, content, new_cluster_id=None, predecessor=contents)
        if not ledger.holds(contents):
            raise LedgerCorrupt(
                f"the journal holds another ledger than {path}: move away the one that is not this cluster's newest, "
                "and nothing else"
            )
        _rename(path, upgraded)
    finally:
        lock.release()
    return ledger


def _rename(path: Path, upgraded: Path) -> None:
    if log_of(path).exists():
        raise LedgerUnavailable(f"{log_of(path)} is left although its file was closed: start again")
    try:
        path.rename(upgraded)
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise LedgerUnavailable(f"{path} was taken over and cannot be renamed ({error}): check its folder") from error
