"""One agent: its sockets around a `Broker`, what its HTTP port answers, and the order of its start and stop.

All background work is started here or in `agent.broker`, under a name. A bug ends the agent; an outage of ledger or
bucket never does.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self

from agent.broker import Broker
from agent.bucket.disk_reserve import REMEDY as DISK_REMEDY
from agent.bucket.disk_reserve import DiskReserves
from agent.bucket.store_damages import StoreDamages
from agent.config.addresses import ListenerAddress, with_agent_name
from agent.config.listener_security import RELAY_LISTENER
from agent.config.settings import Settings
from agent.http.server import HttpServer
from agent.http.services import AdminServices
from agent.http.tail_urls import TailUrls, tail_urls
from agent.lake.external_catalogs import ExternalCatalogSync, external_catalog_syncs
from agent.lake.topic_work import REMEDY_DAMAGED
from agent.ledger.clock_check import REMEDY as CLOCK_REMEDY
from agent.runtime.clock import Clock
from agent.runtime.ids import Ids
from agent.runtime.loop_lag import observe_loop_lag
from agent.runtime.metrics import Metrics
from agent.runtime.notices import Notice, NoticeKind
from agent.runtime.start_waits import NOT_READY, StartWaits
from agent.runtime.supervisor import Supervisor
from agent.runtime.version import VERSION
from agent.security.authentication import ConnectionAuthenticator
from agent.security.authorizer import check_administrator
from agent.security.connections.connection_limits import ConnectionLimits, IpRates
from agent.security.credential_seal import OpenCredentials
from agent.security.first_users import create_first_users
from agent.security.http_identity import HttpRights
from agent.security.oauth.issuer_keys import IssuerKeys
from agent.security.scram_accounts import CredentialSource
from agent.security.tls.agent_tls import AgentTls
from agent.security.wiring import Authentication, wire_authentication
from agent.server.connection import ClientConnection
from agent.server.connection_gate import ConnectionGate
from agent.server.connection_table import ConnectionTable
from agent.server.kafka_server import KafkaServer
from agent.server.login_connection import LoginConnection
from agent.server.relay.client_relays import ClientRelays
from agent.server.relay.relay_introduction import RelayIntroduction
from agent.server.relay.relays import Relays
from agent.server.relay.shared_addresses import SharedAddresses
from agent.server.request_router import RequestRouter
from agent.views.agents import maintenance_leader_name, rules_view
from coordinator.commands.commands import Endpoint
from coordinator.commands.rules import RULES_SECURITY
from coordinator.follower import Follower
from coordinator.ledger.port import Ledger, LedgerError, LedgerIdentity, OutcomeUnknown
from iceberg_export.rows.kernels import KERNELS
from protocol.limits import DRAIN_MOVE_SECONDS_MAX, STOP_SECONDS_MAX
from protocol.records.records import kernels_ready
from storage.object_store import ObjectStore

log = logging.getLogger(__name__)

DRAINED = f"{NOT_READY}: the agent is drained, and other agents serve its clients"


class Agent:
    """Enter to serve, `drain` to stop taking work, leave to end."""

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
        tls: AgentTls,
        http_server: HttpServer,
        waits: StartWaits,
        damages: StoreDamages | None = None,
        reserves: DiskReserves | None = None,
    ) -> None:
        """`http_server` is open already, and outlives the agent. `waits` are those of this start."""
        self._settings = settings
        self._identity = identity
        self._clock = clock
        self._ids = ids
        self._stack = AsyncExitStack()
        self._supervisor = Supervisor(clock=clock, ids=ids)
        self._tasks = asyncio.TaskGroup()
        self.broker = Broker(
            settings=settings,
            identity=identity,
            ledger=ledger,
            store=store,
            follower=follower,
            clock=clock,
            ids=ids,
            metrics=metrics,
            tasks=self._tasks,
            supervisor=self._supervisor,
            waits=waits,
            is_disk_full=lambda: reserves is not None and reserves.is_full,
        )
        self._store = store
        self._metrics = metrics
        self._damages = damages or StoreDamages()
        self._reserves = reserves
        self._tls = tls
        self._http_server = http_server
        self._waits = waits
        self._server = KafkaServer(table=ConnectionTable(metrics=metrics, strangers=tls.strangers), clock=clock)
        self._issuer_keys: Sequence[IssuerKeys] = ()
        self._catalog_syncs: Sequence[ExternalCatalogSync] = ()
        """Their jobs end before the session does."""
        self._tail_urls: TailUrls | None = None
        self._shared_addresses: SharedAddresses | None = None
        self.is_ready = False
        self._serves_since_s = clock.monotonic_s()
        self.bound: list[ListenerAddress] = []
        self.advertised: list[ListenerAddress] = []
        self.http = http_server.address
        self._digest_key = ids.new_uuid() + ids.new_uuid()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._supervisor)
        await self._stack.enter_async_context(self._tasks)
        try:
            await self._begin()
        except BaseException:
            await self._end(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._end(kind, error, traceback)

    async def _end(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close all ports but HTTP's, which answers no more than health and metrics, and end all tasks."""
        self.is_ready = False
        self._http_server.withdraw()
        self._server.close_listeners()
        self._server.abort()
        self._tls.handshakes.abort()
        await self._supervisor.stop()
        try:
            async with self._clock.timeout(STOP_SECONDS_MAX):
                await self._stack.__aexit__(kind, error, traceback)
        except TimeoutError:
            log.warning(
                "the agent ends although the store has not answered all requests; none of them was acknowledged"
            )

    async def _begin(self) -> None:
        await self._bind()
        await self.broker.begin(
            [Endpoint(listener=shown.name, host=shown.host, port=shown.port) for shown in self.advertised],
            self._http_url(),
        )
        services = self.broker.services
        self._shared_addresses = SharedAddresses(
            self._settings.name,
            services.ledger.agent.endpoints,
            sessions=lambda: self.broker.state.sessions.values(),
            clock=self._clock,
        )
        self.broker.repeat(self._shared_addresses.job)
        await self._create_first_users()
        self._catalog_syncs = external_catalog_syncs(
            self._settings,
            ledger=services.ledger,
            clock=self._clock,
            metrics=self._metrics,
        )
        self.broker.repeat(*(sync.job for sync in self._catalog_syncs))
        authentication = self._authentication()
        self._issuer_keys = authentication.issuer_keys
        for number, keys in enumerate(self._issuer_keys, start=1):
            self._supervisor.start(f"issuer keys {number}", keys.run)
        self._tail_urls = tail_urls(self._settings, self._clock)
        if self._tail_urls is not None:
            self._supervisor.start("signed ranges", partial(self._tail_urls.check, self._store, self._settings.name))
        self._http_server.open(self._admin_services(authentication))
        KERNELS.watch()
        self._metrics.kernels_loaded.set_function(kernels_ready)
        self._supervisor.start(
            "event loop lag", partial(observe_loop_lag, self._clock, self._metrics.loop_lag_seconds.observe)
        )
        self._supervisor.start("idle connections", self._server.run_idle_sweep)
        if self._tls.has_listeners:
            self.broker.repeat(self._tls.job)
        if self.broker.state.rules_version >= RULES_SECURITY:  # before, the first users have no ACLs yet
            check_administrator(self._settings.authorizer, self.broker.state.acls)
        await self._server.start_serving(self._acceptor(authentication))
        self._waits.finish()
        self._serves_since_s = self._clock.monotonic_s()
        self.is_ready = True

    async def _create_first_users(self) -> None:
        """Create the users of `--bootstrap-users` before the first client comes, or once no older agent is alive."""
        users, ledger = self._settings.bootstrap_users, self.broker.services.ledger
        if not users:
            return
        seal = self.broker.services.credential_seal
        record = self.broker.audit_log.record
        create = partial(create_first_users, users, ledger, self._ids, self._clock, seal, record=record)
        if ledger.state.rules_version >= RULES_SECURITY:
            await create()
        else:
            self._supervisor.start("first users", create)

    def _authentication(self) -> Authentication:
        """The authentication of clients by the users in the state."""
        services = self.broker.services
        opened = OpenCredentials(
            lambda: services.state.scram, services.credential_seal, monotonic_s=self._clock.monotonic_s
        )
        source = CredentialSource(credentials=lambda: opened, version=lambda: services.state.scram_version)
        return wire_authentication(
            self._settings,
            source,
            barrier=self.broker.authorizer.barrier,
            tokens=services.delegation_tokens,
            cluster_id=self._identity.cluster_id,
            clock=self._clock,
            ids=self._ids,
            metrics=self._metrics,
        )

    def _acceptor(self, authentication: Authentication) -> Callable[[str], asyncio.BaseProtocol]:
        """Makes the protocol of a connection, given its listener's name."""
        services, table, metrics = self.broker.services, self._server.table, self._metrics
        # It reads the file of users again, too, whose passwords count over HTTP without any listener with SASL.
        if authentication.listeners or self._settings.plain_users is not None:
            self._supervisor.start("deleted credentials", authentication.connections.run)
        self._tls.handshakes.record = self.broker.audit_log.record
        metrics.connections_unauthenticated.set_function(lambda: len(table.unauthenticated))

        new_router = self._new_router()

        def new_connection(
            listener: str, ssl_object: ssl.SSLObject | None
        ) -> ClientConnection | LoginConnection | RelayIntroduction:
            if listener == RELAY_LISTENER:
                agent = None if ssl_object is None else self._tls.principal_of(listener, ssl_object)
                return RelayIntroduction(table, services, self._tasks, agent)
            by_sasl = authentication.listeners.get(listener)
            if by_sasl is not None:  # over TLS too the principal is that of SASL, as in Kafka
                return LoginConnection(table, services, self._tasks, by_sasl, new_router)
            authenticator = None
            if ssl_object is not None:
                authenticator = ConnectionAuthenticator(self._tls.principal_of(listener, ssl_object))
            return ClientConnection(table, services, self._tasks, listener, authenticator, router=new_router())

        def accept(listener: str) -> asyncio.BaseProtocol:
            if self._tls.is_encrypted(listener):
                return self._tls.accept(listener, partial(new_connection, listener))
            return new_connection(listener, None)

        return self._limited(accept)

    def _new_router(self) -> Callable[[], RequestRouter | None]:
        """Makes the router of a client's connection: None where this agent relays nothing."""
        if not self._settings.has_relay:
            return lambda: None
        relays = Relays(
            state=lambda: self.broker.state,
            tls=partial(self._tls.client_context, RELAY_LISTENER),
            clock=self._clock,
            metrics=self._metrics,
        )
        self.broker.repeat(relays.job)
        return partial(ClientRelays, relays, agent=self._settings.name)

    def _limited(self, accept: Callable[[str], asyncio.BaseProtocol]) -> Callable[[str], asyncio.BaseProtocol]:
        services = self.broker.services
        limits = ConnectionLimits(
            configs=lambda: services.broker_configs.now,
            ip_rate=IpRates(lambda: services.state.client_quotas).of,
            monotonic_s=self._clock.monotonic_s,
        )

        def admit(listener: str) -> asyncio.BaseProtocol:
            if listener == RELAY_LISTENER:  # as Kafka's listener between brokers: no limit of clients counts
                return accept(listener)
            return ConnectionGate(limits, listener, accept, tasks=self._tasks, clock=self._clock, metrics=self._metrics)

        return admit

    def _admin_services(self, authentication: Authentication) -> AdminServices:
        services, lake = self.broker.services, self.broker.lake
        authorizer = self.broker.authorizer
        return AdminServices(
            http_rights=HttpRights(
                is_enabled=authorizer.settings.is_enabled,
                rights_of=authorizer.rights,
                is_allowed_without_acls=authorizer.settings.is_allowed_without_acls,
            ),
            is_ready=lambda: self.is_serving,
            not_ready_line=lambda: self.not_ready_line,
            notices=self.notices,
            status=self.status,
            ledger=services.ledger,
            store=self._store,
            metrics=self._metrics,
            refresh_metrics=self.broker.refresh_metrics,
            clock=self._clock,
            checked_time=services.checked_time,
            broker_configs=services.broker_configs,
            archiver=lake.archiver,
            rewrites=lake.rewrites,
            table_rebuild=lake.table_rebuild,
            table_updates=lake.table_updates,
            catalog_syncs=self._catalog_syncs,
            new_audit=partial(self.broker.new_audit, self._damages),
            digest_key=self._digest_key,
            passwords=authentication.user_passwords,
            bearer_tokens=authentication.http_tokens,
            token_owner=partial(services.delegation_tokens.owner_of, catch_up=authorizer.barrier.before_login),
            quotas=services.quotas,
            tail_urls=self._tail_urls,
            record=self.broker.audit_log.record,
            until_audit_room=self.broker.audit_log.until_room,
        )

    async def _bind(self) -> None:
        """Bind the ports before the session opens: its first ledger entry has this agent's addresses."""
        for listener, shown in zip(self._settings.listeners, self._settings.advertised, strict=True):
            port = await self._server.listen(listener.name, listener.host, listener.port)
            self.bound.append(ListenerAddress(name=listener.name, host=listener.host, port=port))
            named = with_agent_name(shown, self._settings.name)
            self.advertised.append(replace(named, port=shown.port or port))

    @property
    def is_serving(self) -> bool:
        """Whether clients should come: it is ready, and no spare that others serve for."""
        return self.is_ready and not self.broker.services.draining.is_redirecting

    @property
    def not_ready_line(self) -> str:
        """The line of `/ready` while the agent does not serve: it starts, was drained, or is stopping."""
        # A spare is ready all the time. Of the others the start's waits know which of the two it is.
        return DRAINED if self.is_ready else self._waits.line

    def _http_url(self) -> str | None:
        """The URL of the HTTP port for people and other agents, once it is bound."""
        shown = self._settings.advertised_http
        if shown is None:
            return None
        address = with_agent_name(shown.address, self._settings.name)
        return str(replace(shown, address=replace(address, port=address.port or self.http.port)))

    async def drain(self) -> None:
        """Redirect clients to other agents, answer accepted requests, and end the session, within the drain time-out.

        Requests that are not answered by then (the ledger or the bucket is away) were never acknowledged, and the
        session ends with its lease.
        """
        self.is_ready = False
        try:
            async with self._clock.timeout(self._settings.drain_timeout_s):
                if self._catalog_syncs:
                    await self._supervisor.stop(*(sync.job.name for sync in self._catalog_syncs))
                await self._redirect_clients()
                # At most half of the time for clients: the other half is for the end of the session.
                await self._server.drain(self._settings.drain_timeout_s / 2)
                await self.broker.drain()
        except (TimeoutError, OutcomeUnknown, LedgerError) as error:
            log.warning(
                "stopping before every request was answered; clients repeat them at other agents",
                extra={"reason": str(error) or "the drain time-out is over"},
            )

    async def _redirect_clients(self) -> None:
        """Let clients move to other agents. Where that is not finished, the others only lose their connection."""
        try:
            await self.broker.redirect_clients(
                seconds_max=min(DRAIN_MOVE_SECONDS_MAX, self._settings.drain_timeout_s / 4)
            )
        except (TimeoutError, OutcomeUnknown) as error:
            log.warning(
                "not all clients moved to other agents before this one stops",
                extra={"reason": str(error) or "the time for it is over"},
            )

    def status(self) -> Mapping[str, object]:
        return {
            "name": self._settings.name,
            "version": VERSION,
            "cluster_id": self._identity.cluster_id,
            "node_id": self.broker.node_id,
            "zone": self._settings.zone,
            "uptime_s": round(self._clock.monotonic_s() - self._serves_since_s, 1),
            "session": self.broker.session,
            **rules_view(self.broker.state),
            "maintenance_leader": maintenance_leader_name(self.broker.state),
            "http": self._http_url(),
            "kafka": [str(listener) for listener in self.advertised],
            "listeners": [str(listener) for listener in self.bound],
            "protocols": {
                listener.name: self._settings.security_of(listener.name).protocol.value for listener in self.bound
            },
            "store": self._settings.store_url,
            "position": self.broker.state.position,
            "clock": self.broker.clock_text or "believed",
            "intake_bytes_held": self.broker.bytes_held,
            "read_cache_bytes": self._settings.read_cache_bytes,
        }

    def notices(self) -> Sequence[Notice]:
        """The conditions that an operator must act on although the agent serves."""
        return [
            *self._tls.notices(),
            *(notice for keys in self._issuer_keys for notice in keys.notices()),
            *(() if self._shared_addresses is None else self._shared_addresses.notices()),
            *notices(
                disk_text="" if self._reserves is None else self._reserves.full_text,
                clock_text=self.broker.clock_text,
                damaged_objects_count=self.broker.damaged_objects_count,
            ),
        ]


def notices(*, disk_text: str, clock_text: str, damaged_objects_count: int) -> Sequence[Notice]:
    """The conditions of disk, clock and objects that need an operator; an empty text or a count of 0 is none."""
    details: dict[NoticeKind, str] = {}
    if disk_text:
        details[NoticeKind.DISK_FULL] = f"{disk_text}, no records are accepted: {DISK_REMEDY}"
    if clock_text:
        details[NoticeKind.CLOCK_NOT_BELIEVED] = f"{clock_text}: {CLOCK_REMEDY}"
    if damaged_objects_count:
        detail = f"consumers meet damaged objects ({damaged_objects_count}): {REMEDY_DAMAGED}"
        details[NoticeKind.OBJECTS_DAMAGED] = detail
    return [Notice(kind=kind, detail=detail) for kind, detail in details.items()]
