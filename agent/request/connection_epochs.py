"""The epoch of each accepted connection, which orders the connections of a V1 client (safety rule S7).

An epoch is the ledger's position behind a barrier that began when the connection was accepted, and a serial that rises
with every connection of this agent. One barrier serves all connections that were accepted before it began. A late
position would rank its connection too high, above a newer one that the client uses by then. Such a connection gets no
epoch, and a request that needs one closes it.

Where agents relay requests of groups, one coordinator proposes for connections of several agents. Serials of different
agents cannot be compared, so `RelayedEpochs` ranks such connections by position.
"""

import asyncio
from heapq import heappop, heappush
from typing import Final, Protocol

from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from coordinator.commands.transaction import ConnectionEpoch
from coordinator.ledger.port import LedgerUnavailable
from protocol.limits import (
    CONNECTION_EPOCH_SECONDS_MAX,
    CONNECTION_RANK_INDEX_BITS,
    CONNECTION_RANK_POSITION_BITS,
    RELAYED_POSITIONS_MAX,
)
from protocol.relay import ClientEpoch
from protocol.types import Position, SessionId


class RequestEpoch(Protocol):
    """The epoch of the connection on which a request came, to this agent or to the one that relays it."""

    async def known(self, clock: Clock) -> ConnectionEpoch | None:
        """The epoch among the connections of this agent; None where the connection cannot get one: close it."""
        ...

    async def of_client(self, clock: Clock) -> ClientEpoch | None:
        """The same, comparable between agents."""
        ...


class PendingConnectionEpoch:
    """The epoch of one connection: known soon after it was accepted, or never."""

    __slots__ = ("_accepted_s", "_number", "_position", "_serial", "_session")

    def __init__(
        self, *, session: SessionId, serial: int, accepted_s: float, position: asyncio.Future[Position | None]
    ) -> None:
        self._session = session
        self._serial = serial
        self._number = 0
        self._accepted_s = accepted_s
        self._position = position

    def settle(self, position: Position | None, now_s: float, number: int = 0) -> None:
        """Sets the position of the barrier, None where that failed. A position that comes too late counts as None.

        `number` is the connection's number at that position.
        """
        self._number = number
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

    async def of_client(self, clock: Clock) -> ClientEpoch | None:
        """The same, comparable between agents."""
        epoch = await self.known(clock)
        return None if epoch is None else ClientEpoch(self._session, epoch.position, self._number)


_NOT_OF_THIS_AGENT: Final[ConnectionEpoch | None] = None


class IntroducedEpoch:
    """The epoch of a client's connection to the agent that relays it."""

    __slots__ = ("_epoch",)

    def __init__(self, epoch: ClientEpoch | None) -> None:
        self._epoch = epoch

    async def known(self, clock: Clock) -> ConnectionEpoch | None:
        """None: the connection is another agent's."""
        del clock
        return _NOT_OF_THIS_AGENT

    async def of_client(self, clock: Clock) -> ClientEpoch | None:
        """The epoch that the other agent gave."""
        del clock
        return self._epoch


class RelayedEpochs:
    """Ranks the connections of all agents, for the entries that one coordinator proposes (safety rule S7).

    The rank is the position, and the connection's number at that position among those of its agent. At one position the
    connections of two agents cannot be ordered: those of the agent that comes second get no epoch. The client connects
    again, at a later position, since the first one's entry lies between.
    """

    def __init__(self, *, positions_max: int = RELAYED_POSITIONS_MAX) -> None:
        self._positions_max = positions_max
        self._sessions: dict[Position, SessionId] = {}
        """The session whose connections came first, by position."""
        self._positions: list[Position] = []
        """The same positions, as a heap."""
        self._position_min = Position(0)
        """Below it nothing is known any more."""

    def rank(self, epoch: ClientEpoch) -> ConnectionEpoch | None:
        """The epoch for an entry; None where the connection cannot get one."""
        position = epoch.position
        is_beyond = position >> CONNECTION_RANK_POSITION_BITS or epoch.number >> CONNECTION_RANK_INDEX_BITS
        if is_beyond or position < self._position_min:
            return None
        if position not in self._sessions:
            self._sessions[position] = epoch.session
            heappush(self._positions, position)
            if len(self._positions) > self._positions_max:
                oldest = heappop(self._positions)
                del self._sessions[oldest]
                self._position_min = Position(oldest + 1)
        if self._sessions.get(position) != epoch.session:
            return None
        return ConnectionEpoch(position=position, serial=position << CONNECTION_RANK_INDEX_BITS | epoch.number)


class ConnectionEpochs:
    """Gives epochs to the connections of one agent."""

    def __init__(self, *, ledger: LedgerClient, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._serial_next = 0
        self._position_last: Position | None = None
        self._number_next = 0
        self._waiting: list[PendingConnectionEpoch] = []
        self._has_waiting = asyncio.Event()

    def accepted(self) -> PendingConnectionEpoch:
        """The epoch of a connection that is accepted now."""
        epoch = PendingConnectionEpoch(
            session=self._ledger.session,
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
            if position is not None and position != self._position_last:
                self._position_last, self._number_next = position, 0
            for epoch in waiting:
                epoch.settle(position, now_s, self._number_next)
                self._number_next += 1

    async def _position(self) -> Position | None:
        try:
            async with self._clock.timeout(CONNECTION_EPOCH_SECONDS_MAX):
                return await self._ledger.barrier()
        except (LedgerUnavailable, TimeoutError):
            return None
