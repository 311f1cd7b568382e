"""Wires an agent: settings in, a serving process out. The only module that knows every part.

The order of start and stop is here and in `agent.agent`. Start: HTTP, ledger, bucket, state, sockets, session, loops,
`ready`. Stop: no new connections, accepted requests are answered, the session ends, files close, and HTTP last.
"""

import asyncio
import logging
import math
import platform
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agent.agent import Agent
from agent.bucket.cluster_file import read_cluster_file
from agent.bucket.cluster_identity import (
    AnotherBucket,
    check_reached,
    check_together,
    claim_bucket,
    lost_ledger_error,
)
from agent.bucket.conditional_puts import check_before_claim
from agent.bucket.disk_reserve import DiskReserves
from agent.bucket.missing_objects import report_missing
from agent.bucket.open_journal import open_journal
from agent.bucket.open_store import open_store
from agent.bucket.permissions import check_access
from agent.bucket.store_damages import StoreDamages
from agent.bucket.store_outages import StoreOutages
from agent.config.addresses import (
    EtcdUrl,
    FileUrl,
    HostPort,
    JournalUrl,
    ListenerAddress,
    S3Url,
    SqliteUrl,
    read_ledger_url,
    read_store_url,
)
from agent.config.memory_limit import memory_limit
from agent.config.settings import Settings
from agent.http.open_port import open_http_port
from agent.http.server import HttpServer
from agent.ledger.bootstrap import LoadedState, load_state
from agent.ledger.ledger_outages import with_outages_logged
from agent.ledger.open_ledger import (
    SQLITE_FILE,
    WhereMissing,
    before_takeover,
    check_predecessor,
    held_ledger,
    is_predecessor,
    open_ledger,
)
from agent.maintenance.progress_marks import leave_mark
from agent.runtime.clock import Clock, SystemClock
from agent.runtime.gc_tuning import collect_rarely, pass_over_what_lives
from agent.runtime.ids import Ids, SystemIds
from agent.runtime.metrics import Metrics
from agent.runtime.start_retries import once_there
from agent.runtime.start_waits import StartNeed, StartWaits
from agent.runtime.stop_signals import StopSignals, watch_signals
from agent.runtime.version import VERSION
from agent.security.tls.agent_tls import AgentTls
from coordinator.commands.rules import RULES_NEWEST
from coordinator.ledger.port import Ledger, LedgerCorrupt, LedgerIdentity
from protocol.kernel_folder import choose_kernel_folder
from storage.object_store import ObjectStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEndpoints:
    """The addresses at which an agent serves its cluster, with the ports that its sockets got."""

    bound: Sequence[ListenerAddress]
    advertised: Sequence[ListenerAddress]
    http: HostPort
    cluster_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _StartParts:
    """The parts of an agent that exist before its ledger and its bucket do."""

    clock: Clock
    ids: Ids
    metrics: Metrics
    tls: AgentTls
    http_server: HttpServer
    waits: StartWaits


async def run_agent(settings: Settings, announce: Callable[[AgentEndpoints], None]) -> float:
    """Serve until SIGTERM or SIGINT, then drain and return; a second signal ends the process at once.

    Args:
        settings: the agent's settings.
        announce: called once, when the agent answers clients.

    Returns the time of the first signal, in seconds of the monotonic clock.
    """
    choose_kernel_folder(settings.cache_dir)
    clock, ids, metrics = SystemClock(), SystemIds(), Metrics()
    metrics.memory_limit_bytes.set(memory_limit() or math.inf)
    metrics.build_info.labels(VERSION, str(RULES_NEWEST), platform.python_version(), settings.zone or "").set(1)
    waits = new_start_waits(settings, clock, metrics)
    stopping = asyncio.Event()
    starting = asyncio.current_task()
    assert starting is not None, "an agent runs as a task"
    watch = watch_signals(stopping, starting, clock)
    try:
        tls = AgentTls(settings, clock, metrics)
        async with open_http_port(settings, tls=tls, clock=clock, metrics=metrics, waits=waits) as http_server:
            parts = _StartParts(clock=clock, ids=ids, metrics=metrics, tls=tls, http_server=http_server, waits=waits)
            await _serve(settings, announce, parts, stopping, watch)
    except asyncio.CancelledError:
        if not stopping.is_set():
            raise
        log.info("stopping: the agent had not served yet")
    return watch.stopped_s


