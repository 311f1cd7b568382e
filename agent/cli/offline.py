"""Reads the folder of a `penstock run`, whether it is running or not.

Rule: nothing is written: the ledger's file is copied aside first, because opening SQLite's write-ahead log changes it.
"""

import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.cli.failure import CommandFailed
from agent.runtime.ids import SystemIds
from coordinator.follower import Follower
from coordinator.ledger.port import LedgerCorrupt, LedgerError, LedgerRecord, LedgerStart
from coordinator.ledger.sqlite import SqliteLedger, check_regular, is_missing
from coordinator.ledger.sqlite_log import LOG_HEADER_BYTES, log_of
from coordinator.ledger.sqlite_schema import check_log
from coordinator.state.state import ClusterState
from protocol.limits import LEDGER_COPIES_MAX
from storage.embedded.local_files import Files
from storage.embedded.local_store import PACKS_FOLDER
from storage.embedded.pack_opening import folder_fault
from storage.embedded.packs import PackFolder
from storage.object_store import StoreError

LEDGER_FILE = "ledger.sqlite"
UNUSED_CLUSTER_ID = "-"
"""The copy has an identity already."""


async def read_state(data_dir: Path, *, is_durable: bool | None = None) -> ClusterState:
    """The state at the ledger's head. `is_durable`: see `copied_ledger`. Raises `CommandFailed`."""
    try:
        async with copied_ledger(data_dir / LEDGER_FILE, is_durable=is_durable) as ledger:
            start = await ledger.load()
            follower = Follower(await ledger.identity())
            follower.load(start, _snapshot(data_dir, start))
            return follower.state
    except LedgerError as error:
        raise CommandFailed(f"{data_dir / LEDGER_FILE}: {error}") from error


async def read_ledger(data_dir: Path) -> Sequence[LedgerRecord]:
    """The entries that were not trimmed. Raises `CommandFailed`."""
    try:
        async with copied_ledger(data_dir / LEDGER_FILE, is_durable=None) as ledger:
            return await ledger.kept()
    except LedgerError as error:
        raise CommandFailed(f"{data_dir / LEDGER_FILE}: {error}") from error


def read_object(data_dir: Path, key: str) -> bytes | None:
    """An object of the embedded bucket; None where there is none. Raises `CommandFailed`."""
    store = data_dir / "store"
    try:
        if (store / key).is_file():
            return (store / key).read_bytes()
        fault = folder_fault(str(store / PACKS_FOLDER))
        if fault:
            raise CommandFailed(fault)
        if not (store / PACKS_FOLDER).is_dir():
            return None
        packs = PackFolder(str(store / PACKS_FOLDER), new_nonce=SystemIds().new_uuid, is_durable=True, files=Files())
        return packs.find(key)
    except (OSError, StoreError) as error:
        raise CommandFailed(f"{key} cannot be read: {error}") from error


@asynccontextmanager
async def copied_ledger(file: Path, *, is_durable: bool | None) -> AsyncIterator[SqliteLedger]:
    """A copy of the embedded ledger, whether a broker has it open or not. `is_durable`: what the broker's setting is.
    None: it is not known; what a loss of power may leave with `fsync = false` alone is read, with a warning on stderr.

    Raises `CommandFailed`, `LedgerError`s: `LedgerCorrupt` where its write-ahead log is damaged.
    """
    with TemporaryDirectory(prefix="penstock-inspect-") as folder:
        _copy(file, Path(folder), is_durable=is_durable)
        ledger = await SqliteLedger.open(Path(folder) / file.name, new_cluster_id=UNUSED_CLUSTER_ID, is_durable=False)
        try:
            yield ledger
        finally:
            await ledger.close()


def _copy(file: Path, folder: Path, *, is_durable: bool | None) -> None:
    """A copy that is of one moment: while it was made, the log did not begin from its start again, and no commit that
    was written meanwhile came into it without the one before, which would look like damage. Else it is made again.
    """
    if is_missing(file):
        raise CommandFailed(f"there is no {file}, or it is empty: --data-dir names the folder of penstock run")
    check_regular(file)
    copies = 0
    while True:
        copies += 1
        is_of_one_moment = _copy_once(file, folder)
        try:
            check_log(folder / file.name, is_each_commit_synced=is_durable is not False)
        except LedgerCorrupt:
            if copies >= LEDGER_COPIES_MAX:
                check_log(file, is_each_commit_synced=bool(is_durable))  # in the words of the file itself
                if is_durable is None and is_of_one_moment:
                    sys.stderr.write(
                        f"{log_of(file)}: a commit is not whole, but later ones are. What lies before it is shown "
                        '(docs/operations/recovery.md, "The embedded ledger is damaged")\n'
                    )
                    return
        else:
            if is_of_one_moment or copies >= LEDGER_COPIES_MAX:
                return


def _copy_once(file: Path, folder: Path) -> bool:
    """Whether the log did not begin from its start again meanwhile. Raises `CommandFailed`."""
    try:
        header = _log_header(file)
        for old in folder.iterdir():
            old.unlink()
        for suffix in ("", "-journal", "-wal"):  # the file, then its log, whose pages come into it
            part = file.with_name(file.name + suffix)
            if part.is_file():  # what else begins with this name is somebody's copy, or a FIFO
                shutil.copy2(part, folder)
        return header == _log_header(file)
    except FileNotFoundError:  # the log went between two looks: its broker ended
        return False
    except OSError as error:
        raise CommandFailed(f"{file} cannot be copied aside: {error}") from error


def _log_header(file: Path) -> bytes:
    """It is another one from when the log begins from its start again. Empty where there is no log."""
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
