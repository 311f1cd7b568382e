"""From the partitions of a Fetch request to record batches: wait for enough bytes, plan, read, cut to the limits.

In: partitions with offsets, limits and an isolation level. Out: a `PartitionRead` for each, in order: whole batches, or
an error code. Any agent can answer for any partition. The state may be another object after every await, so partitions
are looked up again.
Source: org.apache.kafka.server.ReplicaManager.fetchMessages and readFromLog, DelayedFetch (Kafka 4.3).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.admin.cluster_view import NO_LEADER_EPOCH, leader_epoch_error
from agent.admin.topics import TopicAdmin
from agent.cache.chunk_cache import ServedChunk
from agent.fetch.chunk_plan import archive_compression, available_bytes, chunks_from, expected_bytes, stored_bytes
from agent.fetch.chunk_reader import ChunkReader
from agent.fetch.isolation import AbortedTransactions, visible_end
from agent.fetch.pending_fetch import PendingFetch, ReadablePartition, ReadPlan
from agent.fetch.read_ahead import FetchStep, ReadAhead
from agent.fetch.read_budget import ReadBudget, Reservation
from agent.fetch.sessions import RequestedPartition
from agent.fetch.unreadable_records import UnreadableRecords
from agent.fetch.wait import FetchWait
from agent.ledger.apply_loop import PartitionKey
from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from coordinator.ledger.port import LedgerUnavailable
from coordinator.state.chunk_index import ChunkRef
from protocol.errors import ErrorCode
from protocol.limits import (
    FETCH_READ_SECONDS_MAX,
    FETCH_RESPONSE_BYTES_MAX,
    LEDGER_SESSION_SECONDS,
    READ_PLANS_MAX,
    ROWS_PER_TURN,
)
from protocol.records.compression import Compression
from protocol.types import LEADER_EPOCH, Offset, TopicId
from storage.object_store import Buffer, ObjectDamaged, ObjectMissing, StoreError, StoreUnavailable
from txn.isolation import AbortedRange, IsolationLevel

NEEDS_BARRIER = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
    ErrorCode.offset_out_of_range,
)
"""Errors that may only mean that this agent is behind the ledger (safety rule S4)."""
NO_REPLICA = -1


@dataclass(slots=True)
class PartitionRead:
    """The answer of one partition. Without an error `high_watermark`, `last_stable` and `log_start` are set."""

    requested: RequestedPartition
    error_code: ErrorCode = ErrorCode.none
    high_watermark: int = -1
    last_stable: int = -1
    log_start: int = -1
    records: list[Buffer] = field(default_factory=list)
    record_bytes: int = 0
    offset_next: int = -1
    """The offset of the consumer's next fetch, where there are records."""
    aborted: list[AbortedRange] = field(default_factory=list)
    """The aborted transactions of these records, for a read_committed consumer."""
    is_diverging: bool = False
    """The consumer has read beyond the log's end: the answer names that end, and the consumer truncates (KIP-320)."""
    preferred_read_replica: int = NO_REPLICA
    """The node in the consumer's rack that it should fetch from instead (KIP-392)."""


