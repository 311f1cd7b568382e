"""What a client says of itself is known for as long as its connection lives."""

import asyncio
import struct
from functools import partial

from agent.server.connection import ClientConnection
from agent.server.connection_table import ConnectionTable
from agent.server.kafka_server import KafkaServer
from tests.support.agent.data_paths import data_paths, services_of

API_VERSIONS = struct.pack(">hhih", 18, 3, 1, -1) + b"\0" + b"\5java" + b"\0044.3" + b"\0"
SUBSCRIPTIONS = struct.pack(">hhih", 71, 0, 2, -1) + b"\0" + bytes(16) + b"\0"


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    writer.write(struct.pack(">i", len(request)) + request)
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


async def test_a_client_that_asked_what_to_push_is_forgotten_with_its_connection() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        clock = paths.parts.clock
        server = KafkaServer(table=ConnectionTable(metrics=paths.parts.metrics), clock=clock)
        port = await server.listen("PLAINTEXT", "127.0.0.1", 0)
        services = services_of(paths, clock, tasks)
        services.state.client_metrics_configs["a"] = {"match": "client_software_name=java", "interval.ms": "1234"}
        await server.start_serving(partial(ClientConnection, server.table, services, tasks))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await answered(reader, writer, API_VERSIONS)
        answer = await answered(reader, writer, SUBSCRIPTIONS)
        assert services.telemetry.instances_count == 1
        writer.close()
        await writer.wait_closed()
        while services.telemetry.instances_count:
            await clock.sleep(0)
        server.abort()
        await server.drain(0)
    assert struct.pack(">i", 1_234) in answer
