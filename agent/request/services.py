"""The services of a request handler: the parts of one agent, wired by `agent.request.wiring`.

Handlers reach everything through `Services`, and know of the connection only the fields of `Request`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec import field as msgspec_field

from agent.admin.cluster_view import BrokerView, Placements, brokers, client_zone, controller, shares_address
from agent.admin.config_layers import BrokerConfigs
from agent.admin.configs import ConfigAdmin
from agent.admin.topics import TopicAdmin
from agent.fetch.fetch_path import FetchPath
from agent.fetch.sessions import FetchSessions
from agent.fetch.timestamp_search import TimestampSearch
from agent.fetch.wait import FetchWait
from agent.groups.classic_coordinator import ClassicGroupCoordinator
from agent.groups.consumer_coordinator import ConsumerGroupCoordinator
from agent.groups.group_ledger import GroupLedger
from agent.ledger.ledger_client import LedgerClient
from agent.ledger.producer_ids import ProducerIdBlock
from agent.produce.produce_path import ProducePath
from agent.produce.record_rules import RecordRulesOfTopics
from agent.request.connection_epochs import ConnectionEpochs, RelayedEpochs, RequestEpoch
from agent.request.cut_off import CutOff
from agent.request.draining import Draining
from agent.runtime.clock import Clock
from agent.runtime.ids import Ids
from agent.runtime.metrics import Metrics
from agent.security.audit.audit_events import AuditSource
from agent.security.audit.audit_log import AuditLog, no_audit_log
from agent.security.authorizer import Authorizer
from agent.security.credential_seal import CredentialSeal
from agent.security.quotas.quotas import Quotas
from agent.security.quotas.throttling import RequestUsage
from agent.security.rights import ALL_RIGHTS, Rights
from agent.security.tokens.delegation_tokens import DelegationTokens
from agent.telemetry.client_info import ConnectedClient
from agent.telemetry.subscriptions import Asker, ClientTelemetry
from coordinator.commands.group_values import group_key
from coordinator.ledger.port import LedgerUnavailable
from coordinator.state.rendezvous import Assignment, Placement, owner_of
from coordinator.state.state import ClusterState, TopicState
from protocol.api_versions import range_of
from protocol.auth.principals import ANONYMOUS, Principal
from protocol.connection import RequestFrame
from protocol.types import Milliseconds, SessionId
from storage.object_store import Buffer

Answer = Sequence[Buffer] | asyncio.Future[Sequence[Buffer]] | None
"""Bytes to send; or bytes to come, while the connection's next request is handled; or nothing (acks=0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    cluster_id: str
    node_id: int
    ledger: LedgerClient
    produce: ProducePath
    record_rules: RecordRulesOfTopics
    fetch: FetchPath
    fetch_sessions: FetchSessions
    timestamps: TimestampSearch
    producer_ids: ProducerIdBlock
    topics: TopicAdmin
    connection_epochs: ConnectionEpochs
    group_ledger: GroupLedger
    consumer_groups: ConsumerGroupCoordinator
    groups: ClassicGroupCoordinator
    telemetry: ClientTelemetry
    quotas: Quotas
    broker_configs: BrokerConfigs
    configs: ConfigAdmin
    store_url: str
    """The bucket, as the settings name it."""
    metrics: Metrics
    clock: Clock
    ids: Ids
    checked_time: Callable[[], Milliseconds | None]
    """The wall clock's time, None while it is not trusted (safety rule S2)."""
    is_clock_ahead: Callable[[], bool]
    """Whether it is not trusted because it is far ahead of the ledger's time (safety rule S21)."""
    audit_log: AuditLog = field(default_factory=no_audit_log)
    tasks: asyncio.TaskGroup | None = None
    """The group of tasks that outlive the request that began them; None where there is none, as in tests."""
    authorizer: Authorizer
    """The rights of principals. A request has its own: `Request.rights`."""
    credential_seal: CredentialSeal = field(default_factory=CredentialSeal)
    delegation_tokens: DelegationTokens
    draining: Draining = field(default_factory=Draining)
    cut_off: CutOff
    placements: Placements = field(default_factory=Placements)
    relayed_epochs: RelayedEpochs | None = None
    """The ranks of connections of all agents; None where this agent does not relay."""

    @property
    def is_authorizer_on(self) -> bool:
        """Whether ACLs are enforced; where not, requests about them are rejected."""
        return self.authorizer.settings.is_enabled

    @property
    def placement(self) -> Placement:
        """The placement by which clients find partitions now."""
        return self.placements.of(self.cut_off.sessions)

    def zone_of(self, request: "Request") -> str | None:
        """The zone of the request's client; None where it names none."""
        return client_zone(self.placement, request.frame.client_id, request.listener)

    def assignments(self, topic: TopicState, zone: str | None) -> Sequence[Assignment]:
        """The leader and replicas of each partition for clients of a zone: this agent while none has a session."""
        count = len(topic.partitions)
        placement = self.placement
        this_agent = Assignment(self.node_id, (self.node_id,))
        assignments = placement.assignments(topic.topic_id, count, zone) or [this_agent] * count
        if not topic.replicas:
            return assignments
        result = list(assignments)
        for index, replicas in topic.replicas.items():
            result[index] = placement.by_hand(replicas, zone, result[index])
        return result

    def brokers(self, listener: str) -> list[BrokerView]:
        """The agents that clients of a listener can reach. All agents of `assignments` are among them.

        This agent is, too, while it is cut off. In an outage of the whole ledger each agent would leave out itself and
        name all others: librdkafka (2.16) gives up each broker that is missing, and its members may hang for good where
        one comes and goes.
        """
        return brokers(self.state.sessions, listener, self.ledger.agent)

    def controller_id(self, listener: str) -> int:
        """Node id of the broker to which clients of a listener send admin requests: none that is cut off."""
        return controller(brokers(self.cut_off.sessions, listener, self.ledger.agent), self.node_id)

    def group_coordinator(self, group_id: str) -> SessionId | None:
        """The session of the agent that clients ask about a group; None while no agent lives.

        It is the group's coordinator. An agent that is cut off names the one that coordinates the group once its own
        session has ended.
        """
        if self.cut_off.is_cut_off:
            return owner_of(group_key(group_id), self.cut_off.sessions)
        return self.group_ledger.coordinator(group_id)

    @property
    def may_redirect(self) -> bool:
        """Whether this agent drains or is cut off now: else `redirects` returns False at once."""
        return self.draining.is_redirecting or self.cut_off.is_cut_off

    async def redirects(self, request: "Request", seconds_max: float) -> bool:
        """Whether to send the client of a request to another agent: this one drains, or is cut off.

        The waits and the exceptions are those of the two methods below.
        """
        if not self.may_redirect:
            return False
        is_draining = await self.redirects_where_draining(request)
        return is_draining or await self.redirects_where_cut_off(request, seconds_max)

    async def redirects_where_draining(self, request: "Request") -> bool:
        """Whether to send the client on because this agent drains. Waits as `Draining.redirects` does.

        Raises `NoAnswerOwed` where others have the same address: by this connection the client would come back here.
        """
        if not await self.draining.redirects():
            return False
        if self._is_address_shared(request.listener):
            raise NoAnswerOwed("this agent is stopping, and other agents have its address: its client connects again")
        return True

    async def redirects_where_cut_off(self, request: "Request", seconds_max: float) -> bool:
        """Whether to send the client on because this agent is cut off, after at most `seconds_max` for the ledger.

        They count from the request's arrival: those of a connection are taken up in turn, and their waits would add up.
        Raises `LedgerUnavailable` where the other agents have the same address: by this connection the client would
        stay here, and by a new one it may reach one of them.
        """
        waited_s = 0.0 if request.arrived_s is None else self.clock.monotonic_s() - request.arrived_s
        if not await self.cut_off.redirects(seconds_max - waited_s):
            return False
        if self._is_address_shared(request.listener):
            raise LedgerUnavailable("the session is not confirmed, and other agents have this one's address")
        return True

    def _is_address_shared(self, listener: str) -> bool:
        """Whether clients of a listener may reach another agent, which does not drain, by this one's address."""
        own = self.ledger.agent
        return any(
            session.name != own.name
            and not session.is_draining
            and shares_address(own.endpoints, session.endpoints, listener)
            for session in self.state.sessions.values()
        )

    @property
    def state(self) -> ClusterState:
        return self.ledger.state


