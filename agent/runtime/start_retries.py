"""Repeats the steps of a start while the ledger or the object store is away."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from agent.runtime.clock import Clock
from agent.runtime.outages import Outage, OutageWords
from coordinator.ledger.port import LedgerUnavailable
from storage.object_store import StoreUnavailable

START_RETRY_SECONDS = 1.0
START_WORDS = OutageWords(
    fails="the agent cannot start yet: the ledger or the object store does not answer; it tries again",
    answers="the ledger and the object store answer: the start goes on",
)

T = TypeVar("T")


async def once_there(attempt: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """The result of `attempt`, repeated while ledger or bucket are away: an agent may start during an outage."""
    outage = Outage(START_WORDS, monotonic_s=clock.monotonic_s)
    while True:
        try:
            result = await attempt()
        except (StoreUnavailable, LedgerUnavailable) as error:
            outage.failed("start", str(error))
            await clock.sleep(START_RETRY_SECONDS)
        else:
            outage.answered("start")
            return result
