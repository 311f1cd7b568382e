"""Large requests over real sockets: who waits for memory, who goes on, and who is ended."""

import gc
import tracemalloc
from functools import partial

from protocol.limits import (
    HALF_OPEN_SECONDS_MAX,
    KIB,
    MIB,
    RECEIVE_BUFFER_BYTES,
    RECEIVE_IDLE_SECONDS_MAX,
    RECEIVE_PROGRESS_BYTES_MIN,
    RECEIVE_STALLED_SECONDS_MAX,
)
from tests.support.agent.server_peers import Running, serving, until


class TestWaiting:
    async def test_beyond_the_budget_one_large_request_goes_on_and_the_others_wait_for_their_turn(self) -> None:
        async with serving(MIB) as running:
            memory = running.table.memory
            first = await running.begun(800 * KIB)
            second = await running.begun(300 * KIB)
            third = await running.begun(300 * KIB)
            assert (memory.used_bytes, memory.has_waiting) == (1_100 * KIB + 8, True)
            for peer in (second, third, first):
                peer.go_on()
                assert await peer.answered()
            assert (memory.used_bytes, memory.has_waiting, memory.reserve_holder) == (0, False, None)

    async def test_one_that_fits_goes_before_an_older_one_that_does_not(self) -> None:
        async with serving(MIB) as running:
            first, reserve = await running.begun(800 * KIB), await running.begun(500 * KIB)
            large, small = await running.begun(900 * KIB), await running.begun(200 * KIB)
            reserve.writer.transport.abort()
            small.go_on()
            assert await small.answered()
            for peer in (large, first):
                peer.go_on()
                assert await peer.answered()

    async def test_many_large_requests_at_once_are_all_answered_within_the_budget(self) -> None:
        async with serving(MIB) as running:
            peers = [await running.connect() for _ in range(12)]
            for peer in peers:
                for _ in range(3):
                    peer.begin(600 * KIB, 100)
                    peer.go_on()
            for peer in peers:
                assert [await peer.answered() for _ in range(3)] == [True] * 3
            assert running.table.memory.used_bytes == 0
            assert running.table.paused == set()

    async def test_requests_that_fit_into_the_first_buffer_do_not_wait(self) -> None:
        async with serving(MIB) as running:
            await running.begun(900 * KIB)
            await running.begun(900 * KIB)
            waiting = await running.begun(900 * KIB)
            peer = await running.connect()
            peer.begin(128 * KIB - 4, 128 * KIB)
            assert await peer.answered()
            assert running.table.memory.has_waiting
            assert not waiting.reader.at_eof()

    async def test_a_peer_that_closes_gives_its_memory_to_those_who_wait(self) -> None:
        async with serving(MIB) as running:
            gone = [await running.begun(900 * KIB), await running.begun(900 * KIB)]
            waiting = await running.begun(900 * KIB)
            for peer in gone:
                peer.writer.transport.abort()
            waiting.go_on()
            assert await waiting.answered()
            await until(lambda: running.table.memory.used_bytes == 0)

    async def test_a_peer_that_waits_and_closes_is_forgotten(self) -> None:
        async with serving(MIB) as running:
            before = [await running.begun(900 * KIB), await running.begun(900 * KIB)]
            waiting = await running.begun(900 * KIB)
            waiting.writer.transport.abort()
            # Nobody reads its socket, so that its end is seen when its turn comes.
            for peer in before:
                peer.go_on()
                assert await peer.answered()
            await until(lambda: running.table.memory.used_bytes == 0)
            assert not running.table.memory.has_waiting

    async def test_an_idle_connection_keeps_nothing_of_its_last_request(self) -> None:
        async with serving(64 * MIB) as running:
            peer = await running.connect()
            tracemalloc.start()
            try:
                peer.begin(16 * MIB, 100)
                peer.go_on()
                assert await peer.answered()
                peer.rest = b""
                await until(lambda: tracemalloc.get_traced_memory()[0] < 2 * MIB)
            finally:
                tracemalloc.stop()

    async def test_a_refused_produce_leaves_its_records_at_once_and_not_to_the_garbage_collector(self) -> None:
        records = bytes(16 * MIB)
        head = b"\0\0\0\x08\0\0\0\7\xff\xff" + b"\xff\xff\xff\xff\0\0\x75\x30" + b"\0\0\0\1\0\1t"
        frame = head + b"\0\0\0\1" + b"\0\0\0\0" + len(records).to_bytes(4, "big") + records
        async with serving(64 * MIB) as running:
            peer = await running.connect()
            gc.disable()
            tracemalloc.start()
            try:
                peer.writer.writelines([len(frame).to_bytes(4, "big"), frame])
                answer = await peer.reader.readexactly(int.from_bytes(await peer.reader.readexactly(4), "big"))
                assert answer.startswith(b"\0\0\0\7" + b"\0\0\0\1\0\1t" + b"\0\0\0\1" + b"\0\0\0\0" + b"\0")
                await until(lambda: tracemalloc.get_traced_memory()[0] < 2 * MIB)
            finally:
                tracemalloc.stop()
                gc.enable()


