"""Who reads on, and what is read for them before they ask.

Rule: only after two fetches one after the other that did not find everything in memory, no further than the next fetch
reaches, and only where there is room at once, of which it takes a small part: nobody waits for it. What was read ahead
counts until its consumer goes on, or for some seconds where it never does: a consumer that stops costs one fetch's
worth. Consumers are told apart by their positions alone, so those who read side by side share what is read ahead.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from agent.fetch.chunk_plan import served_bytes
from agent.fetch.chunk_reader import ChunkReader
from agent.fetch.read_budget import ReadBudget, Share
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
    """A fetch of one partition that was answered with records: from which offset, and where its consumer goes on."""

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
    """`bytes_max`: what may have been read ahead at a time, about."""

    def __init__(self, *, reader: ChunkReader, budget: ReadBudget, clock: Clock, bytes_max: int) -> None:
        self._reader = reader
        self._budget = budget
        self._clock = clock
        self._bytes_max = bytes_max
        self._positions: OrderedDict[_ConsumerPosition, _Position] = OrderedDict()
        """Where consumers are about to go on, in the order in which they came there."""
        self._shares: list[Share] = []
        """The shares of reads ahead that are in progress."""
        self.bytes_ahead = 0
        """About how many bytes were read ahead for positions that no consumer has reached."""

    def answered(self, state: ClusterState, steps: Sequence[FetchStep], *, has_read: bool) -> None:
        """One fetch's answers, and whether anything was read for it: begin to read what follows where a consumer reads
        on. Never waits, never fails.
        """
        now_s = self._clock.monotonic_s()
        self._forget_until(now_s - READ_AHEAD_SECONDS_MAX)
        room_bytes = self._room_bytes()
        positions: list[tuple[_ConsumerPosition, _Position]] = []
        missing: list[tuple[ChunkRef, Compression]] = []
        for step in steps:
            before = self._leave((step.key, step.offset_first))
            position = _Position(before.fetches_in_a_row + 1, 0, now_s)
            if position.fetches_in_a_row >= FETCHES_IN_A_ROW_MIN and (has_read or before.bytes_ahead):
                ahead, bytes_ahead = self._ahead(state, step)
                bytes_to_read = sum(served_bytes(chunk) for chunk in ahead)
                if bytes_to_read <= room_bytes and self.bytes_ahead + bytes_ahead <= self._bytes_max:
                    room_bytes -= bytes_to_read
                    position = position._replace(bytes_ahead=bytes_ahead)
                    missing += [(chunk, step.compression) for chunk in ahead]
                    self.bytes_ahead += bytes_ahead
            positions.append(((step.key, step.offset_next), position))
        is_begun = self._begin(state, missing)
        for place, position in positions:
            self.bytes_ahead -= position.bytes_ahead
            self._come(place, position if is_begun else position._replace(bytes_ahead=0))

    def _room_bytes(self) -> float:
        """How much more may be on its way ahead of its consumers."""
        self._shares = [share for share in self._shares if share.is_held]
        bytes_max = READ_AHEAD_SHARE_OF_READS_MAX * self._budget.bytes_max
        return bytes_max - sum(share.bytes_taken for share in self._shares)

    def _begin(self, state: ClusterState, missing: Sequence[tuple[ChunkRef, Compression]]) -> bool:
        """Begin to read all of it. False where there is no room for it at once."""
        share = self._budget.take_now(sum(served_bytes(chunk) for chunk, _ in missing))
        if share is None:
            return False
        with share:
            if missing:
                self._shares.append(share)
                self._reader.begin(state, [chunk for chunk, _ in missing], [codec for _, codec in missing], share)
        return True

    def _ahead(self, state: ClusterState, step: FetchStep) -> tuple[list[ChunkRef], int]:
        """The missing chunks of the next fetch, and the bytes that are, or will be, in memory for it alone."""
        partition = state.partition(*step.key)
        if partition is None:
            return [], 0
        missing: list[ChunkRef] = []
        bytes_ahead = 0
        for chunk in chunks_ahead(partition, step.offset_next, min(step.bytes_max, READ_AHEAD_PARTITION_BYTES_MAX)):
            is_missing = self._reader.is_missing(chunk, step.compression)
            if is_missing:
                missing.append(chunk)
            if chunk.offset_first >= step.offset_next and (is_missing or chunk.is_archived):
                bytes_ahead += served_bytes(chunk)
        return missing, bytes_ahead

    def _leave(self, place: _ConsumerPosition) -> _Position:
        """A consumer goes on from there: how it came there. Others may still come."""
        position = self._positions.get(place)
        if position is None:
            return _Position(0, 0, 0.0)
        self.bytes_ahead -= position.bytes_ahead
        self._positions[place] = position._replace(bytes_ahead=0)
        return position

    def _come(self, place: _ConsumerPosition, position: _Position) -> None:
        before = self._positions.pop(place, None)
        if before is not None:
            self.bytes_ahead -= before.bytes_ahead
            position = _Position(
                max(before.fetches_in_a_row, position.fetches_in_a_row),
                max(before.bytes_ahead, position.bytes_ahead),
                position.at_s,
            )
        self._positions[place] = position
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
    """The chunks that the next fetch from `offset` reaches; where it is in the archive also the one after that.

    A fetch from the archive reads a row group and takes a part of it, so the next row group is due soon.
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
