"""Lets a few frames of clients that have not authenticated through in each turn of the loop, in the order of the calls.

A thousand clients that connect again at once send a thousand frames at once. Handled in one turn of the loop, these
would keep all other clients waiting for tens of milliseconds.
"""

import asyncio
from collections import deque

from protocol.limits import UNAUTHENTICATED_FRAMES_PER_TURN_MAX


class LoginTurns:
    """The turns of one agent. Not thread-safe: all methods run on the event loop."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._left_count = UNAUTHENTICATED_FRAMES_PER_TURN_MAX
        """The frames that may still be let through in this turn of the loop."""
        self._is_renewed_soon = False

    async def take(self) -> None:
        """Return once a frame may be handled: at once, or in one of the next turns of the loop."""
        loop = asyncio.get_running_loop()
        if not self._is_renewed_soon:
            self._is_renewed_soon = True
            loop.call_soon(self._renew)
        if self._left_count:
            self._left_count -= 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _renew(self) -> None:
        left_count = UNAUTHENTICATED_FRAMES_PER_TURN_MAX
        while self._waiting and left_count:
            turn = self._waiting.popleft()
            if not turn.done():  # its connection may be closed
                turn.set_result(None)
                left_count -= 1
        self._left_count = left_count
        # Whatever was let through is handled in the next turn, and so are those that wait still.
        self._is_renewed_soon = left_count < UNAUTHENTICATED_FRAMES_PER_TURN_MAX
        if self._is_renewed_soon:
            asyncio.get_running_loop().call_soon(self._renew)
