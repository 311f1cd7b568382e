"""Checks of ledger and bucket together by `penstock doctor`: do they name each other, and which has come further (S9)?

Rule: nothing is claimed, made or changed, and a broker that has its folder open is not disturbed; the words for what is
wrong are those with which an agent would refuse to start (`agent.bucket.cluster_identity`).
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

from agent.bucket.cluster_identity import (
    DISAGREEING,
    REMEDY,
    ClusterFile,
    check_named,
    check_reached,
    check_undamaged,
    read_cluster_file,
)
from agent.cli.doctor.machine_checks import CheckStatus, DoctorFinding
from agent.cli.failure import CommandFailed
from agent.components import etcd_client, open_store
from agent.config.addresses import EtcdUrl, FileUrl, MemoryUrl, SqliteUrl, read_ledger_url, read_store_url
from agent.config.settings import Settings
from agent.runtime.clock import SystemClock
from agent.runtime.ids import SystemIds
from agent.runtime.metrics import Metrics
from coordinator.ledger.port import Ledger, LedgerCorrupt, LedgerError, LedgerMissing
from coordinator.ledger.sqlite import is_missing
from protocol.limits import DOCTOR_STORE_SECONDS_MAX
from storage.decorators.retrying import RetryPolicy
from storage.object_store import ObjectMissing, ObjectStore, StoreError
from storage.refs import REACHED_PREFIX, SNAPSHOT_PREFIX, position_of_key


async def check_identity(settings: Settings) -> AsyncIterator[DoctorFinding]:
    """Both have been looked at, and answer. Nothing for what is in memory."""
    places = read_ledger_url(settings.ledger_url), read_store_url(settings.store_url)
    if any(isinstance(place, MemoryUrl) for place in places):
        return
    try:
        async with AsyncExitStack() as stack:
            store = await _store(settings, stack)
            found = None if store is None else await read_cluster_file(store)
            try:
                ledger = await _ledger(settings, stack)
            except LedgerMissing:
                yield _of_no_ledger(settings, found)
                return
            yield await _of_names(ledger, found)
            if store is not None and found is not None:
                yield await _of_progress(ledger, store)
    except (LedgerError, StoreError, CommandFailed) as error:
        yield _failed(error)


async def _ledger(settings: Settings, stack: AsyncExitStack) -> Ledger:
    """Raises `LedgerError`s, `LedgerMissing` where there is none."""
    url = read_ledger_url(settings.ledger_url)
    if isinstance(url, SqliteUrl):
        from agent.cli.offline import copied_ledger

        return await stack.enter_async_context(copied_ledger(_existing_file(url.path), is_durable=settings.is_durable))
    assert isinstance(url, EtcdUrl), f"{url} is in memory"
    from coordinator.ledger.etcd.ledger import EtcdLedger

    client = etcd_client(settings.ledger_access, url.endpoints)
    stack.push_async_callback(client.close)
    return await EtcdLedger.open(client, url.cluster, new_cluster_id=None)


async def _store(settings: Settings, stack: AsyncExitStack) -> ObjectStore | None:
    """None for a folder that is not there. Of the embedded store without its packs: what they hold is not asked for."""
    url = read_store_url(settings.store_url)
    if isinstance(url, FileUrl):
        from storage.embedded.local_store import LocalStore

        folder = _existing_folder(url.path)
        if folder is None:
            return None
        store = LocalStore(folder, is_writer=False)
        stack.push_async_callback(store.close)
        return store
    policy = RetryPolicy(deadline_s=DOCTOR_STORE_SECONDS_MAX)
    opening = open_store(settings, SystemClock(), SystemIds(), Metrics(), policy=policy)
    return await stack.enter_async_context(opening)


def _existing_file(path: str) -> Path:
    """Raises `LedgerMissing`."""
    if is_missing(Path(path)):
        raise LedgerMissing(f"there is no {path}, or it is empty")
    return Path(path)


def _existing_folder(path: str) -> Path | None:
    return Path(path) if Path(path).is_dir() else None


def _of_no_ledger(settings: Settings, found: ClusterFile | None) -> DoctorFinding:
    if found is None:
        return _finding(CheckStatus.FINE, "ledger and bucket are new: the first agent lets them name each other")
    text = (
        f"there is no ledger {settings.ledger_url}, and the bucket belongs to cluster {found.cluster_id}, incarnation "
        f"{found.incarnation}"
    )
    remedy = (
        "is the ledger's name right? The last part of --ledger, or --data-dir, may be mistyped. If the ledger is lost, "
        "stop all agents and run `penstock recover`"
    )
    return _finding(CheckStatus.FAILED, text, remedy)


async def _of_names(ledger: Ledger, found: ClusterFile | None) -> DoctorFinding:
    head, identity = await ledger.head(), await ledger.identity()
    is_new = head.appends_count == 0
    if found is None and is_new and not identity.bucket_id:
        return _finding(CheckStatus.FINE, f"the ledger of cluster {identity.cluster_id} is new, and the bucket is free")
    if found is not None:
        check_undamaged(identity, found)
    check_named(identity, found, is_new=is_new)
    bucket = f", bucket {identity.bucket_id}" if identity.bucket_id else ""
    text = f"ledger and bucket name each other: cluster {identity.cluster_id}, incarnation {identity.incarnation}"
    return _finding(CheckStatus.FINE, text + bucket)


async def _of_progress(ledger: Ledger, store: ObjectStore) -> DoctorFinding:
    await check_reached(store, ledger)
    pointer = await ledger.pointer()
    if pointer is not None:
        try:
            await store.head(pointer.object_key)
        except ObjectMissing as error:
            if await ledger.pointer() == pointer:
                raise LedgerCorrupt(
                    f"the ledger's snapshot {pointer.object_key} is not in the bucket: was it deleted? {REMEDY}"
                ) from error
    positions = [
        position_of_key(meta.key) or 0  # what is neither says nothing
        for prefix in (SNAPSHOT_PREFIX, REACHED_PREFIX)
        async for meta in store.list(prefix)
    ]
    text = f"the ledger is at {(await ledger.head()).position}"
    return _finding(CheckStatus.FINE, f"{text}, and the bucket was told of {max(positions)}" if positions else text)


def _failed(error: Exception) -> DoctorFinding:
    text = str(error).removesuffix("; nothing was changed")
    remedy = REMEDY.removesuffix("; nothing was changed")
    if remedy in text:
        return _finding(CheckStatus.FAILED, text.replace(remedy, "").rstrip(" ."), remedy)
    return _finding(CheckStatus.FAILED, text.replace(f" ({DISAGREEING})", ""), DISAGREEING)


def _finding(verdict: CheckStatus, text: str, remedy: str = "") -> DoctorFinding:
    return DoctorFinding(name="identity", verdict=verdict, text=text, remedy=remedy)
