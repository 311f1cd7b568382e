"""A TCP link through the proxy, and what a bad network does to it.

Rule: bytes are never lost inside a stream that goes on. A black hole holds them, and they arrive late when it ends, as
TCP's repeats would bring them; every other fault ends the connection, or one direction of it.
"""

import asyncio
import random
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.runtime.clock import SystemClock

READ_BYTES = 64 * 1024
DIRECTIONS = ("to", "from")
"""To the server, and from it."""
RESET_AT_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFault:
    """What is wrong with a link, as the control connection's JSON says it.

    `latency`: every piece waits `ms` and up to `jitter_ms` more. `hole`: nothing passes in `directions`. `reset`: all
    connections are reset now, new ones after up to `bytes_max` bytes. `cut`: connections are closed after up to
    `bytes_max` bytes from the server, in the middle of an answer. `half_close`: the server is told that the client has
    nothing more to say, and what it says is dropped; new connections suffer it after up to `bytes_max` bytes.
    """

    kind: str
    ms: int = 0
    jitter_ms: int = 0
    bytes_max: int = 4_096
    directions: tuple[str, ...] = DIRECTIONS


@dataclass(eq=False, slots=True)
class Connection:
    """Both sides of one connection. `budget`: bytes that still pass until the fault strikes."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    budget: int
    is_half_closed: bool = False

    def reset(self) -> None:
        for writer in (self.client, self.server):
            sock: socket.socket | None = writer.get_extra_info("socket")
            if sock is not None and sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
            writer.transport.abort()

    def close(self) -> None:
        for writer in (self.client, self.server):
            writer.close()

    def half_close(self) -> None:
        self.is_half_closed = True
        if self.server.can_write_eof() and not self.server.is_closing():
            self.server.write_eof()


@dataclass(slots=True)
class Link:
    """Listens on a loopback port of its own, and connects to `upstream` for every connection."""

    upstream: int
    chance: random.Random
    fault: LinkFault | None = None
    connections: set[Connection] = field(default_factory=set[Connection])
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _clock: SystemClock = field(default_factory=SystemClock)
    _server: asyncio.Server | None = None

    async def open(self) -> int:
        """Begin to listen; returns the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """End everything, and return when it has ended."""
        self.set(None)
        if self._server is not None:
            self._server.close()
            for connection in list(self.connections):
                connection.close()
            await self._server.wait_closed()

    def set(self, fault: LinkFault | None) -> None:
        """Begin a fault, or end the one that is there."""
        self.fault = fault
        self._changed.set()
        self._changed = asyncio.Event()
        for connection in list(self.connections):
            connection.budget = self._budget()
            match fault:
                case LinkFault(kind="reset"):
                    connection.reset()
                case LinkFault(kind="half_close"):
                    connection.half_close()
                case _:
                    pass

    def _budget(self) -> int:
        return 0 if self.fault is None else self.chance.randint(0, self.fault.bytes_max)

    async def _serve(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            server_reader, server = await asyncio.open_connection("127.0.0.1", self.upstream)
        except OSError:
            client.close()
            return
        connection = Connection(client, server, self._budget())
        self.connections.add(connection)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(client_reader, server, connection, "to"))
                group.create_task(self._pump(server_reader, client, connection, "from"))
        finally:
            self.connections.discard(connection)
            connection.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: Connection, direction: str
    ) -> None:
        try:
            while data := await reader.read(READ_BYTES):
                await self._wait(direction)
                if direction == "to" and connection.is_half_closed:
                    continue
                writer.write(self._spent(connection, data, direction))
                await writer.drain()
            await self._wait(direction)
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:
            connection.close()

    async def _wait(self, direction: str) -> None:
        """Until the link lets something pass in this direction."""
        while self.fault is not None and self.fault.kind == "hole" and direction in self.fault.directions:
            await self._changed.wait()
        if self.fault is not None and self.fault.kind == "latency":
            await self._clock.sleep((self.fault.ms + self.chance.randint(0, self.fault.jitter_ms)) / 1000)

    def _spent(self, connection: Connection, data: bytes, direction: str) -> bytes:
        """What of `data` passes before the fault strikes; then it strikes."""
        strikes: dict[str, tuple[tuple[str, ...], Callable[[], None]]] = {
            "reset": (DIRECTIONS, connection.reset),
            "cut": (("from",), connection.close),
            "half_close": (("to",), connection.half_close),
        }
        directions, strike = strikes.get("" if self.fault is None else self.fault.kind, ((), connection.close))
        if direction not in directions:
            return data
        passing, connection.budget = data[: connection.budget], connection.budget - len(data)
        if connection.budget < 0:
            connection.budget = 0
            asyncio.get_running_loop().call_soon(strike)
        return passing
