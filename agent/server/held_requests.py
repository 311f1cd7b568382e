"""The requests of one connection that wait to be taken up, and the memory that the connection's requests hold.

In: frames as they arrive. Out: what counts into the memory of all connections (`protocol.request_memory`). A request
counts from its arrival until it was served, a large one from the moment its size is known.
"""

from collections import deque
from collections.abc import Sequence

from agent.server.connection_table import ConnectionTable, OpenConnection
from protocol.connection import RequestFrame
from protocol.limits import (
    RECEIVE_PROGRESS_BYTES_MIN,
    REQUEST_BYTES_QUEUED_PER_CONNECTION_MAX,
    REQUESTS_QUEUED_MAX,
)


class HeldRequests:
    """The queue of one connection."""

    __slots__ = ("_arrived_s", "_connection", "_memory", "_table", "claimed_bytes", "counted_bytes", "frames")

    def __init__(self, connection: OpenConnection, table: ConnectionTable) -> None:
        self._connection = connection
        self._table = table
        self._memory = table.memory
        self.frames: deque[RequestFrame] = deque()
        """The requests that were not taken up yet."""
        self._arrived_s: deque[float] = deque()
        """When each of them was complete."""
        self.counted_bytes = 0
        """Bytes of this connection's requests that the memory of all connections counts."""
        self.claimed_bytes = 0
        """The size of the large request that is arriving, of which `counted_bytes` counts all."""

    @property
    def may_grow(self) -> bool:
        """Whether another request may be read.

        A connection without queued requests reads one, however full the memory is, so that none starves. Differs from
        Kafka: while its memory is full (queued.max.request.bytes), no connection's request is read.
        """
        frames = self.frames
        return not frames or not (
            len(frames) >= REQUESTS_QUEUED_MAX
            or self._memory.is_full
            or self.counted_bytes >= REQUEST_BYTES_QUEUED_PER_CONNECTION_MAX
        )

    def add(self, frames: Sequence[RequestFrame], now_s: float) -> None:
        """Queue whole requests that have arrived."""
        self.frames.extend(frames)
        self._arrived_s.extend([now_s] * len(frames))
        more_bytes = len(frames[0].body) if len(frames) == 1 else sum(len(frame.body) for frame in frames)
        if self.claimed_bytes:
            more_bytes -= self.claimed_bytes  # counted since the claim
            self.claimed_bytes = 0
            del self._table.receiving[self._connection]
        self.count(more_bytes)

    def take_next(self) -> tuple[RequestFrame, float]:
        """The oldest request, which leaves the queue, and when it was complete. Its memory stays counted."""
        return self.frames.popleft(), self._arrived_s.popleft()

    def claim(self, frame_bytes: int, *, is_next: bool) -> bool:
        """Claim the memory of a large request before its body is read; False: it waits.

        `is_next`: nothing stands before the request, so it may use the reserve: it is taken up once it has arrived.
        """
        memory, table, connection = self._memory, self._table, self._connection
        is_granted = memory.claim(connection, frame_bytes, may_use_reserve=is_next)
        if is_granted:
            self.claimed_bytes = frame_bytes
            self.counted_bytes += frame_bytes
            # The first sweep may come before any byte: against this number it always sees enough progress.
            table.receiving[connection] = -max(frame_bytes, RECEIVE_PROGRESS_BYTES_MIN)
        if memory.is_contended:
            table.hurry_fetches()
        return is_granted

    def count(self, more_bytes: int) -> None:
        """Count bytes of requests into the memory of all connections, or, negative, out of it."""
        self.counted_bytes += more_bytes
        memory = self._memory
        memory.count(more_bytes)
        if more_bytes < 0 and memory.is_contended:
            if not self.counted_bytes:
                memory.leave_reserve(self._connection)
            self._table.wake_soon()

    def drop_queued(self) -> None:
        """Forget the queued requests: nothing of them was accepted, and clients repeat them."""
        dropped_bytes = sum(len(frame.body) for frame in self.frames)
        self.frames.clear()
        self._arrived_s.clear()
        self.count(-dropped_bytes)

    def give_up(self) -> None:
        """Return all memory but that of the request that is being served, and claim no more."""
        self.drop_queued()
        claimed_bytes, self.claimed_bytes = self.claimed_bytes, 0
        table, connection = self._table, self._connection
        table.receiving.pop(connection, None)
        table.paused.discard(connection)
        self._memory.stop_waiting(connection)
        self.count(-claimed_bytes)