class NoAnswerOwed(Exception):
    """A request gets no response. Only a closed connection leads its client on: to new metadata or another agent."""


class Request(Struct, frozen=True, kw_only=True, eq=False):
    """One request: its frame, and the name of the listener that received it."""

    frame: RequestFrame
    listener: str
    peer: str
    principal: Principal = ANONYMOUS
    """Who the connection speaks for."""
    rights: Rights = ALL_RIGHTS
    """The rights of the principal."""
    groups: Sequence[Principal] = ()
    """The groups that a token gives the principal."""
    mechanism: str = ""
    """The SASL mechanism of the log-in, "" without one."""
    is_by_token: bool = False
    """Whether a delegation token proved the principal."""
    client: ConnectedClient = msgspec_field(default_factory=ConnectedClient)
    """The name and version that the connection's client has given."""
    connection_epoch: RequestEpoch | None = None
    """The epoch of the connection (safety rule S7); None for a request without a connection."""
    arrived_s: float | None = None
    """The injected monotonic clock's time when the frame was complete; None for a request without a connection."""
    taken_up_s: float = 0.0
    """The time when the requests before it on the connection were served."""
    usage: RequestUsage | None = None
    """The use that its client's quotas count; None where the client has none."""
    fetch_wait: FetchWait | None = None
    """The wait of a fetch: when it is ended, the fetch waits no longer."""
    answer_capacity_bytes: Callable[[], int] | None = None
    """The limit of the record bytes that a response may have now; None for no limit."""

    @property
    def audit_source(self) -> AuditSource:
        """The source of the request's audit events."""
        return AuditSource(
            principal=self.principal,
            groups=tuple(group.name for group in self.groups),
            mechanism=self.mechanism,
            host=self.peer.rpartition(":")[0],
            listener=self.listener,
            client_id=self.frame.client_id or "",
        )

    @property
    def audit_api(self) -> str:
        """The API's name, as the audit log shows it."""
        served = range_of(self.frame.api_key)
        return str(self.frame.api_key) if served is None else served.name

    @property
    def client_host(self) -> str:
        """The client's address as Kafka shows it: with a slash before, without the port (InetAddress.toString)."""
        return "/" + self.peer.rpartition(":")[0]

    @property
    def asker(self) -> Asker:
        """The client that asks about, or pushes, its metrics."""
        return Asker(client_id=self.frame.client_id, address=self.peer, connection=self.client)
