"""Opens the ledger that the settings name, with the adapter of its kind, which is imported here alone."""

import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from agent.config.addresses import EtcdUrl, HostPort, JournalUrl, MemoryUrl, SqliteUrl, read_ledger_url
from agent.config.etcd_options import LedgerAccess
from agent.config.settings import Settings
from agent.runtime.clock import Clock
from agent.runtime.ids import Ids
from agent.runtime.start_retries import once_there
from agent.runtime.start_waits import StartNeed, StartWaits
from coordinator.ledger.port import Ledger, LedgerCorrupt, LedgerMissing, LedgerUnsupported, NewerRules

if TYPE_CHECKING:
    from coordinator.ledger.etcd.client import EtcdClient
    from storage.embedded.journal.open_journal import OpenJournal

log = logging.getLogger(__name__)

SQLITE_FILE = "ledger.sqlite"
"""The embedded ledger in a data folder without a journal."""


class WhereMissing(Enum):
    """The treatment of a ledger that does not exist."""

    CREATED = "created"
    """The ledger of a new cluster is made."""
    REJECTED = "rejected"
    """`LedgerMissing` is raised, and nothing is made. An existing ledger is opened for reading."""
    SUBSTITUTED = "substituted"
    """An empty ledger in memory replaces it, and nothing is made. An existing ledger is opened for reading."""


@asynccontextmanager
async def open_ledger(
    settings: Settings,
    clock: Clock,
    ids: Ids,
    where_missing: WhereMissing = WhereMissing.CREATED,
    *,
    waits: StartWaits | None = None,
    journal: "OpenJournal | None" = None,
    is_recovery: bool = False,
) -> AsyncIterator[Ledger]:
    """The ledger that the settings name; one in etcd is waited for. Raises `LedgerError`s.

    `waits`: those of an agent's start; None for another command. `journal`: the one that the settings name, if they do.
    `is_recovery`: a damaged ledger in a journal, which cannot be moved away from the intake, is treated as missing.
    """
    new_cluster_id = ids.new_cluster_id()
    try:
        is_created = where_missing is WhereMissing.CREATED
        cluster_id = new_cluster_id if is_created else None
        ledger = await _open_ledger(settings, clock, cluster_id, waits, journal, is_recovery=is_recovery)
    except LedgerMissing:
        if where_missing is not WhereMissing.SUBSTITUTED:
            raise
        ledger = _empty_ledger(new_cluster_id)
    try:
        yield ledger
    finally:
        await ledger.close()


async def _open_ledger(
    settings: Settings,
    clock: Clock,
    new_cluster_id: str | None,
    waits: StartWaits | None,
    journal: "OpenJournal | None",
    *,
    is_recovery: bool,
) -> Ledger:
    url = read_ledger_url(settings.ledger_url)
    match url:
        case SqliteUrl(path=path):
            from coordinator.ledger.sqlite import SqliteLedger

            if new_cluster_id is not None:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            return await SqliteLedger.open(Path(path), new_cluster_id=new_cluster_id, is_durable=settings.is_durable)
        case JournalUrl(path=path):
            if journal is None:
                raise LedgerUnsupported(f"the ledger in the journal {path} is read by its agent alone, so far")
            return await _open_in_journal(settings, Path(path), journal, new_cluster_id, is_recovery=is_recovery)
        case MemoryUrl():
            if new_cluster_id is None:
                raise LedgerMissing("a ledger in memory ends with its agent: give another --ledger")
            return _empty_ledger(new_cluster_id)
        case EtcdUrl(endpoints=endpoints, cluster=cluster):
            return await _open_etcd(settings.ledger_access, endpoints, cluster, clock, new_cluster_id, waits)


async def _open_in_journal(
    settings: Settings, folder: Path, journal: "OpenJournal", new_cluster_id: str | None, *, is_recovery: bool
) -> Ledger:
    from coordinator.ledger.journal import JournalLedger

    # A data folder of before there was a journal: it is taken over, once, by the agent that writes to it.
    predecessor = folder.parent / SQLITE_FILE
    is_taken_over = new_cluster_id is not None and is_filled(predecessor)
    try:
        return await JournalLedger.open(
            journal,
            new_cluster_id=new_cluster_id,
            predecessor=predecessor if is_taken_over else None,
            is_durable=settings.is_durable,
        )
    except NewerRules:
        raise
    except LedgerCorrupt as error:
        if not is_recovery or is_taken_over:
            raise
        if new_cluster_id is None:
            raise LedgerMissing(f"the ledger is damaged: {error}") from error
        log.warning("the ledger in the journal is damaged, and is begun again", extra={"reason": str(error)})
        return await JournalLedger.open(journal, new_cluster_id=new_cluster_id, is_begun_again=True)


def is_filled(file: Path) -> bool:
    """Whether it is a regular file that is not empty."""
    return file.is_file() and file.stat().st_size > 0


def _empty_ledger(cluster_id: str) -> Ledger:
    from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore

    return MemoryLedger(MemoryLedgerCore(cluster_id=cluster_id))


def etcd_client(access: LedgerAccess, endpoints: Sequence[HostPort]) -> "EtcdClient":
    """A client of etcd, which connects at its first use. The caller closes it."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC's own lines on stderr repeat errors that are logged
    from coordinator.ledger.etcd.access import EtcdAccess
    from coordinator.ledger.etcd.client import EtcdClient

    return EtcdClient(
        EtcdAccess(
            endpoints=[str(endpoint) for endpoint in endpoints],
            is_tls=access.is_tls,
            ca=access.ca,
            cert=access.cert,
            key=access.key,
            user=access.user,
            password=access.password,
        )
    )


async def _open_etcd(
    access: LedgerAccess,
    endpoints: Sequence[HostPort],
    cluster: str,
    clock: Clock,
    new_cluster_id: str | None,
    waits: StartWaits | None,
) -> Ledger:
    client = etcd_client(access, endpoints)
    from coordinator.ledger.etcd.ledger import EtcdLedger

    async def open_and_log_notices() -> Ledger:
        ledger = await EtcdLedger.open(
            client,
            cluster,
            new_cluster_id=new_cluster_id,
            is_compacted=access.is_compacted,
            quota_bytes=access.quota_bytes,
        )
        for notice in await ledger.notices():
            log.warning(notice)
        return ledger

    try:
        return await once_there(open_and_log_notices, clock, waits, StartNeed.LEDGER)
    except BaseException:
        await client.close()
        raise
