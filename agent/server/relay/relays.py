"""The relay connections of one agent: to which agent a request goes, and the connections to it.

A request is relayed where the group's coordinator, or the agent whose node id it names, has the same address for
clients as this agent, on the listener that the client came by: then a client cannot choose between them. On other
listeners it is rejected, and its client goes to that agent. A relayed request is not relayed again.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from agent.admin.cluster_view import endpoint_of, shares_address
from agent.config.listener_security import RELAY_LISTENER
from agent.request.services import Request, Services
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.runtime.periodic_job import PeriodicJob
from agent.runtime.yielding import inline_or_in_thread, rows_at_most
from agent.server.relay.relay_connection import RelayConnection
from coordinator.commands.commands import Endpoint
from coordinator.state.state import ClusterState
from protocol.limits import (
    RELAY_CHECK_INTERVAL_S,
    RELAY_CONNECT_SECONDS_MAX,
    RELAY_CONNECTIONS_MAX,
    RELAY_RETRY_SECONDS,
)
from protocol.relay import OF_NODES, Introduction, group_id_of, node_name_of
from protocol.types import SessionId

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayTarget:
    """The agent that a request is relayed to: a group's coordinator, or the one that the request names."""

    session: SessionId
    name: str
    """The agent's name."""
    endpoint: Endpoint
    """Its address for other agents."""


class Unreachable(Exception):
    """No relay connection could be opened. The message is the reason, for a log."""


class Relays:
    """The relay connections that this agent has opened. Not thread-safe: all methods run on the event loop."""

    def __init__(
        self,
        *,
        state: Callable[[], ClusterState],
        tls: Callable[[], ssl.SSLContext | None],
        clock: Clock,
        metrics: Metrics,
        connections_max: int = RELAY_CONNECTIONS_MAX,
    ) -> None:
        """`tls`: the context of connections to other agents as its files are now; None where RELAY is PLAINTEXT."""
        self._state = state
        self._tls = tls
        self._clock = clock
        self._metrics = metrics
        self._connections_max = connections_max
        self._connections: dict[RelayConnection, SessionId] = {}
        self._retry_s: dict[SessionId, float] = {}
        """When each coordinator that was unreachable is tried again, in the monotonic clock's time."""
        self._logged: set[SessionId] = set()
        """The coordinators whose being unreachable is logged, until one of them is reached again."""
        self.job = PeriodicJob(name="relays", interval_s=RELAY_CHECK_INTERVAL_S, run_once=self.close_ended)
        metrics.relay_connections.set_function(lambda: len(self._connections))

    async def target(self, services: Services, request: Request) -> RelayTarget | None:
        """The agent to relay the request to; None where this agent answers it."""
        frame = request.frame
        if frame.api_key in OF_NODES:
            name = await inline_or_in_thread(rows_at_most(frame.body), node_name_of, frame)
            return None if name is None else self._target(services, request, _session_of(services.state, name))
        group_id = group_id_of(frame)
        if group_id is None:
            return None
        return self._target(services, request, services.group_coordinator(group_id))

    def _target(self, services: Services, request: Request, session: SessionId | None) -> RelayTarget | None:
        if session is None or session == services.ledger.session:
            return None
        other = services.state.sessions.get(session)
        if other is None or not shares_address(services.ledger.agent.endpoints, other.endpoints, request.listener):
            return None
        endpoint = endpoint_of(other.endpoints, RELAY_LISTENER)
        if endpoint is None:
            self._log_once(session, other.name, f"it has no listener {RELAY_LISTENER}")
            return None
        return RelayTarget(session=session, name=other.name, endpoint=endpoint)

    async def open(
        self, target: RelayTarget, introduction: Introduction, on_lost: Callable[[RelayConnection], None]
    ) -> RelayConnection | None:
        """A connection to the coordinator; None where it is unreachable. `on_lost` is called when it is closed."""
        if len(self._connections) >= self._connections_max:
            self._log_once(target.session, target.name, f"this agent has {self._connections_max} relay connections")
            return None
        if self._clock.monotonic_s() < self._retry_s.get(target.session, 0.0):
            return None
        try:
            connection = await self._connect(target, introduction, on_lost)
        except Unreachable as error:
            self._retry_s[target.session] = self._clock.monotonic_s() + RELAY_RETRY_SECONDS
            self._log_once(target.session, target.name, str(error))
            return None
        self._retry_s.pop(target.session, None)
        self._logged.discard(target.session)
        return connection

    async def close_ended(self) -> None:
        """Close the connections to agents whose sessions have ended: nothing of them is waited for."""
        sessions = self._state().sessions
        for connection, session in list(self._connections.items()):
            if session not in sessions:
                connection.abort()
        for session in [session for session in self._retry_s if session not in sessions]:
            del self._retry_s[session]
        self._logged &= sessions.keys()

    async def _connect(
        self, target: RelayTarget, introduction: Introduction, on_lost: Callable[[RelayConnection], None]
    ) -> RelayConnection:
        def lost(connection: RelayConnection) -> None:
            self._connections.pop(connection, None)
            on_lost(connection)

        connection = RelayConnection(introduction, lost)
        self._connections[connection] = target.session
        tls, host = self._tls(), target.endpoint.host
        is_open = False
        try:
            async with self._clock.timeout(RELAY_CONNECT_SECONDS_MAX):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection,
                    host,
                    target.endpoint.port,
                    ssl=tls,
                    server_hostname=None if tls is None else host,
                )
                reply = await connection.reply
            if reply:
                raise Unreachable(f"it rejects this agent: {reply}")
            if connection.is_lost:  # perhaps right behind its reply
                raise Unreachable("it closed the connection")
            is_open = True
        except TimeoutError as error:
            raise Unreachable(f"it did not answer within {RELAY_CONNECT_SECONDS_MAX:.0f} s") from error
        except (OSError, ssl.SSLError) as error:
            raise Unreachable(str(error)) from error
        finally:
            if not is_open:
                self._connections.pop(connection, None)
                connection.abort()
        return connection

    def _log_once(self, session: SessionId, name: str, reason: str) -> None:
        if session not in self._logged:
            self._logged.add(session)
            log.warning(
                "requests of groups cannot be relayed to an agent; its groups wait until it is reached, or gone",
                extra={"agent": name, "reason": reason},
            )


def _session_of(state: ClusterState, node_name: str) -> SessionId | None:
    """The newest session of the agent with a node id, given as text; None where no agent has it."""
    sessions = (session_id for session_id, agent in state.sessions.items() if str(agent.node_id) == node_name)
    return max(sessions, default=None)
