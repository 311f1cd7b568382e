"""A connection whose client is above a quota gets its answer at once, and is served again when its time is over."""

import asyncio
import socket
import struct

from agent.security.authentication import ConnectionAuthenticator
from coordinator.security.quota_rules import QuotaEntity
from protocol.auth.principals import ANONYMOUS, Principal
from protocol.limits import KIB, MIB, RESERVE_SECONDS_MAX
from tests.support.agent.server_peers import REQUEST_HEAD, Peer, Running, serving, until

ANYBODY: QuotaEntity = (("user", None),)
PRODUCE_3 = struct.pack(">hhih", 0, 3, 7, -1) + struct.pack(">hhii", -1, -1, 1_000, 0)
"""Produce 3 to no topic, acks=-1."""
FETCH_4 = struct.pack(">hhih", 1, 4, 7, -1) + struct.pack(">iiiibi", -1, 0, 0, MIB, 0, 0)
"""Fetch 4 of nothing. It is answered before the next request is taken up."""
PRODUCE_3_ACKS_0 = struct.pack(">hhih", 0, 3, 7, -1) + struct.pack(">hhii", -1, 0, 1_000, 0)


def framed(request: bytes) -> bytes:
    return len(request).to_bytes(4, "big") + request


async def answered(peer: Peer) -> bytes:
    async with asyncio.timeout(10):
        return await peer.reader.readexactly(int.from_bytes(await peer.reader.readexactly(4), "big"))


def limit(running: Running, **quotas: float) -> None:
    running.paths.parts.ledger.state.client_quotas = {ANYBODY: quotas}


async def test_the_answer_says_how_long_and_then_nothing_is_taken_up() -> None:
    async with serving(MIB) as running:
        limit(running, producer_byte_rate=1e-3)
        peer = await running.connect()
        peer.writer.write(framed(PRODUCE_3))
        answer = await answered(peer)
        assert answer[:8] == b"\0\0\0\7\0\0\0\0"
        assert int.from_bytes(answer[8:], "big") > 1_000_000
        peer.writer.write(framed(REQUEST_HEAD))
        other = await running.connect()
        other.writer.write(framed(REQUEST_HEAD))
        assert await other.answered()
        assert len(running.table.paused) == 1
        with_more = next(iter(running.table.paused))
        assert not with_more.is_owed_answer


async def test_requests_that_came_before_are_answered_when_the_time_is_over() -> None:
    async with serving(MIB) as running:
        limit(running, producer_byte_rate=len(PRODUCE_3) / 10.2)
        peer = await running.connect()
        peer.writer.write(framed(PRODUCE_3) + framed(REQUEST_HEAD))
        assert (await answered(peer))[8:] == (200).to_bytes(4, "big")
        assert await peer.answered()


async def test_without_an_answer_the_connection_is_muted_too() -> None:
    async with serving(MIB) as running:
        limit(running, producer_byte_rate=1e-3)
        peer = await running.connect()
        peer.writer.write(framed(PRODUCE_3_ACKS_0))
        await until(lambda: len(running.table.paused) == 1)


async def test_its_requests_keep_memory_that_others_need_for_a_limited_time() -> None:
    async with serving(MIB) as running:
        limit(running, consumer_byte_rate=1e-3)
        peer = await running.connect()
        peer.writer.write(framed(FETCH_4) + framed(REQUEST_HEAD + bytes(KIB)))
        await answered(peer)
        (connection,) = running.table.paused
        assert connection.blocking_s == 0.0
        running.clock.seconds += RESERVE_SECONDS_MAX + 1
        assert connection.blocking_s == RESERVE_SECONDS_MAX + 1


async def is_muted_after_produce(running: Running, principal: Principal) -> bool:
    """Whether a connection that speaks for this principal is throttled after its first records."""
    peer, accepted = socket.socketpair()
    connection = running.accept("PLAINTEXT", ConnectionAuthenticator(principal))
    await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted)
    running.peers.append(Peer(*await asyncio.open_connection(sock=peer)))
    running.peers[-1].writer.write(framed(PRODUCE_3))
    is_throttled = int.from_bytes((await answered(running.peers[-1]))[8:], "big") > 0
    assert is_throttled is (connection in running.table.paused)
    return is_throttled


async def test_a_quota_of_a_user_holds_for_those_who_have_authenticated_as_that_user() -> None:
    async with serving(MIB) as running:
        running.paths.parts.ledger.state.client_quotas = {(("user", "ann"),): {"producer_byte_rate": 1e-3}}
        assert await is_muted_after_produce(running, Principal("User", "ann"))
        assert not await is_muted_after_produce(running, ANONYMOUS)


async def test_one_that_is_gone_is_forgotten() -> None:
    async with serving(MIB) as running:
        limit(running, consumer_byte_rate=1e-3)
        peer = await running.connect()
        peer.writer.write(framed(FETCH_4) + framed(REQUEST_HEAD))
        await answered(peer)
        for connection in list(running.table.connections):
            connection.abort()
        await until(lambda: not running.table.connections)
        assert not running.table.paused
