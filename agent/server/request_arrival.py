"""How a request that has begun to arrive goes on arriving: the progress by which slow senders are told from dead ones.

Rule: pure decisions on the times that are given; a request that grows by RECEIVE_PROGRESS_BYTES_MIN, or ends, between
two looks has made progress, whatever its size. Kafka has connections.max.idle.ms alone: a byte now and then is enough.
"""

from protocol.limits import RECEIVE_PROGRESS_BYTES_MIN


class RequestArrival:
    """The request that is arriving on one connection, as it was when it last made progress."""

    __slots__ = ("_arrived_bytes", "_number", "_since_s")

    def __init__(self) -> None:
        self._number: int | None = None
        self._arrived_bytes = 0
        self._since_s = 0.0

    def stalled_s(self, number: int, arrived_bytes: int, now_s: float) -> float:
        """For how long the request has made no progress; 0 where it has since the last look.

        Args:
            number: of the request on its connection.
            arrived_bytes: of it; 0 where none has begun.
            now_s: a monotonic clock's time.
        """
        if not arrived_bytes:
            self.forget()
            return 0.0
        if number == self._number and arrived_bytes - self._arrived_bytes < RECEIVE_PROGRESS_BYTES_MIN:
            return now_s - self._since_s
        self._number, self._arrived_bytes, self._since_s = number, arrived_bytes, now_s
        return 0.0

    def forget(self) -> None:
        """Begin again: nothing arrives, or the agent does not read, for which the client is not to blame."""
        self._number = None
