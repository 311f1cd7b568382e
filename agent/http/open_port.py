"""Opens an agent's HTTP port, before anything that the agent may have to wait for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent.config.settings import Settings
from agent.http.iceberg.catalog_config import catalog_parts
from agent.http.server import HttpServer
from agent.http.services import StartServices
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.runtime.start_waits import StartWaits
from agent.security.tls.agent_tls import AgentTls


@asynccontextmanager
async def open_http_port(
    settings: Settings, *, tls: AgentTls, clock: Clock, metrics: Metrics, waits: StartWaits
) -> AsyncIterator[HttpServer]:
    """The HTTP port, which answers for as long as the block lasts: that the agent starts, until `HttpServer.open`.

    Raises `OSError` where the port cannot be bound. An error of the server cancels the block, and errors of both are
    raised in an `ExceptionGroup`.
    """
    services = StartServices(
        waits=waits,
        metrics=metrics,
        clock=clock,
        authorizer=settings.authorizer,
        accepts_issuer_tokens=settings.http_oauth is not None,
    )
    server = HttpServer(
        address=settings.http, catalog=catalog_parts(settings, clock), access=settings.http_access, tls=tls
    )
    server.bind()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(server.run(services), name="http")
        try:
            await server.serving()
            yield server
        finally:
            running.cancel()
