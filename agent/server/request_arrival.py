"""The progress of a request that is arriving: it separates a slow sender from one that has stopped.

Pure: times come in as arguments. A request makes progress where it grows by RECEIVE_PROGRESS_BYTES_MIN between two
checks, or ends, whatever its size. Differs from Kafka: for connections.max.idle.ms a byte now and then is enough.
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
        """Seconds for which the request has made no progress; 0 where it has made some since the last check.

        Args:
            number: the request's number on its connection.
            arrived_bytes: the bytes of it that arrived; 0 where no request has begun.
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
        """Start from zero: no request arrives, or the agent has paused the socket, for which no client is to blame."""
        self._number = None
