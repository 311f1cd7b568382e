"""The open connections of an agent, and the memory that they share.

The table registers connections, wakes those that waited for memory, and ends those that leave too many answers unread.
Memory for requests and memory for unread answers have one bound each for all connections. A request beyond the first
waits (`protocol.request_memory`). The second makes fetches answer less, and ends the connections that have left their
answers unread for longest (`protocol.answer_memory`).

The module imports no connection class: `OpenConnection` says what the table, the sweep and the server need of one.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Hashable
from itertools import islice
from typing import Protocol

from agent.runtime.metrics import Metrics
from agent.security.connections.fair_places import FairPlaces, Stranger
from agent.server.login_turns import LoginTurns
from agent.server.unauthenticated_memory import UnauthenticatedMemory
from protocol.answer_memory import AnswerMemory
from protocol.limits import (
    ANSWER_BYTES_UNREAD_MAX,
    CONNECTIONS_MAX,
    RECEIVE_BUFFERS_BYTES_MAX,
    RECEIVE_BUFFERS_CHECKED_MAX,
    RECEIVE_STALLED_SECONDS_MAX,
    REQUEST_BYTES_QUEUED_MAX,
    UNAUTHENTICATED_CONNECTIONS_MAX,
)
from protocol.request_memory import RequestMemory

log = logging.getLogger(__name__)


class OpenConnection(Hashable, Protocol):
    """One client's connection, as the table, `agent.server.slow_clients` and `agent.server.kafka_server` see it."""

    listener: str
    peer: str
    """The client's address, `host:port`."""
    used_s: float
    """The monotonic time of the newest progress: a whole request, or bytes of one."""

    def regulate_reading(self) -> None:
        """Read the socket or pause it, by the memory that is free now."""
        ...

    def hurry(self) -> None:
        """End the wait of the fetch that is being served: other connections need the memory behind it."""
        ...

    def leave_buffer(self) -> bool:
        """Return a lent receive buffer, unless a request is arriving in it; True where it was returned."""
        ...

    def stop_reading(self) -> None:
        """Drop the queued requests, and read none any more."""
        ...

    def close(self) -> None:
        """Close once the written answers are sent."""
        ...

    def abort(self) -> None:
        """Close at once; unsent bytes are dropped."""
        ...

    def stalled_s(self, now_s: float) -> float:
        """Seconds since the request that is arriving last made progress; 0 where none is arriving."""
        ...

    @property
    def arrived_bytes(self) -> int:
        """Bytes received of the request that is arriving."""
        ...

    @property
    def progress_bytes_min(self) -> int:
        """Bytes that have to arrive between two sweeps while other connections wait for memory."""
        ...

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that the kernel has not taken."""
        ...

    @property
    def unread_s(self) -> float:
        """Seconds since the peer stopped reading its answers, or since the connection began to close."""
        ...

    @property
    def blocking_s(self) -> float:
        """Seconds for which queued requests have kept memory that other connections need."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether no request is queued or served, and no answer is unsent."""
        ...

    @property
    def is_owed_answer(self) -> bool:
        """Whether a request other than a fetch is being served, or its answer is unsent."""
        ...


