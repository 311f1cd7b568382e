"""A Kafka server with limits of its own, and raw peers of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from agent.server.connection import ClientConnection
from agent.server.connection_table import ConnectionTable
from agent.server.kafka_server import KafkaServer
from protocol.limits import (
    ANSWER_BYTES_UNREAD_MAX,
    RECEIVE_BUFFERS_BYTES_MAX,
)
from tests.support.agent.data_paths import DataPaths, data_paths, services_of
from tests.support.agent.ledger_parts import ManualClock

REQUEST_HEAD = b"\0\x12\0\0\0\0\0\7\xff\xff"
"""ApiVersions 0, correlation id 7, no client id. What follows is not read, so that it may be of any size."""


class SteppedClock(ManualClock):
    """A clock whose sleepers wake when the test lets that time pass."""

    def __init__(self) -> None:
        super().__init__()
        self._steps = asyncio.Queue[float]()
        self._is_asleep = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self._is_asleep.set()
        passed_s = await self._steps.get()
        self.seconds += passed_s

    async def step(self, seconds: float) -> None:
        """Lets the sleeper go on, and returns when it sleeps again."""
        await self._is_asleep.wait()
        self._is_asleep.clear()
        self._steps.put_nowait(seconds)
        await self._is_asleep.wait()


@dataclass(slots=True)
class Peer:
    """A client that sends one request in pieces."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    rest: bytes = field(default=b"")

    def begin(self, frame_bytes: int, first_bytes: int) -> None:
        frame = frame_bytes.to_bytes(4, "big") + REQUEST_HEAD + bytes(frame_bytes - len(REQUEST_HEAD))
        self.writer.write(frame[:first_bytes])
        self.rest = frame[first_bytes:]

    def go_on(self, count: int | None = None) -> None:
        count = len(self.rest) if count is None else count
        self.writer.write(self.rest[:count])
        self.rest = self.rest[count:]

    async def answered(self) -> bool:
        """Whether the answer comes; False where the connection is closed instead."""
        async with asyncio.timeout(10):
            try:
                answer = await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4), "big"))
            except (asyncio.IncompleteReadError, ConnectionError):
                return False
        assert answer.startswith(b"\0\0\0\7\0\0")
        return True


@dataclass(slots=True)
class Running:
    table: ConnectionTable
    accept: Callable[..., ClientConnection]
    clock: SteppedClock
    port: int
    paths: DataPaths
    peers: list[Peer] = field(default_factory=list)

    async def connect(self) -> Peer:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.port))
        self.peers.append(peer)
        return peer

    async def begun(self, frame_bytes: int) -> Peer:
        """A peer that has sent a little of a request, which got its memory or waits for it."""
        memory, peer = self.table.memory, await self.connect()
        used_bytes, paused_count = memory.used_bytes, len(self.table.paused)
        peer.begin(frame_bytes, 100)
        await until(lambda: (memory.used_bytes, len(self.table.paused)) != (used_bytes, paused_count))
        return peer


async def until(is_so: Callable[[], bool], seconds_max: float = 10.0) -> None:
    async with asyncio.timeout(seconds_max):
        while not is_so():
            turn = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(turn.set_result, None)
            await turn


@asynccontextmanager
async def serving(
    request_bytes_max: int,
    *,
    receive_bytes_max: int = RECEIVE_BUFFERS_BYTES_MAX,
    answer_bytes_max: int = ANSWER_BYTES_UNREAD_MAX,
) -> AsyncIterator[Running]:
    """A server on a free port, with its sweep, over a ledger and a store in memory."""
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        clock = SteppedClock()
        table = ConnectionTable(
            metrics=paths.parts.metrics,
            request_bytes_max=request_bytes_max,
            receive_bytes_max=receive_bytes_max,
            answer_bytes_max=answer_bytes_max,
        )
        server = KafkaServer(table=table, clock=clock)
        accept = partial(ClientConnection, table, services_of(paths, clock, tasks), tasks)
        port = await server.listen("PLAINTEXT", "127.0.0.1", 0)
        await server.start_serving(accept)
        sweep = tasks.create_task(server.run_idle_sweep())
        running = Running(table, accept, clock, port, paths)
        yield running
        sweep.cancel()
        for peer in running.peers:
            peer.writer.transport.abort()
        await server.drain(0)
