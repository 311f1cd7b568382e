"""Finds the record that stands for a time: the index names the chunk, its records name the offset.

Rule: the chunk is chosen by the index's largest timestamps alone, so one chunk is read, or two where the log starts
inside the first: the record that the index promises may lie before the log's start. What is read takes its share of the
budget for all reads, in turn. A chunk that is replaced meanwhile is looked up again, in the state of that moment
(safety rule S6). Markers count, as in Kafka: what they say of their time stands in the index, so none is read.
Source: org.apache.kafka.storage.internals.log.UnifiedLog.fetchOffsetByTimestamp (Kafka 4.3), KIP-734. Differs from
Kafka: its answer to the greatest timestamp may be a record that DeleteRecords hid.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from agent.cache.chunk_cache import ServedChunk, chunk_key
from agent.fetch.chunk_plan import served_bytes
from agent.fetch.chunk_reader import ChunkReader
from agent.fetch.read_budget import ReadBudget, Share
from agent.fetch.refused_reads import RefusedReads
from agent.ledger.apply_loop import ApplyLoop, PartitionKey
from agent.runtime.clock import Clock
from agent.runtime.threads import run_in_thread
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
    """A record's place: its timestamp in milliseconds, and its offset."""

    timestamp: int
    offset: int


class TimestampSearch:
    def __init__(self, *, metadata: ApplyLoop, reader: ChunkReader, budget: ReadBudget, clock: Clock) -> None:
        self._metadata = metadata
        self._reader = reader
        self._budget = budget
        self._clock = clock
        self._refused = RefusedReads(clock=clock)

    async def find(self, key: PartitionKey, timestamp: int | None) -> RecordAt | None:
        """The first record at or after `timestamp`; with None the first of those with the greatest timestamp.

        None if there is no such record, or no such partition. Raises `StoreUnavailable` when the chunk cannot be read
        now or soon, `ObjectDamaged` or another `StoreError` (which is logged) when it never can, `LedgerUnavailable`
        where it has to be looked up again and the ledger is away.
        """
        best: RecordAt | None = None
        offset_min = 0
        for _ in range(READ_PLANS_MAX):
            chunk, log_start = self._chunk(key, timestamp, offset_min)
            if chunk is None or (best is not None and chunk.max_timestamp <= best.timestamp):
                return best
            try:
                found, best = await self._look_into(chunk, timestamp, log_start)
            except ObjectMissing:
                await self._metadata.barrier()
                continue
            except ObjectDamaged as error:
                self._report(key, chunk, error)
                raise
            except StoreUnavailable:
                raise
            except StoreError as error:
                topic = self._metadata.state.topics.get(key[0])
                name = None if topic is None else topic.name
                self._refused.report(error, topic=name, partition=key[1], offset=chunk.offset_first)
                raise
            if found is not None:
                return found
            # What the index promises is not to be seen any more: what follows the chunk may have it.
            offset_min = chunk.offset_end
        raise StoreUnavailable("the chunk was replaced each time it was looked up")

    async def _look_into(
        self, chunk: ChunkRef, timestamp: int | None, log_start: Offset
    ) -> tuple[RecordAt | None, RecordAt | None]:
        """The record that the index promises; where it is not to be seen and `timestamp` is None, instead of it the
        best that is.
        """
        if chunk.is_marker:
            return RecordAt(chunk.max_timestamp, chunk.offset_first), None
        is_held = self._reader.holds(chunk, Compression.NONE)
        with await self._share(0 if is_held else served_bytes(chunk)) as share:
            within = self._clock.timeout(FETCH_READ_SECONDS_MAX)
            (served,) = await self._reader.read(self._metadata.state, [chunk], [Compression.NONE], share, within=within)
            if not is_held:
                share.count(len(served.buffer))
            try:
                found = await run_in_thread(
                    first_at_or_after, served, chunk.max_timestamp if timestamp is None else timestamp, log_start
                )
                if found is not None or timestamp is not None:
                    return found, None
                return None, await run_in_thread(latest, served, log_start)
            except InvalidBatch as error:
                damage = ObjectDamaged(f"the records of object {chunk.object_id} cannot be read: {error}")
                stored = self._metadata.state.objects.get(chunk.object_id)
                if stored is not None:
                    self._reader.damaged.found(stored.key, chunk_key(chunk, Compression.NONE), damage)
                raise damage from error

    def _report(self, key: PartitionKey, chunk: ChunkRef, error: ObjectDamaged) -> None:
        state, (topic_id, number) = self._metadata.state, key
        topic, stored = state.topics.get(topic_id), state.objects.get(chunk.object_id)
        if topic is not None and stored is not None:
            where = {"topic": topic.name, "partition": number, "offset": chunk.offset_first}
            self._reader.damaged.report(stored.key, error, **where)

    async def _share(self, byte_count: int) -> Share:
        """Room for so much, in turn. Raises `StoreUnavailable` where its turn does not come for long."""
        try:
            async with self._clock.timeout(FETCH_READ_SECONDS_MAX):
                return await self._budget.take(byte_count)
        except TimeoutError:
            raise StoreUnavailable("others read as much as may be read at a time") from None

    def _chunk(self, key: PartitionKey, timestamp: int | None, offset_min: int) -> tuple[ChunkRef | None, Offset]:
        """The chunk to be read, from that of `offset_min` on, None where there is none; and where the log starts."""
        partition = self._metadata.state.partition(*key)
        if partition is None:
            return None, OFFSET_FIRST
        index = partition.index
        row_first = index.locate(max(offset_min, partition.log_start))
        if row_first is None:
            return None, partition.log_start
        row = index.max_timestamp_row(row_first) if timestamp is None else index.find_timestamp(timestamp, row_first)
        return (None if row is None else index.row(row)), partition.log_start


def first_at_or_after(served: ServedChunk, timestamp: int, offset_min: int) -> RecordAt | None:
    """The chunk's first record with this timestamp or a later one, from `offset_min` on."""
    for header in walk_batches(served.buffer):
        if header.max_timestamp >= timestamp and not header.is_control:
            for record in _records(served, header, offset_min):
                if record.timestamp >= timestamp:
                    return record
    return None


def latest(served: ServedChunk, offset_min: int) -> RecordAt | None:
    """The chunk's first record with the greatest timestamp, from `offset_min` on; None where none has a timestamp."""
    best: RecordAt | None = None
    for header in walk_batches(served.buffer):
        if header.max_timestamp > (NO_TIMESTAMP if best is None else best.timestamp) and not header.is_control:
            for record in _records(served, header, offset_min):
                if record.timestamp > (NO_TIMESTAMP if best is None else best.timestamp):
                    best = record
    return best


def _records(served: ServedChunk, header: BatchHeader, offset_min: int) -> Iterator[RecordAt]:
    columns = decode_records(served.buffer, header)
    for delta, found in zip(columns.offset_delta.tolist(), columns.timestamp.tolist(), strict=True):
        if header.base_offset + delta >= offset_min:
            yield RecordAt(header.max_timestamp if header.is_log_append_time else found, header.base_offset + delta)
