"""Hostile bytes against a live broker: no crash, no hang, bounded memory, and nobody else is disturbed.

    HOSTILE_STRINGS=1000000 HOSTILE_SEED=7 make test-all ARGS=tests/faults/test_hostile.py      more, or others

Rule: what is sent depends on the seed and a lane's number alone; a failure prints both.
"""

import asyncio
import json
import os
import struct
import time
import uuid
from base64 import urlsafe_b64decode
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.faults.calm_client import API_VERSIONS, FETCH, MEMORY_BYTES_MAX, PRODUCE, Calm, resident_bytes_max
from tests.faults.hostile_requests import RequestMaker
from tests.support.services.local_services import Penstock, PenstockFactory

STRINGS = [5_000, pytest.param(int(os.environ.get("HOSTILE_STRINGS", "100000")), marks=pytest.mark.slow)]
SEED = int(os.environ.get("HOSTILE_SEED", "3"))
LANES = 24
UNFRAMED_SHARE = 0.05
ANSWER_SECONDS_MAX = 20.0
"""Within which a string is answered, or its connection closed; only a long poll may take longer."""
SENTINEL_FIRST = 0x50000000

pytestmark = pytest.mark.timeout(600)


@dataclass(slots=True)
class Lane:
    """One client that sends strings one after the other, over as many connections as that takes."""

    port: int
    number: int
    topic_ids: list[uuid.UUID]
    sent: int = 0
    answered: int = 0
    closed: int = 0
    waiting: int = 0
    _streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = field(default=None)

    async def run(self, count: int) -> None:
        maker = RequestMaker(SEED * 1_000 + self.number, topic_ids=self.topic_ids)
        for number in range(count):
            is_framed = number % round(1 / UNFRAMED_SHARE) != 0
            data = maker.hostile(number) if is_framed else maker.unframed()
            try:
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    await (self._framed(data, SENTINEL_FIRST + number) if is_framed else self._unframed(data))
            except TimeoutError:
                if is_framed and not may_wait(data):
                    raise AssertionError(
                        f"seed {SEED}, lane {self.number}, string {number}: neither answered nor closed: {data.hex()}"
                    ) from None
                self.waiting += 1
                self._abort()
            self.sent += 1
        self._abort()

    async def _framed(self, data: bytes, sentinel: int) -> None:
        """Sends a string, and behind it a request that is sure to be answered unless the connection is closed."""
        reader, writer = await self._connected()
        writer.write(struct.pack(">i", len(data)) + data + API_VERSIONS_REQUEST % struct.pack(">i", sentinel))
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                answer = await reader.readexactly(size)
                if answer[:4] == struct.pack(">i", sentinel):
                    self.answered += 1
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed += 1
            self._abort()

    async def _unframed(self, data: bytes) -> None:
        self._abort()
        reader, writer = await self._connected()
        with suppress(ConnectionError):
            writer.write(data)
            writer.write_eof()
            while await reader.read(65_536):
                pass
        self.closed += 1
        self._abort()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
        return self._streams

    def _abort(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


API_VERSIONS_REQUEST = struct.pack(">ihh", 10, API_VERSIONS, 0) + b"%b" + struct.pack(">h", 0)


def may_wait(data: bytes) -> bool:
    """Whether this may be a Fetch or Produce that asks the broker to wait: its time-out may be mutated too."""
    return int.from_bytes(data[:2], "big") in (FETCH, PRODUCE)


def topic_ids(broker: Penstock) -> list[uuid.UUID]:
    with urlopen(f"http://{broker.http}/api/topics", timeout=10) as response:
        rows = json.load(response)["topics"]
    return [uuid.UUID(bytes=urlsafe_b64decode(row["id"] + "==")) for row in rows if row["name"] != "calm"]


async def attack(port: int, topic_ids: list[uuid.UUID], strings: int) -> tuple[list[Lane], Calm]:
    lanes, calm, stopping = [Lane(port, number, topic_ids) for number in range(LANES)], Calm(port), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(calm.run(stopping))
        async with asyncio.TaskGroup() as attacks:
            for lane in lanes:
                attacks.create_task(lane.run(-(-strings // LANES)))
        stopping.set()
    return lanes, calm


@pytest.mark.parametrize("strings", STRINGS)
def test_hostile_strings_disturb_nobody(penstock: PenstockFactory, strings: int) -> None:
    broker = penstock(options={"log-level": "error", "archive-interval-s": "2"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    new = [NewTopic(name, num_partitions=3) for name in ("calm", "hostile", "rough")]
    for future in admin.create_topics(new).values():
        future.result(30)
    port = int(broker.bootstrap.rpartition(":")[2])
    began_bytes = resident_bytes_max(broker.process.pid)
    began = time.monotonic()
    lanes, calm = asyncio.run(attack(port, topic_ids(broker), strings))
    sent = sum(lane.sent for lane in lanes)
    assert sent >= strings
    figures = {
        "sent": sent,
        "seconds": round(time.monotonic() - began),
        "answered": sum(lane.answered for lane in lanes),
        "closed": sum(lane.closed for lane in lanes),
        "waiting": sum(lane.waiting for lane in lanes),
        "calm": calm.answered,
        "calm slowest s": round(calm.slowest_s, 2),
        "MiB before": began_bytes >> 20,
        "MiB": resident_bytes_max(broker.process.pid) >> 20,
    }
    print(figures)
    assert figures["waiting"] < sent / 100, figures
    assert resident_bytes_max(broker.process.pid) < MEMORY_BYTES_MAX, figures
    assert broker.process.is_running
    assert "Traceback" not in broker.process.stderr
    assert broker.process.stop() == 0
