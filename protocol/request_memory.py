"""The memory of requests on their way in, over all connections: who may take a large receive buffer, and who waits.

Rule: a frame that needs a buffer of its own claims all its bytes before that is made, and holds them until the request
has been taken up. So a holder of memory needs no more of it to go on. What else it may wait for is bounded while
others wait: its own bytes have to arrive in step (`bytes_due`), and `agent.server.connection_table` lets no fetch wait,
nor an answer lie unread, that it stands behind. Beyond the budget one frame more is let in, the reserve, which has less
time: what fills the budget may be slow, and large requests get through all the same. Receive buffers of more than a few
KiB are lent (`lend_buffer`) out of a budget of their own, as half a frame keeps its buffer. A connection without one
makes a claim for every frame that does not fit into its first buffer. Source: the idea is Kafka's
queued.max.request.bytes (org.apache.kafka.common.memory.SimpleMemoryPool). Differs from Kafka: frames that fit into a
connection's receive buffer are counted and never wait.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

from protocol.limits import (
    RECEIVE_BUFFER_BYTES,
    RECEIVE_BUFFERS_BYTES_MAX,
    RECEIVE_PROGRESS_BYTES_MIN,
    RECEIVE_SECONDS_MAX,
    RECEIVE_STALLED_SECONDS_MAX,
    REQUEST_BYTES_QUEUED_MAX,
    RESERVE_SECONDS_MAX,
)

Holder = TypeVar("Holder", bound=Hashable)


class RequestMemory(Generic[Holder]):
    """Counts bytes; at most `bytes_max`, small frames and one reserved frame are held at a time."""

    __slots__ = (
        "_bytes_max",
        "_lent_bytes_max",
        "_limit_bytes",
        "_waiting",
        "is_contended",
        "is_full",
        "lent_bytes",
        "reserve_holder",
        "used_bytes",
    )

    def __init__(
        self, *, bytes_max: int = REQUEST_BYTES_QUEUED_MAX, lent_bytes_max: int = RECEIVE_BUFFERS_BYTES_MAX
    ) -> None:
        self._bytes_max = bytes_max
        self._lent_bytes_max = lent_bytes_max
        self.lent_bytes = 0
        """Receive buffers of connections; they are not in `used_bytes`."""
        self._limit_bytes = bytes_max
        """With the reserve, as long as it is taken: it takes nothing from the others."""
        self._waiting: dict[Holder, int] = {}
        self.used_bytes = 0
        self.is_full = False
        self.is_contended = False
        """Whether a connection waits, or did since `settle`: then a release has to wake those that wait."""
        self.reserve_holder: Holder | None = None
        """Whose large frame was let in beyond the budget; until it calls `leave_reserve` there is no second one."""

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def is_waiting(self, holder: Holder) -> bool:
        return holder in self._waiting

    def count(self, more_bytes: int) -> None:
        """Bytes came without a claim, or (negative) are held no longer."""
        self.used_bytes = used_bytes = self.used_bytes + more_bytes
        self.is_full = used_bytes >= self._limit_bytes
        if self.is_full:
            self.is_contended = True

    def claim(self, holder: Holder, frame_bytes: int, *, may_use_reserve: bool) -> bool:
        """Whether the frame has its memory now; if not, `holder` waits, and claims again when it is named.

        Args:
            holder: who receives the frame.
            frame_bytes: the whole frame's.
            may_use_reserve: whether the frame will be taken up as soon as it is there. One that may wait behind others
                would keep the reserve for as long.
        """
        if self.used_bytes + frame_bytes > self._limit_bytes:
            self.is_contended = True
            if self.reserve_holder is not None or not may_use_reserve:
                self._waiting.setdefault(holder, frame_bytes)
                return False
            self.reserve_holder = holder
            self._limit_bytes += frame_bytes
        self.count(frame_bytes)
        self._waiting.pop(holder, None)
        return True

    def lend_buffer(self) -> bool:
        """Whether a connection may have a receive buffer of RECEIVE_BUFFER_BYTES now; no connection waits for one."""
        if self.lent_bytes + RECEIVE_BUFFER_BYTES > self._lent_bytes_max:
            return False
        self.lent_bytes += RECEIVE_BUFFER_BYTES
        return True

    def return_buffer(self) -> None:
        """A lent buffer was left."""
        self.lent_bytes -= RECEIVE_BUFFER_BYTES

    def bytes_due(self, holder: Holder, frame_bytes: int) -> int:
        """By how much the frame that `holder` receives has to grow in RECEIVE_STALLED_SECONDS_MAX while others wait."""
        seconds_max = RESERVE_SECONDS_MAX if self.reserve_holder == holder else RECEIVE_SECONDS_MAX
        return max(RECEIVE_PROGRESS_BYTES_MIN, int(frame_bytes * RECEIVE_STALLED_SECONDS_MAX / seconds_max))

    def leave_reserve(self, holder: Holder) -> None:
        """Nothing of `holder` is held any more."""
        if self.reserve_holder == holder:
            self.reserve_holder = None
            self._limit_bytes = self._bytes_max
            self.count(0)

    def stop_waiting(self, holder: Holder) -> None:
        """`holder` wants no more memory."""
        self._waiting.pop(holder, None)

    def forget(self, holder: Holder) -> None:
        """`holder` is gone and waits no longer."""
        self.stop_waiting(holder)
        self.leave_reserve(holder)

    def settle(self) -> None:
        """Ends the contention, unless memory is full, or a connection still waits for it or uses the reserve."""
        self.is_contended = self.is_full or bool(self._waiting) or self.reserve_holder is not None

    def claimants(self) -> list[Holder]:
        """Who may claim again, the oldest first: those whose frames fit now, all of them while the reserve is free."""
        if self.reserve_holder is None:
            return list(self._waiting)
        free_bytes = self._limit_bytes - self.used_bytes
        return [holder for holder, frame_bytes in self._waiting.items() if frame_bytes <= free_bytes]
