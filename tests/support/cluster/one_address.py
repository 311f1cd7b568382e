"""One address that leads to several agents: a TCP proxy that gives connections to them in turn, as load balancers do.

Rule: it runs in a thread of its own. A connection ends with either of its sides; an agent that cannot be reached is
passed over.
"""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from tests.support.ports import free_port

CHUNK_BYTES = 1 << 16


class OneAddress:
    """The proxy. `agents` may change while it runs: `host:port` of each."""

    def __init__(self) -> None:
        self.port = free_port()
        self.agents: Sequence[str] = ()
        self.connections_count = 0
        self._next = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def serve(self, is_serving: threading.Event, is_over: asyncio.Event) -> None:
        server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)
        async with server:
            is_serving.set()
            await is_over.wait()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections_count += 1
        for _ in range(len(self.agents)):
            self._next += 1
            host, _, port = self.agents[self._next % len(self.agents)].rpartition(":")
            with suppress(OSError):
                there = await asyncio.open_connection(host, int(port))
                break
        else:
            writer.transport.abort()
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_copy(reader, there[1]))
            tasks.create_task(_copy(there[0], writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                writer.write(data)
                await writer.drain()
    finally:  # also where the address goes away with connections that are open
        writer.transport.abort()


@contextmanager
def one_address() -> Iterator[OneAddress]:
    """A proxy on a free port, until the block ends."""
    address, is_serving, is_over = OneAddress(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(address.serve(is_serving, is_over))

    thread = threading.Thread(target=run, name="one address")
    thread.start()
    try:
        assert is_serving.wait(10), "the proxy does not serve"
        yield address
    finally:
        loop.call_soon_threadsafe(is_over.set)
        thread.join(10)
