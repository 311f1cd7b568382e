"""Peers that keep memory without breaking a rule, over real sockets and on an injected clock: others get it in time."""

import asyncio
import gc
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent.server.connection import ClientConnection
from protocol.api_versions import ApiKey
from protocol.connection import RequestFrame
from protocol.limits import (
    FETCH_PARTITIONS_MAX,
    FETCH_WAIT_MS_MAX,
    KIB,
    MIB,
    RECEIVE_PROGRESS_BYTES_MIN,
    RECEIVE_STALLED_SECONDS_MAX,
    RESERVE_SECONDS_MAX,
    WRITE_SECONDS_MAX,
)
from tests.support.agent.server_peers import REQUEST_HEAD, Peer, Running, serving, until
from tests.support.records.plain_records import Record, make_batch

WAIT_MS = (1 << 31) - 1
SMALL_REQUEST = len(REQUEST_HEAD).to_bytes(4, "big") + REQUEST_HEAD


def fetch(partitions_count: int = 1, *, bytes_min: int = 1) -> bytes:
    """Fetch 4 at the end of the one partition, named so many times."""
    head = b"\0\1\0\4\0\0\0\7\xff\xff" + struct.pack(">iiiib", -1, WAIT_MS, bytes_min, MIB, 0) + b"\0\0\0\1\0\1t"
    body = struct.pack(">i", partitions_count) + struct.pack(">iqi", 0, 0, MIB) * partitions_count
    return struct.pack(">i", len(head) + len(body)) + head + body


FETCH = fetch()


METADATA = bytes.fromhex("0000000e 0003 0001 00000007 ffff 00000000")
"""Metadata 1 of no topic."""
FIND_COORDINATOR = bytes.fromhex("0000000e 000a 0001 00000007 ffff 0001 67 00")
"""FindCoordinator 1 of the group g."""


async def begun_behind_fetch(running: Running, frame_bytes: int, request: bytes = FETCH) -> Peer:
    """A peer whose fetch waits, and behind it a whole request."""
    peer, count_before = await running.connect(), len(running.table.behind_fetch)
    peer.writer.write(request)
    peer.begin(frame_bytes, frame_bytes + 4)
    await until(lambda: len(running.table.behind_fetch) == count_before + 1)
    return peer


@asynccontextmanager
async def unread(running: Running) -> AsyncIterator[tuple[socket.socket, ClientConnection]]:
    """A peer that has not read its answers, and its connection: some are unsent, too few for writing to be paused."""
    loop = asyncio.get_running_loop()
    peer, accepted = socket.socketpair()
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    peer.setblocking(False)
    with peer:
        transport, connection = await loop.connect_accepted_socket(lambda: running.accept("PLAINTEXT"), accepted)
        await until(lambda: connection in running.table.connections)
        while not transport.get_write_buffer_size():
            await ask_unread(running, peer, connection)
        assert connection.unread_s == 0.0
        yield peer, connection


async def ask_unread(running: Running, peer: socket.socket, connection: ClientConnection) -> None:
    """One answer more that is not read, and a second passes."""
    await asyncio.get_running_loop().sock_sendall(peer, SMALL_REQUEST)
    await until(lambda: connection.used_s == running.clock.seconds and connection.is_idle)
    running.clock.seconds += 1


async def step_with(running: Running, slow: Peer, count: int) -> None:
    """Time goes on until the next sweep, and `slow` sends so much meanwhile."""
    arrived = [connection.arrived_bytes for connection in running.table.receiving]
    slow.go_on(count)
    await until(lambda: arrived != [connection.arrived_bytes for connection in running.table.receiving])
    await running.clock.step(RECEIVE_STALLED_SECONDS_MAX)


