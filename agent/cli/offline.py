"""Reads the data folder of a `penstock run`, whether its broker runs or not. Nothing in it is changed.

The ledger is read from a copy: opening SQLite's write-ahead log changes it, and a broker uses files of a journal again.
"""

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.cli.failure import CommandFailed
from agent.ledger.open_ledger import SQLITE_FILE
from agent.runtime.ids import SystemIds
from coordinator.follower import Follower
from coordinator.ledger.journal_copy import copy_ledger
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import Ledger, LedgerCorrupt, LedgerError, LedgerRecord, LedgerStart
from coordinator.ledger.sqlite import SqliteLedger, check_regular, is_missing
from coordinator.ledger.sqlite_log import LOG_HEADER_BYTES, log_of
from coordinator.ledger.sqlite_marker import is_marker
from coordinator.ledger.sqlite_schema import check_log
from coordinator.state.state import ClusterState
from protocol.limits import LEDGER_COPIES_MAX
from storage.embedded.journal.open_journal import is_empty
from storage.embedded.journal.opening import JOURNAL_FOLDER
from storage.embedded.journal.reader import JournalReader
from storage.embedded.local_files import Files
from storage.embedded.local_store import PACKS_FOLDER
from storage.embedded.pack_opening import folder_fault
from storage.embedded.packs import PackFolder
from storage.object_store import ObjectDamaged, ObjectMissing, StoreError

LEDGER_FILE = SQLITE_FILE
JOURNAL_REMEDY = 'docs/operations/recovery.md, "The ledger in a journal is damaged"'
UNUSED_CLUSTER_ID = "-"
"""Needed to open a ledger, and not used: the copy has an identity."""


async def read_state(data_dir: Path, *, is_durable: bool | None = None) -> ClusterState:
    """The state at the ledger's head. `is_durable`: see `copied_ledger`. Raises `CommandFailed`."""
    async with _ledger_of(data_dir, is_durable=is_durable) as ledger:
        start = await ledger.load()
        follower = Follower(await ledger.identity())
        follower.load(start, _snapshot(data_dir, start))
        return follower.state


async def read_ledger(data_dir: Path) -> Sequence[LedgerRecord]:
    """The entries that are not trimmed. Raises `CommandFailed`."""
    async with _ledger_of(data_dir, is_durable=None) as ledger:
        return await ledger.untrimmed_entries()


def read_object(data_dir: Path, key: str) -> bytes | None:
    """An object of the embedded bucket; None where there is none. Raises `CommandFailed`."""
    file = data_dir / "store" / key
    damaged: ObjectDamaged | None = None
    try:
        if file.is_file():
            return file.read_bytes()
        for find in (_in_packs, _in_journal):
            try:
                content = find(data_dir, key)
            except ObjectDamaged as error:
                damaged = error  # it may be in the other one, whole
            else:
                if content is not None:
                    return content
    except (OSError, StoreError) as error:
        raise CommandFailed(f"{key} cannot be read: {error}") from error
    if damaged is not None:
        raise CommandFailed(f"{key} cannot be read: {damaged}") from damaged
    return None


def _in_packs(data_dir: Path, key: str) -> bytes | None:
    """An object in a pack; None where there is none. Raises `CommandFailed`, `StoreError`s and `OSError`."""
    folder = data_dir / "store" / PACKS_FOLDER
    fault = folder_fault(str(folder))
    if fault:
        raise CommandFailed(fault)
    if not folder.is_dir():
        return None
    return PackFolder(str(folder), new_nonce=SystemIds().new_uuid, is_durable=True, files=Files()).find(key)


def _in_journal(data_dir: Path, key: str) -> bytes | None:
    """An object in a journal; None where there is none. Raises `StoreError`s."""
    try:
        return JournalReader(str(data_dir / JOURNAL_FOLDER)).get(key)
    except ObjectMissing:
        return None


