"""Memory for reads in progress, shared by all fetches: who does not fit waits for its turn.

Rule: first come, first served, also past one that would fit sooner, so that large reads do not starve; one may always
run, however large. A share is taken once and only grows without waiting, so nobody who holds one waits for another. It
is held until the reader has left it and the reads that it began are over: those go on also where the reader gives up.
"""

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from agent.fetch.wait import FetchWait


@dataclass(eq=False, slots=True)
class Share:
    """One reader's reservation of the budget. Leaving the block returns it once the reads that it began are over."""

    _budget: "ReadBudget"
    bytes_taken: int
    bytes_read: int = 0
    _holders_count: int = 0

    @property
    def is_held(self) -> bool:
        """Whether its reader is in the block, or something that it began is being read."""
        return self._holders_count > 0

    def has_room_for(self, byte_count: int) -> bool:
        """Whether so much more can be read now without going past those who wait."""
        more_bytes = self.bytes_read + byte_count - self.bytes_taken
        return more_bytes <= 0 or self._budget.has_room_for(more_bytes)

    def count(self, byte_count: int) -> None:
        """So many bytes were read; what exceeds the share makes it larger at once, and others wait the longer."""
        self.bytes_read += byte_count
        more_bytes = max(self.bytes_read - self.bytes_taken, 0)
        self.bytes_taken += more_bytes
        self._budget.bytes_held += more_bytes

    def hold_for(self, read: asyncio.Task[None]) -> None:
        """Hold the share as long as `read` lasts, too."""
        self._holders_count += 1
        read.add_done_callback(self._leave)

    def __enter__(self) -> Self:
        self._holders_count += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self, _read: asyncio.Task[None] | None = None) -> None:
        self._holders_count -= 1
        if self._holders_count == 0:
            self._budget.give_back(self.bytes_taken)


class ReadBudget:
    """So many bytes for all reads in progress together."""

    def __init__(self, *, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._waiting: dict[asyncio.Future[None], int] = {}
        """CooperativeYield that did not come yet, in order, and the bytes that each is for."""
        self.bytes_held = 0

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def has_room_for(self, byte_count: int) -> bool:
        return not self._waiting and self._fits(byte_count)

    def take_now(self, byte_count: int) -> Share | None:
        """A share of `byte_count` bytes, or None where others come first or it does not fit. Nothing always fits."""
        if byte_count > 0 and not self.has_room_for(byte_count):
            return None
        self.bytes_held += byte_count
        return Share(self, byte_count)

    async def take(self, byte_count: int, fetch_wait: FetchWait | None = None) -> Share:
        """A share of `byte_count` bytes, in turn. A cancellation leaves no place taken and nothing held.

        Raises `TimeoutError` where `fetch_wait` ends before its turn comes.
        """
        share = self.take_now(byte_count)
        if share is not None:
            return share
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = byte_count
        if fetch_wait is not None:
            fetch_wait.wakes(lambda: self._give_up(turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.pop(turn, None)
                self._let_in()
            elif turn.exception() is None:
                self.give_back(byte_count)
            raise
        return Share(self, byte_count)

    def _give_up(self, turn: asyncio.Future[None]) -> None:
        """Whoever waits for this turn waits no longer, unless it has come."""
        if not turn.done():
            del self._waiting[turn]
            turn.set_exception(TimeoutError())
            self._let_in()

    def give_back(self, byte_count: int) -> None:
        self.bytes_held -= byte_count
        self._let_in()

    def _let_in(self) -> None:
        """The requests whose turn it is. One that was cancelled and has not run since is passed over."""
        while self._waiting:
            turn, byte_count = next(iter(self._waiting.items()))
            if not turn.cancelled():
                if not self._fits(byte_count):
                    return
                self.bytes_held += byte_count
                turn.set_result(None)
            del self._waiting[turn]

    def _fits(self, byte_count: int) -> bool:
        return self.bytes_held == 0 or self.bytes_held + byte_count <= self.bytes_max