class UnauthenticatedConnection(Stranger, Protocol):
    """A connection whose client has not authenticated, as the table and the server see it."""

    listener: str

    def memory_granted(self) -> None:
        """Receive the frame whose memory was asked for."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...


class ConnectionTable:
    """The open connections. Not thread-safe: all methods run on the event loop."""

    def __init__(
        self,
        *,
        metrics: Metrics,
        strangers: FairPlaces | None = None,
        request_bytes_max: int = REQUEST_BYTES_QUEUED_MAX,
        receive_bytes_max: int = RECEIVE_BUFFERS_BYTES_MAX,
        answer_bytes_max: int = ANSWER_BYTES_UNREAD_MAX,
    ) -> None:
        """`strangers`: the places of all connections whose clients are not known yet; None for places of its own."""
        self._metrics = metrics
        self._strangers = strangers or FairPlaces(UNAUTHENTICATED_CONNECTIONS_MAX)
        self._strangers.room = lambda: CONNECTIONS_MAX - len(self.connections)
        self.is_draining = False
        """Once true, no connection is registered and no request is taken up any more."""
        self.memory: RequestMemory[OpenConnection] = RequestMemory(
            bytes_max=request_bytes_max, lent_bytes_max=receive_bytes_max
        )
        self.answers: AnswerMemory[OpenConnection] = AnswerMemory(bytes_max=answer_bytes_max)
        self.receiving: dict[OpenConnection, int] = {}
        """Connections on which a large request arrives; the value is how many bytes of it the last sweep saw."""
        self.behind_fetch: set[OpenConnection] = set()
        """Connections whose requests keep memory behind a fetch that was not hurried yet."""
        self.roomy: dict[OpenConnection, None] = {}
        """Connections with a lent receive buffer; the first one was checked the longest time ago."""
        self.paused: set[OpenConnection] = set()
        """Connections whose sockets are not read for now."""
        self.connections: set[OpenConnection] = set()
        self._counts: Counter[str] = Counter()
        """The connections by listener."""
        self.unauthenticated: set[UnauthenticatedConnection] = set()
        """Connections whose clients have to authenticate first. They are not among `connections`, and have places."""
        self.unauthenticated_memory = UnauthenticatedMemory()
        self.login_turns = LoginTurns()
        self._is_waking = False

    def register(self, connection: OpenConnection, *, is_new: bool = True) -> bool:
        """Count a connection in; False where CONNECTIONS_MAX are open or the agent is draining.

        It is not new where it was registered as unauthenticated before.
        """
        # A stranger that is known now had a place, and has just left it, or is about to.
        count = len(self.connections) + (self._strangers.count if is_new else 0)
        if count >= CONNECTIONS_MAX or self.is_draining:
            return False
        self.connections.add(connection)
        self._counts[connection.listener] += 1
        if is_new:
            self._metrics.connections_accepted.labels(connection.listener).inc()
        self._metrics.connections.labels(connection.listener).inc()
        return True

    def count_of(self, listener: str) -> int:
        """The open connections of a listener whose clients are known."""
        return self._counts[listener]

    def register_unauthenticated(self, connection: UnauthenticatedConnection) -> bool:
        """Count in a connection whose client has to authenticate first; False where too many are open."""
        if self.is_draining or not self._strangers.take(connection):
            return False
        self.unauthenticated.add(connection)
        self._metrics.connections_accepted.labels(connection.listener).inc()
        return True

    def unregister_unauthenticated(self, connection: UnauthenticatedConnection) -> None:
        """Forget a connection that is closed, or whose client has authenticated."""
        self.unauthenticated.discard(connection)
        self._strangers.leave(connection)
        self.unauthenticated_memory.forget(connection)

    def unregister(self, connection: OpenConnection) -> None:
        """Forget a connection that is closed, registered or not."""
        self.answers.forget(connection)
        self.behind_fetch.discard(connection)
        self.memory.forget(connection)
        if connection in self.connections:
            self.connections.remove(connection)
            self._counts[connection.listener] -= 1
            self._metrics.connections.labels(connection.listener).dec()

    def wake_soon(self) -> None:
        """Read again from connections that waited for memory, in the loop's next turn: memory was returned."""
        # One wake for all memory that is returned in a turn: each walks over every paused connection.
        if not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._is_waking = False
        memory = self.memory
        for connection in memory.claimants():
            connection.regulate_reading()
        if not memory.is_full:
            for connection in [connection for connection in self.paused if not memory.is_waiting(connection)]:
                connection.regulate_reading()
        memory.settle()

    def hurry_fetches(self) -> None:
        """End the waits of fetches with requests queued behind them: a connection waits for that memory."""
        while self.behind_fetch:
            self.behind_fetch.pop().hurry()

    def lend_buffer(self, connection: OpenConnection) -> bool:
        """Whether the connection may receive into a large buffer; an unused one of another connection is taken."""
        if not self.memory.lend_buffer():
            for other in list(islice(self.roomy, RECEIVE_BUFFERS_CHECKED_MAX)):
                del self.roomy[other]
                if other.leave_buffer():
                    break
                self.roomy[other] = None
            else:
                return False
        self.roomy[connection] = None
        return True

    def take_back_buffer(self, connection: OpenConnection) -> None:
        """Return the connection's lent buffer to the budget, where it has one and no request arrives in it."""
        if connection in self.roomy and connection.leave_buffer():
            del self.roomy[connection]
            self.memory.return_buffer()

    def take_back_unused_buffers(self, now_s: float) -> None:
        """Take back the buffers of connections without progress for RECEIVE_STALLED_SECONDS_MAX."""
        for connection in list(self.roomy):
            if now_s - connection.used_s >= RECEIVE_STALLED_SECONDS_MAX:
                self.take_back_buffer(connection)

    def keep_unread(self, connection: OpenConnection) -> None:
        """Count the bytes that a peer has not read. Beyond the bound, end the connections that are unread longest."""
        answers = self.answers
        answers.set_unread(connection, connection.unread_bytes)
        if not answers.is_over:
            return
        # The other counts are from when their peers stopped reading: peers may have read a part since.
        for holder in answers.holders():
            answers.set_unread(holder, holder.unread_bytes)
        for slow in answers.slowest():
            self.end_slow(slow, "does not read its answers while other connections need their memory")
            answers.forget(slow)

    def end_slow(self, connection: OpenConnection, reason: str, *, is_counted: bool = True) -> None:
        """End a connection at once and log it. It is counted where it is ended for the sake of other connections."""
        log.warning(
            "closed a connection that %s",
            reason,
            extra={"peer": connection.peer, "arrived_bytes": connection.arrived_bytes},
        )
        if is_counted:
            self._metrics.connections_closed.labels("stalled").inc()
        connection.abort()
