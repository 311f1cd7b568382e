"""The checks by `penstock doctor` that ledger and bucket name each other, and that the ledger is no older copy (S9).

Where they do, the state says which addresses other agents have: groups do not form behind a shared one without RELAY.

Nothing is claimed, made or changed, and a broker that has its folder open is not disturbed. The messages are those with
which an agent's start would fail (`agent.bucket.cluster_identity`).
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

from agent.bucket.cluster_file import ClusterFile, check_undamaged, read_cluster_file
from agent.bucket.cluster_identity import REMEDY, REMEDY_DISAGREEMENT, check_match, check_reached
from agent.bucket.open_store import open_store
from agent.cli.doctor.machine_checks import CheckStatus, DoctorFinding
from agent.cli.failure import CommandFailed
from agent.cli.output import counted
from agent.config.addresses import (
    EtcdUrl,
    FileUrl,
    JournalUrl,
    MemoryUrl,
    SqliteUrl,
    read_ledger_url,
    read_store_url,
    with_agent_name,
)
from agent.config.settings import Settings
from agent.ledger.open_ledger import SQLITE_FILE, check_predecessor, etcd_client
from agent.runtime.clock import SystemClock
from agent.runtime.ids import SystemIds
from agent.runtime.metrics import Metrics
from coordinator.commands.commands import Endpoint
from coordinator.ledger.port import Ledger, LedgerCorrupt, LedgerError, LedgerMissing, NewerRules
from coordinator.ledger.sqlite import is_missing
from protocol.limits import DOCTOR_STORE_SECONDS_MAX
from storage.decorators.retrying import RetryPolicy
from storage.embedded.journal.open_journal import is_empty
from storage.object_store import ObjectMissing, ObjectStore, StoreError
from storage.refs import REACHED_PREFIX, SNAPSHOT_PREFIX, position_of_key


async def check_identity(settings: Settings) -> AsyncIterator[DoctorFinding]:
    """The findings; none for a ledger or store in memory. Earlier checks have found that both answer."""
    urls = read_ledger_url(settings.ledger_url), read_store_url(settings.store_url)
    if any(isinstance(url, MemoryUrl) for url in urls):
        return
    try:
        async with AsyncExitStack() as stack:
            store = await _store(settings, stack)
            file = None if store is None else await read_cluster_file(store)
            try:
                ledger = await _ledger(settings, stack)
            except LedgerMissing:
                yield _without_ledger(settings, file)
                return
            yield await _check_names(ledger, file)
            if store is not None and file is not None:
                yield await _check_progress(ledger, store)
                if isinstance(urls[0], EtcdUrl):
                    yield await _check_addresses(settings, ledger, store)
    except (LedgerError, StoreError, CommandFailed) as error:
        yield _failed(error)


async def _ledger(settings: Settings, stack: AsyncExitStack) -> Ledger:
    """The ledger, open for reading. Raises `LedgerError`s, `LedgerMissing` where there is none."""
    url = read_ledger_url(settings.ledger_url)
    if isinstance(url, SqliteUrl):
        from agent.cli.offline import copied_ledger

        return await stack.enter_async_context(copied_ledger(_existing_file(url.path), is_durable=settings.is_durable))
    if isinstance(url, JournalUrl):
        from agent.cli.offline import copied_journal

        check_predecessor(Path(url.path).parent / SQLITE_FILE)
        if is_empty(Path(url.path)):
            raise LedgerMissing(f"there is no journal {url.path}, or it is empty")
        return await stack.enter_async_context(copied_journal(Path(url.path)))
    assert isinstance(url, EtcdUrl), f"{url} is in memory"
    from coordinator.ledger.etcd.ledger import EtcdLedger

    client = etcd_client(settings.ledger_access, url.endpoints)
    stack.push_async_callback(client.close)
    return await EtcdLedger.open(client, url.cluster, new_cluster_id=None)


async def _store(settings: Settings, stack: AsyncExitStack) -> ObjectStore | None:
    """The store; None for a folder that does not exist. An embedded store is opened without its packs."""
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
    """The path of a file that exists and is not empty. Raises `LedgerMissing`."""
    if is_missing(Path(path)):
        raise LedgerMissing(f"there is no {path}, or it is empty")
    return Path(path)


def _existing_folder(path: str) -> Path | None:
    return Path(path) if Path(path).is_dir() else None


def _without_ledger(settings: Settings, file: ClusterFile | None) -> DoctorFinding:
    if file is None:
        return _finding(CheckStatus.FINE, "ledger and bucket are new: the first agent lets them name each other")
    text = (
        f"there is no ledger {settings.ledger_url}, and the bucket belongs to cluster {file.cluster_id}, incarnation "
        f"{file.incarnation}"
    )
    remedy = (
        "is the ledger's name right? The last part of --ledger, or --data-dir, may be mistyped. If the ledger is lost, "
        "stop all agents and run `penstock recover`"
    )
    return _finding(CheckStatus.FAILED, text, remedy)


async def _check_names(ledger: Ledger, file: ClusterFile | None) -> DoctorFinding:
    head, identity = await ledger.head(), await ledger.identity()
    is_new = head.appends_count == 0
    if file is None and is_new and not identity.bucket_id:
        return _finding(CheckStatus.FINE, f"the ledger of cluster {identity.cluster_id} is new, and the bucket is free")
    if file is not None:
        check_undamaged(identity, file)
    check_match(identity, file, is_new=is_new)
    bucket = f", bucket {identity.bucket_id}" if identity.bucket_id else ""
    text = f"ledger and bucket name each other: cluster {identity.cluster_id}, incarnation {identity.incarnation}"
    return _finding(CheckStatus.FINE, text + bucket)


async def _check_progress(ledger: Ledger, store: ObjectStore) -> DoctorFinding:
    await check_reached(store, ledger)
    pointer = await ledger.pointer()
    if pointer is not None:
        try:
            await store.head(pointer.object_key)
        except ObjectMissing as error:
            if await ledger.pointer() == pointer:  # else a newer snapshot was taken meanwhile
                raise LedgerCorrupt(
                    f"the ledger's snapshot {pointer.object_key} is not in the bucket: was it deleted? {REMEDY}"
                ) from error
    positions = [
        position_of_key(meta.key) or 0  # another object names no position
        for prefix in (SNAPSHOT_PREFIX, REACHED_PREFIX)
        async for meta in store.list(prefix)
    ]
    text = f"the ledger is at {(await ledger.head()).position}"
    return _finding(CheckStatus.FINE, f"{text}, and the bucket names {max(positions)}" if positions else text)


async def _check_addresses(settings: Settings, ledger: Ledger, store: ObjectStore) -> DoctorFinding:
    """The finding about an agent with these settings among those that are alive."""
    from agent.ledger.bootstrap import load_state
    from agent.server.relay.shared_addresses import REMEDY as REMEDY_SHARED
    from agent.server.relay.shared_addresses import groups_fault

    try:
        sessions = (await load_state(ledger, store)).follower.state.sessions.values()
    except NewerRules as error:
        return _finding(CheckStatus.FAILED, str(error), "upgrade this program: until then an agent does not start")
    advertised = [with_agent_name(shown, settings.name) for shown in settings.advertised]
    endpoints = tuple(Endpoint(listener=each.name, host=each.host, port=each.port) for each in advertised if each.port)
    fault = groups_fault(settings.name, endpoints, sessions)
    verdict = CheckStatus.DOUBTFUL if fault else CheckStatus.FINE
    text = fault or f"{counted(len(sessions), 'agent')} at work, and groups form behind the addresses of this one"
    return DoctorFinding(name="addresses", verdict=verdict, text=text, remedy=REMEDY_SHARED if fault else "")


def _failed(error: Exception) -> DoctorFinding:
    text = str(error).removesuffix("; nothing was changed")
    remedy = REMEDY.removesuffix("; nothing was changed")
    if remedy in text:
        return _finding(CheckStatus.FAILED, text.replace(remedy, "").rstrip(" ."), remedy)
    return _finding(CheckStatus.FAILED, text.replace(f" ({REMEDY_DISAGREEMENT})", ""), REMEDY_DISAGREEMENT)


def _finding(verdict: CheckStatus, text: str, remedy: str = "") -> DoctorFinding:
    return DoctorFinding(name="identity", verdict=verdict, text=text, remedy=remedy)
