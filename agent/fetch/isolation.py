"""Isolation levels: the offset up to which a consumer reads a partition, and the transactions it sees as aborted. Pure.

Source: org.apache.kafka.storage.internals.log.{UnifiedLog.read,LocalLog.addAbortedTransactions} (Kafka 4.3).
"""

from dataclasses import dataclass

from coordinator.state.state import PartitionState
from protocol.types import Offset
from txn.isolation import AbortedRange, IsolationLevel


def visible_end(partition: PartitionState, isolation: IsolationLevel) -> Offset:
    """The end of the records that consumers see: the last stable offset, or the high watermark."""
    if partition.transactions is None or isolation is IsolationLevel.READ_UNCOMMITTED:
        return partition.log_end
    return partition.last_stable


@dataclass(slots=True)
class AbortedTransactions:
    """The aborted transactions that one answer lists, from `offset_first` on, while its chunks are planned."""

    offset_first: Offset
    _planned: list[AbortedRange] | None = None

    def plan(self, partition: PartitionState, offset: int, offset_end: int) -> bool:
        """Take the aborted transactions of the state now for chunks in `[offset, offset_end)`, which are read next.

        Returns False where the answer has to end at `offset`.
        """
        now = list[AbortedRange]()
        if partition.transactions is not None:
            now = partition.transactions.aborted_between(self.offset_first, Offset(offset_end))
        # The list has to be that of the state in which the chunks were planned (S5). A consumer takes an aborted record
        # for a committed one where the transaction is not listed; where it is listed without its marker, the consumer
        # drops what the producer committed later. The archive may have replaced a marker since the plan before.
        if self._planned is not None and _before(offset, now) != _before(offset, self._planned):
            return False
        self._planned = now
        return True

    def listed(self, offset_end: int) -> list[AbortedRange]:
        """The aborted transactions of the answer, which ends at `offset_end`."""
        return _before(offset_end, self._planned or [])


def _before(offset_end: int, ranges: list[AbortedRange]) -> list[AbortedRange]:
    return [each for each in ranges if each.offset_first < offset_end]
