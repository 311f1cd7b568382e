"""A start that fails or is cancelled after ports are open closes them, whatever clients do."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.config.settings import CliCommand, load_settings
from agent.server.kafka_server import KafkaServer
from coordinator.ledger.memory import MemoryLedger
from protocol.limits import STOP_SECONDS_MAX
from storage.memory_store import MemoryStore
from tests.support.agent.serving_agent import serving_agent
from tests.support.ports import free_port


async def start(folder: Path, *listeners: str) -> None:
    values = {"listen": list(listeners), "http": "127.0.0.1:0", "data-dir": str(folder), "store": "memory:"}
    settings = load_settings(CliCommand.RUN, values, environment={})
    async with serving_agent(settings, MemoryLedger(), MemoryStore()):
        pytest.fail("it serves")


async def test_the_ports_before_one_that_is_taken_are_free_again(tmp_path: Path) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ExceptionGroup, match="unhandled"):
        await start(tmp_path, f"A://127.0.0.1:{port}", f"B://127.0.0.1:{taken.getsockname()[1]}")
    with socket.create_server(("127.0.0.1", port)):
        pass


async def test_a_start_that_is_cancelled_waits_for_no_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port, start_serving = free_port(), KafkaServer.start_serving
    streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def connect_and_cancel(server: KafkaServer, accept: Callable[[str], asyncio.BaseProtocol]) -> None:
        """A client connects, and the signal comes, before the start is done."""
        await start_serving(server, accept)
        streams.append(await asyncio.open_connection("127.0.0.1", port))
        while not server.table.connections:  # noqa: ASYNC110  # nobody tells it
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.Event().wait()

    monkeypatch.setattr(KafkaServer, "start_serving", connect_and_cancel)
    starting = asyncio.create_task(start(tmp_path, f"A://127.0.0.1:{port}"))
    done, _ = await asyncio.wait([starting], timeout=2 * STOP_SECONDS_MAX)
    assert done
    assert starting.cancelled()
    reader, writer = streams[0]
    assert await reader.read() == b""
    writer.close()
    with socket.create_server(("127.0.0.1", port)):
        pass
