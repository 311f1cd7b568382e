"""How tests wait while an etcd that they hurt comes back."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from coordinator.log import LedgerUnavailable

SECONDS_MAX = 60
T = TypeVar("T")


async def until_known(attempt: Callable[[], Awaitable[T]]) -> T:
    """As an agent does: the same again until there is an answer."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            try:
                return await attempt()
            except LedgerUnavailable:
                await asyncio.get_running_loop().run_in_executor(None, lambda: None)
