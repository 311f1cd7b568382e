"""Reads the folder of a `penstock run`, whether it is running or not.

Rule: nothing is written: the ledger's file is copied aside first, because opening SQLite's write-ahead log changes it.
"""

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.commands.failure import CommandFailed
from agent.ids import SystemIds
from coordinator.follower import Follower
from coordinator.log import LedgerError, LedgerRecord, LedgerStart
from coordinator.sqlite_log import SqliteLedger
from coordinator.state import ClusterState
from storage.local_files import Files
from storage.local_store import PACKS_FOLDER
from storage.packs import PackFolder

LEDGER_FILE = "ledger.sqlite"
UNUSED_CLUSTER_ID = "-"
"""The copy has an identity already."""


async def read_state(data_dir: Path) -> ClusterState:
    """The state at the ledger's head. Raises `CommandFailed`."""
    try:
        async with _copied_ledger(data_dir) as ledger:
            start = await ledger.load()
            follower = Follower(await ledger.identity())
            follower.load(start, _snapshot(data_dir, start))
            return follower.state
    except LedgerError as error:
        raise CommandFailed(f"{data_dir / LEDGER_FILE}: {error}") from error


async def read_ledger(data_dir: Path) -> Sequence[LedgerRecord]:
    """The entries above the newest snapshot. Raises `CommandFailed`."""
    try:
        async with _copied_ledger(data_dir) as ledger:
            return (await ledger.load()).records
    except LedgerError as error:
        raise CommandFailed(f"{data_dir / LEDGER_FILE}: {error}") from error


def read_object(data_dir: Path, key: str) -> bytes | None:
    """An object of the embedded bucket; None where there is none. Raises `CommandFailed`."""
    store = data_dir / "store"
    try:
        if (store / key).is_file():
            return (store / key).read_bytes()
        if not (store / PACKS_FOLDER).is_dir():
            return None
        packs = PackFolder(str(store / PACKS_FOLDER), new_nonce=SystemIds().new_uuid, is_durable=True, files=Files())
        return packs.find(key)
    except OSError as error:
        raise CommandFailed(f"{key} cannot be read: {error}") from error


@asynccontextmanager
async def _copied_ledger(data_dir: Path) -> AsyncIterator[SqliteLedger]:
    if not (data_dir / LEDGER_FILE).is_file():
        raise CommandFailed(f"there is no {data_dir / LEDGER_FILE}: --data-dir names the folder of penstock run")
    with TemporaryDirectory(prefix="penstock-inspect-") as folder:
        _copy(data_dir, folder)
        ledger = await SqliteLedger.open(Path(folder) / LEDGER_FILE, new_cluster_id=UNUSED_CLUSTER_ID, is_durable=False)
        try:
            yield ledger
        finally:
            await ledger.close()


def _copy(data_dir: Path, folder: str) -> None:
    try:
        for file in data_dir.glob(LEDGER_FILE + "*"):
            if not file.name.endswith((".lock", "-shm")):
                shutil.copy2(file, folder)
    except OSError as error:
        raise CommandFailed(f"{data_dir / LEDGER_FILE} cannot be copied aside: {error}") from error


def _snapshot(data_dir: Path, start: LedgerStart) -> bytes | None:
    if start.pointer is None:
        return None
    try:
        return (data_dir / "store" / start.pointer.object_key).read_bytes()
    except OSError as error:
        raise CommandFailed(f"the snapshot cannot be read: {error}") from error
