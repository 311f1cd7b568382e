"""Wires an agent: settings in, a serving process out. The only module that knows every part.

The order of start and stop is here and in `agent.agent`. Start: ledger, bucket, state, sockets, session, loops,
`ready`. Stop: no new connections, accepted requests are answered, the session ends, files close.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from agent.agent import Agent
from agent.bucket.cluster_identity import (
    AnotherBucket,
    check_reached,
    claim_bucket,
    read_cluster_file,
    without_ledger,
)
from agent.bucket.conditional_puts import check_before_claim
from agent.bucket.disk_reserve import DiskReserves
from agent.bucket.missing_objects import report_missing
from agent.bucket.permissions import check_access
from agent.bucket.store_damages import StoreDamages
from agent.bucket.store_outages import StoreOutages
from agent.config.addresses import (
    EtcdUrl,
    FileUrl,
    HostPort,
    ListenerAddress,
    MemoryUrl,
    S3Url,
    SqliteUrl,
    read_ledger_url,
    read_store_url,
)
from agent.config.etcd_options import LedgerAccess
from agent.config.settings import Settings
from agent.ledger.bootstrap import load_state
from agent.ledger.ledger_outages import OutageLoggingLedger
from agent.maintenance.progress_marks import leave_mark
from agent.runtime.clock import Clock, SystemClock
from agent.runtime.gc_tuning import collect_rarely, pass_over_what_lives
from agent.runtime.ids import Ids, SystemIds
from agent.runtime.metrics import Metrics
from agent.runtime.outages import Outage, OutageWords
from coordinator.ledger.port import Ledger, LedgerCorrupt, LedgerMissing, LedgerUnavailable
from storage.decorators.hedging import HedgingStore
from storage.decorators.metered import MeteredStore
from storage.decorators.retrying import RetryingStore, RetryPolicy, RetryPorts, TryObserver
from storage.decorators.routed import RoutedStore
from storage.object_store import ObjectStore, StoreUnavailable
from storage.refs import INTAKE_PREFIX

if TYPE_CHECKING:
    from coordinator.ledger.etcd.client import EtcdClient

log = logging.getLogger(__name__)

START_RETRY_SECONDS = 1.0
START_WORDS = OutageWords(
    fails="the agent cannot start yet: the ledger or the object store does not answer; it tries again",
    answers="the ledger and the object store answer: the start goes on",
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEndpoints:
    """The addresses at which an agent serves its cluster, with the ports that its sockets got."""

    bound: Sequence[ListenerAddress]
    advertised: Sequence[ListenerAddress]
    http: HostPort
    cluster_id: str


async def run_agent(settings: Settings, announce: Callable[[AgentEndpoints], None]) -> float:
    """Serve until SIGTERM or SIGINT, then drain and return; a second signal ends the process at once.

    Args:
        settings: the agent's settings.
        announce: called once, when the agent answers clients.

    Returns the time of the first signal, in seconds of the monotonic clock.
    """
    clock, ids, metrics = SystemClock(), SystemIds(), Metrics()
    stopping = asyncio.Event()
    starting = asyncio.current_task()
    assert starting is not None, "an agent runs as a task"
    watch = _watch_signals(stopping, starting, clock)
    try:
        await _serve(settings, announce, clock, ids, metrics, stopping, watch)
    except asyncio.CancelledError:
        if not stopping.is_set():
            raise
        log.info("stopping: the agent had not served yet")
    return watch.stopped_s


async def _serve(
    settings: Settings,
    announce: Callable[[AgentEndpoints], None],
    clock: Clock,
    ids: Ids,
    metrics: Metrics,
    stopping: asyncio.Event,
    watch: "_Signals",
) -> None:
    await _check_ledger_lost(settings, clock, ids)
    outages, damages = StoreOutages(clock=clock), StoreDamages()
    metrics.store_damaged_parts.set_function(lambda: len(damages.parts))
    reserves = _ledger_reserve(settings, clock)
    metrics.disk_full.set_function(lambda: reserves.is_full)
    async with (
        open_ledger(settings, clock, ids) as opened,
        open_store(settings, clock, ids, metrics, observer=outages, damages=damages, reserves=reserves) as store,
        _in_background(outages.run),
        _in_background(reserves.run),
    ):
        ledger = OutageLoggingLedger(opened, monotonic_s=clock.monotonic_s, count_error=metrics.ledger_errors.inc)
        metrics.ledger_outage_seconds.set_function(lambda: ledger.outage_seconds)
        metrics.store_outage_seconds.set_function(lambda: outages.seconds)
        new_bucket_id = ids.new_cluster_id()
        is_shared = isinstance(read_store_url(settings.store_url), S3Url)
        # Both checks come before the claim, by which ledger and bucket name each other for good.
        if is_shared:
            await once_there(lambda: check_access(store), clock)
        await once_there(
            lambda: check_before_claim(store, ledger, name=ids.new_cluster_id(), is_shared=is_shared), clock
        )
        identity = await once_there(lambda: claim_bucket(store, ledger, new_bucket_id=new_bucket_id), clock)
        await once_there(lambda: check_reached(store, ledger), clock)
        loaded = await once_there(lambda: load_state(ledger, store), clock)
        if isinstance(read_store_url(settings.store_url), FileUrl):
            await once_there(lambda: report_missing(store, loaded.follower.state), clock)
        agent = Agent(
            settings=settings,
            identity=identity,
            ledger=ledger,
            store=store,
            follower=loaded.follower,
            clock=clock,
            ids=ids,
            metrics=metrics,
            damages=damages,
            reserves=reserves,
        )
        try:
            async with agent:
                watch.is_serving = True
                pass_over_what_lives()
                collect_rarely()
                announce(
                    AgentEndpoints(
                        bound=agent.bound,
                        advertised=agent.advertised,
                        http=agent.http,
                        cluster_id=identity.cluster_id,
                    )
                )
                await stopping.wait()
                log.info("stopping: accepted requests are answered first")
                await agent.drain()
        except (LedgerCorrupt, BaseExceptionGroup) as error:
            if _is_ledger_lost(error):
                await leave_mark(store, agent.broker.state, clock)
            raise


async def _check_ledger_lost(settings: Settings, clock: Clock, ids: Ids) -> None:
    """Raise `LedgerCorrupt` where the embedded ledger is missing and the bucket has a cluster: its ledger is lost."""
    url = read_ledger_url(settings.ledger_url)
    if not isinstance(url, SqliteUrl):
        return
    from coordinator.ledger.sqlite import is_missing

    if not is_missing(Path(url.path)):
        return
    async with open_store(settings, clock, ids, Metrics(), is_writer=False) as store:
        file = await once_there(lambda: read_cluster_file(store), clock)
    if file is not None:
        raise without_ledger(settings.ledger_url, file)


def _ledger_reserve(settings: Settings, clock: Clock) -> DiskReserves:
    """The disk reserves. That of an embedded ledger is begun before the ledger opens, which may need the space."""
    reserves = DiskReserves(clock=clock)
    url = read_ledger_url(settings.ledger_url)
    if isinstance(url, SqliteUrl):
        reserves.of(Path(url.path).parent).begin()
    return reserves


def _is_ledger_lost(error: LedgerCorrupt | BaseExceptionGroup) -> bool:
    """Whether the ledger contradicts itself or this agent's copy. False for the bucket of another cluster."""
    group = error if isinstance(error, BaseExceptionGroup) else BaseExceptionGroup("", [error])
    return group.subgroup(LedgerCorrupt) is not None and group.subgroup(AnotherBucket) is None