class TestWaitingFetches:
    async def test_large_requests_behind_them_keep_no_memory_once_another_wants_it(self) -> None:
        async with serving(MIB) as running:
            parked = [await begun_behind_fetch(running, count * KIB) for count in (400, 400, 223)]
            slow = await running.connect()
            slow.begin(400 * KIB, 100)
            for peer in parked:
                assert await peer.answered()
                assert await peer.answered()
            good = await running.begun(300 * KIB)
            good.go_on()
            assert await good.answered()
            assert not slow.reader.at_eof()

    async def test_nor_do_those_that_come_while_another_waits(self) -> None:
        async with serving(MIB) as running:
            stalled = [await running.begun(700 * KIB), await running.begun(900 * KIB)]
            waiting = await running.begun(900 * KIB)
            peer = await running.connect()
            peer.writer.write(fetch() * 3)
            peer.begin(300 * KIB, 300 * KIB + 4)
            assert [await peer.answered() for _ in range(4)] == [True] * 4
            assert not any(each.reader.at_eof() for each in (*stalled, waiting))

    async def test_they_go_on_waiting_while_nobody_wants_it(self) -> None:
        async with serving(MIB) as running:
            parked = await begun_behind_fetch(running, 400 * KIB)
            good = await running.begun(300 * KIB)
            good.go_on()
            assert await good.answered()
            assert len(running.table.behind_fetch) == 1
            await running.clock.step(RECEIVE_STALLED_SECONDS_MAX)
            assert not parked.reader.at_eof()

    @pytest.mark.parametrize("question", [METADATA, FIND_COORDINATOR], ids=["metadata", "coordinator"])
    async def test_none_holds_up_a_question_for_which_its_client_stands_still(self, question: bytes) -> None:
        async with serving(MIB) as running:
            waiting = await begun_behind_fetch(running, KIB)
            waiting.writer.write(question)
            assert [await waiting.answered() for _ in range(3)] == [True] * 3
            together = await running.connect()
            together.writer.write(FETCH + question + FETCH)
            assert [await together.answered() for _ in range(2)] == [True] * 2
            await until(lambda: len(running.table.behind_fetch) == 0)

    async def test_one_that_a_question_ends_at_once_has_kept_no_memory_yet(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[float] = []
        take_up = ClientConnection._take_up

        async def watched(connection: ClientConnection, frame: RequestFrame, arrived_s: float) -> None:
            if frame.api_key == ApiKey.FETCH:
                assert running.table.behind_fetch
                seen.append(connection.blocking_s)
            await take_up(connection, frame, arrived_s)

        monkeypatch.setattr(ClientConnection, "_take_up", watched)
        async with serving(MIB) as running:
            running.clock.seconds += 1_000
            peer = await running.connect()
            peer.writer.write(FETCH + METADATA)
            assert [await peer.answered() for _ in range(2)] == [True] * 2
        assert seen == [0.0]

    async def test_one_that_names_very_many_partitions_counts_until_another_wants_memory(self) -> None:
        async with serving(MIB) as running:
            peer = await running.connect()
            peer.writer.write(fetch(50_000))
            await until(lambda: len(running.table.behind_fetch) == 1)
            assert running.table.memory.used_bytes > 50_000 * 16
            good = await running.begun(300 * KIB)
            good.go_on()
            assert await good.answered()
            assert await peer.answered()
            assert running.table.memory.used_bytes == 0

    async def test_one_keeps_nothing_of_its_request_while_it_waits(self) -> None:
        async with serving(64 * MIB) as running:
            peer = await running.connect()
            gc.disable()
            tracemalloc.start()
            try:
                peer.writer.write(fetch(FETCH_PARTITIONS_MAX))
                await until(lambda: tracemalloc.get_traced_memory()[0] > 16 * MIB, 60)
                await until(lambda: tracemalloc.get_traced_memory()[0] < 5 * MIB, 60)
                assert len(running.table.behind_fetch) == 1
            finally:
                tracemalloc.stop()
                gc.enable()

    async def test_one_waits_five_minutes_at_most(self) -> None:
        async with serving(MIB) as running:
            peer, paths = await begun_behind_fetch(running, KIB, fetch(bytes_min=MIB)), running.paths
            for seconds, is_over in ((-1, False), (0, True)):
                paths.parts.clock.seconds = FETCH_WAIT_MS_MAX / 1000 + seconds
                # What grows too little makes it look at the time again: this clock has no timers.
                await paths.produce(make_batch([Record(offset=0, timestamp=1)]))
                assert is_over or len(running.table.behind_fetch) == 1
            answer = await peer.reader.readexactly(int.from_bytes(await peer.reader.readexactly(4), "big"))
            assert answer.startswith(b"\0\0\0\7")
            assert await peer.answered()

    async def test_one_that_names_more_partitions_than_there_may_be_is_refused(self) -> None:
        async with serving(64 * MIB) as running:
            peer = await running.connect()
            peer.writer.write(fetch(FETCH_PARTITIONS_MAX + 1))
            assert not await peer.answered()


class TestSlowSenders:
    async def test_they_keep_the_budget_and_the_reserve_for_a_limited_time(self) -> None:
        async with serving(MIB) as running:
            filling = [await running.begun(count * KIB) for count in (400, 400, 223)]
            slow = await running.begun(MIB)
            good = await running.begun(300 * KIB)
            await running.clock.step(RECEIVE_STALLED_SECONDS_MAX)
            await step_with(running, slow, RECEIVE_PROGRESS_BYTES_MIN)
            assert [await peer.answered() for peer in (*filling, slow)] == [False] * 4
            good.go_on()
            assert await good.answered()


class TestUnreadAnswers:
    async def test_a_connection_that_is_closed_while_its_peer_does_not_read_ends(self) -> None:
        async with serving(MIB) as running, unread(running) as (peer, connection):
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(peer, (900_000).to_bytes(4, "big") + REQUEST_HEAD + bytes(200_000))
            await until(lambda: len(running.table.receiving) == 1 and connection.arrived_bytes > 200_000)
            connection.close()
            assert (running.table.memory.used_bytes, connection.arrived_bytes) == (0, 0)
            assert running.table.receiving == {}
            await running.clock.step(WRITE_SECONDS_MAX)
            assert running.table.connections == {connection}
            await running.clock.step(RECEIVE_STALLED_SECONDS_MAX)
            await until(lambda: not running.table.connections)

    async def test_requests_behind_them_keep_memory_for_a_limited_time(self) -> None:
        async with serving(MIB) as running, unread(running) as (peer, connection):
            loop = asyncio.get_running_loop()
            while not connection.unread_s:
                await ask_unread(running, peer, connection)
            frame = (900_000).to_bytes(4, "big") + REQUEST_HEAD + bytes(900_000 - len(REQUEST_HEAD))
            await loop.sock_sendall(peer, frame)
            await until(lambda: running.table.memory.used_bytes > 800_000 and not running.table.receiving)
            await running.begun(900 * KIB)
            waiting = await running.begun(900 * KIB)
            await running.clock.step(RESERVE_SECONDS_MAX + 1)
            await until(lambda: connection not in running.table.connections)
            waiting.go_on()
            assert await waiting.answered()

    async def test_one_that_is_closed_waits_for_memory_no_longer(self) -> None:
        async with serving(MIB) as running, unread(running) as (peer, connection):
            slow = [await running.begun(900 * KIB), await running.begun(900 * KIB)]
            await asyncio.get_running_loop().sock_sendall(peer, (900_000).to_bytes(4, "big") + REQUEST_HEAD)
            await until(lambda: running.table.memory.has_waiting)
            connection.close()
            assert not running.table.memory.has_waiting
            assert running.table.paused == set()
            for each in slow:
                each.go_on()
                assert await each.answered()


class TestUnreadAnswersOfAll:
    async def test_beyond_the_budget_whoever_has_not_read_for_longest_is_ended_at_once(self) -> None:
        async with (
            serving(MIB, answer_bytes_max=100_000) as running,
            unread(running) as (first, oldest),
            unread(running) as (second, younger),
        ):
            while not oldest.unread_s:
                await ask_unread(running, first, oldest)
            assert running.table.answers.holders() == [oldest]
            while not younger.unread_s:
                await ask_unread(running, second, younger)
            await until(lambda: oldest not in running.table.connections)
            assert running.table.answers.holders() == [younger]
            assert running.table.answers.unread_bytes == younger.unread_bytes <= 100_000
            good = await running.begun(300 * KIB)
            good.go_on()
            assert await good.answered()

    async def test_while_much_is_unread_a_peer_has_less_time_to_read(self) -> None:
        async with serving(MIB, answer_bytes_max=100_000) as running, unread(running) as (peer, connection):
            while not running.table.answers.is_tight:
                await ask_unread(running, peer, connection)
            await running.clock.step(RESERVE_SECONDS_MAX - connection.unread_s)
            assert connection in running.table.connections
            await running.clock.step(1.0)
            await until(lambda: connection not in running.table.connections)
            assert running.table.answers.unread_bytes == 0

    async def test_what_is_read_after_all_counts_no_more(self) -> None:
        async with serving(MIB) as running, unread(running) as (peer, connection):
            while not connection.unread_s:
                await ask_unread(running, peer, connection)
            assert running.table.answers.unread_bytes > 0
            while connection.unread_s:
                await asyncio.get_running_loop().sock_recv(peer, MIB)
            assert (running.table.answers.unread_bytes, running.table.answers.holders()) == (0, [])
