"""Opens the bucket that the settings name: the adapter of its kind, below metrics, hedging and retries.

Each adapter is imported where it is needed.
"""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from agent.bucket.disk_reserve import DiskReserves
from agent.bucket.store_damages import StoreDamages
from agent.config.addresses import FileUrl, MemoryUrl, S3Url, read_store_url
from agent.config.settings import Settings
from agent.runtime.clock import Clock
from agent.runtime.ids import Ids
from agent.runtime.metrics import Metrics
from storage.decorators.hedging import HedgingStore
from storage.decorators.metered import MeteredStore
from storage.decorators.retrying import RetryingStore, RetryPolicy, RetryPorts, TryObserver
from storage.decorators.routed import RoutedStore
from storage.object_store import ObjectStore
from storage.refs import INTAKE_PREFIX

if TYPE_CHECKING:
    from storage.embedded.journal.open_journal import OpenJournal


@asynccontextmanager
async def open_store(
    settings: Settings,
    clock: Clock,
    ids: Ids,
    metrics: Metrics,
    *,
    policy: RetryPolicy | None = None,
    observer: TryObserver | None = None,
    damages: StoreDamages | None = None,
    reserves: DiskReserves | None = None,
    is_writer: bool = True,
    journal: "OpenJournal | None" = None,
) -> AsyncIterator[ObjectStore]:
    """The bucket that the settings name, with metrics and retries. Raises `StoreError`s.

    Args:
        settings, clock, ids, metrics: the process's.
        policy: how long requests are retried.
        observer: is called for each try.
        damages: gets the damages that an embedded store finds in its files.
        reserves: get a reserve on an embedded store's disk.
        is_writer: false leaves an embedded store as it is, and it accepts no puts.
        journal: has the intake of an embedded store; packs have it where there is none.
    """
    damages = StoreDamages() if damages is None else damages
    url = read_store_url(settings.store_url)
    adapter: ObjectStore
    match url:
        case FileUrl(path=path):
            adapter = _embedded_store(
                Path(path),
                settings,
                clock,
                ids,
                damages=damages,
                reserves=reserves,
                is_writer=is_writer,
                journal=journal,
            )
        case S3Url():
            from storage.s3.settings import S3Settings
            from storage.s3.store import S3Store

            timeout_s = settings.store_timeout_s
            adapter = S3Store(S3Settings.from_environment(settings.store_url, os.environ, request_timeout_s=timeout_s))
        case MemoryUrl():
            from storage.memory_store import MemoryStore

            adapter = MemoryStore()
    # The full disk may be the ledger's alone: its entries need the space, so records are rejected wherever they go.
    if reserves:
        from agent.bucket.full_disk import FullDiskStore

        adapter = FullDiskStore(adapter, lambda: reserves.is_full, sleep=clock.sleep)
    store = _guarded(adapter, settings, clock, ids, metrics, policy or RetryPolicy(), observer)
    try:
        yield store
    finally:
        await store.close()


def _embedded_store(
    folder: Path,
    settings: Settings,
    clock: Clock,
    ids: Ids,
    *,
    damages: StoreDamages,
    reserves: DiskReserves | None,
    is_writer: bool,
    journal: "OpenJournal | None",
) -> ObjectStore:
    """A bucket in a folder: the intake in packs or in a journal, a file for every other object."""
    from agent.bucket.full_disk import WatchedFiles
    from storage.embedded.local_files import Files
    from storage.embedded.local_store import INCOMPLETE_FOLDER, PACKS_FOLDER, LocalStore

    # In the folder that a start empties: a start on a full disk gets this room.
    reserve = None if reserves is None else reserves.of(folder / INCOMPLETE_FOLDER)
    calls = Files() if reserve is None else WatchedFiles(reserve.find_full)
    files = LocalStore(folder, is_durable=settings.is_durable, is_writer=is_writer, files=calls)
    release_room: list[Callable[[], None]] = []
    has_packs = journal is None or os.path.lexists(folder / PACKS_FOLDER)  # a link to a disk that is away, too
    stores: list[ObjectStore] = []
    if has_packs:
        from storage.embedded.pack_store import PackStore

        packs = PackStore(
            folder / PACKS_FOLDER,
            now_ms=clock.now_ms,
            new_nonce=ids.new_uuid,
            is_durable=settings.is_durable,
            is_writer=is_writer,
            files=calls,
            on_damage=damages.report,
            on_removed=damages.forget,
        )
        has_packs = journal is None or not is_writer or not packs.remove_if_empty()
        if has_packs:
            stores.append(packs)
            release_room.append(packs.release_room)
    if journal is not None:
        from storage.decorators.succeeded import SucceededStore
        from storage.embedded.journal.store import JournalStore

        newer = JournalStore(journal, now_ms=clock.now_ms)
        release_room.append(newer.release_room)
        stores.append(SucceededStore(newer, stores[0], is_newer=newer.has) if has_packs else newer)
    if reserve is not None:
        for release in release_room:
            reserve.when_full(release)
        reserve.begin()
    return RoutedStore(INTAKE_PREFIX, stores[-1], files)


def _guarded(
    adapter: ObjectStore,
    settings: Settings,
    clock: Clock,
    ids: Ids,
    metrics: Metrics,
    policy: RetryPolicy,
    observer: TryObserver | None,
) -> ObjectStore:
    """The store with metrics of each request, hedged puts where the settings ask for them, and retries."""
    metered: ObjectStore = MeteredStore(adapter, observer_of=metrics.store, monotonic_s=clock.monotonic_s)
    if settings.store_hedge_after_ms > 0:
        metered = HedgingStore(
            metered,
            hedge_s=settings.store_hedge_after_ms / 1000,
            sleep=clock.sleep,
            count_hedge=metrics.store_hedges.inc,
        )
    return RetryingStore(
        metered,
        policy=policy,
        ports=RetryPorts(
            monotonic_s=clock.monotonic_s,
            sleep=clock.sleep,
            chance=ids.jitter,
            count_retry=metrics.store_retries.inc,
        ),
        observer=observer,
    )
