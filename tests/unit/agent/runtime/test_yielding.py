"""A request that names many partitions, over real sockets: others are answered meanwhile, and its own order stays."""

import asyncio
import struct
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import pytest

from agent.runtime.yielding import CooperativeYield, inline_or_in_thread, rows_at_most
from agent.server.connection import ClientConnection
from agent.server.connection_table import ConnectionTable
from agent.server.kafka_server import KafkaServer
from protocol.limits import CREATIONS_PER_TURN, INLINE_ROWS_MAX, ROWS_PER_TURN
from protocol.records.compression import Compression
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.agent.ledger_parts import BEGAN_MS, ManualClock
from tests.support.records.plain_records import Record, make_batch

SMALL = struct.pack(">hhih", 18, 0, 1, -1)
"""ApiVersions 0."""
ROWS = 20_000
ANSWERS_MIN = 6
"""To small requests while the large one is served: two dozen and more; three at most where nobody gives way."""
BATCH = make_batch([Record(offset=0, timestamp=BEGAN_MS, value=b"x")], Compression.NONE)
NAMED_T = b"\0\0\0\1\0\1t"


def head(api_key: int, version: int) -> bytes:
    return struct.pack(">hhih", api_key, version, 7, -1)


def produce(count: int, records: bytes | None) -> bytes:
    rest = b"\xff\xff\xff\xff" if records is None else struct.pack(">i", len(records)) + records
    begin = head(0, 3) + b"\xff\xff" + struct.pack(">hi", -1, 30_000) + NAMED_T
    return begin + struct.pack(">i", count) + (bytes(4) + rest) * count


def fetch(count: int) -> bytes:
    begin = head(1, 4) + struct.pack(">iiiib", -1, 0, 1, 1 << 20, 0) + NAMED_T + struct.pack(">i", count)
    return begin + b"".join(struct.pack(">iqi", index, 0, 1000) for index in range(count))


def list_offsets(count: int) -> bytes:
    partitions = b"".join(struct.pack(">iq", index, -1) for index in range(count))
    return head(2, 1) + b"\xff\xff\xff\xff" + NAMED_T + struct.pack(">i", count) + partitions


def metadata(count: int) -> bytes:
    """Of one topic: what is long is the reading."""
    return head(3, 4) + struct.pack(">i", count) + b"\0\1t" * count + b"\0"


def create_topics(count: int) -> bytes:
    """Of one partition each, and only validated."""
    topics = b"".join(struct.pack(">h4sihii", 4, b"%04d" % row, 1, 1, 0, 0) for row in range(count))
    return head(19, 4) + struct.pack(">i", count) + topics + struct.pack(">ib", 30_000, 1)


def delete_topics(count: int) -> bytes:
    """Every name twice, which is refused."""
    names = b"".join(struct.pack(">h6s", 6, b"%06d" % (row // 2)) for row in range(count))
    return head(20, 3) + struct.pack(">i", count) + names + struct.pack(">i", 30_000)


def offset_for_leader_epoch(count: int) -> bytes:
    partitions = b"".join(struct.pack(">iii", 0, -1, 0) for _ in range(count))
    return head(23, 2) + NAMED_T + struct.pack(">i", count) + partitions


def offset_commit(count: int) -> bytes:
    """Of partitions that are not there, but for one."""
    begin = head(8, 2) + b"\0\1g" + struct.pack(">ihq", -1, 0, -1) + NAMED_T + struct.pack(">i", count)
    return begin + b"".join(struct.pack(">iqh", index, 5, -1) for index in range(count))


def offset_commits(count: int) -> bytes:
    """Of one partition, again and again."""
    begin = head(8, 2) + b"\0\1g" + struct.pack(">ihq", -1, 0, -1) + NAMED_T + struct.pack(">i", count)
    return begin + struct.pack(">iqh", 0, 5, -1) * count


def offset_fetch(count: int) -> bytes:
    partitions = b"".join(struct.pack(">i", index) for index in range(count))
    return head(9, 1) + b"\0\1g" + NAMED_T + struct.pack(">i", count) + partitions


def delete_groups(count: int) -> bytes:
    """None of which is there."""
    names = b"".join(struct.pack(">h6s", 6, b"%06d" % row) for row in range(count))
    return head(42, 0) + struct.pack(">i", count) + names


@dataclass(slots=True)
class Peer:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, *frames: bytes) -> None:
        for frame in frames:
            self.writer.write(len(frame).to_bytes(4, "big") + frame)

    async def answer(self) -> bytes:
        """The next answer, behind its correlation id."""
        async with asyncio.timeout(60):
            answer = await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4), "big"))
        return answer[4:]


