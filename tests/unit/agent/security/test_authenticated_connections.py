"""Connections end with the credentials that proved their clients."""

import asyncio
from pathlib import Path

from agent.runtime.metrics import Metrics
from agent.security.authenticated_connections import AuthenticatedConnections, TokenProof
from agent.security.plain_users import PlainUsers
from tests.support.agent.server_peers import SteppedClock
from tests.support.auth.login_server import ALICE, UserCredentials, credential
from tests.support.auth.plain_users import plain_user


class Connection:
    def __init__(self) -> None:
        self.aborted_count = 0

    def abort(self) -> None:
        self.aborted_count += 1


async def test_within_a_second_of_the_deletion() -> None:
    credentials, clock, connection = UserCredentials(), SteppedClock(), Connection()
    connections = AuthenticatedConnections(credentials.source, plain_users=None, clock=clock, metrics=Metrics())
    connections.add(ALICE, connection)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(connections.run())
        await clock.step(0.5)
        credentials.set(ALICE, credential("another password"))
        await clock.step(0.5)
        assert connection.aborted_count == 0
        credentials.set(ALICE, None)
        await clock.step(0.5)
        assert connection.aborted_count == 1
        running.cancel()


async def test_users_of_the_file_end_when_it_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(plain_user("bob", "x"))
    clock, connection, other = SteppedClock(), Connection(), Connection()
    connections = AuthenticatedConnections(
        UserCredentials().source, plain_users=PlainUsers(path), clock=clock, metrics=Metrics()
    )
    connections.add("bob", connection)
    connections.add(ALICE, other)
    path.write_text("")
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(connections.run())
        await clock.step(0.5)
        assert connection.aborted_count == 0
        await clock.step(10.0)
        assert connection.aborted_count == 1
        assert other.aborted_count == 0
        running.cancel()


def test_without_a_file_no_user_of_one_is_there() -> None:
    connections = AuthenticatedConnections(
        UserCredentials().source, plain_users=None, clock=SteppedClock(), metrics=Metrics()
    )
    assert not connections.is_there("bob")
    assert connections.is_there(ALICE)


def test_a_connection_that_is_removed_is_left_alone() -> None:
    credentials, connection, other = UserCredentials(), Connection(), Connection()
    connections = AuthenticatedConnections(
        credentials.source, plain_users=None, clock=SteppedClock(), metrics=Metrics()
    )
    connections.add(ALICE, connection)
    connections.add(ALICE, other)
    connections.remove(ALICE, connection)
    connections.remove(("bob", ALICE[1]), connection)
    credentials.set(ALICE, None)
    connections.end_deleted()
    assert (connection.aborted_count, other.aborted_count) == (0, 1)


async def test_the_connections_of_a_token_end_within_a_second_of_its_end() -> None:
    valid = {"A", "B"}
    credentials, clock, connection, other = UserCredentials(), SteppedClock(), Connection(), Connection()
    connections = AuthenticatedConnections(
        credentials.source, plain_users=None, clock=clock, metrics=Metrics(), is_token_valid=valid.__contains__
    )
    connections.add(TokenProof("A"), connection)
    connections.add(TokenProof("B"), other)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(connections.run())
        await clock.step(0.5)
        valid.remove("A")  # by the time alone: no credential has changed
        await clock.step(0.5)
        assert (connection.aborted_count, other.aborted_count) == (1, 0)
        valid.remove("B")
        credentials.set(ALICE, None)
        await clock.step(1.0)
        assert (connection.aborted_count, other.aborted_count) == (1, 1)
        running.cancel()