class TestStalling:
    async def test_a_peer_that_stalls_is_ended_while_others_wait(self) -> None:
        async with serving(MIB) as running:
            stalled = [await running.begun(900 * KIB), await running.begun(900 * KIB)]
            waiting = await running.begun(900 * KIB)
            await running.clock.step(RECEIVE_STALLED_SECONDS_MAX)
            assert len(running.table.receiving) == 2
            await running.clock.step(RECEIVE_STALLED_SECONDS_MAX)
            assert [await peer.answered() for peer in stalled] == [False, False]
            waiting.go_on()
            assert await waiting.answered()

    async def test_one_that_goes_on_so_that_it_arrives_within_a_minute_is_not(self) -> None:
        async with serving(MIB) as running:
            slow, stalled = await running.begun(900 * KIB), await running.begun(900 * KIB)
            waiting = await running.begun(900 * KIB)
            for count in range(1, 6):
                slow.go_on(151 * KIB)
                await until(partial(has_arrived, running, 100 + count * 151 * KIB))
                await running.clock.step(RECEIVE_STALLED_SECONDS_MAX)
            assert not await stalled.answered()
            slow.go_on()
            waiting.go_on()
            assert await slow.answered()
            assert await waiting.answered()

    async def test_nobody_is_ended_for_it_while_nobody_waits(self) -> None:
        async with serving(MIB) as running:
            peer = await running.begun(900 * KIB)
            for _ in range(3):
                await running.clock.step(RECEIVE_STALLED_SECONDS_MAX)
            peer.go_on()
            assert await peer.answered()

    async def test_one_that_goes_on_a_little_is_ended_the_sooner_in_the_reserve(self) -> None:
        async with serving(4 * MIB) as running:
            peers = [await running.begun(4 * MIB - 4), await running.begun(4 * MIB)]
            waiting = await running.begun(900 * KIB)
            await running.clock.step(RECEIVE_STALLED_SECONDS_MAX)
            for peer in peers:
                peer.go_on(MIB)
            await until(lambda: all(c.arrived_bytes == MIB + 100 for c in running.table.receiving))
            await running.clock.step(RECEIVE_STALLED_SECONDS_MAX)
            assert not await peers[1].answered()
            peers[0].go_on(RECEIVE_PROGRESS_BYTES_MIN)
            await until(partial(has_arrived, running, MIB + 100 + RECEIVE_PROGRESS_BYTES_MIN))
            waiting.go_on()
            assert await waiting.answered()
            last = await running.begun(900 * KIB)
            assert not running.table.memory.has_waiting
            await running.begun(900 * KIB)
            await running.clock.step(RECEIVE_STALLED_SECONDS_MAX)
            assert not await peers[0].answered()
            last.go_on()
            assert await last.answered()

    async def test_who_waits_for_memory_is_closed_as_an_idle_one(self) -> None:
        async with serving(MIB) as running:
            await running.begun(900 * KIB)
            await running.begun(900 * KIB)
            waiting = await running.begun(900 * KIB)
            await running.clock.step(HALF_OPEN_SECONDS_MAX + 1)
            assert not await waiting.answered()
            assert not running.table.memory.has_waiting


