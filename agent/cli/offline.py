"""Reads the folder of a `penstock run`, whether it is running or not.

Rule: nothing is written: the ledger's file is copied aside first, because opening SQLite's write-ahead log changes it.
"""

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.cli.failure import CommandFailed
from agent.runtime.ids import SystemIds
from coordinator.follower import Follower
from coordinator.ledger.port import LedgerError, LedgerRecord, LedgerStart
from coordinator.ledger.sqlite import SqliteLedger
from coordinator.state.state import ClusterState
from storage.embedded.local_files import Files
from storage.embedded.local_store import PACKS_FOLDER
from storage.embedded.packs import PackFolder
from storage.object_store import StoreError

LEDGER_FILE = "ledger.sqlite"
UNUSED_CLUSTER_ID = "-"
"""The copy has an identity already."""


async def read_state(data_dir: Path) -> ClusterState:
    """The state at the ledger's head. Raises `CommandFailed`."""
    try:
        async with copied_ledger(data_dir / LEDGER_FILE) as ledger:
            start = await ledger.load()
            follower = Follower(await ledger.identity())
            follower.load(start, _snapshot(data_dir, start))
            return follower.state
    except LedgerError as error:
        raise CommandFailed(f"{data_dir / LEDGER_FILE}: {error}") from error


async def read_ledger(data_dir: Path) -> Sequence[LedgerRecord]:
    """The entries that were not trimmed. Raises `CommandFailed`."""
    try:
        async with copied_ledger(data_dir / LEDGER_FILE) as ledger:
            return await ledger.kept()
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
    except (OSError, StoreError) as error:
        raise CommandFailed(f"{key} cannot be read: {error}") from error


@asynccontextmanager
async def copied_ledger(file: Path) -> AsyncIterator[SqliteLedger]:
    """A copy of the embedded ledger, whether a broker has it open or not. Raises `CommandFailed`, `LedgerError`s."""
    with TemporaryDirectory(prefix="penstock-inspect-") as folder:
        _copy(file, folder)
        ledger = await SqliteLedger.open(Path(folder) / file.name, new_cluster_id=UNUSED_CLUSTER_ID, is_durable=False)
        try:
            yield ledger
        finally:
            await ledger.close()


def _copy(file: Path, folder: str) -> None:
    if not file.is_file():
        raise CommandFailed(f"there is no {file}: --data-dir names the folder of penstock run")
    try:
        for part in file.parent.glob(file.name + "*"):
            if not part.name.endswith((".lock", "-shm")):
                shutil.copy2(part, folder)
    except OSError as error:
        raise CommandFailed(f"{file} cannot be copied aside: {error}") from error


def _snapshot(data_dir: Path, start: LedgerStart) -> bytes | None:
    if start.pointer is None:
        return None
    try:
        return (data_dir / "store" / start.pointer.object_key).read_bytes()
    except OSError as error:
        raise CommandFailed(f"the snapshot cannot be read: {error}") from error
