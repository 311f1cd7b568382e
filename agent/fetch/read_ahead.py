"""Reads the chunks of a consumer's next fetch before it comes, where the consumer reads a partition in order.

It begins after FETCHES_IN_A_ROW_MIN fetches in a row of which one had to read from the store. No fetch waits for it,
and a consumer that stops costs the bytes of one fetch. A consumer is identified by its position alone, so consumers
that read the same records at the same time share the reads.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from agent.fetch.chunk_plan import served_bytes
from agent.fetch.chunk_reader import ChunkReader
from agent.fetch.read_budget import ReadBudget, Reservation
from agent.ledger.apply_loop import PartitionKey
from agent.runtime.clock import Clock
from coordinator.state.chunk_index import ChunkRef
from coordinator.state.state import ClusterState, PartitionState
from protocol.limits import (
    CONSUMER_POSITIONS_REMEMBERED_MAX,
    FETCHES_IN_A_ROW_MIN,
    READ_AHEAD_PARTITION_BYTES_MAX,
    READ_AHEAD_SECONDS_MAX,
    READ_AHEAD_SHARE_OF_READS_MAX,
)
from protocol.records.compression import Compression

_ConsumerPosition = tuple[PartitionKey, int]


class FetchStep(NamedTuple):
    """A fetch of one partition that was answered with records, from `offset_first` up to `offset_next`."""

    key: PartitionKey
    offset_first: int
    offset_next: int
    bytes_max: int
    compression: Compression


class _Position(NamedTuple):
    fetches_in_a_row: int
    bytes_ahead: int
    at_s: float


class ReadAhead:
    """The reads ahead of one agent. `bytes_max`: the estimated bytes that consumers have not reached yet."""

    def __init__(self, *, reader: ChunkReader, budget: ReadBudget, clock: Clock, bytes_max: int) -> None:
        self._reader = reader
        self._budget = budget
        self._clock = clock
        self._bytes_max = bytes_max
        self._positions: OrderedDict[_ConsumerPosition, _Position] = OrderedDict()
        """The positions of consumers' next fetches, the oldest first."""
        self._reservations: list[Reservation] = []
        """The reservations of reads ahead that are in progress."""
        self.bytes_ahead = 0
        """The estimated bytes that were read ahead for positions from which no fetch has come."""

    def answered(self, state: ClusterState, steps: Sequence[FetchStep], *, has_read: bool) -> None:
        """Begin to read the chunks behind one fetch's answers, for consumers that read in order. Never waits or fails.

        Args:
            state: the cluster's state now.
            steps: the partitions of the fetch that were answered with records.
            has_read: whether any chunk of them was read from the store.
        """
        now_s = self._clock.monotonic_s()
        self._forget_until(now_s - READ_AHEAD_SECONDS_MAX)
        capacity_bytes = self._capacity_bytes()
        positions: list[tuple[_ConsumerPosition, _Position]] = []
        missing: list[tuple[ChunkRef, Compression]] = []
        for step in steps:
            before = self._leave((step.key, step.offset_first))
            position = _Position(before.fetches_in_a_row + 1, 0, now_s)
            # A consumer whose fetches are all served from memory needs no reads ahead, unless these filled the memory.
            if position.fetches_in_a_row >= FETCHES_IN_A_ROW_MIN and (has_read or before.bytes_ahead):
                ahead, bytes_ahead = self._ahead(state, step)
                bytes_to_read = sum(served_bytes(chunk) for chunk in ahead)
                if bytes_to_read <= capacity_bytes and self.bytes_ahead + bytes_ahead <= self._bytes_max:
                    capacity_bytes -= bytes_to_read
                    position = position._replace(bytes_ahead=bytes_ahead)
                    missing += [(chunk, step.compression) for chunk in ahead]
                    self.bytes_ahead += bytes_ahead
            positions.append(((step.key, step.offset_next), position))
        is_begun = self._begin(state, missing)
        for consumer, position in positions:
            self.bytes_ahead -= position.bytes_ahead
            self._enter(consumer, position if is_begun else position._replace(bytes_ahead=0))

    def _capacity_bytes(self) -> float:
        """The bytes that further reads ahead may take: a small part of the budget, so that fetches hardly wait."""
        self._reservations = [reservation for reservation in self._reservations if reservation.is_in_use]
        bytes_max = READ_AHEAD_SHARE_OF_READS_MAX * self._budget.bytes_max
        return bytes_max - sum(reservation.bytes_taken for reservation in self._reservations)

    def _begin(self, state: ClusterState, missing: Sequence[tuple[ChunkRef, Compression]]) -> bool:
        """Begin to read all missing chunks. False where the budget has no bytes for them now."""
        reservation = self._budget.take_now(sum(served_bytes(chunk) for chunk, _ in missing))
        if reservation is None:
            return False
        with reservation:
            if missing:
                self._reservations.append(reservation)
                self._reader.begin(state, [chunk for chunk, _ in missing], [codec for _, codec in missing], reservation)
        return True

    def _ahead(self, state: ClusterState, step: FetchStep) -> tuple[list[ChunkRef], int]:
        """The missing chunks of the next fetch, and the estimated bytes in memory that only it needs."""
        partition = state.partition(*step.key)
        if partition is None:
            return [], 0
        missing: list[ChunkRef] = []
        bytes_ahead = 0
        for chunk in chunks_ahead(partition, step.offset_next, min(step.bytes_max, READ_AHEAD_PARTITION_BYTES_MAX)):
            offset = max(step.offset_next, chunk.offset_first)
            if not self._reader.holds(chunk, step.compression) and self._reader.has_produced(
                step.key, partition.index, chunk, offset
            ):
                continue  # it is served as it was produced: nothing is read for it
            is_missing = self._reader.is_missing(chunk, step.compression)
            if is_missing:
                missing.append(chunk)
            if chunk.offset_first >= step.offset_next and (is_missing or chunk.is_archived):
                bytes_ahead += served_bytes(chunk)
        return missing, bytes_ahead

    def _leave(self, consumer: _ConsumerPosition) -> _Position:
        """Take the position from which a consumer fetched. It is kept, as other consumers may fetch from it, too."""
        position = self._positions.get(consumer)
        if position is None:
            return _Position(0, 0, 0.0)
        self.bytes_ahead -= position.bytes_ahead
        self._positions[consumer] = position._replace(bytes_ahead=0)
        return position

    def _enter(self, consumer: _ConsumerPosition, position: _Position) -> None:
        """Note the position of a consumer's next fetch, joined with that of another consumer there."""
        before = self._positions.pop(consumer, None)
        if before is not None:
            self.bytes_ahead -= before.bytes_ahead
            position = _Position(
                max(before.fetches_in_a_row, position.fetches_in_a_row),
                max(before.bytes_ahead, position.bytes_ahead),
                position.at_s,
            )
        self._positions[consumer] = position
        self.bytes_ahead += position.bytes_ahead
        if len(self._positions) > CONSUMER_POSITIONS_REMEMBERED_MAX:
            self._forget_first()

    def _forget_until(self, time_s: float) -> None:
        while self._positions and next(iter(self._positions.values())).at_s <= time_s:
            self._forget_first()

    def _forget_first(self) -> None:
        _, position = self._positions.popitem(last=False)
        self.bytes_ahead -= position.bytes_ahead


def chunks_ahead(partition: PartitionState, offset: int, bytes_max: int) -> list[ChunkRef]:
    """The chunks of the next fetch from `offset`; in the archive also the chunk behind them.

    A fetch from the archive reads a whole row group and answers with a part of it, so the next row group is needed
    soon.
    """
    row = partition.index.locate(offset)
    chunks: list[ChunkRef] = []
    byte_count = archived_count = 0
    while row is not None and row < len(partition.index) and byte_count < bytes_max and archived_count < 2:
        chunk = partition.index.row(row)
        chunks.append(chunk)
        archived_count += chunk.is_archived
        byte_count += 0 if chunk.is_archived else chunk.byte_count
        row += 1
    return chunks
