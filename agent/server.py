"""Sockets: the listeners, their connections, and what all connections share (`agent.client_connection`).

Rule: memory for requests and for answers that are not read has one bound each for all connections. Who would exceed the
first waits; the second makes fetches answer less, and ends whoever has left its answers unread for longest.
"""

import asyncio
import logging
from itertools import islice

from agent.client_connection import Connection
from agent.clock import Clock
from agent.connection_sweep import end_slow, sweep
from agent.metrics import Metrics
from agent.services import Services
from protocol.answer_memory import AnswerMemory
from protocol.limits import (
    ANSWER_BYTES_UNREAD_MAX,
    CONNECTIONS_MAX,
    DRAIN_POLL_SECONDS,
    RECEIVE_BUFFERS_BYTES_MAX,
    RECEIVE_BUFFERS_CHECKED_MAX,
    RECEIVE_STALLED_SECONDS_MAX,
    REQUEST_BYTES_QUEUED_MAX,
)
from protocol.request_memory import RequestMemory

log = logging.getLogger(__name__)

LISTEN_BACKLOG = 1024


class KafkaServer:
    """The listeners and their connections."""

    def __init__(
        self,
        *,
        tasks: asyncio.TaskGroup,
        metrics: Metrics,
        clock: Clock,
        request_bytes_max: int = REQUEST_BYTES_QUEUED_MAX,
        receive_bytes_max: int = RECEIVE_BUFFERS_BYTES_MAX,
        answer_bytes_max: int = ANSWER_BYTES_UNREAD_MAX,
    ) -> None:
        self.tasks = tasks
        self.metrics = metrics
        self.clock = clock
        self._services: Services | None = None
        self.is_draining = False
        self.memory: RequestMemory[Connection] = RequestMemory(
            bytes_max=request_bytes_max, lent_bytes_max=receive_bytes_max
        )
        self.answers: AnswerMemory[Connection] = AnswerMemory(bytes_max=answer_bytes_max)
        self.receiving: dict[Connection, int] = {}
        """Connections on which a large request arrives, and how much of it had arrived when that was last looked at."""
        self.held_up: set[Connection] = set()
        """Connections that hold memory behind a fetch that nobody has hurried yet."""
        self.roomy: dict[Connection, None] = {}
        """Connections with a lent receive buffer, those first that were not looked at for longest."""
        self.paused: set[Connection] = set()
        """Connections whose sockets are not read for now."""
        self.connections: set[Connection] = set()
        self._is_waking = False
        self._servers: list[asyncio.Server] = []

    @property
    def services(self) -> Services:
        assert self._services is not None, "connections are accepted once the agent is wired"
        return self._services

    def register(self, connection: Connection) -> bool:
        """Count a connection in; False where there are too many."""
        if len(self.connections) >= CONNECTIONS_MAX or self.is_draining:
            return False
        self.connections.add(connection)
        self.metrics.connections_accepted.labels(connection.listener).inc()
        self.metrics.connections.labels(connection.listener).inc()
        return True

    def wake_soon(self) -> None:
        """Memory was given back: read again whoever was held back for it."""
        if not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._wake)

    def lend_buffer(self, connection: Connection) -> bool:
        """Whether the connection may receive into a large buffer; one that another does not use is taken from that."""
        if not self.memory.lend_buffer():
            for other in list(islice(self.roomy, RECEIVE_BUFFERS_CHECKED_MAX)):
                del self.roomy[other]
                if other.leave_buffer():
                    break
                self.roomy[other] = None
            else:
                return False
        self.roomy[connection] = None
        return True

    def take_back_buffer(self, connection: Connection) -> None:
        """Its receive buffer counts no more, if it had one."""
        if connection in self.roomy and connection.leave_buffer():
            del self.roomy[connection]
            self.memory.return_buffer()

    def hurry_fetches(self) -> None:
        """Somebody wants memory: nothing is kept for as long as a client likes to wait."""
        while self.held_up:
            self.held_up.pop().hurry()

    def _wake(self) -> None:
        self._is_waking = False
        memory = self.memory
        for connection in memory.claimants():
            connection.regulate_reading()
        if not memory.is_full:
            for connection in [connection for connection in self.paused if not memory.is_waiting(connection)]:
                connection.regulate_reading()
        memory.settle()

    def keep_unread(self, connection: Connection) -> None:
        """Count what a peer has not read; where that is too much of all, end those that have not for longest."""
        answers = self.answers
        answers.keep(connection, connection.unread_bytes)
        if not answers.is_over:
            return
        for holder in answers.holders():
            answers.keep(holder, holder.unread_bytes)
        for slow in answers.slowest():
            end_slow(slow, "leaves answers unread that others need the memory of", self.metrics)
            answers.forget(slow)

    def unregister(self, connection: Connection) -> None:
        self.answers.forget(connection)
        self.held_up.discard(connection)
        self.memory.forget(connection)
        if connection in self.connections:
            self.connections.remove(connection)
            self.metrics.connections.labels(connection.listener).dec()

    async def listen(self, name: str, host: str, port: int) -> int:
        """Open a listener and return its port (a free one for port 0). Raises `OSError`."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Connection(self, name), host, port, backlog=LISTEN_BACKLOG, start_serving=False
        )
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    async def start_serving(self, services: Services) -> None:
        """Accept connections from now on."""
        self._services = services
        for server in self._servers:
            await server.start_serving()

    async def run_idle_sweep(self) -> None:
        """End what has been silent for too long or holds up others, for ever."""
        while True:
            await self.clock.sleep(RECEIVE_STALLED_SECONDS_MAX)
            now_s = self.clock.monotonic_s()
            sweep(self.connections, self.receiving, self.memory, self.answers, self.metrics, now_s)
            for connection in list(self.roomy):
                if now_s - connection.used_s >= RECEIVE_STALLED_SECONDS_MAX:
                    self.take_back_buffer(connection)

    async def drain(self, seconds_max: float) -> None:
        """Take up nothing more, let what was taken up be answered for at most `seconds_max`, then close all."""
        self.is_draining = True
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.stop_reading()
        deadline_s = self.clock.monotonic_s() + seconds_max
        while any(c.is_owed_answer for c in self.connections) and self.clock.monotonic_s() < deadline_s:
            await self.clock.sleep(DRAIN_POLL_SECONDS)
        for connection in list(self.connections):
            connection.close()

    def abort(self) -> None:
        """End every connection at once, and take no more: nobody is left to serve them."""
        self.is_draining = True
        for connection in list(self.connections):
            connection.abort()