@asynccontextmanager
async def peers(count: int) -> AsyncIterator[list[Peer]]:
    """Clients of a server with a topic `t` of one partition."""
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        clock = paths.parts.clock
        server = KafkaServer(table=ConnectionTable(metrics=paths.parts.metrics), clock=clock)
        port = await server.listen("PLAINTEXT", "127.0.0.1", 0)
        await server.start_serving(partial(ClientConnection, server.table, services_of(paths, clock, tasks), tasks))
        connected = [Peer(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(count)]
        yield connected
        for peer in connected:
            peer.writer.transport.abort()
        await server.drain(0)


class TestOthers:
    @pytest.mark.parametrize(
        "request_frame",
        [
            pytest.param(produce(ROWS, None), id="Produce"),
            pytest.param(fetch(ROWS), id="Fetch"),
            pytest.param(list_offsets(ROWS), id="ListOffsets"),
            pytest.param(metadata(5 * ROWS), id="Metadata"),
            pytest.param(create_topics(40 * CREATIONS_PER_TURN), id="CreateTopics"),
            pytest.param(delete_topics(2 * ROWS), id="DeleteTopics"),
            pytest.param(offset_for_leader_epoch(ROWS), id="OffsetForLeaderEpoch"),
            pytest.param(offset_commit(ROWS), id="OffsetCommit"),
            pytest.param(offset_commits(ROWS), id="OffsetCommit of what is there"),
            pytest.param(offset_fetch(ROWS), id="OffsetFetch"),
            pytest.param(delete_groups(ROWS), id="DeleteGroups"),
        ],
    )
    async def test_small_requests_are_answered_while_a_large_one_is_served(self, request_frame: bytes) -> None:
        async with peers(2) as (large, small), asyncio.TaskGroup() as tasks:
            large.send(request_frame)
            served = tasks.create_task(large.answer())
            answers_count = 0
            while not served.done():
                small.send(SMALL)
                await small.answer()
                answers_count += 1
        assert answers_count >= ANSWERS_MIN


class TestOrder:
    async def test_a_produce_that_gives_way_is_not_overtaken_by_the_next_one_of_its_connection(self) -> None:
        count = 2 * ROWS_PER_TURN + 1
        async with peers(1) as (peer,):
            peer.send(produce(count, BATCH), produce(1, BATCH))
            first, second = await peer.answer(), await peer.answer()
        offsets = [struct.unpack_from(">ihq", first, 11 + 22 * row) for row in range(count)]
        assert offsets == [(0, 0, offset) for offset in range(count)]
        assert struct.unpack_from(">ihq", second, 11) == (0, 0, count)

    async def test_a_large_produce_is_answered_with_the_bytes_of_many_small_ones(self) -> None:
        count = INLINE_ROWS_MAX + 1
        async with peers(1) as (peer,):
            peer.send(produce(1, None), produce(count, None))
            small, large = await peer.answer(), await peer.answer()
        assert small[:7] == NAMED_T
        assert large == NAMED_T + struct.pack(">i", count) + small[11:33] * count + small[33:]


class TestCooperativeYield:
    async def test_others_run_after_so_many_rows_and_not_before(self) -> None:
        clock = ManualClock()
        pacer = CooperativeYield(clock, 3)
        slept = []
        for _ in range(7):
            await pacer.step()
            slept.append(len(clock.slept))
        assert slept == [0, 0, 1, 1, 1, 2, 2]
        assert set(clock.slept) == {0}

    async def test_few_rows_are_worked_out_on_the_loop_and_many_in_a_thread(self) -> None:
        assert await inline_or_in_thread(INLINE_ROWS_MAX, threading.current_thread) is threading.current_thread()
        assert (await inline_or_in_thread(INLINE_ROWS_MAX + 1, threading.current_thread)).name.startswith("cpu")

    def test_the_rows_of_a_body_are_bounded_by_its_bytes(self) -> None:
        assert rows_at_most(memoryview(bytes(100))) == 8
