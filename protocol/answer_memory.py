"""The memory of answers that their peers have not read, over all connections.

No request waits for this memory. As it fills up, fetches answer less, down to one batch, so a client that reads is
always served. Beyond the budget the connections are closed whose answers were unread for longest. Nothing here closes
a connection or knows one: `agent.server.connection_table` does.

Differs from Kafka: a broker there has no such bound.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

from protocol.limits import (
    ANSWER_BYTES_MIN,
    ANSWER_BYTES_UNREAD_MAX,
    ANSWER_RATIO_OF_FREE_MAX,
    ANSWERS_UNREAD_RATIO_KEPT,
)

Holder = TypeVar("Holder", bound=Hashable)


class AnswerMemory(Generic[Holder]):
    """Counts the bytes of answers that each holder, a connection, has not read."""

    __slots__ = ("_bytes_max", "_unread", "unread_bytes")

    def __init__(self, *, bytes_max: int = ANSWER_BYTES_UNREAD_MAX) -> None:
        self._bytes_max = bytes_max
        self._unread: dict[Holder, int] = {}
        """In the order in which the holders stopped reading: a new count leaves a holder where it is."""
        self.unread_bytes = 0
        """The sum over all holders."""

    def set_unread(self, holder: Holder, byte_count: int) -> None:
        """Replace the count of `holder`, which has `byte_count` bytes unread now."""
        self.unread_bytes += byte_count - self._unread.get(holder, 0)
        self._unread[holder] = byte_count

    def forget(self, holder: Holder) -> None:
        """Drop the count of `holder`, if it has one: it has read almost everything, or is closed."""
        self.unread_bytes -= self._unread.pop(holder, 0)

    def capacity_bytes(self) -> int:
        """The bytes of records that one fetch may answer now."""
        # A part of what is free, as other fetches may answer before this one is counted.
        return max(ANSWER_BYTES_MIN, int((self._bytes_max - self.unread_bytes) * ANSWER_RATIO_OF_FREE_MAX))

    @property
    def is_tight(self) -> bool:
        """Whether more than half of the budget is unread: peers that do not read then cost the others answers."""
        return self.unread_bytes * 2 > self._bytes_max

    @property
    def is_over(self) -> bool:
        """Whether more than the budget is unread: `slowest` are to be closed."""
        return self.unread_bytes > self._bytes_max

    def holders(self) -> list[Holder]:
        """The holders with a count, the one that stopped reading first in front."""
        return list(self._unread)

    def slowest(self) -> list[Holder]:
        """The holders to close, the first in `holders`; none within the budget.

        Without them at most ANSWERS_UNREAD_RATIO_KEPT of the budget is unread, so that the next answer does not exceed
        it again.
        """
        holders: list[Holder] = []
        if not self.is_over:
            return holders
        excess_bytes = self.unread_bytes - int(self._bytes_max * ANSWERS_UNREAD_RATIO_KEPT)
        for holder, byte_count in self._unread.items():
            if excess_bytes <= 0:
                break
            holders.append(holder)
            excess_bytes -= byte_count
        return holders