@asynccontextmanager
async def _ledger_of(data_dir: Path, *, is_durable: bool | None) -> AsyncIterator[Ledger]:
    """A copy of the ledger of a data folder. Errors of the ledger in the block are raised as `CommandFailed`."""
    journal = data_dir / JOURNAL_FOLDER
    if is_empty(journal) and is_marker(data_dir / LEDGER_FILE):
        raise CommandFailed(f"{journal} has the ledger, and does not exist, or is empty: {JOURNAL_REMEDY}")
    if is_empty(journal) and is_missing(data_dir / LEDGER_FILE):
        raise CommandFailed(f"there is no ledger in {data_dir}: give the folder of a penstock run as --data-dir")
    place = data_dir / LEDGER_FILE if is_empty(journal) else journal
    copied = copied_ledger(place, is_durable=is_durable) if is_empty(journal) else copied_journal(journal)
    try:
        async with copied as ledger:
            yield ledger
    except LedgerError as error:
        raise CommandFailed(f"{place}: {error}") from error


@asynccontextmanager
async def copied_journal(folder: Path) -> AsyncIterator[Ledger]:
    """A copy of the embedded ledger in a journal, whether a broker has it open or not. Raises `LedgerError`s."""
    contents = await asyncio.to_thread(copy_ledger, folder)
    yield MemoryLedger(MemoryLedgerCore.of(contents))


@asynccontextmanager
async def copied_ledger(file: Path, *, is_durable: bool | None) -> AsyncIterator[Ledger]:
    """A copy of the embedded ledger in SQLite, whether a broker has it open or not.

    `is_durable` is the broker's `fsync` setting. Where it is None, the setting is unknown: a log as a power failure may
    leave it without fsync is read, with a warning on stderr. Raises `CommandFailed` and `LedgerError`s:
    `LedgerCorrupt` where the write-ahead log is damaged.
    """
    with TemporaryDirectory(prefix="penstock-inspect-") as folder:
        _copy(file, Path(folder), is_durable=is_durable)
        ledger = await SqliteLedger.open(Path(folder) / file.name, new_cluster_id=UNUSED_CLUSTER_ID, is_durable=False)
        try:
            yield ledger
        finally:
            await ledger.close()


def _copy(file: Path, folder: Path, *, is_durable: bool | None) -> None:
    """Copy file and log until the copy is of one moment, at most LEDGER_COPIES_MAX times."""
    if is_missing(file):
        raise CommandFailed(f"there is no {file}, or it is empty: give the folder of a penstock run as --data-dir")
    check_regular(file)
    # A running broker may start its log over during the copy, or write a commit of which the copy has only the end:
    # both look like damage. So damage counts only after several copies.
    copies = 0
    while True:
        copies += 1
        is_of_one_moment = _copy_once(file, folder)
        try:
            check_log(folder / file.name, is_each_commit_synced=is_durable is not False)
        except LedgerCorrupt:
            if copies >= LEDGER_COPIES_MAX:
                check_log(file, is_each_commit_synced=bool(is_durable))  # so that the error names the file itself
                if is_durable is None and is_of_one_moment:
                    sys.stderr.write(
                        f"{log_of(file)}: a commit is incomplete, and later ones are complete. The entries before it "
                        'are shown (docs/operations/recovery.md, "The embedded ledger is damaged")\n'
                    )
                    return
        else:
            if is_of_one_moment or copies >= LEDGER_COPIES_MAX:
                return


def _copy_once(file: Path, folder: Path) -> bool:
    """Copy once; False where the log was started over meanwhile. Raises `CommandFailed`."""
    try:
        header = _log_header(file)
        for old in folder.iterdir():
            old.unlink()
        for suffix in ("", "-journal", "-wal"):  # the file before its log, whose pages are moved into the file
            part = file.with_name(file.name + suffix)
            if part.is_file():  # a FIFO of that name would block
                shutil.copy2(part, folder)
        return header == _log_header(file)
    except FileNotFoundError:  # the log was removed meanwhile: its broker ended
        return False
    except OSError as error:
        raise CommandFailed(f"{file} cannot be copied aside: {error}") from error


def _log_header(file: Path) -> bytes:
    """The header of the write-ahead log, which changes where the log is started over. Empty without a log."""
    try:
        with log_of(file).open("rb") as log:
            return log.read(LOG_HEADER_BYTES)
    except FileNotFoundError:
        return b""


def _snapshot(data_dir: Path, start: LedgerStart) -> bytes | None:
    if start.pointer is None:
        return None
    try:
        return Files().read(f"{data_dir / 'store' / start.pointer.object_key}")
    except OSError as error:
        raise CommandFailed(f"the snapshot cannot be read: {error}") from error
