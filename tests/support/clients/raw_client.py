"""A client of one agent for tests: one connection, one partition at a time, every field of the answer as it was told.

Rule: nothing is repeated, remembered or looked up, so what an agent says is what a test sees. Messages: Produce 3,
Fetch 4, ListOffsets 1.
"""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from protocol.errors import ErrorCode
from tests.support.records.plain_records import Record, make_batch

PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2
LATEST = -1


class Fetched(NamedTuple):
    error_code: ErrorCode
    high_watermark: int
    records: bytes


class RawClient:
    """Made by `connected`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def produce(self, topic: str, partition: int, value: bytes) -> int:
        """Produce one record to an agent that acknowledges it; its offset."""
        return await self.produce_batch(topic, partition, make_batch([Record(offset=0, timestamp=1_000, value=value)]))

    async def produce_batch(self, topic: str, partition: int, batch: bytes) -> int:
        """Produce a batch to an agent that acknowledges it; its first offset."""
        body = struct.pack(">hhii", -1, -1, 30_000, 1) + _text(topic) + struct.pack(">iii", 1, partition, len(batch))
        answer = await self._ask(PRODUCE, 3, body + batch)
        _, error_code, base_offset = struct.unpack_from(">ihq", answer, 4 + len(_text(topic)) + 4)
        assert error_code == ErrorCode.none, ErrorCode(error_code)
        return int(base_offset)

    async def fetch(
        self, topic: str, partition: int, offset: int, *, wait_ms: int, bytes_max: int = 1 << 20
    ) -> Fetched:
        body = struct.pack(">iiiibi", -1, wait_ms, 1, bytes_max, 0, 1) + _text(topic)
        answer = await self._ask(FETCH, 4, body + struct.pack(">iiqi", 1, partition, offset, bytes_max))
        place = 4 + 4 + len(_text(topic)) + 4
        _, error_code, high_watermark, _, _, byte_count = struct.unpack_from(">ihqqii", answer, place)
        return Fetched(ErrorCode(error_code), high_watermark, answer[-byte_count:] if byte_count > 0 else b"")

    async def log_end(self, topic: str, partition: int) -> tuple[ErrorCode, int]:
        body = struct.pack(">ii", -1, 1) + _text(topic) + struct.pack(">iiq", 1, partition, LATEST)
        answer = await self._ask(LIST_OFFSETS, 1, body)
        error_code, _, offset = struct.unpack(">hqq", answer[-18:])
        return ErrorCode(error_code), offset

    async def _ask(self, api_key: int, version: int, body: bytes) -> bytes:
        """The answer's body. Raises `IncompleteReadError` where the agent closes the connection."""
        request = struct.pack(">hhih", api_key, version, 7, -1) + body
        self._writer.write(struct.pack(">i", len(request)) + request)
        (byte_count,) = struct.unpack(">i", await self._reader.readexactly(4))
        answer = await self._reader.readexactly(byte_count)
        assert answer[:4] == struct.pack(">i", 7), "an answer to another request"
        return answer[4:]


@asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[RawClient]:
    host, _, port = bootstrap.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()


def _text(name: str) -> bytes:
    return struct.pack(">h", len(name)) + name.encode()
