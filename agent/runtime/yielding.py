"""Lets others have their turn while a request that names many partitions is served.

Rule: a request that names few is served in one go. One that names many is gone through in order, some rows a turn; what
reads and writes its bytes runs in a thread. Between two turns the state may change: what was looked up before is what
holds for its row, as it does where a row waits for the ledger or the store.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from agent.runtime.clock import Clock
from agent.runtime.threads import run_in_thread
from protocol.limits import INLINE_ROWS_MAX, ROWS_PER_TURN

P = ParamSpec("P")
T = TypeVar("T")

ROW_BYTES_MIN = 12
"""The fewest bytes of a partition or a topic in most requests."""


class CooperativeYield:
    """Counts the rows of one request, in all its loops together."""

    __slots__ = ("_clock", "_rows_left", "_rows_per_turn")

    def __init__(self, clock: Clock, rows_per_turn: int = ROWS_PER_TURN) -> None:
        self._clock = clock
        self._rows_per_turn = rows_per_turn
        self._rows_left = rows_per_turn

    async def step(self) -> None:
        """Count a row; after every so many of them all other tasks run once."""
        self._rows_left -= 1
        if self._rows_left <= 0:
            self._rows_left = self._rows_per_turn
            await self._clock.sleep(0)


async def inline_or_in_thread(row_count: int, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The function's result: at once where it goes through few rows, in a thread where they are many."""
    if row_count <= INLINE_ROWS_MAX:
        return function(*args, **kwargs)
    return await run_in_thread(function, *args, **kwargs)


def rows_at_most(body: memoryview) -> int:
    """How many rows a request's body can hold, before it is read; too many rather than too few."""
    return len(body) // ROW_BYTES_MIN
