"""The services of an agent whose classic groups' timers run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent.request.services import Services
from tests.support.agent.data_paths import data_paths, services_of

CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE = 68, 69


@asynccontextmanager
async def serving() -> AsyncIterator[Services]:
    """The services of an agent with the topic `t`, while the timers of its classic groups run."""
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        timers = tasks.create_task(services.groups.run_timers())
        try:
            yield services
        finally:
            timers.cancel()
