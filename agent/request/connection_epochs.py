"""The epoch of each accepted connection, which orders the connections of a V1 client (safety rule S7).

An epoch is the ledger's position behind a barrier that began when the connection was accepted, and a serial that rises
with every connection of this agent. One barrier serves all connections that were accepted before it began. A late
position would rank its connection too high, above a newer one that the client uses by then. Such a connection gets no
epoch, and a request that needs one closes it.
"""

import asyncio

from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from coordinator.commands.transaction import ConnectionEpoch
from coordinator.ledger.port import LedgerUnavailable
from protocol.limits import CONNECTION_EPOCH_SECONDS_MAX
from protocol.types import Position


class PendingConnectionEpoch:
    """The epoch of one connection: known soon after it was accepted, or never."""

    __slots__ = ("_accepted_s", "_position", "_serial")

    def __init__(self, *, serial: int, accepted_s: float, position: asyncio.Future[Position | None]) -> None:
        self._serial = serial
        self._accepted_s = accepted_s
        self._position = position

    def settle(self, position: Position | None, now_s: float) -> None:
        """Sets the position of the barrier, None where that failed. A position that comes too late counts as None."""
        is_in_time = now_s - self._accepted_s <= CONNECTION_EPOCH_SECONDS_MAX
        self._position.set_result(position if is_in_time else None)

    async def known(self, clock: Clock) -> ConnectionEpoch | None:
        """The epoch; None where the connection cannot get one: the caller closes it."""
        if not self._position.done():
            try:
                async with clock.timeout(CONNECTION_EPOCH_SECONDS_MAX):
                    await asyncio.shield(self._position)
            except TimeoutError:
                return None
        position = self._position.result()
        return None if position is None else ConnectionEpoch(position=position, serial=self._serial)


class ConnectionEpochs:
    """Gives epochs to the connections of one agent."""

    def __init__(self, *, ledger: LedgerClient, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._serial_next = 0
        self._waiting: list[PendingConnectionEpoch] = []
        self._has_waiting = asyncio.Event()

    def accepted(self) -> PendingConnectionEpoch:
        """The epoch of a connection that is accepted now."""
        epoch = PendingConnectionEpoch(
            serial=self._serial_next,
            accepted_s=self._clock.monotonic_s(),
            position=asyncio.get_running_loop().create_future(),
        )
        self._serial_next += 1
        self._waiting.append(epoch)
        self._has_waiting.set()
        return epoch

    async def run(self) -> None:
        """Takes a barrier for the accepted connections, again and again. Never returns."""
        while True:
            await self._has_waiting.wait()
            self._has_waiting.clear()
            waiting, self._waiting = self._waiting, []
            position = await self._position()
            now_s = self._clock.monotonic_s()
            for epoch in waiting:
                epoch.settle(position, now_s)

    async def _position(self) -> Position | None:
        try:
            async with self._clock.timeout(CONNECTION_EPOCH_SECONDS_MAX):
                return await self._ledger.barrier()
        except (LedgerUnavailable, TimeoutError):
            return None
