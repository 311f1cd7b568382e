"""Failed logins over HTTP, whose answers wait, keep nobody else out."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

import pytest

from agent.config.addresses import HostPort
from agent.config.http_auth import HttpAccess, HttpTokens
from agent.http.login_delays import LoginDelay, is_login_delayed
from agent.http.server import HttpServer
from agent.runtime.clock import SystemClock
from protocol.limits import HTTP_CONNECTIONS_MAX, HTTP_FAILED_LOGINS_WAITING_MAX
from tests.support.agent.server_peers import until
from tests.support.agent.small_agent import SmallAgent

TOKEN = "a-token-of-the-operator"
GUESSED = b"Authorization: Bearer xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n"


def basic(password: str) -> bytes:
    return b"Authorization: Basic " + base64.b64encode(f"alice:{password}".encode()) + b"\r\n"


@dataclass
class SlowFailures:
    """`alice`, and a delay of half a minute for failures, which are counted."""

    failed: list[str] = field(default_factory=list)

    async def is_current(self, user: str, password: str) -> Callable[[], bool] | None:
        return (lambda: True) if (user, password) == ("alice", "pencil") else None

    def failure_delay_s(self, address: str) -> float:
        self.failed.append(address)
        return 30.0


@dataclass
class Port:
    """A running HTTP port."""

    address: HostPort
    passwords: SlowFailures

    async def get(self, path: str, authorization: bytes = b"") -> bytes:
        """The status line of the answer."""
        reader, writer = await self.send(path, authorization)
        line = await reader.readline()
        writer.close()
        return line

    async def send(self, path: str, authorization: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(self.address.host, self.address.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n".encode() + authorization + b"\r\n")
        return reader, writer

    async def fail(self, count: int, authorization: bytes) -> list[asyncio.StreamWriter]:
        """Sends requests whose logins fail, and returns when the answers of all of them wait."""
        crowd = [(await self.send("/api/topics", authorization))[1] for _ in range(count)]
        await until(lambda: len(self.passwords.failed) >= count)
        return crowd


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    agent, passwords = SmallAgent(), SlowFailures()
    await agent.fill()
    server = HttpServer(address=HostPort(host="127.0.0.1", port=0), access=HttpAccess(tokens=HttpTokens.of(TOKEN)))
    address = server.bind()
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run(agent.start_services))
        await server.serving()
        server.open(replace(agent.services, passwords=passwords))
        yield Port(address, passwords)
        await server.stop()


@pytest.mark.parametrize("authorization", [GUESSED, basic("wrong")], ids=["bearer", "basic"])
async def test_a_crowd_of_failed_logins_keeps_neither_health_nor_tokens_out(port: Port, authorization: bytes) -> None:
    crowd = await port.fail(HTTP_FAILED_LOGINS_WAITING_MAX, authorization)
    crowd += [(await port.send("/api/topics", authorization))[1] for _ in range(HTTP_CONNECTIONS_MAX + 20)]
    async with asyncio.timeout(10):
        assert await port.get("/live") == b"HTTP/1.1 200 OK\r\n"
        assert await port.get("/api/topics", f"Authorization: Bearer {TOKEN}\r\n".encode()) == b"HTTP/1.1 200 OK\r\n"
    for writer in crowd:
        writer.close()


async def test_guessed_tokens_do_not_count_against_passwords(port: Port) -> None:
    crowd = await port.fail(HTTP_FAILED_LOGINS_WAITING_MAX + 10, GUESSED)
    async with asyncio.timeout(10):
        assert await port.get("/api/topics", basic("pencil")) == b"HTTP/1.1 200 OK\r\n"
    for writer in crowd:
        writer.close()


async def test_an_address_with_many_wrong_passwords_has_to_wait_with_others(port: Port) -> None:
    crowd = await port.fail(HTTP_FAILED_LOGINS_WAITING_MAX, basic("wrong"))
    async with asyncio.timeout(10):
        assert (await port.get("/api/topics", basic("pencil"))).startswith(b"HTTP/1.1 429 ")
        for writer in crowd:  # a client that leaves waits no longer
            writer.close()
        statuses = [await port.get("/api/topics", basic("pencil")) for _ in range(20)]
    assert statuses[-1] == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("messages", [["http.request"], ["http.request", "http.disconnect"]], ids=["time", "gone"])
async def test_a_delay_ends_with_its_time_or_when_the_client_is_gone(messages: list[str]) -> None:
    state: dict[str, object] = {}
    marks, left = list[bool](), list(messages)

    async def receive() -> dict[str, object]:
        marks.append(is_login_delayed({"state": state}))
        if not left:
            await asyncio.Event().wait()
        return {"type": left.pop(0)}

    async with asyncio.timeout(10):
        await LoginDelay(state, receive, SystemClock()).wait(60.0 if "http.disconnect" in messages else 0.01)
    assert marks == [True, True]
    assert not is_login_delayed({"state": state})