class TestUnfinishedRequests:
    async def test_the_memory_of_many_halves_is_bounded_and_the_others_get_their_turn(self) -> None:
        async with serving(4 * MIB, receive_bytes_max=2 * MIB) as running:
            tracemalloc.start()
            try:
                peers = [await running.connect() for _ in range(200)]
                for peer in peers:
                    peer.begin(100 * KIB, 60 * KIB)
                memory = running.table.memory
                await until(lambda: len(running.table.paused) > 100)
                assert memory.lent_bytes == 2 * MIB
                assert memory.used_bytes <= 4 * MIB + 100 * KIB + 4
                assert tracemalloc.get_traced_memory()[1] < 16 * MIB
            finally:
                tracemalloc.stop()
            for peer in peers:
                peer.go_on()
            assert [await peer.answered() for peer in peers] == [True] * 200
            assert memory.used_bytes == 0

    async def test_half_a_request_that_does_not_go_on_is_ended(self) -> None:
        async with serving(MIB) as running:
            for frame_bytes, first_bytes in ((100, 50), (100 * KIB, 60 * KIB), (900 * KIB, 100)):
                peer = await running.connect()
                peer.begin(frame_bytes, first_bytes)
                await until(partial(has_begun, running, first_bytes))
                for _ in range(int(RECEIVE_IDLE_SECONDS_MAX / RECEIVE_STALLED_SECONDS_MAX)):
                    await running.clock.step(RECEIVE_STALLED_SECONDS_MAX)
                assert len(running.table.connections) == 1
                await running.clock.step(RECEIVE_STALLED_SECONDS_MAX)
                assert not await peer.answered()
                await until(lambda: not running.table.connections)
            assert (running.table.memory.used_bytes, running.table.memory.lent_bytes) == (0, 0)

    async def test_a_byte_now_and_then_is_no_progress(self) -> None:
        async with serving(MIB) as running:
            peer = await running.connect()
            peer.begin(200, 50)
            await until(partial(has_begun, running, 50))
            for count in range(1, 8):
                peer.go_on(1)
                await until(partial(has_begun, running, 50 + count))
                await running.clock.step(RECEIVE_STALLED_SECONDS_MAX)
            assert not await peer.answered()

    async def test_a_slow_one_that_goes_on_is_not_ended_however_long_it_takes(self) -> None:
        async with serving(4 * MIB) as running:
            peer = await running.begun(2 * MIB)
            for count in range(1, 25):
                peer.go_on(RECEIVE_PROGRESS_BYTES_MIN)
                await until(partial(has_begun, running, 100 + count * RECEIVE_PROGRESS_BYTES_MIN))
                await running.clock.step(RECEIVE_IDLE_SECONDS_MAX - 1)
            assert running.clock.seconds > 2 * HALF_OPEN_SECONDS_MAX
            peer.go_on()
            assert await peer.answered()

    async def test_one_that_waits_for_memory_is_not_blamed_for_it(self) -> None:
        async with serving(MIB) as running:
            slow = [await running.begun(900 * KIB), await running.begun(900 * KIB)]
            waiting = await running.begun(900 * KIB)
            for _ in range(2):
                await running.clock.step(RECEIVE_IDLE_SECONDS_MAX + 1)
            assert [await peer.answered() for peer in slow] == [False, False]
            waiting.go_on()
            assert await waiting.answered()

    async def test_one_that_keeps_its_buffer_is_ended_the_sooner_where_others_wait(self) -> None:
        async with serving(MIB) as running:
            half = await running.connect()
            half.begin(100 * KIB, 60 * KIB)
            await until(partial(has_begun, running, 60 * KIB))
            for _ in range(3):
                await running.begun(900 * KIB)
            assert running.table.memory.has_waiting
            await running.clock.step(RECEIVE_STALLED_SECONDS_MAX)
            await running.clock.step(RECEIVE_STALLED_SECONDS_MAX)
            assert not await half.answered()

    async def test_a_buffer_that_is_not_in_use_is_given_to_another(self) -> None:
        async with serving(MIB, receive_bytes_max=RECEIVE_BUFFER_BYTES) as running:
            roomy = running.table.roomy
            for _ in range(3):
                peer = await running.connect()
                peer.begin(100 * KIB, 100 * KIB + 4)
                assert await peer.answered()
                assert (len(roomy), running.table.memory.used_bytes) == (1, 0)
            await running.clock.step(RECEIVE_STALLED_SECONDS_MAX)
            assert (len(roomy), running.table.memory.lent_bytes) == (0, 0)


def has_begun(running: Running, count: int) -> bool:
    """Whether so much of some request has arrived."""
    return count in [connection.arrived_bytes for connection in running.table.connections]


def has_arrived(running: Running, count: int) -> bool:
    """Whether so much of some large request has."""
    return count in [connection.arrived_bytes for connection in running.table.receiving]
