"""Opens the journal that the settings name, which a ledger and a store share."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agent.bucket.disk_reserve import DiskReserves
from agent.bucket.full_disk import WatchedFiles
from agent.bucket.store_damages import StoreDamages
from agent.config.addresses import FileUrl, JournalUrl, read_ledger_url, read_store_url
from agent.config.settings import Settings
from agent.runtime.ids import Ids
from coordinator.ledger.port import LedgerUnsupported
from storage.embedded.journal.open_journal import OpenJournal
from storage.embedded.journal.opening import JOURNAL_FOLDER


@asynccontextmanager
async def open_journal(
    settings: Settings,
    ids: Ids,
    *,
    damages: StoreDamages,
    reserves: DiskReserves | None = None,
    is_writer: bool = True,
) -> AsyncIterator[OpenJournal | None]:
    """The journal, where the ledger that the settings name is in one.

    Raises `StoreError`s, and `LedgerUnsupported` where it is not beside the store's folder: that is where other readers
    of the store look for the intake.

    Args:
        settings, ids: the process's.
        damages: gets the damages that are found in it.
        reserves: give up their room where a write finds none.
        is_writer: false changes nothing in it.
    """
    url = read_ledger_url(settings.ledger_url)
    if not isinstance(url, JournalUrl):
        yield None
        return
    folder = Path(url.path)
    if not _is_beside(folder, settings.store_url):
        raise LedgerUnsupported(
            f"--ledger journal://{url.path} has the intake of the folder beside it, and --store is "
            f"{settings.store_url}: give --ledger journal://DIR/{JOURNAL_FOLDER} and --store file://DIR/NAME, or "
            "another --ledger"
        )
    if is_writer:
        folder.parent.mkdir(parents=True, exist_ok=True)
    opened = await OpenJournal.open(
        folder,
        new_nonce=ids.new_uuid,
        is_durable=settings.is_durable,
        is_writer=is_writer,
        files=None if reserves is None else WatchedFiles(reserves.of(folder.parent).find_full),
        on_damage=damages.report,
        on_removed=damages.forget,
    )
    try:
        yield opened
    finally:
        await opened.close()


def _is_beside(folder: Path, store_url: str) -> bool:
    store = read_store_url(store_url)
    return isinstance(store, FileUrl) and Path(store.path).resolve().parent / JOURNAL_FOLDER == folder.resolve()
