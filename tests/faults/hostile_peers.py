"""Clients that request much at once, and read an answer only when the test says so."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from protocol.limits import MIB
from tests.faults.calm_client import FETCH, PRODUCE
from tests.support.records.plain_records import Record, make_batch

ANSWER_SECONDS_MAX = 10.0
LARGE_BATCH = make_batch([Record(offset=0, timestamp=1, value=bytes(range(256)) * 4000)])
"""A megabyte of records."""


def request(api_key: int, version: int, *body: bytes) -> bytes:
    """A framed request with correlation id 7 and without a client id."""
    head = struct.pack(">hhih", api_key, version, 7, -1)
    return struct.pack(">i", len(head) + sum(map(len, body))) + head + b"".join(body)


def produce(topic: bytes, *batches: bytes) -> bytes:
    """Produce 8 to a topic's partitions from 0 on."""
    head = struct.pack(">hhiih", -1, -1, 10_000, 1, len(topic)) + topic + struct.pack(">i", len(batches))
    rows = [struct.pack(">ii", number, len(batch)) + batch for number, batch in enumerate(batches)]
    return request(PRODUCE, 8, head, *rows)


def fetch(topic: bytes, partitions_count: int, *, offset: int = 0) -> bytes:
    """Fetch 4 of 55 MiB at once, the partitions from 0 on."""
    head = struct.pack(">iiiibih", -1, 0, 1, 55 * MIB, 0, 1, len(topic)) + topic + struct.pack(">i", partitions_count)
    return request(FETCH, 4, head, *[struct.pack(">iqi", row, offset, 55 * MIB) for row in range(partitions_count)])


class Peer:
    """A connection on which the test decides when to send and when to read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *requests: bytes) -> None:
        self.writer.writelines(requests)
        await self.writer.drain()

    async def answer_bytes(self) -> int:
        """How long the next answer is; `IncompleteReadError` or `ConnectionError` where there is none."""
        count = int.from_bytes(await self.reader.readexactly(4), "big")
        await self.reader.readexactly(count)
        return count


@asynccontextmanager
async def connected(port: int, count: int) -> AsyncIterator[list[Peer]]:
    """So many connections, which are aborted in the end."""
    peers = [Peer(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(count)]
    try:
        yield peers
    finally:
        for peer in peers:
            peer.writer.transport.abort()
