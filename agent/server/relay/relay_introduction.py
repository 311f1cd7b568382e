"""A connection of another agent until it has introduced a client, whose requests of groups it relays here.

Rule: the other agent says who the client is, so it is believed only on the listener RELAY, by a certificate whose
principal may perform CLUSTER_ACTION, and for as long as it may. Without TLS it may introduce clients that have no
identity, and no others. The client's agent authenticates; this one authorises.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from agent.config.listener_security import RELAY_LISTENER
from agent.request.connection_epochs import IntroducedEpoch
from agent.request.services import NoAnswerOwed, Services
from agent.security.audit.audit_events import AuditSource
from agent.security.audit.audit_subject import SUBJECT
from agent.security.authentication import ConnectionAuthenticator
from agent.security.required_rights import ACT_ON_CLUSTER
from agent.security.rights import Rights
from agent.security.tls.tls_handshakes import MECHANISM
from agent.server.connection import ClientConnection
from agent.server.connection_table import ConnectionTable
from agent.server.dispatch import HANDLERS, RawHandler
from agent.server.request_router import RelayedClient
from agent.server.stranger_connection import StrangerConnection
from protocol.api_versions import name_of
from protocol.auth.operations import CLUSTER_NAME, ResourceType
from protocol.auth.principals import Principal
from protocol.errors import MalformedRequest
from protocol.limits import (
    RELAY_CONNECTIONS_MAX,
    RELAY_INTRODUCTION_BYTES_MAX,
    RELAY_INTRODUCTION_SECONDS_MAX,
)
from protocol.relay import RELAYED, Introduction, decode_introduction, encode_reply

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntroducingAgent:
    """The other agent, as the audit log shows it where it is denied to introduce a client."""

    audit_source: AuditSource
    audit_api: str = "RelayIntroduction"


class RelayedRequests:
    """The router of a relay connection: requests of groups go to the agent's own handlers, and no others come."""

    def __init__(self, is_believed: Callable[[], bool]) -> None:
        """`is_believed`: whether the other agent may still say who its client is."""
        self._is_believed = is_believed

    def handler(self, api_key: int) -> RawHandler:
        """The agent's own handler: what was relayed once is not relayed again.

        Raises `MalformedRequest`, or `NoAnswerOwed` once the other agent is not believed any more.
        """
        if api_key not in RELAYED:
            raise MalformedRequest(f"{name_of(api_key)} is never relayed")
        if not self._is_believed():
            raise NoAnswerOwed("the agent that introduced its client has lost CLUSTER_ACTION on the cluster")
        return HANDLERS[api_key]

    def drain(self) -> None:
        """Nothing of this connection is elsewhere."""

    def close(self) -> None:
        """Nothing of this connection is elsewhere."""


class RelayIntroduction(StrangerConnection):
    """One connection of the listener RELAY, until its client is introduced."""

    def __init__(
        self, table: ConnectionTable, services: Services, tasks: asyncio.TaskGroup, agent: Principal | None
    ) -> None:
        """Begin with `connection_made`. `agent`: by the other agent's certificate; None without TLS."""
        super().__init__(table, services, tasks, RELAY_LISTENER, frame_bytes_max=RELAY_INTRODUCTION_BYTES_MAX)
        self._agent = agent

    async def _serve(self) -> None:
        try:
            async with self._services.clock.timeout(RELAY_INTRODUCTION_SECONDS_MAX):
                introduction = decode_introduction(await self._next_frame())
                if self._has_more:  # an agent waits for the reply before it sends requests
                    raise MalformedRequest("it sent more than an introduction")
                rejection = await self._rejection(introduction)
        except TimeoutError:
            self._close("relay_rejected", f"it introduced no client within {RELAY_INTRODUCTION_SECONDS_MAX:.0f} s")
            return
        except MalformedRequest as error:
            self._close("relay_rejected", str(error))
            return
        assert self._transport is not None
        if self._transport.is_closing():
            return
        if rejection:
            self._count("relay_rejected", rejection)
            self._write([encode_reply(rejection)])
            self._transport.close()
            return
        self._hand_over(introduction)

    async def _rejection(self, introduction: Introduction) -> str:
        """Why the introduction is not believed, or not taken; "" where it is."""
        if self._agent is None:
            if not introduction.is_anonymous:
                return "without TLS no identity of a client is believed"
        else:
            source = AuditSource(principal=self._agent, mechanism=MECHANISM, host=self.address, listener=self.listener)
            SUBJECT.set(IntroducingAgent(audit_source=source))
            if not await self._rights().may_on_cluster(ACT_ON_CLUSTER.operation):
                return f"{self._agent} needs CLUSTER_ACTION on the cluster: name it in super.users, or add an ACL"
        if self._table.count_of(RELAY_LISTENER) >= RELAY_CONNECTIONS_MAX:  # the others are for its own clients
            return f"it serves {RELAY_CONNECTIONS_MAX} clients of other agents already: start another agent"
        return ""

    def _rights(self) -> Rights:
        assert self._agent is not None
        return self._services.authorizer.rights(self._agent, (), self.address)

    def _is_believed(self) -> bool:
        """Whether the applied ACLs let it introduce clients. Its next introduction takes the barrier of S16."""
        if self._agent is None or self._services.authorizer.is_stale:  # then the client's own rights take a barrier
            return True
        return self._rights().may(ACT_ON_CLUSTER.operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def _hand_over(self, introduction: Introduction) -> None:
        authenticator = ConnectionAuthenticator.introduced(
            introduction.principal,
            introduction.groups,
            introduction.mechanism,
            is_by_token=introduction.is_by_token,
        )
        relayed = RelayedClient(
            listener=introduction.listener, peer=introduction.peer, epoch=IntroducedEpoch(introduction.epoch)
        )
        connection = ClientConnection(
            self._table,
            self._services,
            self._tasks,
            RELAY_LISTENER,
            authenticator,
            router=RelayedRequests(self._is_believed),
            relayed=relayed,
        )
        self._replace_by(connection, [encode_reply("")])

    def _close(self, kind: str, reason: str) -> None:
        self._count(kind, reason)
        self.abort()

    def _count(self, kind: str, reason: str) -> None:
        self._services.metrics.connections_closed.labels(kind).inc()
        log.warning(
            "closed a relay connection that introduced no client",
            extra={"peer": self.address, "agent": str(self._agent or ""), "reason": reason},
        )
