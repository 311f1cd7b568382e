"""A client that behaves well while others do not, and the memory of the broker that serves it."""

import asyncio
import re
import struct
import time
from pathlib import Path

from kio.index import load_response_schema

from tests.support.records.kio_messages import KioEntity, kio_read
from tests.support.records.plain_records import Record, make_batch

CALM_SECONDS_MAX = 20.0
MEMORY_BYTES_MAX = 512 * 1024 * 1024
FETCH, PRODUCE, API_VERSIONS = 1, 0, 18
CALM_TIMEOUT_MS = round(CALM_SECONDS_MAX * 1_000)
PRODUCE_HEAD = struct.pack(">hhii", -1, -1, CALM_TIMEOUT_MS, 1) + b"\0\4calm" + struct.pack(">ii", 1, 0)
"""Produce 8 as far as the records: no transaction, acks all, one topic, one partition.

A shorter time-out than the client's own would be REQUEST_TIMED_OUT where the whole machine is slow."""
FETCH_HEAD = struct.pack(">iiiibi", -1, 0, 1, 1 << 20, 0, 1) + b"\0\4calm" + struct.pack(">ii", 1, 0)
"""Fetch 4 as far as the offset: no waiting, one topic, one partition."""


class Calm:
    """A well-behaved connection: every request is answered, in time and without an error."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.answered = 0
        self.slowest_s = 0.0
        self._offset_next = 0

    async def run(self, stopping: asyncio.Event) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        while not stopping.is_set():
            await self._produce_and_fetch()
        self._writer.close()
        await self._writer.wait_closed()

    async def _produce_and_fetch(self) -> None:
        value = b"%d" % self._offset_next
        batch = make_batch([Record(offset=0, timestamp=1, value=value)])
        produced = await self._ask(PRODUCE, 8, PRODUCE_HEAD + struct.pack(">i", len(batch)) + batch)
        (appended,) = produced.responses[0].partition_responses
        answer = (int(appended.error_code), appended.base_offset)
        assert answer == (0, self._offset_next), f"error and offset are {answer}, at the offset {self._offset_next}"
        fetched = await self._ask(FETCH, 4, FETCH_HEAD + struct.pack(">qi", self._offset_next, 1 << 20))
        (fetch,) = fetched.responses[0].partitions
        assert int(fetch.error_code) == 0
        assert fetch.high_watermark == self._offset_next + 1
        assert value in bytes(fetch.records)
        self._offset_next += 1

    async def _ask(self, api_key: int, version: int, body: bytes) -> KioEntity:
        began = time.monotonic()
        head = struct.pack(">hhih", api_key, version, self.answered, 4) + b"calm"
        self._writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
        async with asyncio.timeout(CALM_SECONDS_MAX):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            answer = await self._reader.readexactly(size)
        assert answer[:4] == struct.pack(">i", self.answered)
        self.answered += 1
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        return kio_read(load_response_schema(api_key, version), answer[4:])


def resident_bytes_max(pid: int) -> int:
    """The most memory that a process ever had in RAM."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match is not None
    return int(match[1]) * 1024
