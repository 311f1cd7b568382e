"""Runs the work of one command over a Kafka connection of its own. The client is imported when it is needed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from agent.cli.clients.http_client import AgentServer, kafka_address

if TYPE_CHECKING:
    from agent.cli.clients.kafka_client import KafkaClient

Result = TypeVar("Result")


def with_client(
    server: AgentServer, bootstrap: str | None, work: "Callable[[KafkaClient], Awaitable[Result]]"
) -> Result:
    """Connect, do the work, close; returns the work's result. Raises `CommandFailed`."""
    from agent.cli.clients.kafka_client import KafkaClient

    address = kafka_address(server, bootstrap)

    async def connected() -> Result:
        async with await KafkaClient.connect(address) as client:
            return await work(client)

    return asyncio.run(connected())
