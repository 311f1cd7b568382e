"""Many clients that ask for all they can get and read none of it: those who read are served, and memory is bounded.

Rule: each of them alone is within every bound of a connection; only together they are too much.
"""

import asyncio

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from protocol.limits import ANSWER_BYTES_UNREAD_MAX, MIB
from tests.faults.calm_client import Calm, resident_bytes_max
from tests.faults.hostile_peers import ANSWER_SECONDS_MAX, LARGE_BATCH, Peer, connected, fetch, produce
from tests.support.processes import Process
from tests.support.services.local_services import PenstockFactory

PEERS = 100
"""Each is owed 24 MiB: nine times what all together may leave unread."""
PARTITIONS, ROUNDS = 3, 8
BESIDE_BYTES_MAX = 150 * MIB
"""What is being read and made ready, and what uses no memory of answers."""

pytestmark = pytest.mark.timeout(120)


async def fill(port: int) -> None:
    async with connected(port, 1) as (peer,):
        for _ in range(ROUNDS):
            await peer.send(produce(b"large", *[LARGE_BATCH] * PARTITIONS))
            assert await peer.answer_bytes() < 1000


async def read_all(port: int) -> int:
    """What one fetch gives a good client, which is answered in time."""
    async with connected(port, 1) as (peer,), asyncio.timeout(ANSWER_SECONDS_MAX):
        await peer.send(fetch(b"large", PARTITIONS))
        return await peer.answer_bytes()


async def leave_unread(peer: Peer) -> None:
    await peer.send(fetch(b"large", PARTITIONS))


async def run(port: int, process: Process) -> list[int]:
    """What a good client's fetches gave meanwhile."""
    await fill(port)
    whole_bytes = await read_all(port)
    assert whole_bytes > ROUNDS * PARTITIONS * len(LARGE_BATCH)
    calm, stopping, given = Calm(port), asyncio.Event(), [whole_bytes]
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(calm.run(stopping))
        async with connected(port, PEERS) as peers:
            for number, peer in enumerate(peers):
                await leave_unread(peer)
                if number % 5 == 0:
                    given.append(await read_all(port))
            answered = calm.answered
            while calm.answered < answered + 4:
                given.append(await read_all(port))
        stopping.set()
    assert process.is_running
    assert await read_all(port) == whole_bytes
    return given


def test_many_that_never_read_cost_others_nothing_but_large_answers(penstock: PenstockFactory) -> None:
    broker = penstock(options={"log-level": "warning", "read-cache-bytes": "1MiB", "archive-interval-s": "600"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic("calm", 1), NewTopic("large", PARTITIONS)]).values():
        future.result(30)
    before_bytes = resident_bytes_max(broker.process.pid)
    given = asyncio.run(run(int(broker.bootstrap.rpartition(":")[2]), broker.process))
    peak_bytes = resident_bytes_max(broker.process.pid)
    print({"given": given, "MiB": (before_bytes >> 20, peak_bytes >> 20)})
    assert min(given) >= len(LARGE_BATCH), given
    assert peak_bytes - before_bytes < ANSWER_BYTES_UNREAD_MAX + BESIDE_BYTES_MAX
    assert "Traceback" not in broker.process.stderr
    assert broker.process.stop() == 0
