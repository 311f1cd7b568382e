"""Finds the record that stands for a time: the index names the chunk, its records name the offset.

Rule: the chunk is chosen by the index's largest timestamps alone, so at most one chunk is read; a chunk that is
replaced meanwhile is looked up again, in the state of that moment (safety rule S6).
Source: org.apache.kafka.storage.internals.log.UnifiedLog.fetchOffsetByTimestamp (Kafka 4.3), KIP-734.
"""

from dataclasses import dataclass

from agent.chunk_cache import ServedChunk
from agent.chunk_reader import ChunkReader
from agent.cpu import run_in_thread
from agent.metadata_loop import MetadataLoop, PartitionKey
from protocol.compression import Compression
from protocol.errors import InvalidBatch
from protocol.limits import READ_PLANS_MAX
from protocol.record_batch import walk_batches
from protocol.records import decode_records
from storage.object_store import ObjectDamaged, ObjectMissing, StoreUnavailable


@dataclass(frozen=True, slots=True)
class RecordAt:
    """A record's place: its timestamp in milliseconds, and its offset."""

    timestamp: int
    offset: int


class TimestampSearch:
    def __init__(self, *, metadata: MetadataLoop, reader: ChunkReader) -> None:
        self._metadata = metadata
        self._reader = reader

    async def find(self, key: PartitionKey, timestamp: int | None) -> RecordAt | None:
        """The first record at or after `timestamp`; with None the first of those with the greatest timestamp.

        None if there is no such record, or no such partition. Raises `StoreUnavailable` when the chunk cannot be read
        now, `ObjectDamaged` or another `StoreError` when it never can, `LedgerUnavailable` where it has to be looked up
        again and the ledger is away.
        """
        for _ in range(READ_PLANS_MAX):
            partition = self._metadata.state.partition(*key)
            if partition is None:
                return None
            index, log_start = partition.index, partition.log_start
            row = index.max_timestamp_row() if timestamp is None else index.find_timestamp(timestamp)
            if row is None:
                return None
            chunk = index.row(row)
            try:
                served = (await self._reader.read(self._metadata.state, [chunk], [Compression.NONE]))[0]
            except ObjectMissing:
                await self._metadata.barrier()
                continue
            wanted = chunk.max_timestamp if timestamp is None else timestamp
            try:
                return await run_in_thread(first_at_or_after, served, wanted, log_start)
            except InvalidBatch as error:
                raise ObjectDamaged(f"the records of object {chunk.object_id} cannot be read: {error}") from error
        raise StoreUnavailable("the chunk was replaced each time it was looked up")


def first_at_or_after(served: ServedChunk, timestamp: int, offset_min: int) -> RecordAt | None:
    """The chunk's first record with this timestamp or a later one, from `offset_min` on."""
    for header in walk_batches(served.buffer):
        if header.max_timestamp < timestamp or header.is_control:
            continue
        columns = decode_records(served.buffer, header)
        for delta, found in zip(columns.offset_delta.tolist(), columns.timestamp.tolist(), strict=True):
            record_timestamp = header.max_timestamp if header.is_log_append_time else found
            if record_timestamp >= timestamp and header.base_offset + delta >= offset_min:
                return RecordAt(record_timestamp, header.base_offset + delta)
    return None
