"""One agent without its sockets: the parts that serve requests and maintain the cluster, and their background tasks.

Nothing here knows sockets, HTTP or the process, and clock, ids, ledger and store are arguments: so the simulation runs
this code. Background work is started here, under a name, in the supervisor.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial

from agent.admin.config_layers import BrokerConfigs
from agent.admin.configs import ConfigAdmin
from agent.admin.topics import TopicAdmin
from agent.bucket.cluster_identity import BucketWatch
from agent.bucket.confirmation import BucketConfirmation, ConfirmedStore
from agent.bucket.store_damages import StoreDamages
from agent.cache.chunk_cache import ChunkCache
from agent.config.settings import Settings
from agent.context import AgentContext
from agent.fetch.chunk_reader import ChunkReader
from agent.fetch.damaged_objects import DamagedObjects
from agent.fetch.fetch_path import FetchPath
from agent.fetch.read_ahead import ReadAhead
from agent.fetch.read_budget import ReadBudget
from agent.fetch.sessions import FetchSessions
from agent.fetch.timestamp_search import TimestampSearch
from agent.groups.classic_coordinator import ClassicGroupCoordinator
from agent.groups.consumer_coordinator import ConsumerGroupCoordinator
from agent.groups.group_ledger import GroupLedger
from agent.lake.wiring import LakeRoles
from agent.ledger.clock_check import ClockCheck, verdict_text
from agent.ledger.clock_trust import ClockTrust
from agent.ledger.ledger_client import LedgerClient
from agent.ledger.node_ids import node_id_of
from agent.ledger.producer_ids import ProducerIdBlock
from agent.maintenance.corruption_check import CorruptionCheck
from agent.maintenance.garbage_collector import GarbageCollector
from agent.maintenance.leader import MaintenanceLeader
from agent.maintenance.progress_marks import ProgressMarks
from agent.maintenance.rules_version import RulesVersionUpgrade
from agent.maintenance.session_reaper import SessionReaper
from agent.maintenance.snapshots import Snapshots
from agent.maintenance.tail_manifest import TailManifests
from agent.maintenance.wiring import ExpiryRoles
from agent.produce.produce_path import ProducePath
from agent.produce.record_rules import RecordRulesOfTopics
from agent.recovery.audit import Audit
from agent.request.connection_epochs import ConnectionEpochs
from agent.request.services import Services
from agent.runtime.clock import Clock
from agent.runtime.ids import Ids
from agent.runtime.metrics import Metrics
from agent.runtime.periodic_job import PeriodicJob
from agent.runtime.supervisor import Run, Supervisor
from agent.runtime.threads import run_in_thread
from agent.telemetry.subscriptions import ClientTelemetry
from agent.views.state import state_statistics
from coordinator.commands.commands import Endpoint, StartSession
from coordinator.configs.broker_configs import broker_value
from coordinator.configs.topic_configs import effective
from coordinator.follower import Follower
from coordinator.ledger.port import Ledger, LedgerIdentity
from coordinator.state.state import ClusterState
from iceberg_export.parquet.reader import ParquetReader
from protocol.limits import FETCH_READS_BYTES_MAX, READ_AHEAD_SHARE_OF_CACHE_MAX
from protocol.types import SessionId
from storage.object_store import ObjectStore
from storage.refs import topic_of_parquet_key

log = logging.getLogger(__name__)


class Broker:
    """`begin` to serve requests through `services`, `drain` to end; cancelling `supervisor` and `tasks` is a crash.

    `tasks` has the tasks of single requests, `supervisor` those that run as long as the agent.
    """

    services: Services
    """The services of handlers, set by `begin`."""
    lake: LakeRoles
    """The writers to the lake, set by `begin`."""

    def __init__(
        self,
        *,
        settings: Settings,
        identity: LedgerIdentity,
        ledger: Ledger,
        store: ObjectStore,
        follower: Follower,
        clock: Clock,
        ids: Ids,
        metrics: Metrics,
        tasks: asyncio.TaskGroup,
        supervisor: Supervisor,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._confirmation = BucketConfirmation(store=store, identity=identity, clock=clock, metrics=metrics)
        self._store = store = ConfirmedStore(store, self._confirmation)
        self._clock = clock
        self._ids = ids
        self._metrics = metrics
        self._tasks = tasks
        self._supervisor = supervisor
        trust = ClockTrust(ledger_ms=lambda: self.state.time_ms, is_accepted=settings.is_time_accepted)
        self._clock_check = ClockCheck(store=store, clock=clock, trust=trust)
        self._clock_check.watch(metrics)
        self._ledger = LedgerClient(
            backend=ledger,
            store=store,
            follower=follower,
            clock=clock,
            proposed_time=self._clock_check.proposed_time,
            metrics=metrics,
        )
        self._bucket_watch = BucketWatch(
            store=store, ledger=ledger, identity=identity, position=lambda: self.state.position, clock=clock
        )
        self._rules_known = follower.rules_known
        self.node_id = node_id_of(settings.name, follower.state.sessions.values())
        self._broker_configs = BrokerConfigs(settings.broker_configs, node_id=self.node_id, state=lambda: self.state)
        self._context = AgentContext(
            ledger=self._ledger,
            store=store,
            clock=clock,
            ids=ids,
            metrics=metrics,
            broker_configs=self._broker_configs,
            proposed_time=self._clock_check.proposed_time,
            is_bucket_ours=self._bucket_watch.is_ours,
        )

    @property
    def state(self) -> ClusterState:
        """The cluster's state. A reload replaces the object: read it again after every await."""
        return self._ledger.state

    @property
    def session(self) -> SessionId:
        return self._ledger.session

    @property
    def damaged_objects_count(self) -> int:
        """The number of referenced objects that were damaged when a consumer read them in the last ten minutes."""
        return self._damaged.count(self.state.object_ids)

    @property
    def clock_text(self) -> str:
        """The fault of this machine's clock (safety rule S21); empty while it is believed."""
        verdict = self._clock_check.verdict
        return "" if verdict.is_believed else verdict_text(verdict, self._clock.now_ms())

    @property
    def bytes_held(self) -> int:
        """Bytes of records accepted and not yet acknowledged."""
        return self._produce.bytes_held

    async def begin(self, endpoints: Sequence[Endpoint]) -> None:
        """Follow the ledger, open a session with these `endpoints`, and begin all background work."""
        self._supervisor.start("metadata", self._ledger.apply_loop.run, is_restarted=False)
        self._supervisor.start("barriers", self._ledger.apply_loop.run_barriers, is_restarted=False)
        # Once before the first entry, so that the state has a time before anything is served (safety rules S2, S14).
        await self._clock_check.check_or_report()
        self.repeat(self._clock_check.job)
        self._supervisor.start("bucket watch", self._bucket_watch.run)
        self._supervisor.start("bucket confirmation", self._confirmation.run, is_restarted=False)
        await self._ledger.open(self._start_session(endpoints))
        self._supervisor.start("ledger writer", self._ledger.writer.run, is_restarted=False)
        self._supervisor.start("session lease", self._ledger.writer.keep_session, is_restarted=False)
        self._wire()
        for name, run in self._roles().items():
            self._supervisor.start(name, run)

    def _roles(self) -> Mapping[str, Run]:
        """The background work that ends before the session does."""
        return {
            **self._periodic(
                self._maintenance_leader.job,
                *self.lake.jobs,
                self._garbage_collector.job,
                self._snapshots.job,
                self._digests.job,
                self._reached_marks.job,
                *self._tail_manifests.jobs,
                self._reaper.job,
            ),
            "session ends": self._reaper.run_watch,
            **self._periodic(self._rules.job, *self._expiry.jobs),
            "group timers": self._groups.run_timers,
            **self._periodic(self._groups.job),
            "consumer groups": self._consumer_groups.run,
            "connection epochs": self._connection_epochs.run,
        }

    def _periodic(self, *jobs: PeriodicJob) -> Mapping[str, Run]:
        """The loops of these jobs by their names."""
        return {job.name: partial(job.run, self._clock, lambda: self._maintenance_leader.is_leader) for job in jobs}

    def repeat(self, *jobs: PeriodicJob) -> None:
        """Start the loops of these jobs."""
        for name, run in self._periodic(*jobs).items():
            self._supervisor.start(name, run)

    def _start_session(self, endpoints: Sequence[Endpoint]) -> StartSession:
        return StartSession(
            name=self._settings.name,
            node_id=self.node_id,
            endpoints=tuple(endpoints),
            zone=self._settings.zone,
            rules_version=self._rules_known,
        )

    def _wire(self) -> None:
        settings, clock, ledger = self._settings, self._clock, self._ledger
        cache = ChunkCache(bytes_max=settings.read_cache_bytes)
        self._damaged = DamagedObjects(clock=clock)
        self._archive = ParquetReader(
            store=self._store,
            run_in_thread=run_in_thread,
            bytes_of=self._object_bytes,
            batch_bytes_max_of=self._batch_bytes_max,
        )
        budget = ReadBudget(bytes_max=FETCH_READS_BYTES_MAX)
        reader = ChunkReader(
            store=self._store,
            archive=self._archive,
            cache=cache,
            budget=budget,
            damaged=self._damaged,
            tasks=self._tasks,
            is_store_cheap=settings.is_store_cheap,
        )
        ahead_bytes_max = int(READ_AHEAD_SHARE_OF_CACHE_MAX * cache.bytes_max)
        topics = TopicAdmin(ledger=ledger, ids=self._ids, broker_configs=self._broker_configs)
        self._produce = ProducePath(
            self._context,
            cache=cache,
            tasks=self._tasks,
            flush_interval_ms=settings.flush_interval_ms,
            is_store_cheap=settings.is_store_cheap,
        )
        group_ledger = self._wire_groups()
        self._connection_epochs = ConnectionEpochs(ledger=ledger, clock=clock)
        self.services = Services(
            cluster_id=self._identity.cluster_id,
            node_id=self.node_id,
            ledger=ledger,
            produce=self._produce,
            record_rules=RecordRulesOfTopics(self._broker_configs),
            fetch=self._fetch_path(reader, budget, ahead_bytes_max),
            fetch_sessions=FetchSessions(),
            timestamps=TimestampSearch(ledger=ledger, reader=reader, budget=budget, clock=clock),
            producer_ids=ProducerIdBlock(ledger=ledger),
            topics=topics,
            connection_epochs=self._connection_epochs,
            group_ledger=group_ledger,
            groups=self._groups,
            consumer_groups=self._consumer_groups,
            telemetry=self._client_telemetry(),
            broker_configs=self._broker_configs,
            configs=ConfigAdmin(ledger=ledger, broker_configs=self._broker_configs, node_id=self.node_id),
            store_url=settings.store_url,
            metrics=self._metrics,
            clock=clock,
            ids=self._ids,
            checked_time=self._clock_check.proposed_time,
            is_clock_ahead=lambda: self._clock_check.verdict.ahead_ms > 0,
        )
        self._wire_roles()
        self._metrics.watch_state(lambda: state_statistics(self.state, self._clock_check.proposed_time()))
        self._watch_metrics(cache)

    def _fetch_path(self, reader: ChunkReader, budget: ReadBudget, ahead_bytes_max: int) -> FetchPath:
        return FetchPath(
            self._context,
            reader=reader,
            budget=budget,
            ahead=ReadAhead(reader=reader, budget=budget, clock=self._clock, bytes_max=ahead_bytes_max),
            confirmed_s=lambda: self._ledger.confirmed_s,
        )

    def _wire_groups(self) -> GroupLedger:
        """The coordinators of groups, over the ledger that they share."""
        clock, ledger = self._clock, self._ledger
        group_ledger = GroupLedger(ledger=ledger, clock=clock)
        self._groups = ClassicGroupCoordinator(self._context, group_ledger=group_ledger)
        self._consumer_groups = ConsumerGroupCoordinator(self._context, group_ledger=group_ledger, classic=self._groups)
        self._groups.consumer_groups = self._consumer_groups
        return group_ledger

    def _client_telemetry(self) -> ClientTelemetry:
        telemetry = ClientTelemetry(
            configs=lambda: self.state.client_metrics_configs,
            clock=self._clock,
            ids=self._ids,
            metrics=self._metrics,
            bytes_max=int(broker_value(self._broker_configs, "telemetry.max.bytes")),
        )
        self._metrics.registry.register(telemetry.series)
        self._metrics.client_telemetry_instances.set_function(lambda: telemetry.instances_count)
        return telemetry

    def _wire_roles(self) -> None:
        """The background tasks."""
        settings, clock, ledger = self._settings, self._clock, self._ledger
        keeper = MaintenanceLeader(ledger=ledger, clock=clock, ids=self._ids)
        self._maintenance_leader = keeper
        self._digests = CorruptionCheck(self._context, maintenance_leader=self._maintenance_leader)
        self._snapshots = Snapshots(
            self._context,
            maintenance_leader=self._maintenance_leader,
            digests=self._digests,
            entries_interval=settings.snapshot_entries,
            bytes_interval=settings.snapshot_bytes,
        )
        self._reached_marks = ProgressMarks(store=self._store, ledger=ledger, maintenance_leader=keeper)
        self.lake = LakeRoles(self._context, settings=settings, archive=self._archive)
        self._wire_tail()
        self._garbage_collector = GarbageCollector(
            self._context,
            maintenance_leader=self._maintenance_leader,
            snapshots=self._snapshots,
            grace_ms=settings.gc_min_age_s * 1000,
        )
        self._rules = RulesVersionUpgrade(ledger)
        self._reaper = SessionReaper(ledger=ledger, clock=clock)
        self._expiry = ExpiryRoles(self._context, maintenance_leader=self._maintenance_leader)

    def _wire_tail(self) -> None:
        self._tail_manifests = TailManifests(
            self._context, maintenance_leader=self._maintenance_leader, interval_ms=self._settings.tail_interval_ms
        )

    def _watch_metrics(self, cache: ChunkCache) -> None:
        """Metrics that other parts count anyway: their values are read at each scrape."""
        metrics = self._metrics
        metrics.intake_buffer_bytes.set_function(lambda: self._produce.bytes_held)
        metrics.cache_bytes.set_function(lambda: cache.bytes_held)
        metrics.cache_hits.set_function(lambda: cache.hits_count)
        metrics.cache_misses.set_function(lambda: cache.misses_count)
        metrics.damaged_objects.set_function(lambda: self.damaged_objects_count)
        metrics.ledger_entries_applied.set_function(lambda: self._ledger.apply_loop.entries_applied_count)
        metrics.groups.set_function(lambda: self._groups.groups_count + self._consumer_groups.groups_count)
        metrics.group_rebalances.set_function(lambda: self._groups.generations_count)
        metrics.background_restarts.set_function(lambda: self._supervisor.restarts_count)

    def _object_bytes(self, key: str) -> int | None:
        object_id = self.state.object_ids.get(key)
        return None if object_id is None else self.state.objects[object_id].object_bytes

    def _batch_bytes_max(self, key: str) -> int:
        """The max.message.bytes of the topic of a data file."""
        topic_id = topic_of_parquet_key(key)
        topic = None if topic_id is None else self.state.topics.get(topic_id)
        configs = {} if topic is None else topic.configs
        return int(effective(configs, self._broker_configs, "max.message.bytes"))

    async def redirect_clients(self, *, seconds_max: float) -> None:
        """Let clients move to other agents. Returns at once without other agents, else once no request comes any more.

        Raises as `drain` does, and `TimeoutError` after `seconds_max`.
        """
        if all(session.is_draining for number, session in self.state.sessions.items() if number != self.session):
            self._groups.stop()
            self._consumer_groups.stop()
            return
        self.services.draining.begin()
        async with self._clock.timeout(seconds_max):
            try:
                # Accepted records are committed before another agent leads (S8): else a producer's next batch could be
                # committed there before them. After half of the time others lead all the same, or no client would move.
                await self._commit_accepted(seconds_max / 2)
                await self._ledger.start_drain()
            finally:
                self.services.draining.announce()
                self._groups.stop()
                self._consumer_groups.stop()
            await self.services.draining.until_quiet(self._clock)

    async def _commit_accepted(self, seconds_max: float) -> None:
        try:
            async with self._clock.timeout(seconds_max):
                await self._produce.drain()
        except TimeoutError:
            log.warning("accepted records are not committed yet; this agent hands over its partitions all the same")

    async def drain(self) -> None:
        """End the background roles, put and commit accepted records, write a last tail manifest, and end the session.

        Raises `OutcomeUnknown` and `LedgerError`s: records that are not committed then were never acknowledged, and the
        session ends with its lease.
        """
        await self._supervisor.stop(*self._roles())
        await self._produce.drain()
        await self._tail_manifests.leave()
        await self._ledger.close()

    def new_audit(self, damages: StoreDamages) -> Audit:
        """An audit of ledger and bucket. `damages` are those of the store."""
        return Audit(
            self._ledger.backend,
            self._store,
            grace_ms=self._settings.gc_min_age_s * 1000,
            undeletable=self._garbage_collector.failed_deletions,
            damages=damages,
        )
