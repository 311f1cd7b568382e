"""The memory for frames of clients that have not authenticated, apart from that of all others: strangers never make a
client wait. A frame beyond the bound waits for its turn, for as long as its client may take to authenticate.
"""

from typing import Protocol

from protocol.limits import UNAUTHENTICATED_BYTES_MAX


class MemoryHolder(Protocol):
    """A connection that receives a frame."""

    def memory_granted(self) -> None:
        """The memory that it waited for is its own."""
        ...


class UnauthenticatedMemory:
    """The bytes that all such connections hold and wait for."""

    def __init__(self, bytes_max: int = UNAUTHENTICATED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._held: dict[MemoryHolder, int] = {}
        self._waiting: dict[MemoryHolder, int] = {}
        """The bytes that each waits for; the first one waits longest."""
        self.used_bytes = 0

    @property
    def waiting_count(self) -> int:
        """Connections that wait for memory."""
        return len(self._waiting)

    def claim(self, holder: MemoryHolder, count: int) -> bool:
        """Give the bytes of a frame to a connection that holds none; False where it has to wait."""
        assert holder not in self._held, "one frame at a time"
        if self._waiting or self.used_bytes + count > self._bytes_max:
            self._waiting[holder] = count
            return False
        self._held[holder] = count
        self.used_bytes += count
        return True

    def forget(self, holder: MemoryHolder) -> None:
        """Take back what a connection holds, and what it waits for."""
        self._waiting.pop(holder, None)
        self.used_bytes -= self._held.pop(holder, 0)
        while self._waiting:
            first, count = next(iter(self._waiting.items()))
            if self.used_bytes + count > self._bytes_max:
                return
            del self._waiting[first]
            self._held[first] = count
            self.used_bytes += count
            first.memory_granted()
