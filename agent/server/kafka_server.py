"""Sockets: the listeners, and the end of their connections.

The listeners hand each connection to a protocol that the caller of `start_serving` makes (`agent.server.connection`);
what connections share is in `agent.server.connection_table`. The server sweeps the table, drains it and aborts it.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from agent.runtime.clock import Clock
from agent.runtime.sockets import EVERY_ADDRESS, bound_socket
from agent.server.connection_table import ConnectionTable
from agent.server.slow_clients import sweep
from protocol.limits import DRAIN_LOGIN_SECONDS_MAX, DRAIN_POLL_SECONDS, RECEIVE_STALLED_SECONDS_MAX

LISTEN_BACKLOG = 1024


class KafkaServer:
    """The listeners and their connections."""

    def __init__(self, *, table: ConnectionTable, clock: Clock) -> None:
        self.table = table
        self._clock = clock
        self._accept: Callable[[str], asyncio.BaseProtocol] | None = None
        self._servers: list[asyncio.Server] = []

    async def listen(self, name: str, host: str, port: int) -> int:
        """Open a listener and return its port (a free one for port 0). Raises `OSError`."""
        listen = partial(
            asyncio.get_running_loop().create_server,
            lambda: self._accepted(name),
            backlog=LISTEN_BACKLOG,
            start_serving=False,
        )
        # asyncio binds every address of a host name, and would take `::` for IPv6 alone.
        server = await (listen(sock=bound_socket(host, port)) if host == EVERY_ADDRESS else listen(host, port))
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    def _accepted(self, listener: str) -> asyncio.BaseProtocol:
        assert self._accept is not None, "connections are accepted once the agent is wired"
        return self._accept(listener)

    async def start_serving(self, accept: Callable[[str], asyncio.BaseProtocol]) -> None:
        """Accept connections from now on. `accept` makes the protocol of one, given its listener's name."""
        self._accept = accept
        for server in self._servers:
            await server.start_serving()

    async def run_idle_sweep(self) -> None:
        """End connections that are silent for too long or hold up others. Runs until it is cancelled."""
        while True:
            await self._clock.sleep(RECEIVE_STALLED_SECONDS_MAX)
            now_s = self._clock.monotonic_s()
            sweep(self.table, now_s)
            self.table.take_back_unused_buffers(now_s)

    async def drain(self, seconds_max: float) -> None:
        """Let log-ins end, stop taking up requests, and close all once those taken up are answered.

        That takes at most `seconds_max`, of which log-ins get a quarter: the rest is for answers that are owed. A
        connection that is lost in the middle of a log-in looks like a rejected one: librdkafka reports an
        authentication error, and many applications end at that.
        """
        table = self.table
        self.close_listeners()
        began_s = self._clock.monotonic_s()
        await self._until(lambda: not table.unauthenticated, began_s + min(DRAIN_LOGIN_SECONDS_MAX, seconds_max / 4))
        table.is_draining = True
        for unauthenticated in list(table.unauthenticated):
            unauthenticated.abort()
        for connection in list(table.connections):
            connection.stop_reading()
        await self._until(lambda: not any(c.is_owed_answer for c in table.connections), began_s + seconds_max)
        for connection in list(table.connections):
            connection.close()

    async def _until(self, condition: Callable[[], bool], deadline_s: float) -> None:
        """Return once the condition holds, or at the monotonic time `deadline_s`."""
        while not condition() and self._clock.monotonic_s() < deadline_s:
            await self._clock.sleep(DRAIN_POLL_SECONDS)

    def close_listeners(self) -> None:
        """Close the ports, once or again. Connections stay."""
        for server in self._servers:
            server.close()

    def abort(self) -> None:
        """Close every connection at once, and accept no more: the agent's tasks have ended."""
        self.table.is_draining = True
        for connection in list(self.table.connections):
            connection.abort()
        for unauthenticated in list(self.table.unauthenticated):
            unauthenticated.abort()
