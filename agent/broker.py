"""One agent without its sockets: the parts that serve requests and maintain the cluster, and their background tasks.

Nothing here knows sockets, HTTP or the process, and clock, ids, ledger and store are arguments: so the simulation runs
this code. Background work is started here, under a name, in the supervisor.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from agent.admin.config_layers import BrokerConfigs
from agent.admin.topics import TopicAdmin
from agent.bucket.bucket_watch import BucketWatch
from agent.bucket.confirmation import BucketConfirmation, ConfirmedStore
from agent.bucket.intake_admission import IntakeAdmission
from agent.bucket.store_damages import StoreDamages
from agent.cache.chunk_cache import ChunkCache
from agent.config.settings import Settings
from agent.context import AgentContext
from agent.fetch.wiring import FetchServices
from agent.groups.wiring import GroupServices
from agent.lake.archive_reader import archive_reader
from agent.lake.wiring import LakeRoles
from agent.ledger.clock_check import ClockCheck, verdict_text
from agent.ledger.clock_trust import ClockTrust
from agent.ledger.ledger_client import LedgerClient
from agent.ledger.ledger_metrics import LedgerMetrics
from agent.ledger.node_ids import node_id_of
from agent.maintenance.agent_description import AgentDescription
from agent.maintenance.leader import MaintenanceLeader
from agent.maintenance.rules_hold import RulesHold
from agent.maintenance.wiring import MaintenanceRoles
from agent.produce.audit_wiring import wire_audit_log
from agent.produce.produce_path import ProducePath
from agent.recovery.audit import Audit
from agent.request.draining import Draining
from agent.request.services import Services
from agent.request.wiring import wire_services
from agent.runtime.clock import Clock
from agent.runtime.ids import Ids
from agent.runtime.metrics import Metrics
from agent.runtime.periodic_job import PeriodicJob, loops_of
from agent.runtime.start_waits import StartWaits
from agent.runtime.supervisor import Run, Supervisor
from agent.security.audit.audit_log import AuditLog
from agent.security.authorizer import Authorizer, StateAcls
from agent.security.credential_seal import CredentialSeal
from agent.views.cluster_metrics import ClusterMetrics
from coordinator.commands.commands import Endpoint, StartSession
from coordinator.follower import Follower
from coordinator.ledger.port import Ledger, LedgerIdentity
from coordinator.state.state import ClusterState
from protocol.limits import DRAIN_MOVE_SECONDS_MAX, REQUESTED_DRAIN_CHECK_INTERVAL_S
from protocol.types import SessionId
from storage.object_store import ObjectStore

log = logging.getLogger(__name__)


class Broker:
    """`begin` to serve requests through `services`, `drain` to end; cancelling `supervisor` and `tasks` is a crash.

    `tasks` has the tasks of single requests, `supervisor` those that run as long as the agent.
    """

    services: Services
    """The services of handlers, set by `begin`."""
    lake: LakeRoles
    """The writers to the lake, set by `begin`."""
    audit_log: AuditLog
    """The audit log, set by `begin`."""
    cluster_metrics: ClusterMetrics
    ledger_metrics: LedgerMetrics
    """The metrics that are computed for a scrape, set by `begin`."""

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
        waits: StartWaits | None = None,
        is_disk_full: Callable[[], bool] = lambda: False,
    ) -> None:
        """`waits`: those of the agent's start. `is_disk_full`: whether records are rejected for want of room."""
        self._is_disk_full = is_disk_full
        self._waits = waits
        self._settings = settings
        self._identity = identity
        self._confirmation = BucketConfirmation(store=store, identity=identity, clock=clock, metrics=metrics)
        store = ConfirmedStore(store, self._confirmation)
        self._clock = clock
        self._tasks = tasks
        self._supervisor = supervisor
        trust = ClockTrust(ledger_ms=lambda: self.state.time_ms, is_accepted=settings.is_time_accepted)
        self._clock_check = ClockCheck(store=store, clock=clock, trust=trust)
        self._clock_check.publish(metrics)
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
            is_authorizer_enabled=settings.authorizer.is_enabled,
            is_bucket_ours=self._bucket_watch.is_ours,
        )
        self._maintenance_leader = MaintenanceLeader(ledger=self._ledger, clock=clock, ids=ids)

    @property
    def state(self) -> ClusterState:
        """The cluster's state. A reload replaces the object: read it again after every await."""
        return self._ledger.state

    @property
    def session(self) -> SessionId:
        return self._ledger.session

    @property
    def damaged_objects_count(self) -> int:
        return self._fetch.damaged_objects_count

    @property
    def clock_text(self) -> str:
        """The fault of this machine's clock (safety rule S21); empty while it is believed."""
        verdict = self._clock_check.verdict
        return "" if verdict.is_believed else verdict_text(verdict, self._clock.now_ms())

    @property
    def bytes_held(self) -> int:
        """Bytes of records accepted and not yet acknowledged."""
        return self._produce.bytes_held

    async def begin(self, endpoints: Sequence[Endpoint], http_url: str | None = None) -> None:
        """Follow the ledger, open a session with these `endpoints`, and begin all background work.

        `http_url`: of the agent's HTTP port, for people and other agents.
        """
        self._supervisor.start("metadata", self._ledger.apply_loop.run, is_restarted=False)
        self._supervisor.start("barriers", self._ledger.apply_loop.run_barriers, is_restarted=False)
        # Once before the first entry, so that the state has a time before anything is served (safety rules S2, S14).
        await self._clock_check.check_or_report()
        self.repeat(self._clock_check.job)
        self._supervisor.start("bucket watch", self._bucket_watch.run)
        self._supervisor.start("bucket confirmation", self._confirmation.run, is_restarted=False)
        is_rules_held = self._settings.is_rules_held
        await self._ledger.open(
            self._start_session(endpoints),
            is_holding_rules=is_rules_held is True,
            is_taking_over_name=self._settings.is_taking_over_name,
            waits=self._waits,
        )
        self._supervisor.start("ledger writer", self._ledger.writer.run, is_restarted=False)
        self._supervisor.start("session lease", self._ledger.writer.keep_session, is_restarted=False)
        # Before this agent, or an older one that ends, gives occasion to raise the rules (S3).
        await RulesHold(self._ledger, is_held=is_rules_held, proposed_time=self._clock_check.proposed_time).carry_out()
        self._wire()
        self._description = AgentDescription(self._context, http_url=http_url)
        for name, run in self._roles().items():
            self._supervisor.start(name, run)
        if self.audit_log.is_on:
            self.repeat(self.audit_log.job)

    def _roles(self) -> Mapping[str, Run]:
        """The background work that ends before the session does."""
        return {
            **self._periodic(
                self._maintenance_leader.job, self._description.job, self._requested_drain_job, *self.lake.jobs
            ),
            **self._maintenance.loops(),
            "group timers": self._groups.classic.run_timers,
            **self._periodic(self._groups.classic.job),
            "consumer groups": self._groups.consumer.run,
            "connection epochs": self.services.connection_epochs.run,
        }

    def _periodic(self, *jobs: PeriodicJob) -> Mapping[str, Run]:
        return loops_of(*jobs, clock=self._clock, is_leader=lambda: self._maintenance_leader.is_leader)

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
        settings, context = self._settings, self._context
        archive = archive_reader(context)
        cache = ChunkCache(bytes_max=settings.read_cache_bytes)
        self._produce = ProducePath(
            context,
            cache=cache,
            tasks=self._tasks,
            flush_interval_ms=settings.flush_interval_ms,
            is_store_cheap=settings.is_store_cheap,
            admit=IntakeAdmission(self._confirmation, is_full=self._is_disk_full, sleep=self._clock.sleep),
        )
        self._fetch = FetchServices(
            context,
            archive=archive,
            cache=cache,
            tasks=self._tasks,
            is_store_cheap=settings.is_store_cheap,
        )
        self._groups = GroupServices(context, is_authorizer_enabled=settings.authorizer.is_enabled)
        self.lake = LakeRoles(context, settings=settings, archive=archive, cache=cache)
        self._maintenance = MaintenanceRoles(context, settings=settings, leader=self._maintenance_leader)
        self.audit_log = wire_audit_log(
            context,
            settings.audit,
            cluster_id=self._identity.cluster_id,
            agent=settings.name,
            topics=TopicAdmin(ledger=self._ledger, ids=context.ids, broker_configs=self._broker_configs),
            produce=self._produce,
        )
        self.authorizer = Authorizer(
            settings.authorizer,
            acls=StateAcls(self._ledger),
            ledger=self._ledger,
            clock=context.clock,
            metrics=context.metrics,
            audit_log=self.audit_log,
        )
        self.services = wire_services(
            context,
            cluster_id=self._identity.cluster_id,
            node_id=self.node_id,
            store_url=settings.store_url,
            broker_configs=self._broker_configs,
            produce=self._produce,
            fetch=self._fetch,
            groups=self._groups,
            is_clock_ahead=lambda: self._clock_check.verdict.ahead_ms > 0,
            authorizer=self.authorizer,
            audit_log=self.audit_log,
            credential_seal=CredentialSeal(settings.secret_key),
            token_settings=settings.tokens,
            draining=Draining(self._has_others),
            tasks=self._tasks,
            is_relaying=settings.has_relay,
        )
        shared_use = self.services.quotas.shared_use
        self._produce.quota_uses = shared_use.take
        self._ledger.apply_loop.on_quota_uses = shared_use.applied
        self._wire_metrics()

    def _wire_metrics(self) -> None:
        context, metrics = self._context, self._context.metrics
        if self._settings.authorizer.is_enabled:
            metrics.authorizer_view_age_seconds.set_function(lambda: self.authorizer.view_age_s)
        self.cluster_metrics = ClusterMetrics(
            state=lambda: self.state,
            is_leader=lambda: self._maintenance_leader.is_leader,
            now_ms=context.proposed_time,
            clock=context.clock,
            pass_interval_ms=self._settings.archive_interval_s * 1000,
        )
        self.ledger_metrics = LedgerMetrics(
            ledger=self._ledger, is_leader=lambda: self._maintenance_leader.is_leader, clock=context.clock
        )
        metrics.add(self.cluster_metrics)
        metrics.add(self.ledger_metrics)
        metrics.ledger_position.set_function(lambda: self.state.position)
        metrics.rules_version.set_function(lambda: self.state.rules_version)
        metrics.intake_buffer_bytes.set_function(lambda: self._produce.bytes_held)
        metrics.ledger_entries_applied.set_function(lambda: self._ledger.apply_loop.entries_applied_count)
        metrics.background_restarts.set_function(lambda: self._supervisor.restarts_count)

    async def refresh_metrics(self) -> None:
        """Compute the metrics that are computed for a scrape."""
        await self.ledger_metrics.refresh()
        await self.cluster_metrics.refresh_in(self._tasks)

    async def redirect_clients(self, *, seconds_max: float) -> None:
        """Let clients move to other agents. Returns at once without other agents, else once no request comes any more.

        Raises as `drain` does, and `TimeoutError` after `seconds_max`.
        """
        if not self._has_others():
            self._groups.stop()
            return
        async with self._clock.timeout(seconds_max):
            try:
                await self._let_others_lead(seconds_max)
            finally:
                self._groups.stop()
            await self.services.draining.until_quiet(self._clock)

    async def _let_others_lead(self, seconds_max: float) -> None:
        """Redirect clients, and leave Metadata. Raises `OutcomeUnknown` as `LedgerClient.start_drain` does."""
        self.services.draining.begin()
        try:
            # Accepted records are committed before another agent leads (S8): else a producer's next batch could be
            # committed there before them. After half of the time others lead all the same, or no client would move.
            await self._commit_accepted(seconds_max / 2)
            await self._ledger.start_drain()
        finally:
            self.services.draining.announce()

    def _has_others(self) -> bool:
        """Whether another agent serves and does not drain."""
        others = (session for number, session in self.state.sessions.items() if number != self.session)
        return not all(session.is_draining for session in others)

    @property
    def _requested_drain_job(self) -> PeriodicJob:
        return PeriodicJob(
            name="requested drain", interval_s=REQUESTED_DRAIN_CHECK_INTERVAL_S, run_once=self._drain_on_request
        )

    async def _drain_on_request(self) -> None:
        """Drain if somebody asked for it. The agent goes on: groups and partitions come back where no other is left."""
        session = self.state.sessions.get(self.session)
        if session is None or not session.is_drain_requested or session.is_draining:
            return
        log.warning("this agent drains, as it was asked to; clients go to the other agents until it is restarted")
        await self._let_others_lead(DRAIN_MOVE_SECONDS_MAX)

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
        await self.audit_log.flush()
        await self._produce.drain()
        await self._maintenance.tail_manifests.leave()
        await self._ledger.close()

    def new_audit(self, damages: StoreDamages) -> Audit:
        """An audit of ledger and bucket. `damages` are those of the store."""
        return Audit(
            self._ledger.backend,
            self._context.store,
            grace_ms=self._settings.gc_min_age_s * 1000,
            undeletable=self._maintenance.garbage_collector.failed_deletions,
            damages=damages,
        )
