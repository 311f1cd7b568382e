"""Opens the ledger that the settings name, with the adapter of its kind, which is imported here alone."""

import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.config.addresses import EtcdUrl, HostPort, JournalUrl, MemoryUrl, SqliteUrl, read_ledger_url
from agent.config.etcd_options import LedgerAccess
from agent.config.settings import Settings
from agent.runtime.clock import Clock
from agent.runtime.ids import Ids
from agent.runtime.start_retries import once_there
from agent.runtime.start_waits import StartNeed, StartWaits
from coordinator.ledger.port import Ledger, LedgerCorrupt, LedgerMissing, LedgerUnavailable, NewerRules

if TYPE_CHECKING:
    from coordinator.ledger.etcd.client import EtcdClient
    from storage.embedded.journal.open_journal import OpenJournal

log = logging.getLogger(__name__)

SQLITE_FILE = "ledger.sqlite"
"""The embedded ledger in a data folder without a journal; a marker beside a journal."""


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
    `is_recovery`: a damaged ledger in a journal, which cannot be moved away from the intake, is treated as missing. The
    ledger that is made in a journal then is begun by its first write.
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
            assert journal is not None, "a journal is opened before the ledger in it"
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
    from coordinator.ledger.sqlite import is_missing
    from coordinator.ledger.sqlite_takeover import was_in_journal

    # A data folder of before there was a journal: it is taken over, once, by the agent that writes to it.
    predecessor = folder.parent / SQLITE_FILE
    check_predecessor(predecessor)
    is_taken_over = new_cluster_id is not None and is_predecessor(predecessor)
    begin_again = partial(JournalLedger.open, journal, new_cluster_id=new_cluster_id, is_begun_again=True)
    if new_cluster_id is not None and not is_taken_over and not journal.content.has_records:
        if is_recovery:
            return await begin_again()
        if was_in_journal(predecessor):
            raise LedgerCorrupt(
                f"the ledger is in {folder}, as {predecessor} says, and nothing is there: bring its files back. If "
                "they are lost, stop all agents and run `penstock recover`. To begin another cluster, move away "
                f"{predecessor} and what has its name and `.upgraded`; nothing was changed"
            )
    try:
        ledger = await JournalLedger.open(
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
        return await begin_again()
    if new_cluster_id is not None and is_missing(predecessor):
        await _mark(journal, predecessor, (await ledger.identity()).cluster_id)
    return ledger


async def _mark(journal: "OpenJournal", predecessor: Path, cluster_id: str) -> None:
    """Let programs that know no journal find a ledger that they do not know."""
    from coordinator.ledger.sqlite_takeover import mark_ledger

    with suppress(LedgerUnavailable):  # a full disk keeps no agent from starting; the next start makes the file
        await journal.write(partial(mark_ledger, journal.journal, predecessor, cluster_id))


@asynccontextmanager
async def held_ledger(settings: Settings, *, is_writer: bool = True) -> AsyncIterator[None]:
    """Hold the lock of the ledger in a journal that the settings name, for a block: before the journal is opened.

    It is that of a ledger in SQLite, so programs that know no journal respect it, and it names its holder. Other
    ledgers have locks of their own. `is_writer` makes the folder where it is missing. Raises `SessionHeld` and
    `LedgerUnavailable`.
    """
    url = read_ledger_url(settings.ledger_url)
    if not isinstance(url, JournalUrl):
        yield
        return
    from coordinator.ledger.file_lock import lock_ledger

    folder = Path(url.path).parent
    if is_writer:
        folder.mkdir(parents=True, exist_ok=True)
    if not folder.is_dir():
        yield
        return
    lock = lock_ledger(folder / SQLITE_FILE)
    try:
        yield
    finally:
        lock.release()


def before_takeover(settings: Settings) -> Settings:
    """The settings that name the ledger that is there now, for a command that is no agent.

    A journal takes over the ledger in SQLite beside it when an agent first starts with it. Until then they name that.
    """
    from storage.embedded.journal.open_journal import is_empty

    url = read_ledger_url(settings.ledger_url)
    if not isinstance(url, JournalUrl):
        return settings
    file = Path(url.path).parent / SQLITE_FILE
    if not is_empty(Path(url.path)) or not is_predecessor(file):
        return settings
    return replace(settings, ledger_url=f"sqlite://{file}")


def is_predecessor(file: Path) -> bool:
    """Whether it is a regular file that is not empty, and no marker: the ledger of before there was a journal."""
    from coordinator.ledger.sqlite_marker import is_marker

    return file.is_file() and file.stat().st_size > 0 and not is_marker(file)


def check_predecessor(file: Path) -> None:
    """Raise `LedgerCorrupt` where something with the name of the former ledger is neither that nor missing: a pipe, a
    folder, or a write-ahead log alone. It would be passed over, and a new cluster begun."""
    from coordinator.ledger.sqlite import check_regular, is_missing
    from coordinator.ledger.sqlite_schema import check_log

    check_regular(file)
    if is_missing(file) and file.parent.is_dir():
        check_log(file, is_each_commit_synced=False)


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