async def _serve(
    settings: Settings,
    announce: Callable[[AgentEndpoints], None],
    parts: _StartParts,
    stopping: asyncio.Event,
    watch: StopSignals,
) -> None:
    clock, ids, metrics, waits = parts.clock, parts.ids, parts.metrics, parts.waits
    await _check_ledger_lost(settings, clock, ids, waits)
    await _check_predecessor(settings, clock, ids)
    outages, damages = StoreOutages(clock=clock), StoreDamages()
    metrics.store_damaged_parts.set_function(lambda: len(damages.parts))
    reserves = _ledger_reserve(settings, clock)
    metrics.disk_full.set_function(lambda: reserves.is_full)
    async with (
        held_ledger(settings),
        open_journal(settings, ids, damages=damages, reserves=reserves) as journal,
        open_ledger(settings, clock, ids, waits=waits, journal=journal) as opened,
        open_store(
            settings, clock, ids, metrics, observer=outages, damages=damages, reserves=reserves, journal=journal
        ) as store,
        _in_background(outages.run),
        _in_background(reserves.run),
    ):
        ledger = with_outages_logged(opened, monotonic_s=clock.monotonic_s, count_error=metrics.ledger_errors.inc)
        metrics.ledger_outage_seconds.set_function(lambda: ledger.outage_seconds)
        metrics.store_outage_seconds.set_function(lambda: outages.seconds)
        waits.observe(StartNeed.LEDGER, lambda: ledger.outage_seconds)
        waits.observe(StartNeed.STORE, lambda: outages.seconds)
        identity, loaded = await _sync(settings, parts, store, ledger)
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
            tls=parts.tls,
            http_server=parts.http_server,
            waits=waits,
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


async def _sync(
    settings: Settings, parts: _StartParts, store: ObjectStore, ledger: Ledger
) -> tuple[LedgerIdentity, LoadedState]:
    """The ledger's identity and the state at its head, once ledger and bucket are there and belong together.

    Raises `LedgerCorrupt` and `StoreMisconfigured`: do not serve.
    """
    clock, ids, waits = parts.clock, parts.ids, parts.waits
    new_bucket_id = ids.new_cluster_id()
    is_shared = isinstance(read_store_url(settings.store_url), S3Url)
    # Both checks come before the claim, by which ledger and bucket name each other for good.
    if is_shared:
        await once_there(lambda: check_access(store), clock, waits, StartNeed.STORE)
    await once_there(
        lambda: check_before_claim(store, ledger, name=ids.new_cluster_id(), is_shared=is_shared), clock, waits
    )
    identity = await once_there(lambda: claim_bucket(store, ledger, new_bucket_id=new_bucket_id), clock, waits)
    await once_there(lambda: check_reached(store, ledger), clock, waits)
    loaded = await once_there(lambda: load_state(ledger, store), clock, waits)
    if isinstance(read_store_url(settings.store_url), FileUrl):
        await once_there(lambda: report_missing(store, loaded.follower.state), clock, waits)
    return identity, loaded


def new_start_waits(settings: Settings, clock: Clock, metrics: Metrics) -> StartWaits:
    """The waits of a start with these settings, which the metrics show."""
    kinds = {StartNeed.LEDGER: "etcd"} if isinstance(read_ledger_url(settings.ledger_url), EtcdUrl) else {}
    waits = StartWaits(clock, kinds=kinds)
    for need in StartNeed:
        metrics.start_waits_seconds.labels(need.value).set_function(partial(waits.seconds, need))
    # Until the ledger and the store are there to observe.
    metrics.ledger_outage_seconds.set_function(partial(waits.seconds, StartNeed.LEDGER))
    return waits


async def _check_ledger_lost(settings: Settings, clock: Clock, ids: Ids, waits: StartWaits) -> None:
    """Raise `LedgerCorrupt` where the embedded ledger is missing and the bucket has a cluster: its ledger is lost."""
    url = read_ledger_url(settings.ledger_url)
    match url:
        case SqliteUrl(path=path):
            from coordinator.ledger.sqlite import is_missing

            is_lost = is_missing(Path(path))
        case JournalUrl(path=path):
            from storage.embedded.journal.open_journal import is_empty

            predecessor = Path(path).parent / SQLITE_FILE
            check_predecessor(predecessor)
            is_lost = is_empty(Path(path)) and not is_predecessor(predecessor)
        case _:
            is_lost = False
    if not is_lost:
        return
    async with open_store(settings, clock, ids, Metrics(), is_writer=False) as store:
        file = await once_there(lambda: read_cluster_file(store), clock, waits, StartNeed.STORE)
    if file is not None:
        raise lost_ledger_error(settings.ledger_url, file)


async def _check_predecessor(settings: Settings, clock: Clock, ids: Ids) -> None:
    """Raise `LedgerCorrupt` where the ledger that the journal would take over is not that of the bucket.

    It stays in its file then: with the --store of its own bucket it is read there. Raises `StoreError`s, too.
    """
    former = before_takeover(settings)
    if former is settings:
        return
    async with (
        open_ledger(former, clock, ids, WhereMissing.REJECTED) as ledger,
        open_store(settings, clock, ids, Metrics(), is_writer=False) as store,
    ):
        await check_together(store, ledger)


def _ledger_reserve(settings: Settings, clock: Clock) -> DiskReserves:
    """The disk reserves. That of an embedded ledger is begun before the ledger opens, which may need the space."""
    reserves = DiskReserves(clock=clock)
    url = read_ledger_url(settings.ledger_url)
    if isinstance(url, SqliteUrl | JournalUrl):
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