@asynccontextmanager
async def _in_background(run: Callable[[], Coroutine[None, None, None]]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run())
        try:
            yield
        finally:
            running.cancel()


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
    settings: Settings, clock: Clock, ids: Ids, where_missing: WhereMissing = WhereMissing.CREATED
) -> AsyncIterator[Ledger]:
    """The ledger that the settings name; one in etcd is waited for. Raises `LedgerError`s."""
    new_cluster_id = ids.new_cluster_id()
    try:
        is_created = where_missing is WhereMissing.CREATED
        ledger = await _open_ledger(settings, clock, new_cluster_id if is_created else None)
    except LedgerMissing:
        if where_missing is not WhereMissing.SUBSTITUTED:
            raise
        ledger = _empty_ledger(new_cluster_id)
    try:
        yield ledger
    finally:
        await ledger.close()


async def _open_ledger(settings: Settings, clock: Clock, new_cluster_id: str | None) -> Ledger:
    url = read_ledger_url(settings.ledger_url)
    match url:
        case SqliteUrl(path=path):
            from coordinator.ledger.sqlite import SqliteLedger

            if new_cluster_id is not None:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            return await SqliteLedger.open(Path(path), new_cluster_id=new_cluster_id, is_durable=settings.is_durable)
        case MemoryUrl():
            if new_cluster_id is None:
                raise LedgerMissing("a ledger in memory ends with its agent: give another --ledger")
            return _empty_ledger(new_cluster_id)
        case EtcdUrl(endpoints=endpoints, cluster=cluster):
            return await _open_etcd(settings.ledger_access, endpoints, cluster, clock, new_cluster_id)


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
    access: LedgerAccess, endpoints: Sequence[HostPort], cluster: str, clock: Clock, new_cluster_id: str | None
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
        return await once_there(open_and_log_notices, clock)
    except BaseException:
        await client.close()
        raise


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
) -> AsyncIterator[ObjectStore]:
    """The bucket that the settings name, with metrics and retries. Raises `StoreError`s.

    Args:
        settings, clock, ids, metrics: the process's.
        policy: how long requests are retried.
        observer: is called for each try.
        damages: gets the damages that an embedded store finds in its files.
        reserves: get a reserve on an embedded store's disk.
        is_writer: false leaves an embedded store as it is, and it accepts no puts.
    """
    damages = StoreDamages() if damages is None else damages
    url = read_store_url(settings.store_url)
    adapter: ObjectStore
    match url:
        case FileUrl(path=path):
            from agent.bucket.full_disk import WatchedFiles
            from storage.embedded.local_files import Files
            from storage.embedded.local_store import INCOMPLETE_FOLDER, PACKS_FOLDER, LocalStore
            from storage.embedded.pack_store import PackStore

            # In the folder that a start empties: a start on a full disk gets this room.
            reserve = None if reserves is None else reserves.of(Path(path) / INCOMPLETE_FOLDER)
            calls = Files() if reserve is None else WatchedFiles(reserve.find_full)
            files = LocalStore(Path(path), is_durable=settings.is_durable, is_writer=is_writer, files=calls)
            packs = PackStore(
                Path(path) / PACKS_FOLDER,
                now_ms=clock.now_ms,
                new_nonce=ids.new_uuid,
                is_durable=settings.is_durable,
                is_writer=is_writer,
                files=calls,
                on_damage=damages.report,
                on_removed=damages.forget,
            )
            adapter = RoutedStore(INTAKE_PREFIX, packs, files)
            if reserves is not None and reserve is not None:
                reserve.when_full(packs.release_room)
                reserve.begin()
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
    metered: ObjectStore = MeteredStore(adapter, observer_of=metrics.store, monotonic_s=clock.monotonic_s)
    if settings.store_hedge_after_ms > 0:
        metered = HedgingStore(metered, hedge_s=settings.store_hedge_after_ms / 1000, sleep=clock.sleep)
    store = RetryingStore(
        metered,
        policy=policy or RetryPolicy(),
        ports=RetryPorts(monotonic_s=clock.monotonic_s, sleep=clock.sleep, chance=ids.jitter),
        observer=observer,
    )
    try:
        yield store
    finally:
        await store.close()


