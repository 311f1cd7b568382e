"""One agent, serving: its parts, the tasks that drive them, and how it starts and stops.

Rule: everything that runs in the background is started here, under a name. Whatever is not the environment's fault ends
the agent. An outage of ledger or bucket never does.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from agent.addresses import Listener
from agent.archiver import Archiver
from agent.chunk_cache import ChunkCache
from agent.chunk_reader import ChunkReader
from agent.cleaner import Cleaner
from agent.clock import Clock
from agent.clock_check import ClockCheck
from agent.cpu import run_in_thread
from agent.fetch_path import FetchPath
from agent.fetch_sessions import FetchSessions
from agent.http_server import HttpServer
from agent.ids import Ids
from agent.ledger_writer import LedgerWriter, OutcomeUnknown
from agent.metadata_loop import MetadataLoop
from agent.metrics import Metrics
from agent.node_ids import node_id_of
from agent.produce_path import ProducePath
from agent.producer_expiry import ProducerExpiry
from agent.producer_ids import ProducerIdBlock
from agent.read_budget import ReadBudget
from agent.record_rules import RecordRulesOfTopics
from agent.server import KafkaServer
from agent.services import Services
from agent.session_reaper import SessionReaper
from agent.settings import Settings
from agent.snapshots import Snapshots
from agent.state_views import state_figures
from agent.supervisor import Run, Supervisor
from agent.timestamp_search import TimestampSearch
from agent.topics import TopicAdmin
from agent.version import VERSION
from coordinator.broker_configs import broker_value
from coordinator.commands import RULES_VERSION, Endpoint, StartSession
from coordinator.follower import Follower
from coordinator.log import Ledger, LedgerError, LedgerIdentity, LedgerStart
from coordinator.state import ClusterState
from coordinator.topic_configs import effective
from iceberg_export.parquet_reader import ParquetReader
from iceberg_export.plan import ArchivePolicy
from protocol.limits import FETCH_READS_BYTES_MAX, STOP_SECONDS_MAX
from protocol.records import warm_kernels
from storage.object_store import ObjectStore
from storage.refs import topic_of_parquet_key

log = logging.getLogger(__name__)


class Agent:
    """Enter to serve, `drain` to stop taking work, leave to end. Implements `agent.http_server.Agent`."""

    def __init__(
        self,
        *,
        settings: Settings,
        identity: LedgerIdentity,
        ledger: Ledger,
        store: ObjectStore,
        start: LedgerStart,
        follower: Follower,
        clock: Clock,
        ids: Ids,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._start = start
        self._clock = clock
        self._ids = ids
        self._stack = AsyncExitStack()
        self._supervisor = Supervisor(clock=clock, ids=ids)
        self._tasks = asyncio.TaskGroup()
        self._metadata = MetadataLoop(ledger=ledger, follower=follower, clock=clock)
        self._node_id = node_id_of(settings.name, follower.state.sessions.values())
        self._clock_check = ClockCheck(store=store, clock=clock)
        self.ledger = ledger
        self.store = store
        self.metrics = metrics
        self.is_ready = False
        self.bound: list[Listener] = []
        self.advertised: list[Listener] = []
        self.http = settings.http

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._supervisor)
        await self._stack.enter_async_context(self._tasks)
        try:
            await self._begin()
        except BaseException:
            await self._cancel_all()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.is_ready = False
        self._server.abort()
        await self._supervisor.stop()
        try:
            async with self._clock.timeout(STOP_SECONDS_MAX):
                await self._stack.__aexit__(kind, error, traceback)
        except TimeoutError:
            log.warning("gave up on requests to the store that were not answered")

    async def _cancel_all(self) -> None:
        await self._supervisor.stop()
        await self._stack.aclose()

    async def _begin(self) -> None:
        http_server = HttpServer(agent=self, address=self._settings.http)
        self.http = http_server.bind()
        self._server = KafkaServer(tasks=self._tasks, metrics=self.metrics, clock=self._clock)
        await self._bind()
        self._supervisor.start("metadata", self._metadata.run, is_restarted=False)
        self._supervisor.start("barriers", self._metadata.run_barriers, is_restarted=False)
        # Once before the first entry, so that the state has a time before anything is served (safety rules S2, S14).
        await self._clock_check.check_or_report()
        self._supervisor.start("clock check", self._clock_check.run)
        self._writer = LedgerWriter(
            ledger=self.ledger,
            metadata=self._metadata,
            clock=self._clock,
            start=self._start_session(),
            proposed_time=self._clock_check.proposed_time,
            metrics=self.metrics,
        )
        await self._writer.open()
        self._supervisor.start("ledger writer", self._writer.run, is_restarted=False)
        self._supervisor.start("session lease", self._writer.keep_session, is_restarted=False)
        self._wire()
        self._supervisor.start("http", http_server.run, is_restarted=False)
        self._supervisor.start("kernels", lambda: run_in_thread(warm_kernels))
        self._supervisor.start("idle connections", self._server.run_idle_sweep)
        for name, run in self._roles().items():
            self._supervisor.start(name, run)
        await self._server.start_serving(self._services)
        await http_server.serving()
        self.is_ready = True

    def _roles(self) -> Mapping[str, Run]:
        """The background work that ends before the session does."""
        return {
            "archiver": self._archiver.run,
            "cleaner": self._cleaner.run,
            "snapshots": self._snapshots.run,
            "sessions": self._reaper.run,
            "producer expiry": self._producer_expiry.run,
        }

    async def _bind(self) -> None:
        """Take the ports first: the session tells the others where this agent listens."""
        for listener, shown in zip(self._settings.listeners, self._settings.advertised, strict=True):
            port = await self._server.listen(listener.name, listener.host, listener.port)
            self.bound.append(Listener(name=listener.name, host=listener.host, port=port))
            self.advertised.append(Listener(name=shown.name, host=shown.host, port=shown.port or port))

    def _start_session(self) -> StartSession:
        return StartSession(
            name=self._settings.name,
            node_id=self._node_id,
            endpoints=tuple(Endpoint(listener=a.name, host=a.host, port=a.port) for a in self.advertised),
            zone=self._settings.zone,
            rules_version=RULES_VERSION,
        )

    def _wire(self) -> None:
        settings, clock, metadata, writer = self._settings, self._clock, self._metadata, self._writer
        cache = ChunkCache(bytes_max=settings.read_cache_bytes)
        archive = ParquetReader(
            store=self.store,
            run_in_thread=run_in_thread,
            bytes_of=self._object_bytes,
            batch_bytes_max_of=self._batch_bytes_max,
        )
        reader = ChunkReader(store=self.store, archive=archive, cache=cache, tasks=self._tasks)
        topics = TopicAdmin(metadata=metadata, writer=writer, ids=self._ids, broker_configs=settings.broker_configs)
        self._produce = ProducePath(
            store=self.store,
            writer=writer,
            metadata=metadata,
            cache=cache,
            clock=clock,
            metrics=self.metrics,
            tasks=self._tasks,
            flush_interval_ms=settings.flush_interval_ms,
            is_store_cheap=settings.is_store_cheap,
        )
        self._services = Services(
            cluster_id=self._identity.cluster_id,
            node_id=self._node_id,
            metadata=metadata,
            writer=writer,
            produce=self._produce,
            record_rules=RecordRulesOfTopics(settings.broker_configs),
            fetch=FetchPath(
                metadata=metadata,
                topics=topics,
                reader=reader,
                budget=ReadBudget(bytes_max=FETCH_READS_BYTES_MAX),
                clock=clock,
                broker_configs=settings.broker_configs,
            ),
            fetch_sessions=FetchSessions(),
            timestamps=TimestampSearch(metadata=metadata, reader=reader),
            producer_ids=ProducerIdBlock(writer=writer),
            topics=topics,
            broker_configs=settings.broker_configs,
            metrics=self.metrics,
            clock=clock,
            ids=self._ids,
        )
        self._wire_roles()
        self.metrics.watch_state(lambda: state_figures(self.state))
        self._watch_figures(cache)

    def _wire_roles(self) -> None:
        """What works in the background."""
        settings, clock, metadata, writer = self._settings, self._clock, self._metadata, self._writer
        self._archiver = Archiver(
            store=self.store,
            metadata=metadata,
            writer=writer,
            clock=clock,
            metrics=self.metrics,
            policy=ArchivePolicy(age_ms=settings.archive_interval_s * 1000, bytes_target=settings.archive_bytes),
        )
        self._cleaner = Cleaner(
            store=self.store,
            metadata=metadata,
            writer=writer,
            clock=clock,
            metrics=self.metrics,
            grace_ms=settings.gc_grace_s * 1000,
        )
        self._snapshots = Snapshots(
            ledger=self.ledger,
            store=self.store,
            metadata=metadata,
            clock=clock,
            metrics=self.metrics,
            start=self._start,
            entries_interval=settings.snapshot_entries,
            bytes_interval=settings.snapshot_bytes,
        )
        self._reaper = SessionReaper(ledger=self.ledger, metadata=metadata, writer=writer, clock=clock)
        self._producer_expiry = ProducerExpiry(
            metadata=metadata,
            writer=writer,
            clock=clock,
            proposed_time=self._clock_check.proposed_time,
            expiration_ms=int(broker_value(settings.broker_configs, "producer.id.expiration.ms")),
        )

    def _watch_figures(self, cache: ChunkCache) -> None:
        """Figures that their owners count anyway are read when somebody asks for the metrics."""
        figures = self.metrics
        figures.intake_buffer_bytes.set_function(lambda: self._produce.bytes_held)
        figures.cache_bytes.set_function(lambda: cache.bytes_held)
        figures.cache_hits.set_function(lambda: cache.hits_count)
        figures.cache_misses.set_function(lambda: cache.misses_count)
        figures.ledger_entries_applied.set_function(lambda: self._metadata.entries_applied_count)
        figures.background_restarts.set_function(lambda: self._supervisor.restarts_count)

    def _object_bytes(self, key: str) -> int | None:
        object_id = self.state.object_ids.get(key)
        return None if object_id is None else self.state.objects[object_id].object_bytes

    def _batch_bytes_max(self, key: str) -> int:
        """The max.message.bytes of the topic whose data file that is."""
        topic_id = topic_of_parquet_key(key)
        topic = None if topic_id is None else self.state.topics.get(topic_id)
        configs = {} if topic is None else topic.configs
        return int(effective(configs, self._settings.broker_configs, "max.message.bytes"))

    async def drain(self) -> None:
        """Take no more work, answer what was accepted, and end the session: all within the drain's time.

        What is not done by then (the ledger or the bucket is away) was never acknowledged, and the session ends with
        its lease.
        """
        self.is_ready = False
        try:
            async with self._clock.timeout(self._settings.drain_timeout_s):
                # Half of the time for clients, so that the other half is left to end the session.
                await self._server.drain(self._settings.drain_timeout_s / 2)
                await self._supervisor.stop(*self._roles())
                await self._produce.drain()
                await self._writer.close()
        except (TimeoutError, OutcomeUnknown, LedgerError) as error:
            log.warning("stopping before everything was answered", extra={"reason": str(error) or "out of time"})

    # What the HTTP port asks for.

    @property
    def state(self) -> ClusterState:
        return self._metadata.state

    def status(self) -> Mapping[str, object]:
        return {
            "name": self._settings.name,
            "version": VERSION,
            "cluster_id": self._identity.cluster_id,
            "node_id": self._node_id,
            "session": self._writer.session,
            "kafka": [str(listener) for listener in self.advertised],
            "position": self.state.position,
            "intake_bytes_held": self._produce.bytes_held,
        }

    async def barrier(self) -> None:
        await self._metadata.barrier()

    async def archive(self, topic_names: Sequence[str]) -> Sequence[Mapping[str, object]]:
        reports: list[Mapping[str, object]] = []
        topic_ids = [self.state.topic_ids[name] for name in topic_names]
        for topic_id in topic_ids:
            report = await self._archiver.archive_topic(topic_id)
            reports.append(
                {
                    "topic": report.topic,
                    "records": report.records,
                    "bytes": report.source_bytes,
                    "objects": list(report.object_keys),
                }
            )
        return reports
