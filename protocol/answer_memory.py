"""The memory of answers that their peers do not read, over all connections: what a fetch may answer, and who is ended.

Rule: no request waits for this memory. As it fills up, fetches answer less, down to one batch, so a client that reads
is always served. Beyond the budget the connections are closed whose answers were unread for longest. Kafka has no such
bound.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

from protocol.limits import (
    ANSWER_BYTES_MIN,
    ANSWER_BYTES_UNREAD_MAX,
    ANSWER_SHARE_OF_ROOM_MAX,
    ANSWERS_KEPT_SHARE,
)

Holder = TypeVar("Holder", bound=Hashable)


class AnswerMemory(Generic[Holder]):
    """Counts what each holder has unread. They are in the order in which they ceased to read."""

    __slots__ = ("_bytes_max", "_unread", "unread_bytes")

    def __init__(self, *, bytes_max: int = ANSWER_BYTES_UNREAD_MAX) -> None:
        self._bytes_max = bytes_max
        self._unread: dict[Holder, int] = {}
        self.unread_bytes = 0

    def keep(self, holder: Holder, byte_count: int) -> None:
        """`holder` has so many bytes unread now."""
        self.unread_bytes += byte_count - self._unread.get(holder, 0)
        self._unread[holder] = byte_count

    def forget(self, holder: Holder) -> None:
        """`holder` has read almost everything, or is gone."""
        self.unread_bytes -= self._unread.pop(holder, 0)

    def room(self) -> int:
        """How many bytes of records a fetch may answer now."""
        return max(ANSWER_BYTES_MIN, int((self._bytes_max - self.unread_bytes) * ANSWER_SHARE_OF_ROOM_MAX))

    @property
    def is_tight(self) -> bool:
        """Whether more than half of it is taken: fetches answer clearly less than they might."""
        return self.unread_bytes * 2 > self._bytes_max

    @property
    def is_over(self) -> bool:
        return self.unread_bytes > self._bytes_max

    def holders(self) -> list[Holder]:
        return list(self._unread)

    def slowest(self) -> list[Holder]:
        """Who has to go once the budget is exceeded: the oldest, until ANSWERS_KEPT_SHARE of it is left unread."""
        holders: list[Holder] = []
        if not self.is_over:
            return holders
        excess_bytes = self.unread_bytes - int(self._bytes_max * ANSWERS_KEPT_SHARE)
        for holder, byte_count in self._unread.items():
            if excess_bytes <= 0:
                break
            holders.append(holder)
            excess_bytes -= byte_count
        return holders