async def once_there(attempt: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """The result of `attempt`, repeated while ledger or bucket are away: an agent may start during an outage."""
    outage = Outage(START_WORDS, monotonic_s=clock.monotonic_s)
    while True:
        try:
            result = await attempt()
        except (StoreUnavailable, LedgerUnavailable) as error:
            outage.failed("start", str(error))
            await clock.sleep(START_RETRY_SECONDS)
        else:
            outage.answered("start")
            return result


class _Signals:
    """The first signal stops the agent, by a drain where it serves, else at once. The second one ends the process."""

    def __init__(self, stopping: asyncio.Event, starting: "asyncio.Task[object]", clock: Clock) -> None:
        self._stopping = stopping
        self._starting = starting
        self._clock = clock
        self.is_serving = False
        self.stopped_s = 0.0
        """The monotonic time of the first signal."""

    def stop(self, number: int) -> None:
        """Handle a signal."""
        if self._stopping.is_set():
            log.warning("stopping at once after a second signal; unanswered requests are dropped")
            sys.stderr.flush()
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self._stopping.set()
        self.stopped_s = self._clock.monotonic_s()
        if not self.is_serving:
            self._starting.cancel()


def _watch_signals(stopping: asyncio.Event, starting: "asyncio.Task[object]", clock: Clock) -> _Signals:
    signals = _Signals(stopping, starting, clock)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.stop, number)
    return signals
