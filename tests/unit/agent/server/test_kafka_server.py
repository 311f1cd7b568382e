"""Who is served at all: a server that ended its connections takes no more."""

import asyncio
import contextlib
from functools import partial

import pytest

from agent.server.connection import ClientConnection
from agent.server.connection_table import ConnectionTable
from agent.server.kafka_server import KafkaServer
from tests.support.agent.data_paths import data_paths, services_of, tasks_that_fail


async def test_a_connection_that_comes_after_the_end_is_closed_without_a_task(caplog: pytest.LogCaptureFixture) -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        clock = paths.parts.clock
        server = KafkaServer(table=ConnectionTable(metrics=paths.parts.metrics), clock=clock)
        port = await server.listen("PLAINTEXT", "127.0.0.1", 0)
        await server.start_serving(partial(ClientConnection, server.table, services_of(paths, clock, tasks), tasks))
        server.abort()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        assert not server.table.connections
        await server.drain(0)
    assert "too many" not in caplog.text


async def test_a_connection_that_comes_while_the_agents_tasks_end_is_closed_and_is_no_bug() -> None:
    seen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: seen.append(context["exception"]))
    async with data_paths() as paths:
        clock = paths.parts.clock
        async with tasks_that_fail() as tasks:
            server = KafkaServer(table=ConnectionTable(metrics=paths.parts.metrics), clock=clock)
            port = await server.listen("PLAINTEXT", "127.0.0.1", 0)
            await server.start_serving(partial(ClientConnection, server.table, services_of(paths, clock, tasks), tasks))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 10.0) == b""
        writer.close()
        assert not server.table.connections
        await server.drain(0)
    assert seen == []
