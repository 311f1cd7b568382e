"""Log-ins under way when the agent stops: to clients a lost connection would look like a rejected password."""

import asyncio
from collections.abc import AsyncIterator
from unittest import mock

import pytest

from agent.runtime.clock import SystemClock
from agent.server import kafka_server
from tests.support.agent.server_peers import until
from tests.support.auth.drawn_scram_client import DrawnScramClient
from tests.support.auth.login_server import LoginServer, RawPeer, login_server
from tests.support.auth.sasl_frames import authenticate, handshake, read_authenticate_answer, read_handshake_answer


@pytest.fixture
async def login() -> AsyncIterator[LoginServer]:
    """A server that stops by the time that there is."""
    async with login_server() as login:
        login.server._clock = SystemClock()
        yield login


async def half_logged_in(login: LoginServer, client: DrawnScramClient) -> tuple[RawPeer, memoryview]:
    """A connection that has had its first token, and its last frame."""
    peer = await login.connect()
    answer = await peer.ask(handshake(client.mechanism.sasl_name))
    assert read_handshake_answer(answer).error_code == 0
    first = read_authenticate_answer(await peer.ask(authenticate(client.first(), 2)), 2)
    return peer, authenticate(client.final(first.token), 2)


def are_ports_closed(login: LoginServer) -> bool:
    return not any(server.is_serving() for server in login.server._servers)


async def test_a_log_in_that_is_under_way_succeeds_before_its_connection_is_closed(login: LoginServer) -> None:
    peer, last = await half_logged_in(login, DrawnScramClient())
    async with asyncio.TaskGroup() as tasks:
        draining = tasks.create_task(login.server.drain(10.0))
        await until(lambda: are_ports_closed(login))
        assert not draining.done()
        assert read_authenticate_answer(await peer.ask(last), 2).error_code == 0
        assert await peer.is_closed()
    assert not login.table.connections


async def test_no_new_one_begins(login: LoginServer) -> None:
    await half_logged_in(login, DrawnScramClient())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(login.server.drain(10.0))
        await until(lambda: are_ports_closed(login))
        with pytest.raises(ConnectionError):
            await login.connect()


async def test_one_that_does_not_go_on_holds_up_no_stop(login: LoginServer) -> None:
    peer, _ = await half_logged_in(login, DrawnScramClient())
    began_s = SystemClock().monotonic_s()
    with mock.patch.object(kafka_server, "DRAIN_LOGIN_SECONDS_MAX", 0.2):
        await login.server.drain(10.0)
    assert 0.2 <= SystemClock().monotonic_s() - began_s < 10.0
    assert await peer.is_closed()
    assert not login.table.unauthenticated


async def test_it_leaves_most_of_the_time_to_answers_that_are_owed(login: LoginServer) -> None:
    await half_logged_in(login, DrawnScramClient())
    began_s = SystemClock().monotonic_s()
    with mock.patch.object(kafka_server, "DRAIN_LOGIN_SECONDS_MAX", 100.0):
        await login.server.drain(2.0)
    assert 0.5 <= SystemClock().monotonic_s() - began_s < 2.0


async def test_nor_does_it_where_there_is_less_time(login: LoginServer) -> None:
    peer, _ = await half_logged_in(login, DrawnScramClient())
    await login.server.drain(0.0)
    assert await peer.is_closed()
