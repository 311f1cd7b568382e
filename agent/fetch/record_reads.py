"""Decides which chunks a fetch reads for each partition, and cuts them to the answer. Nothing here does I/O.

Its generators yield `ReadChunks` and `Barrier` steps to `agent.fetch.planner`. A read whose object is gone is planned
again behind a barrier. A store that does not answer costs a fetch FETCH_READ_SECONDS_MAX at most.
Source: org.apache.kafka.server.ReplicaManager.readFromLog (Kafka 4.3), KIP-74, KIP-98.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from agent.cache.chunk_cache import ServedChunk
from agent.fetch.chunk_plan import archive_compression, chunks_from, stored_bytes
from agent.fetch.isolation import AbortedTransactions, visible_end
from agent.fetch.partition_lookup import PartitionLookup, ReadablePartition, find_partition
from agent.fetch.partition_read import PartitionRead, UnreadableRead
from agent.fetch.read_ahead import FetchStep
from agent.fetch.read_budget import Reservation
from agent.fetch.sessions import RequestedPartition
from agent.fetch.steps import BARRIER, FetchInputs, ReadChunks, Steps
from agent.ledger.apply_loop import PartitionKey
from coordinator.state.chunk_index import ChunkIndex, ChunkRef
from protocol.errors import ErrorCode
from protocol.limits import READ_PLANS_MAX
from protocol.records.compression import Compression
from protocol.types import Offset
from storage.object_store import ObjectMissing, StoreError, StoreUnavailable
from txn.isolation import IsolationLevel


class ChunkMemory(Protocol):
    """The chunks that need no read: `agent.fetch.chunk_reader.ChunkReader`."""

    def holds(self, chunk: ChunkRef, compression: Compression) -> bool:
        """Whether the chunk is in memory, or a marker, which is made without a read."""
        ...

    def from_memory(self, chunk: ChunkRef, compression: Compression) -> ServedChunk:
        """The chunk, without a read: only where `holds` says so."""
        ...

    def is_missing(self, chunk: ChunkRef, compression: Compression) -> bool:
        """Whether the chunk is neither in memory nor being read."""
        ...

    def has_produced(self, key: PartitionKey, index: ChunkIndex, chunk: ChunkRef, offset: int) -> bool:
        """Whether what was produced from `offset` to the end of an archived chunk is in memory, and may be served."""
        ...

    def produced(self, key: PartitionKey, chunk: ChunkRef, offset: int) -> Iterator[tuple[ChunkRef, ServedChunk]]:
        """Parts of an archived chunk from `offset` on, as they were produced: only where `has_produced` says so."""
        ...


class RecordReads:
    """The reads of one fetch."""

    __slots__ = (
        "_broker_configs",
        "_inputs",
        "_is_store_away",
        "_isolation",
        "_memory",
        "_partitions",
        "end_s",
        "fetch_steps",
        "unreadable",
    )

    def __init__(
        self,
        inputs: FetchInputs,
        partitions: PartitionLookup,
        isolation: IsolationLevel,
        *,
        memory: ChunkMemory,
        broker_configs: Mapping[str, str],
    ) -> None:
        self._inputs = inputs
        self._partitions = partitions
        self._isolation = isolation
        self._memory = memory
        self._broker_configs = broker_configs
        self.end_s = 0.0
        """The monotonic time after which only chunks in memory are read."""
        self._is_store_away = False
        """Whether the store did not answer a read: reads in progress are awaited, and no others begin."""
        self.fetch_steps: list[FetchStep] = []
        """Partitions that answered with records."""
        self.unreadable: list[UnreadableRead] = []

    def answer(self, requested: RequestedPartition, bytes_left: int, *, is_first: bool) -> Steps[PartitionRead]:
        """The answer of a partition; it is planned again where an object is gone meanwhile.

        `is_first`: no partition before it has records. Without a reservation it has none. Every error after which
        Kafka's clients ask again is NOT_LEADER_OR_FOLLOWER.
        """
        inputs = self._inputs
        for plan_number in range(1, READ_PLANS_MAX + 1):
            readable = self._partitions.find(requested)
            if readable is None:
                readable = yield from self._partitions.find_confirmed(requested)
            if isinstance(readable, ErrorCode):
                return PartitionRead(requested, readable)
            read, has_records = self._marks(requested, readable)
            bytes_max = min(bytes_left, requested.partition_max_bytes)
            # The first partition with records is read however small the limit, so that the consumer advances (KIP-74).
            if not has_records or inputs.reservation is None or (bytes_max <= 0 and not is_first):
                return read
            compression = archive_compression(readable.topic, self._broker_configs)
            step = FetchStep(readable.key, requested.fetch_offset, requested.fetch_offset, bytes_max, compression)
            try:
                yield from self._read_records(step, read, inputs.reservation, is_first=is_first)
            except ObjectMissing as error:
                # Another agent may have archived or deleted the chunk: behind a barrier the state says where its
                # records are now. An empty answer would look like the log's end (S6).
                yield BARRIER
                if not inputs.is_barrier_answered:
                    self._is_store_away = True  # no partition can be planned again: no more waits
                    break
                if plan_number == READ_PLANS_MAX:
                    self._report(requested, error)
            except StoreUnavailable:
                break
            except StoreError as error:
                self._report(requested, error)
                return PartitionRead(requested, ErrorCode.kafka_storage_error)
            else:
                if read.records:
                    self.fetch_steps.append(step._replace(offset_next=read.offset_next))
                return read
        return PartitionRead(requested, ErrorCode.not_leader_or_follower)

    def _marks(self, requested: RequestedPartition, readable: ReadablePartition) -> tuple[PartitionRead, bool]:
        """The answer without records, and whether there are records at the consumer's offset."""
        partition = readable.partition
        is_at_end = requested.fetch_offset >= visible_end(partition, self._isolation)
        # An empty answer says that there are no more records, which a state that may be cut off cannot say (S4).
        if is_at_end and not readable.is_diverging and self._inputs.now_s >= self._inputs.current_until_s:
            return PartitionRead(requested, ErrorCode.not_leader_or_follower), False
        read = PartitionRead(
            requested,
            high_watermark=partition.log_end,
            last_stable=partition.last_stable,
            log_start=partition.log_start,
            is_diverging=readable.is_diverging,
        )
        return read, not is_at_end and not readable.is_diverging

    def _read_records(
        self, step: FetchStep, read: PartitionRead, reservation: Reservation, *, is_first: bool
    ) -> Steps[None]:
        """Read plan after plan, until the limit cuts a chunk short or the visible end of the first plan is reached.

        The result goes into `read`. Where a chunk cannot be read, the records before it are the answer; a fetch that
        begins with it raises its error.
        """
        is_committed = self._isolation is IsolationLevel.READ_COMMITTED
        offset, bytes_max = step.offset_first, step.bytes_max
        visible_until = read.last_stable if is_committed else read.high_watermark
        aborted = AbortedTransactions(Offset(offset)) if is_committed else None
        while chunks := self._chunks_from(step.key, offset, bytes_max - read.record_bytes, visible_until, aborted):
            pieces: Iterable[tuple[ChunkRef, ServedChunk]]
            is_cut_short = False
            if self.has_produced(step.key, chunks[0], offset, step.compression):
                pieces = self._memory.produced(step.key, chunks[0], offset)
            else:
                compressions = [step.compression] * len(chunks)
                served_chunks = yield from self.read(chunks, compressions, reservation, is_more=bool(read.records))
                pieces = zip(chunks, served_chunks, strict=False)
                is_cut_short = len(served_chunks) < len(chunks)
            for chunk, served in pieces:
                if read.records and chunk.offset_first < offset:
                    # An archive pass joined it with chunks of this answer: some clients would read these records twice.
                    return
                at_least_one = is_first and not read.records
                # An intake chunk may hold records before and behind the first one of an open transaction.
                cut = visible_until if chunk.offset_end > visible_until and not chunk.is_archived else None
                bytes_left = bytes_max - read.record_bytes
                part = served.from_offset(offset, bytes_left, at_least_one=at_least_one, offset_end=cut)
                if part.records:
                    read.add(chunk, part)
                    if aborted is not None:
                        read.aborted = aborted.listed(part.offset_end)
                if not part.reaches_end or read.record_bytes >= bytes_max:
                    return
                offset = chunk.offset_end
            if read.records and is_cut_short:
                return
        if not read.records:
            raise ObjectMissing(f"offset {offset} is not in the state any more")

    def _chunks_from(
        self, key: PartitionKey, offset: int, bytes_max: int, visible_until: int, aborted: AbortedTransactions | None
    ) -> list[ChunkRef]:
        partition = self._inputs.state.partition(*key)
        chunks = [] if partition is None else chunks_from(partition, offset, bytes_max, offset_end=visible_until)
        if partition is None or not chunks or aborted is None:
            return chunks
        return chunks if aborted.plan(partition, offset, chunks[-1].offset_end) else []

    def has_produced(self, key: PartitionKey, chunk: ChunkRef, offset: int, compression: Compression) -> bool:
        """Whether an archived chunk is served from `offset` on as it was produced, because only that is in memory."""
        partition = self._inputs.state.partition(*key)
        if partition is None or self._memory.holds(chunk, compression):
            return False
        return self._memory.has_produced(key, partition.index, chunk, offset)

    def read(
        self,
        chunks: Sequence[ChunkRef],
        compressions: Sequence[Compression],
        reservation: Reservation,
        *,
        is_more: bool,
    ) -> Steps[Sequence[ServedChunk]]:
        """The chunks, up to the first that cannot be read; those not in memory count towards the reservation.

        With `is_more` the answer has other records: no chunks are returned where the first cannot be read, or the
        budget has no bytes for them. Else it raises the first chunk's error; `StoreUnavailable` where the fetch may not
        wait for the store any more.
        """
        missing = [n for n, chunk in enumerate(chunks) if not self._memory.holds(chunk, compressions[n])]
        if not missing:
            return list(map(self._memory.from_memory, chunks, compressions))
        readable_count = self._readable_count(chunks, compressions)
        if readable_count == 0:
            if is_more:
                return ()
            raise StoreUnavailable("the store did not answer an earlier read of this fetch")
        chunks, compressions = chunks[:readable_count], compressions[:readable_count]
        if is_more and not reservation.has_room_for(stored_bytes(chunks[n] for n in missing if n < len(chunks))):
            return ()
        yield ReadChunks(chunks, compressions, max(self.end_s - self._inputs.now_s, 0.0))
        result = self._inputs.read_result
        if isinstance(result, StoreError):
            self._is_store_away |= isinstance(result, StoreUnavailable)
            if is_more:
                return ()
            raise result
        reservation.count(sum(len(result[n].buffer) for n in missing if n < len(result)))
        return result

    def _readable_count(self, chunks: Sequence[ChunkRef], compressions: Sequence[Compression]) -> int:
        """The number of chunks, from the first on, that the fetch may still wait for.

        A store that does not answer costs a fetch FETCH_READ_SECONDS_MAX, however many partitions it has.
        """
        is_over = self._inputs.now_s >= self.end_s
        if not is_over and not self._is_store_away:
            return len(chunks)
        for number, (chunk, compression) in enumerate(zip(chunks, compressions, strict=True)):
            is_missing = self._memory.is_missing(chunk, compression)
            if is_missing or (is_over and not self._memory.holds(chunk, compression)):
                return number
        return len(chunks)

    def _report(self, requested: RequestedPartition, error: StoreError) -> None:
        """Note a read that only an operator can mend, with the names that the state has for it now."""
        state, offset = self._inputs.state, requested.fetch_offset
        readable = find_partition(state, requested, IsolationLevel.READ_UNCOMMITTED)
        topic = key = None
        if isinstance(readable, ReadablePartition):
            topic = readable.topic.name
            chunk = next(iter(chunks_from(readable.partition, offset, 0)), None)
            stored = None if chunk is None else state.objects.get(chunk.object_id)
            key = None if stored is None else stored.key
        self.unreadable.append(UnreadableRead(error, topic, requested.partition, offset, key))
