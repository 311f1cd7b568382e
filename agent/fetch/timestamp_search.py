"""Finds the offset of a timestamp (ListOffsets): the index names the chunk, and its records the offset.

The chunk is chosen by the greatest timestamp of each row of the index, so one chunk is read. Where the log starts
inside it, its record may lie before that start, and a second chunk is read.
Source: org.apache.kafka.storage.internals.log.UnifiedLog.fetchOffsetByTimestamp (Kafka 4.3), KIP-734. Differs from
Kafka: its answer to the greatest timestamp may be a record that DeleteRecords hid.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agent.cache.chunk_cache import ServedChunk, chunk_key
from agent.fetch.chunk_plan import served_bytes
from agent.fetch.chunk_reader import ChunkReader
from agent.fetch.read_budget import ReadBudget, Reservation
from agent.fetch.rejected_reads import RejectedReads
from agent.ledger.apply_loop import PartitionKey
from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from agent.runtime.unpacking import run_unpacking
from coordinator.state.chunk_index import OFFSET_FIRST, ChunkRef
from protocol.errors import InvalidBatch
from protocol.limits import FETCH_READ_SECONDS_MAX, READ_PLANS_MAX
from protocol.records.batch import BatchHeader, walk_batches
from protocol.records.compression import Compression
from protocol.records.records import decode_records
from protocol.types import NO_TIMESTAMP, Offset
from storage.object_store import ObjectDamaged, ObjectMissing, StoreError, StoreUnavailable


@dataclass(frozen=True, slots=True)
class RecordAt:
    """A record's timestamp in milliseconds, and its offset."""

    timestamp: int
    offset: int


class TimestampSearch:
    """Searches of timestamps in all partitions. Their reads share the budget of all fetches."""

    def __init__(self, *, ledger: LedgerClient, reader: ChunkReader, budget: ReadBudget, clock: Clock) -> None:
        self._ledger = ledger
        self._reader = reader
        self._budget = budget
        self._clock = clock
        self._rejected = RejectedReads(clock=clock)

    async def find(self, key: PartitionKey, timestamp: int | None) -> RecordAt | None:
        """The first record at or after `timestamp`; with None the first of those with the greatest timestamp.

        None if there is no such record, or no such partition. Raises `StoreUnavailable` where the chunk cannot be read
        now, and may be later; `ObjectDamaged` or another `StoreError`, which is logged, where only an operator can
        help; `LedgerUnavailable` where the chunk was replaced and the ledger does not answer a barrier.
        """
        best: RecordAt | None = None
        offset_min = 0
        for _ in range(READ_PLANS_MAX):
            chunk, log_start = self._chunk(key, timestamp, offset_min)
            if chunk is None or (best is not None and chunk.max_timestamp <= best.timestamp):
                return best
            try:
                record, best = await self._search_chunk(chunk, timestamp, log_start)
            except ObjectMissing:  # replaced by an archive pass: the state has its records elsewhere by now (S6)
                await self._ledger.barrier()
                continue
            except ObjectDamaged as error:
                self._report(key, chunk, error)
                raise
            except StoreUnavailable:
                raise
            except StoreError as error:
                topic = self._ledger.state.topics.get(key[0])
                name = None if topic is None else topic.name
                self._rejected.report(error, topic=name, partition=key[1], offset=chunk.offset_first)
                raise
            if record is not None:
                return record
            # The chunk's record lies before the log's start: a later chunk may have the answer.
            offset_min = chunk.offset_end
        raise StoreUnavailable("the chunk was replaced each time it was looked up")

    async def _search_chunk(
        self, chunk: ChunkRef, timestamp: int | None, log_start: Offset
    ) -> tuple[RecordAt | None, RecordAt | None]:
        """The record that the index names, and None; None where it lies before the log's start.

        In that case, and with `timestamp` None, the second is the chunk's best record behind the log's start.
        """
        if chunk.is_marker:  # markers count, as in Kafka; the index has their time, so none is read
            return RecordAt(chunk.max_timestamp, chunk.offset_first), None
        is_in_memory = self._reader.holds(chunk, Compression.NONE)
        with await self._reserve(0 if is_in_memory else served_bytes(chunk)) as reservation:
            within = self._clock.timeout(FETCH_READ_SECONDS_MAX)
            (served,) = await self._reader.read(
                self._ledger.state, [chunk], [Compression.NONE], reservation, within=within
            )
            if not is_in_memory:
                reservation.count(len(served.buffer))
            try:
                record = await run_unpacking(
                    first_at_or_after, served, chunk.max_timestamp if timestamp is None else timestamp, log_start
                )
                if record is not None or timestamp is not None:
                    return record, None
                return None, await run_unpacking(latest, served, log_start)
            except InvalidBatch as error:
                damage = ObjectDamaged(f"the records of object {chunk.object_id} cannot be read: {error}")
                stored = self._ledger.state.objects.get(chunk.object_id)
                if stored is not None:
                    self._reader.damaged.add(stored.key, chunk_key(chunk, Compression.NONE), damage)
                raise damage from error

    def _report(self, key: PartitionKey, chunk: ChunkRef, error: ObjectDamaged) -> None:
        state, (topic_id, number) = self._ledger.state, key
        topic, stored = state.topics.get(topic_id), state.objects.get(chunk.object_id)
        if topic is not None and stored is not None:
            where = {"topic": topic.name, "partition": number, "offset": chunk.offset_first}
            self._reader.damaged.report(stored.key, error, **where)

    async def _reserve(self, byte_count: int) -> Reservation:
        """A reservation, in turn. Raises `StoreUnavailable` where it does not come in FETCH_READ_SECONDS_MAX."""
        try:
            async with self._clock.timeout(FETCH_READ_SECONDS_MAX):
                return await self._budget.take(byte_count)
        except TimeoutError:
            raise StoreUnavailable("other reads use the whole budget (FETCH_READS_BYTES_MAX)") from None

    def _chunk(self, key: PartitionKey, timestamp: int | None, offset_min: int) -> tuple[ChunkRef | None, Offset]:
        """The chunk to read, from that of `offset_min` on, or None; and the log's start."""
        partition = self._ledger.state.partition(*key)
        if partition is None:
            return None, OFFSET_FIRST
        index = partition.index
        row_first = index.locate(max(offset_min, partition.log_start))
        if row_first is None:
            return None, partition.log_start
        row = index.max_timestamp_row(row_first) if timestamp is None else index.find_timestamp(timestamp, row_first)
        return (None if row is None else index.row(row)), partition.log_start


