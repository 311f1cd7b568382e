"""The memory for reads in progress, one budget for all fetches: a fetch that does not fit waits for its turn.

A reader takes one reservation, which only grows without a wait. So no reader waits while it has one, and there is no
deadlock.
"""

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from agent.fetch.wait import FetchWait


@dataclass(eq=False, slots=True)
class Reservation:
    """One reader's reservation of the budget, used as a context manager.

    Its bytes are returned once the reader has left the block and the reads that it began have ended: a cancelled
    reader's reads go on, as other readers may wait for them.
    """

    _budget: "ReadBudget"
    bytes_taken: int
    bytes_read: int = 0
    _holders_count: int = 0

    @property
    def is_in_use(self) -> bool:
        """Whether its reader is in the block, or a read that it began has not ended."""
        return self._holders_count > 0

    def has_room_for(self, byte_count: int) -> bool:
        """Whether `byte_count` more bytes may be read now: no other reader waits for them."""
        more_bytes = self.bytes_read + byte_count - self.bytes_taken
        return more_bytes <= 0 or self._budget.has_room_for(more_bytes)

    def count(self, byte_count: int) -> None:
        """Count bytes that were read. Bytes beyond the reservation enlarge it at once, even beyond the budget."""
        self.bytes_read += byte_count
        more_bytes = max(self.bytes_read - self.bytes_taken, 0)
        self.bytes_taken += more_bytes
        self._budget.bytes_held += more_bytes

    def hold_for(self, read: asyncio.Task[None]) -> None:
        """Keep the reservation until `read` has ended, too."""
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
    """The budget of `bytes_max` bytes for all reads in progress.

    Turns come in the order of the requests, also past a small one that would fit sooner: else large reads would starve.
    """

    def __init__(self, *, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._waiting: dict[asyncio.Future[None], int] = {}
        """The turns that have not come, in order, and the bytes of each."""
        self.bytes_held = 0

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def has_room_for(self, byte_count: int) -> bool:
        return not self._waiting and self._fits(byte_count)

    def take_now(self, byte_count: int) -> Reservation | None:
        """A reservation of `byte_count` bytes; None where others wait or it does not fit. 0 bytes always fit."""
        if byte_count > 0 and not self.has_room_for(byte_count):
            return None
        self.bytes_held += byte_count
        return Reservation(self, byte_count)

    async def take(self, byte_count: int, fetch_wait: FetchWait | None = None) -> Reservation:
        """A reservation of `byte_count` bytes, in turn. A cancellation leaves neither a turn nor a reservation behind.

        Raises `TimeoutError` where `fetch_wait` ends before its turn comes.
        """
        reservation = self.take_now(byte_count)
        if reservation is not None:
            return reservation
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
            elif turn.exception() is None:  # its turn came before the cancellation reached this task
                self.give_back(byte_count)
            raise
        return Reservation(self, byte_count)

    def _give_up(self, turn: asyncio.Future[None]) -> None:
        """End the wait for this turn with `TimeoutError`, unless the turn has come."""
        if not turn.done():
            del self._waiting[turn]
            turn.set_exception(TimeoutError())
            self._let_in()

    def give_back(self, byte_count: int) -> None:
        self.bytes_held -= byte_count
        self._let_in()

    def _let_in(self) -> None:
        """Grant the turns that fit, in order. A cancelled turn whose task has not run since is passed over."""
        while self._waiting:
            turn, byte_count = next(iter(self._waiting.items()))
            if not turn.cancelled():
                if not self._fits(byte_count):
                    return
                self.bytes_held += byte_count
                turn.set_result(None)
            del self._waiting[turn]

    def _fits(self, byte_count: int) -> bool:
        # A read larger than the budget runs alone: else it would never run.
        return self.bytes_held == 0 or self.bytes_held + byte_count <= self.bytes_max
