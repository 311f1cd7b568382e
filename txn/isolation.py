"""Where a partition's log is decided: its open transactions, and the ranges of its aborted ones.

Rule: the caller reports what happens, in order of offsets; nothing here judges. Open transactions are a dict in the
order of their first offsets. Aborted ranges are four columns in the order of their markers: a reader of a part of the
log finds its first range by binary search, and stops where Kafka's index does.

Source: org.apache.kafka.storage.internals.log.{ProducerStateManager,TransactionIndex,AbortedTxn} (Kafka 4.3), KIP-98.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from protocol.types import Offset, ProducerId


class IsolationLevel(IntEnum):
    """The isolation level of a consumer: org.apache.kafka.common.IsolationLevel."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class AbortedRange(NamedTuple):
    """A transaction that was aborted, as Fetch lists it: a reader drops the producer's transactional records from
    `offset_first` on, until it meets the producer's abort marker."""

    producer_id: ProducerId
    offset_first: Offset


class AbortedExtent(NamedTuple):
    """The same with its end: what the producer wrote in `[offset_first, marker)` as part of a transaction is void."""

    producer_id: ProducerId
    offset_first: Offset
    marker: Offset


class AbortedBatches:
    """Which batches of a part of the log, whose transactions are all decided, belong to aborted ones."""

    __slots__ = ("_of_producer",)

    def __init__(self, extents: Iterable[AbortedExtent] = ()) -> None:
        """`extents`: every one that reaches into the part, in the order of their markers."""
        self._of_producer: dict[int, tuple[list[int], list[int]]] = {}
        for extent in extents:
            firsts, markers = self._of_producer.setdefault(extent.producer_id, ([], []))
            firsts.append(extent.offset_first)
            markers.append(extent.marker)

    def holds(self, producer_id: int, offset: int) -> bool:
        """Whether the producer's transactional batch at `offset` is void."""
        aborted = self._of_producer.get(producer_id)
        if aborted is None:
            return False
        firsts, markers = aborted
        row = bisect_right(firsts, offset) - 1
        return row >= 0 and offset < markers[row]


NOTHING_ABORTED: Final = AbortedBatches()

COLUMNS: Final = ("marker", "producer_id", "offset_first", "last_stable")
"""Columns of the aborted ranges: int64 each. `last_stable` is the last stable offset as it was behind the marker."""


class _Aborted(NamedTuple):
    """The columns of aborted ranges, in the order of `COLUMNS`."""

    marker: "array[int]"
    producer_id: "array[int]"
    offset_first: "array[int]"
    last_stable: "array[int]"


def _no_rows() -> _Aborted:
    return _Aborted(array("q"), array("q"), array("q"), array("q"))


_NONE_ABORTED: Final = _no_rows()
"""The value of each partition in which nothing was aborted, for most transactions commit: never added to."""


