"""Lets other tasks run while a request with many partitions is handled.

Rule: a request with few rows is handled at once. A larger one is handled in order, some rows per turn, and a thread
reads and writes its bytes. The state may change between two turns. What was looked up for a row stays valid for that
row, as it does while a row waits for the ledger or the store.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from agent.runtime.clock import Clock
from agent.runtime.threads import run_in_thread
from protocol.limits import INLINE_ROWS_MAX, ROWS_PER_TURN

P = ParamSpec("P")
T = TypeVar("T")

ROW_BYTES_MIN = 12
"""The smallest size of a partition or a topic in most requests."""


class CooperativeYield:
    """Counts the rows of one request, over all its loops."""

    __slots__ = ("_after_turn", "_clock", "_rows_left", "_rows_per_turn")

    def __init__(
        self, clock: Clock, rows_per_turn: int = ROWS_PER_TURN, *, after_turn: Callable[[], None] | None = None
    ) -> None:
        """`after_turn` is called when other tasks have run: what they changed counts for the next row."""
        self._after_turn = after_turn
        self._clock = clock
        self._rows_per_turn = rows_per_turn
        self._rows_left = rows_per_turn

    async def step(self) -> None:
        """Count a row; after every `rows_per_turn` of them all other tasks run once."""
        if self.is_turn_over():
            await self.turn()

    def is_turn_over(self) -> bool:
        """Count a row. True after every `rows_per_turn` of them: await `turn`. For loops where a coroutine is dear."""
        self._rows_left -= 1
        return self._rows_left <= 0

    async def turn(self) -> None:
        """All other tasks run once."""
        self._rows_left = self._rows_per_turn
        await self._clock.sleep(0)
        if self._after_turn is not None:
            self._after_turn()


async def inline_or_in_thread(row_count: int, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The function's result: called at once for few rows, in a thread for many."""
    if row_count <= INLINE_ROWS_MAX:
        return function(*args, **kwargs)
    return await run_in_thread(function, *args, **kwargs)


def rows_at_most(body: memoryview) -> int:
    """An upper bound of the rows in a request's body, before it is decoded."""
    return len(body) // ROW_BYTES_MIN
