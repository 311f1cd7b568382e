"""Sockets beyond a limit are closed before they have a connection."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from agent.runtime.metrics import Metrics
from agent.security.connections.connection_limits import ConnectionLimits
from agent.server.connection_gate import ConnectionGate
from tests.support.agent.ledger_parts import ManualClock


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


@dataclass
class Gated:
    """A server behind a gate, and its clients, which stay open."""

    port: int
    clock: ManualClock
    metrics: Metrics
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def echoes(self) -> bool:
        """Whether a new connection is served."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        writer.write(b"x")
        try:
            async with asyncio.timeout(10):
                return await reader.read(1) == b"x"
        except ConnectionError:
            return False


@asynccontextmanager
async def gated(configs: Mapping[str, str]) -> AsyncIterator[Gated]:
    clock, metrics = ManualClock(), Metrics()
    async with asyncio.TaskGroup() as tasks:
        limits = ConnectionLimits(configs=lambda: configs, ip_rate=lambda _: None, monotonic_s=lambda: 0.0)
        server = await asyncio.get_running_loop().create_server(
            lambda: ConnectionGate(limits, "OUT", lambda _: Echo(), tasks=tasks, clock=clock, metrics=metrics),
            "127.0.0.1",
            0,
        )
        running = Gated(server.sockets[0].getsockname()[1], clock, metrics)
        try:
            yield running
        finally:
            server.close()
            for writer in running.writers:
                writer.transport.abort()


async def test_an_admitted_socket_is_handed_on() -> None:
    async with gated({}) as server:
        assert await server.echoes()


async def test_one_beyond_a_limit_is_closed_at_once_and_counted() -> None:
    async with gated({"max.connections": "1"}) as server:
        assert await server.echoes()
        assert not await server.echoes()
        assert server.clock.slept == []
        labels = {"reason": "limited"}
        assert server.metrics.registry.get_sample_value("penstock_connections_closed_total", labels) == 1


async def test_one_beyond_a_rate_is_held_before() -> None:
    async with gated({"max.connection.creation.rate": "0"}) as server:
        assert not await server.echoes()
        assert server.clock.slept == [1.0]
