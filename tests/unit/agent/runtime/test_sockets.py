"""Ports on IPv6, by real sockets of this machine."""

import asyncio
import errno
import socket
from pathlib import Path

import pytest

from agent.config.settings import CliCommand, load_settings
from agent.runtime.sockets import bound_socket
from coordinator.ledger.memory import MemoryLedger
from protocol.api_versions import ApiKey
from storage.memory_store import MemoryStore
from tests.support.agent.serving_agent import serving_agent
from tests.support.clients.kafka_requests import framed, read_answer


def has_ipv6() -> bool:
    try:
        bound_socket("::1", 0).close()
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


@pytest.mark.parametrize(("host", "is_of_both"), [("::", True), ("::1", False)])
def test_every_address_is_of_both_families(host: str, *, is_of_both: bool) -> None:
    with bound_socket(host, 0) as listening:
        listening.listen()
        port = listening.getsockname()[1]
        socket.create_connection(("::1", port), timeout=10).close()
        with socket.socket(socket.AF_INET) as client:
            assert (client.connect_ex(("127.0.0.1", port)) == 0) is is_of_both


def test_a_port_that_is_taken_is_named_with_its_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=rf"bind on address \('::', {port}\)") as raised:
            bound_socket("::", port)
    assert raised.value.errno == errno.EADDRINUSE


async def test_clients_of_both_families_are_served_and_told_an_address_of_ipv6(tmp_path: Path) -> None:
    values = {
        "listen": ["[::]:0"],
        "advertise": ["[::1]:0"],
        "http": "[::]:0",
        "ledger": "memory:",
        "store": "memory:",
        "name": "a",
        "data-dir": str(tmp_path),
        "insecure": True,
    }
    settings = load_settings(CliCommand.AGENT, values, environment={})
    async with serving_agent(settings, MemoryLedger(), MemoryStore()) as agent:
        port = agent.bound[0].port
        for host in ("::1", "127.0.0.1"):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(framed(ApiKey.METADATA, 12, {"topics": [], "include_topic_authorized_operations": False}))
            answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            (broker,) = read_answer(answer, ApiKey.METADATA, 12).brokers
            assert (broker.host, broker.port) == ("::1", port)
            writer.close()
            reader, writer = await asyncio.open_connection(host, agent.http.port)
            writer.write(b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b"200 OK" in await reader.readline()
            writer.close()
        await agent.drain()
