"""Repeats the steps of a start while the ledger or the object store is away."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from agent.runtime.clock import Clock
from agent.runtime.start_waits import StartNeed, StartWaits
from coordinator.ledger.port import LedgerUnavailable
from protocol.limits import START_RETRY_SECONDS_FIRST, START_RETRY_SECONDS_MAX
from storage.object_store import StoreUnavailable

T = TypeVar("T")


async def once_there(
    attempt: Callable[[], Awaitable[T]], clock: Clock, waits: StartWaits | None = None, need: StartNeed | None = None
) -> T:
    """The result of `attempt`, repeated while ledger or bucket are away: an agent may start during an outage.

    Args:
        attempt: a step of the start.
        clock: the process's.
        waits: of the start; None for a command that is no agent.
        need: the one service that the step asks, which is waited for from the first try on; None where it asks both.
    """
    waits = StartWaits(clock) if waits is None else waits
    pause_s = START_RETRY_SECONDS_FIRST
    if need is not None:
        waits.begin(need)
    while True:
        try:
            result = await attempt()
        except (StoreUnavailable, LedgerUnavailable) as error:
            waits.failed(StartNeed.STORE if isinstance(error, StoreUnavailable) else StartNeed.LEDGER, str(error))
            await clock.sleep(pause_s)
            pause_s = min(pause_s * 2, START_RETRY_SECONDS_MAX)
        else:
            waits.end()
            return result
