"""Clients that ask for more than they may have, all at once: the others are served, memory is bounded, and it passes.

Rule: every phase runs beside well-behaved connections, which must be answered in time and without an error; what was
held for the phase is given back when its clients are gone.
"""

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from protocol.limits import MIB, REQUEST_BYTES_QUEUED_MAX
from tests.faults.calm_client import MEMORY_BYTES_MAX, PRODUCE, Calm, resident_bytes_max
from tests.faults.hostile_peers import ANSWER_SECONDS_MAX, LARGE_BATCH, Peer, connected, fetch, produce, request
from tests.support.services.local_services import Penstock, PenstockFactory

METADATA, LIST_OFFSETS = 3, 2
ALL_SECONDS_MAX = 100.0
"""Beyond it something hangs; how fast it is depends on who else uses the machine."""
STALLED_PEERS = 40
UNREAD_PEERS = 16
QUEUE_PEERS, QUEUE_REQUESTS = 12, 2

pytestmark = pytest.mark.timeout(120)

Phase = Callable[[int], Awaitable[None]]


ALL_METADATA = request(METADATA, 1, struct.pack(">i", -1))
FOREIGN_BATCH = LARGE_BATCH * 20
"""Twenty batches in one: well framed and 20 MB, but no partition takes it."""


async def queues_of_large_requests(port: int) -> None:
    """480 MB of requests are in the sockets at once, and every one is answered."""
    frame = produce(b"large", FOREIGN_BATCH)

    async def queue(peer: Peer) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(peer.send(*[frame] * QUEUE_REQUESTS))
            for _ in range(QUEUE_REQUESTS):
                assert await peer.answer_bytes() < 1000

    async with connected(port, QUEUE_PEERS) as peers, asyncio.TaskGroup() as tasks:
        for peer in peers:
            tasks.create_task(queue(peer))


async def queues_of_good_batches(port: int) -> None:
    """Requests that have to be stored, as fast as they can be sent; all of them are."""
    frame = produce(b"large", *[LARGE_BATCH] * 3)

    async def queue(peer: Peer) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(peer.send(*[frame] * 4))
            for _ in range(4):
                assert await peer.answer_bytes() < 1000

    async with connected(port, 4) as peers, asyncio.TaskGroup() as tasks:
        for peer in peers:
            tasks.create_task(queue(peer))


async def peers_that_never_read(port: int) -> None:
    """Each asks for gigabytes, of which nothing is taken from its stream; what it does not read is not made ready."""
    asked = [fetch(b"large", 3), ALL_METADATA] * 100

    async def ask(peer: Peer) -> None:
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(2):
                await peer.send(*asked)

    async with connected(port, UNREAD_PEERS) as peers:
        await asyncio.gather(*[ask(peer) for peer in peers])
        await serve_large_requests(port, 20)


async def huge_arrays(port: int) -> None:
    """Valid, and longer than any client's: answered, or the connection is closed."""
    count = 40_000
    names = struct.pack(">i", 5 * count) + b"\0\1a" * (5 * count)
    different = struct.pack(">i", 10_000) + b"".join(b"\0\6%06d" % number for number in range(10_000))
    rows = struct.pack(">iih", -1, 1, 5) + b"large" + struct.pack(">i", count)
    requests = [
        request(METADATA, 1, names),
        request(METADATA, 4, different, b"\0"),
        fetch(b"large", count),
        produce(b"large", *[b""] * count),
        request(LIST_OFFSETS, 1, rows, *[struct.pack(">iq", row, -1) for row in range(count)]),
    ]

    async def ask(peer: Peer, data: bytes) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await peer.send(data)
            await peer.answer_bytes()

    async with connected(port, len(requests)) as peers, asyncio.TaskGroup() as tasks:
        for peer, data in zip(peers, requests, strict=True):
            tasks.create_task(ask(peer, data))


async def stalled_halves(port: int) -> None:
    """Each announces 100 MiB, sends a little and no more: what fits in beside them is served, the rest once they go."""
    begun = struct.pack(">i", 100 * MIB) + bytes([0, PRODUCE, 0, 8]) + bytes(200_000)
    async with connected(port, 1) as (waiting,), asyncio.TaskGroup() as tasks:
        async with connected(port, STALLED_PEERS) as peers:
            for peer in peers:
                peer.writer.write(begun)
            await serve_large_requests(port, 4)
            tasks.create_task(waiting.send(produce(b"large", FOREIGN_BATCH, FOREIGN_BATCH, FOREIGN_BATCH)))
            await serve_large_requests(port, 4)
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            assert await waiting.answer_bytes() < 1000


async def serve_large_requests(port: int, count: int) -> None:
    """A good client's requests of 3 MB are answered in time."""
    async with connected(port, 1) as (peer,):
        for _ in range(count):
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                await peer.send(produce(b"large", *[LARGE_BATCH] * 3))
                await peer.answer_bytes()


PHASES: tuple[Phase, ...] = (
    queues_of_good_batches,
    queues_of_large_requests,
    peers_that_never_read,
    stalled_halves,
    huge_arrays,
)


async def run_beside_calm(broker: Penstock, port: int, figures: dict[str, object]) -> None:
    calm, stopping = Calm(port), asyncio.Event()
    async with asyncio.timeout(ALL_SECONDS_MAX), asyncio.TaskGroup() as tasks:
        tasks.create_task(calm.run(stopping))
        for phase in PHASES:
            began, answered, calm.slowest_s = time.monotonic(), calm.answered, 0.0
            await phase(port)
            figures[phase.__name__] = {
                "s": round(time.monotonic() - began, 1),
                "calm": calm.answered - answered,
                "calm slowest s": round(calm.slowest_s, 2),
                "MiB": resident_bytes_max(broker.process.pid) >> 20,
            }
            assert calm.answered > answered, figures
            await serve_large_requests(port, 1)
        stopping.set()


def test_clients_that_ask_for_too_much_disturb_nobody(penstock: PenstockFactory) -> None:
    broker = penstock(options={"log-level": "error"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic("calm", 1), NewTopic("large", 3)]).values():
        future.result(30)
    port = int(broker.bootstrap.rpartition(":")[2])
    figures: dict[str, object] = {"MiB before": resident_bytes_max(broker.process.pid) >> 20}
    try:
        asyncio.run(run_beside_calm(broker, port, figures))
    finally:
        print(figures)
    # What the other hostile run may take, and the requests of all connections that wait here.
    assert resident_bytes_max(broker.process.pid) < MEMORY_BYTES_MAX + REQUEST_BYTES_QUEUED_MAX, figures
    assert broker.process.is_running
    assert "Traceback" not in broker.process.stderr
    assert broker.process.stop() == 0