class FetchPath:
    """Answers fetches of any partition."""

    def __init__(
        self,
        *,
        ledger: LedgerClient,
        topics: TopicAdmin,
        reader: ChunkReader,
        budget: ReadBudget,
        ahead: ReadAhead,
        clock: Clock,
        broker_configs: Mapping[str, str],
        confirmed_s: Callable[[], float],
        metrics: Metrics,
    ) -> None:
        """`confirmed_s`: `LedgerClient.confirmed_s`, the last time at which this agent's state was the ledger's."""
        self._ledger = ledger
        self._topics = topics
        self._reader = reader
        self._budget = budget
        self._ahead = ahead
        self._clock = clock
        self._broker_configs = broker_configs
        self._confirmed_s = confirmed_s
        self._unreadable = UnreadableRecords(ledger=ledger, damaged=reader.damaged, clock=clock, metrics=metrics)

    async def fetch(
        self,
        targets: Sequence[RequestedPartition],
        *,
        max_wait_ms: int,
        bytes_min: int,
        bytes_max: int,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        fetch_wait: FetchWait | None = None,
        room: Callable[[], int] | None = None,
    ) -> list[PartitionRead]:
        """Answers for all of `targets`, in order, once `bytes_min` are available or `max_wait_ms` are over.

        Chunks that are not in memory are read once the budget of all fetches has bytes for them. Where it has none
        within `max_wait_ms`, the answers have errors, high watermarks and log starts, and no records. When `fetch_wait`
        ends, both waits end. `room` returns the bytes of memory for the answer; it is called after the waits.
        """
        bytes_max = min(bytes_max, FETCH_RESPONSE_BYTES_MAX)
        deadline_s = self._clock.monotonic_s() + max_wait_ms / 1000
        request = PendingFetch(
            targets, isolation, min(bytes_min, bytes_max), bytes_max, deadline_s, fetch_wait or FetchWait()
        )
        await self._wait(request)
        if room is not None:
            request.bytes_max = min(bytes_max, room())
        plan = await self._plan(request)
        reservation = await self._reserve(request, plan)
        if reservation is None:
            return await self._read_all(request, None)
        if room is not None:
            request.bytes_max = min(request.bytes_max, room())
        request.read_until_s = self._clock.monotonic_s() + FETCH_READ_SECONDS_MAX
        with reservation:
            if len(targets) > 1:
                # Read together, so that neighbours in one object take one request. An error here is ignored: it comes
                # again where its partition is read.
                await self._read_counted(request, reservation, plan.chunks, plan.compressions, is_more=True)
            reads = await self._read_all(request, reservation)
        self._ahead.answered(self._ledger.state, request.steps, has_read=reservation.bytes_read > 0)
        return reads

    async def marks(self, targets: Sequence[RequestedPartition], isolation: IsolationLevel) -> list[PartitionRead]:
        """Answers for all of `targets`, in order, without a wait and without records."""
        return await self._read_all(PendingFetch(targets, isolation, 0, 0, 0.0, FetchWait()), None)

    async def _reserve(self, request: PendingFetch, plan: ReadPlan) -> Reservation | None:
        """The reservation for the planned reads, in turn; None where the fetch may not wait until its turn comes."""
        reservation = self._budget.take_now(plan.bytes_to_read)
        wait_s = request.deadline_s - self._clock.monotonic_s()
        if reservation is not None or wait_s <= 0 or request.fetch_wait.is_over:
            return reservation
        try:
            async with self._clock.timeout(wait_s):
                return await self._budget.take(plan.bytes_to_read, request.fetch_wait)
        except TimeoutError:
            return None

    async def _read_all(self, request: PendingFetch, reservation: Reservation | None) -> list[PartitionRead]:
        reads: list[PartitionRead] = []
        bytes_left = request.bytes_max
        for number, partition in enumerate(request.targets, 1):
            read = await self._read(
                request, reservation, partition, bytes_left, is_first=bytes_left == request.bytes_max
            )
            bytes_left -= read.record_bytes
            reads.append(read)
            await self._yield_at(number)
        return reads

    async def _yield_at(self, number: int) -> None:
        """Let other tasks run after every ROWS_PER_TURN partitions."""
        if number % ROWS_PER_TURN == 0:
            await self._clock.sleep(0)

    async def _wait(self, request: PendingFetch) -> None:
        """Return when there is an answer: an error, enough bytes, the end of the wait, or of the state's confirmation.

        It waits for a change of the state, not for timers.
        """
        while True:
            keys: list[PartitionKey] = []
            for number, partition in enumerate(request.targets, 1):
                readable = await self._find(request, partition)
                if isinstance(readable, ErrorCode) or readable.is_diverging:
                    return
                keys.append(readable.key)
                await self._yield_at(number)
            if not keys or request.fetch_wait.is_over:
                return
            now_s = self._clock.monotonic_s()
            wait_s = min(request.deadline_s, self._trusted_until_s()) - now_s
            if wait_s <= 0:
                return
            # Watched before it is counted: a commit in between wakes the wait.
            growth = self._ledger.watch(keys)
            request.fetch_wait.wakes(growth.notify)
            try:
                if await self._is_enough(request, keys):
                    return
                async with self._clock.timeout(wait_s):
                    await growth.wait()
            except TimeoutError:
                continue  # the session may have been confirmed meanwhile
            finally:
                self._ledger.unwatch(growth)

    def _trusted_until_s(self) -> float:
        """The monotonic time until which this agent may say that a partition has no more records (safety rule S4).

        After a lease's time without the ledger's confirmation this agent may be cut off, and others may have written.
        """
        return self._confirmed_s() + LEDGER_SESSION_SECONDS

    async def _is_enough(self, request: PendingFetch, keys: Sequence[PartitionKey]) -> bool:
        """Whether there is an answer now: enough bytes, or a topic that was deleted meanwhile."""
        available = 0
        for number, (target, key) in enumerate(zip(request.targets, keys, strict=True), 1):
            partition = self._ledger.state.partition(*key)
            if partition is None:
                return True
            end = visible_end(partition, request.isolation)
            available += available_bytes(partition, target.fetch_offset, request.bytes_max - available, end)
            if available >= request.bytes_min:
                return True
            await self._yield_at(number)
        return available >= request.bytes_min

    async def _find(self, request: PendingFetch, target: RequestedPartition) -> ReadablePartition | ErrorCode:
        """The partition where it can be read, else the error for its consumer."""
        result = self._find_now(target, request.isolation)
        if not _needs_barrier(result):
            return result
        # One barrier for all partitions of a request. Where the ledger does not answer it, the consumer asks again: an
        # UNKNOWN_TOPIC or OFFSET_OUT_OF_RANGE by an old state would make it reset its position (S4).
        if request.is_confirmed is None:
            request.is_confirmed = await self._barrier()
            result = self._find_now(target, request.isolation)
        return result if request.is_confirmed or not _needs_barrier(result) else ErrorCode.not_leader_or_follower

    async def _barrier(self) -> bool:
        """Whether the ledger answered: then everything that was in it is applied."""
        try:
            await self._ledger.barrier()
        except LedgerUnavailable:
            return False
        return True

    def _find_now(self, target: RequestedPartition, isolation: IsolationLevel) -> ReadablePartition | ErrorCode:
        """The partition, or the error for its consumer, by the entries that this agent has applied."""
        by_id = isinstance(target.topic, bytes)
        if isinstance(target.topic, str):
            topic = self._topics.known(target.topic)
        else:
            topic = self._ledger.state.topics.get(TopicId(target.topic))
        if topic is None:
            return ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
        if not 0 <= target.partition < len(topic.partitions):
            return ErrorCode.unknown_topic_or_partition
        epoch_error = leader_epoch_error(max(target.current_leader_epoch, NO_LEADER_EPOCH))
        if epoch_error is not ErrorCode.none:
            return epoch_error
        partition = topic.partitions[target.partition]
        # KIP-320: the answer names the epoch's end, and the consumer truncates.
        if target.last_fetched_epoch == LEADER_EPOCH and target.fetch_offset > partition.log_end:
            return ReadablePartition(topic, partition, target.partition, is_diverging=True)
        # No log has an epoch above LEADER_EPOCH, so the consumer's position is of no log of this cluster.
        is_epoch_unknown = target.last_fetched_epoch > LEADER_EPOCH
        if is_epoch_unknown or not partition.log_start <= target.fetch_offset <= partition.log_end:
            return ErrorCode.offset_out_of_range
        # Another agent may have applied the end of a transaction and served records up to there (S4).
        is_beyond = partition.transactions is not None and target.fetch_offset > visible_end(partition, isolation)
        return ReadablePartition(topic, partition, target.partition, is_beyond_stable=is_beyond)

    async def _read(
        self,
        request: PendingFetch,
        reservation: Reservation | None,
        target: RequestedPartition,
        bytes_left: int,
        *,
        is_first: bool,
    ) -> PartitionRead:
        """Read one partition; plan again where an object is gone meanwhile. Without a reservation it reads no records.

        Every error after which Kafka's clients ask again is NOT_LEADER_OR_FOLLOWER.
        """
        for _ in range(READ_PLANS_MAX):
            readable = await self._find(request, target)
            if isinstance(readable, ErrorCode):
                return PartitionRead(target, readable)
            partition = readable.partition
            read = PartitionRead(
                target,
                high_watermark=partition.log_end,
                last_stable=partition.last_stable,
                log_start=partition.log_start,
            )
            if readable.is_diverging:
                read.is_diverging = True
                return read
            is_at_end = target.fetch_offset >= visible_end(partition, request.isolation)
            # An empty answer says that there are no more records, which a state that may be cut off cannot say (S4).
            if is_at_end and self._clock.monotonic_s() >= self._trusted_until_s():
                break
            bytes_max = min(bytes_left, target.partition_max_bytes)
            # The first partition with records is read however small the limit, so that the consumer advances (KIP-74).
            if reservation is None or is_at_end or (bytes_max <= 0 and not is_first):
                return read
            compression = archive_compression(readable.topic, self._broker_configs)
            step = FetchStep(readable.key, target.fetch_offset, target.fetch_offset, bytes_max, compression)
            try:
                await self._read_chunks(request, reservation, step, read, is_first=is_first)
            except ObjectMissing:
                # Another agent may have archived or deleted the chunk: behind a barrier the state says where its
                # records are now. An empty answer would look like the log's end (S6).
                if await self._barrier():
                    continue
                request.is_store_away = True  # without a barrier no partition can be planned again: no more waits
                break
            except StoreUnavailable:
                break
            except ObjectDamaged as error:
                self._unreadable.damaged(self._readable_now(target), target.fetch_offset, error)
                return PartitionRead(target, ErrorCode.kafka_storage_error)
            except StoreError as error:
                self._unreadable.rejected(readable, target.fetch_offset, error)
                return PartitionRead(target, ErrorCode.kafka_storage_error)
            if read.records:
                request.steps.append(step._replace(offset_next=read.offset_next))
            return read
        else:
            self._unreadable.missing(self._readable_now(target), target.fetch_offset)
        return PartitionRead(target, ErrorCode.not_leader_or_follower)

    def _readable_now(self, target: RequestedPartition) -> ReadablePartition | None:
        result = self._find_now(target, IsolationLevel.READ_UNCOMMITTED)
        return None if isinstance(result, ErrorCode) else result

    async def _read_chunks(
        self, request: PendingFetch, reservation: Reservation, step: FetchStep, read: PartitionRead, *, is_first: bool
    ) -> None:
        """Read plan after plan, until the limit cuts a chunk short or the visible end of the first plan is reached.

        The result goes into `read`. Where a chunk cannot be read, the records before it are the answer; a fetch that
        begins with it raises its error.
        """
        is_committed = request.isolation is IsolationLevel.READ_COMMITTED
        offset, bytes_max = step.offset_first, step.bytes_max
        visible_until = read.last_stable if is_committed else read.high_watermark
        aborted = AbortedTransactions(Offset(offset)) if is_committed else None
        while chunks := self._chunks_from(step.key, offset, bytes_max - read.record_bytes, visible_until, aborted):
            is_more = bool(read.records)
            compressions = [step.compression] * len(chunks)
            served_chunks = await self._read_counted(request, reservation, chunks, compressions, is_more=is_more)
            for chunk, served in zip(chunks, served_chunks, strict=False):
                if read.records and chunk.offset_first < offset:
                    # An archive pass joined it with chunks of this answer: some clients would read these records twice.
                    return
                at_least_one = is_first and not read.records
                # An intake chunk may hold records before and behind the first one of an open transaction.
                cut = visible_until if chunk.offset_end > visible_until and not chunk.is_archived else None
                bytes_left = bytes_max - read.record_bytes
                part = served.from_offset(offset, bytes_left, at_least_one=at_least_one, offset_end=cut)
                if part.records:
                    read.records.append(part.records)
                    read.record_bytes += len(part.records)
                    # An archive pass may have joined chunks on both sides of the ends that were read before: the answer
                    # must not have records beyond its own high watermark or last stable offset.
                    read.high_watermark = max(read.high_watermark, chunk.offset_end)
                    if chunk.offset_end > read.last_stable and chunk.is_archived:
                        read.last_stable = chunk.offset_end
                    read.offset_next = part.offset_end
                    if aborted is not None:
                        read.aborted = aborted.listed(part.offset_end)
                if not part.is_rest or read.record_bytes >= bytes_max:
                    return
                offset = chunk.offset_end
            if read.records and len(served_chunks) < len(chunks):
                return
        if not read.records:
            raise ObjectMissing(f"offset {offset} is not in the state any more")

    def _chunks_from(
        self, key: PartitionKey, offset: int, bytes_max: int, mark: int, aborted: AbortedTransactions | None
    ) -> list[ChunkRef]:
        partition = self._ledger.state.partition(*key)
        chunks = [] if partition is None else chunks_from(partition, offset, bytes_max, offset_end=mark)
        if partition is None or not chunks or aborted is None:
            return chunks
        return chunks if aborted.plan(partition, offset, chunks[-1].offset_end) else []

    async def _read_counted(
        self,
        request: PendingFetch,
        reservation: Reservation,
        chunks: Sequence[ChunkRef],
        compressions: Sequence[Compression],
        *,
        is_more: bool,
    ) -> list[ServedChunk]:
        """`ChunkReader.read`; chunks that were not in memory count towards the reservation.

        With `is_more` the answer has other records: no chunks are returned where the first cannot be read, or the
        budget has no bytes for them. Raises as `ChunkReader.read` does, and `StoreUnavailable` where the fetch may not
        wait for the store any more.
        """
        missing = [n for n, chunk in enumerate(chunks) if not self._reader.holds(chunk, compressions[n])]
        within = None
        if missing:
            within = self._clock.timeout(max(request.read_until_s - self._clock.monotonic_s(), 0.0))
            readable_count = self._readable_count(request, chunks, compressions)
            if readable_count == 0:
                if is_more:
                    return []
                raise StoreUnavailable("the store did not answer an earlier read of this fetch")
            chunks, compressions = chunks[:readable_count], compressions[:readable_count]
        if is_more and not reservation.has_room_for(stored_bytes(chunks[n] for n in missing if n < len(chunks))):
            return []
        try:
            served_chunks = await self._reader.read(
                self._ledger.state, chunks, compressions, reservation, within=within
            )
        except StoreError as error:
            request.is_store_away |= isinstance(error, StoreUnavailable)
            if is_more:
                return []
            raise
        reservation.count(sum(len(served_chunks[n].buffer) for n in missing if n < len(served_chunks)))
        return served_chunks

    def _readable_count(
        self, request: PendingFetch, chunks: Sequence[ChunkRef], compressions: Sequence[Compression]
    ) -> int:
        """The number of chunks, from the first on, that the fetch may still wait for.

        A store that does not answer costs a fetch FETCH_READ_SECONDS_MAX, however many partitions it has.
        """
        is_over = self._clock.monotonic_s() >= request.read_until_s
        if not is_over and not request.is_store_away:
            return len(chunks)
        for number, (chunk, compression) in enumerate(zip(chunks, compressions, strict=True)):
            is_missing = self._reader.is_missing(chunk, compression)
            if is_missing or (is_over and not self._reader.holds(chunk, compression)):
                return number
        return len(chunks)

    async def _plan(self, request: PendingFetch) -> ReadPlan:
        """Plan the reads of all partitions together, at most the bytes that the fetch accepts and one chunk more.

        A row group that several partitions share counts once for its chunks in memory, and once for the others.
        """
        plan = ReadPlan()
        bytes_left = request.bytes_max
        counted: set[tuple[int, int, bool]] = set()
        for number, partition in enumerate(request.targets, 1):
            await self._yield_at(number)
            if bytes_left <= 0:
                break
            readable = await self._find(request, partition)
            if isinstance(readable, ErrorCode) or readable.is_diverging:
                continue
            limit = min(bytes_left, partition.partition_max_bytes)
            end = visible_end(readable.partition, request.isolation)
            chunks = chunks_from(readable.partition, partition.fetch_offset, limit, offset_end=end)
            compression = archive_compression(readable.topic, self._broker_configs)
            for chunk in chunks:
                is_in_memory = self._reader.holds(chunk, compression)
                expected = chunk.byte_count
                if chunk.is_archived:
                    row_group = (chunk.object_id, chunk.row_group, is_in_memory)
                    if row_group in counted:
                        continue
                    counted.add(row_group)
                    expected = expected_bytes(chunk, limit)
                bytes_left -= expected
                if not is_in_memory:
                    plan.bytes_to_read += expected
            plan.chunks += chunks
            plan.compressions += [compression] * len(chunks)
        return plan


def _needs_barrier(result: ReadablePartition | ErrorCode) -> bool:
    """Whether the result may only mean that this agent is behind the ledger (safety rule S4)."""
    if isinstance(result, ReadablePartition):
        return result.is_diverging or result.is_beyond_stable
    return result in NEEDS_BARRIER