def first_at_or_after(unpacked_bytes_max: int, served: ServedChunk, timestamp: int, offset_min: int) -> RecordAt | None:
    """The chunk's first record with this timestamp or a later one, from `offset_min` on. See `decode_records`."""
    for header in walk_batches(served.buffer):
        if header.max_timestamp >= timestamp and not header.is_control:
            timestamps, offsets = _records(served, header, offset_min, unpacked_bytes_max)
            rows = np.flatnonzero(timestamps >= timestamp)
            if len(rows):
                return RecordAt(int(timestamps[rows[0]]), int(offsets[rows[0]]))
    return None


def latest(unpacked_bytes_max: int, served: ServedChunk, offset_min: int) -> RecordAt | None:
    """The chunk's first record with the greatest timestamp, from `offset_min` on; None where none has a timestamp.

    See `decode_records`.
    """
    best: RecordAt | None = None
    for header in walk_batches(served.buffer):
        best_timestamp = NO_TIMESTAMP if best is None else best.timestamp
        if header.max_timestamp > best_timestamp and not header.is_control:
            timestamps, offsets = _records(served, header, offset_min, unpacked_bytes_max)
            if len(timestamps) and timestamps.max() > best_timestamp:
                row = int(timestamps.argmax())  # the first of them
                best = RecordAt(int(timestamps[row]), int(offsets[row]))
    return best


def _records(
    served: ServedChunk, header: BatchHeader, offset_min: int, unpacked_bytes_max: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The timestamps and offsets of a batch's records, from `offset_min` on. The batch's bytes are free again."""
    columns = decode_records(served.buffer, header, unpacked_bytes_max=unpacked_bytes_max)
    offsets = header.base_offset + columns.offset_delta.astype(np.int64)
    is_behind = offsets >= offset_min
    return columns.timestamp[is_behind], offsets[is_behind]
