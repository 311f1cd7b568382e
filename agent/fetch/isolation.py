"""Isolation levels: up to which offset a consumer reads a partition, and which transactions it sees as aborted.

Rule: pure. The aborted transactions that an answer lists are those of the state in which its chunks were planned: an
aborted record whose transaction is not listed would be taken for a committed one, and one that is listed without its
marker would make the reader drop what its producer committed later (safety rule S5). So where a later plan of the same
answer finds others listed for what is read already, because a marker went into the archive meanwhile, the answer ends.

Source: org.apache.kafka.storage.internals.log.{UnifiedLog.read,LocalLog.addAbortedTransactions} (Kafka 4.3).
"""

from dataclasses import dataclass

from coordinator.state.state import PartitionState
from protocol.types import Offset
from txn.isolation import AbortedRange, IsolationLevel


def visible_end(partition: PartitionState, isolation: IsolationLevel) -> Offset:
    """The offset at which its consumers wait: the last stable offset, or the high watermark."""
    if partition.transactions is None or isolation is IsolationLevel.READ_UNCOMMITTED:
        return partition.log_end
    return partition.last_stable


@dataclass(slots=True)
class AbortedTransactions:
    """The isolation of one answer from `offset_first` on, while its chunks are planned."""

    offset_first: Offset
    _planned: list[AbortedRange] | None = None

    def plan(self, partition: PartitionState, offset: int, offset_end: int) -> bool:
        """Chunks up to `offset_end` are about to be read, as the state has them now; up to `offset` everything is read.

        Returns whether they may be told together with that.
        """
        now = list[AbortedRange]()
        if partition.transactions is not None:
            now = partition.transactions.aborted_between(self.offset_first, Offset(offset_end))
        if self._planned is not None and _before(offset, now) != _before(offset, self._planned):
            return False
        self._planned = now
        return True

    def listed(self, offset_end: int) -> list[AbortedRange]:
        """The aborted transactions of the answer, which ends at `offset_end`."""
        return _before(offset_end, self._planned or [])


def _before(offset_end: int, ranges: list[AbortedRange]) -> list[AbortedRange]:
    return [each for each in ranges if each.offset_first < offset_end]