class PartitionTransactions:
    """The transactions of one partition. Two are equal where they answer alike."""

    __slots__ = ("_aborted", "open")

    def __init__(self) -> None:
        self.open: dict[ProducerId, Offset] = {}
        """The offset of each producer's first batch in the transaction that it has open here, the lowest first."""
        self._aborted = _NONE_ABORTED

    @classmethod
    def from_columns(
        cls, open_transactions: Mapping[ProducerId, Offset], columns: Sequence[bytes | memoryview]
    ) -> "PartitionTransactions":
        """Restores a partition's transactions from first offsets by producer, in any order, and what `columns` gave.

        Raises `ValueError` where the columns do not fit each other.
        """
        transactions = cls()
        transactions.open.update(sorted(open_transactions.items(), key=lambda one: one[1]))
        aborted = transactions._aborted = _no_rows()
        for column, data in zip(aborted, columns, strict=True):
            column.frombytes(data)
        lengths = [len(column) for column in aborted]
        if len(set(lengths)) != 1:
            raise ValueError(f"the columns of aborted transactions have {lengths} rows")
        for column in (aborted.marker, aborted.last_stable):
            rows = np.frombuffer(column, np.int64)
            if bool(np.any(rows[1:] < rows[:-1])):
                raise ValueError("aborted transactions are not in the order of their markers")
        return transactions

    def columns(self) -> list[bytes]:
        """The aborted ranges, little-endian, in the order of `COLUMNS`."""
        return [column.tobytes() for column in self._aborted]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartitionTransactions):
            return NotImplemented
        return self.open == other.open and self._aborted == other._aborted

    __hash__ = None  # type: ignore[assignment]  # it changes

    @property
    def aborted_count(self) -> int:
        """How many aborted ranges are remembered."""
        return len(self._aborted.marker)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is remembered: as good as no transaction ever."""
        return not self.open and not self._aborted.marker

    def last_stable_offset(self, log_start: Offset, log_end: Offset) -> Offset:
        """Where a read_committed fetch ends: the first offset of an open transaction, or the high watermark.

        Never below `log_start`, where DeleteRecords cut an open transaction.
        """
        for first in self.open.values():
            return max(first, log_start)
        return log_end

    def decided_end(self, log_end: Offset) -> Offset:
        """Before it every transaction is decided. Below the last stable offset only where DeleteRecords cut an open
        one: what it wrote may still be kept for the topic's table."""
        return self.last_stable_offset(Offset(0), log_end)

    def begin(self, producer_id: ProducerId, offset: Offset) -> None:
        """A transactional batch got `offset`: the transaction's first here, unless it is open already."""
        self.open.setdefault(producer_id, offset)

    def end(self, producer_id: ProducerId, marker: Offset, *, is_commit: bool) -> None:
        """The producer's marker got the offset `marker`. Without records it means nothing, and none is remembered."""
        first = self.open.pop(producer_id, None)
        if first is None or is_commit:
            return
        if self._aborted is _NONE_ABORTED:
            self._aborted = _no_rows()
        last_stable = self.last_stable_offset(Offset(0), Offset(marker + 1))
        for column, value in zip(self._aborted, (marker, producer_id, first, last_stable), strict=True):
            column.append(value)

    def aborted_between(self, offset_first: Offset, offset_end: Offset) -> list[AbortedRange]:
        """The aborted transactions that a read_committed fetch of `[offset_first, offset_end)` lists, in the order of
        the markers.

        That is every range that begins before the end and whose marker is not before the first offset. It costs the
        ranges that ended within what was read, and those of the transactions that were open then: where `last_stable`
        has reached `offset_end`, all that comes later begins behind it.
        """
        aborted = self._aborted
        rows = self._rows_between(offset_first, offset_end)
        return [AbortedRange(ProducerId(aborted.producer_id[row]), Offset(aborted.offset_first[row])) for row in rows]

    def aborted_extents(self, offset_first: Offset, offset_end: Offset) -> list[AbortedExtent]:
        """The same with the offsets of their markers."""
        aborted = self._aborted
        return [
            AbortedExtent(
                ProducerId(aborted.producer_id[row]), Offset(aborted.offset_first[row]), Offset(aborted.marker[row])
            )
            for row in self._rows_between(offset_first, offset_end)
        ]

    def _rows_between(self, offset_first: Offset, offset_end: Offset) -> list[int]:
        aborted = self._aborted
        row_first = bisect_left(aborted.marker, offset_first)
        row_end = bisect_left(aborted.last_stable, offset_end, lo=row_first) + 1
        firsts = np.frombuffer(aborted.offset_first, np.int64)[row_first:row_end]
        rows: list[int] = (np.flatnonzero(firsts < offset_end) + row_first).tolist()
        return rows

    def forget_markers(self, offset_first: Offset, offset_end: Offset) -> None:
        """The markers in `[offset_first, offset_end)` are no longer served, so their ranges are listed no more: a
        reader that waits for such a marker would drop what the producer committed later (safety rule S5)."""
        marker = self._aborted.marker
        row_first, row_end = bisect_left(marker, offset_first), bisect_left(marker, offset_end)
        if row_first < row_end:
            for column in self._aborted:
                del column[row_first:row_end]
