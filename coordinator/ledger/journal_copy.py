"""A copy of the ledger in a journal, whether an agent writes to it or not: for tools that only look.

Rule: blocking; nothing is created, locked or changed. An agent may write to a file while it is read, begin another one,
and use one again of which nothing is needed. What is read then does not fit together, and looks like damage: the ledger
counts its entries and states, so nothing is missing without being noticed. So damage counts only after several looks.
"""

import os
from pathlib import Path

from coordinator.ledger.journal_file import JournalLedgerFile
from coordinator.ledger.ledger_contents import LedgerContents
from coordinator.ledger.port import LedgerCorrupt, LedgerUnavailable, LedgerUnsupported
from protocol.limits import JOURNAL_SCANS_MAX
from storage.embedded.journal.journal import Journal
from storage.embedded.local_files import Files
from storage.object_store import StoreMisconfigured


def copy_ledger(folder: Path) -> LedgerContents:
    """Everything in the ledger in the journal `folder`, as of one moment.

    Raises `LedgerMissing` where there is none, `LedgerCorrupt` where it is damaged, `LedgerUnsupported` for files of a
    newer format, and `LedgerUnavailable` where they cannot be read.
    """
    looks = 0
    while True:
        looks += 1
        try:
            return _look(folder)
        except (LedgerCorrupt, LedgerUnavailable):
            if looks == JOURNAL_SCANS_MAX:
                raise


class _UnlockedFiles(Files):
    def lock_directory(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _look(folder: Path) -> LedgerContents:
    journal = Journal(str(folder), new_nonce=bytes, is_durable=False, files=_UnlockedFiles(), is_writer=False)
    try:
        content = journal.open()
        return JournalLedgerFile(journal, content, new_cluster_id=None).contents()
    except StoreMisconfigured as error:
        raise LedgerUnsupported(str(error)) from error
    except FileNotFoundError as error:
        text = f"{folder} changes faster than it can be read ({error}): try again when the broker has less to do"
        raise LedgerUnavailable(text) from error
    except OSError as error:
        raise LedgerUnavailable(f"the journal {folder} could not be read ({error}): check the disk") from error
    finally:
        journal.close()
