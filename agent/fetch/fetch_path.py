"""From a consumer's wish to record batches: wait for enough, plan, read, cut to size.

Rule: a fetch beyond the end that this agent knows, which is the last stable offset where it reads what is committed,
takes a barrier first, and one at its end is turned away where the ledger has not confirmed this agent's session for a
lease's time: what it sees may be cut off (safety rule S4). What is missing means plan again, never an empty answer
(S6). Waiting is for the state's change, not for timers. Whole batches only, and at least one however small the limit.
What has to be read takes its share of one budget for all fetches first. A store that does not answer costs a fetch a
bounded time, however many partitions it names.
The state may be another object after every await: partitions are looked up anew.
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
from agent.fetch.read_budget import ReadBudget, Share
from agent.fetch.sessions import WantedPartition
from agent.fetch.unreadable_records import UnreadableRecords
from agent.fetch.wait import FetchWait
from agent.ledger.apply_loop import ApplyLoop, PartitionKey
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


NO_REPLICA = -1


@dataclass(slots=True)
class PartitionRead:
    """The answer of one partition. Without an error `high_watermark`, `last_stable` and `log_start` are set."""

    wanted: WantedPartition
    error_code: ErrorCode = ErrorCode.none
    high_watermark: int = -1
    last_stable: int = -1
    log_start: int = -1
    records: list[Buffer] = field(default_factory=list)
    record_bytes: int = 0
    offset_next: int = -1
    """Where the consumer goes on, where there are records."""
    aborted: list[AbortedRange] = field(default_factory=list)
    """Which transactions a read_committed consumer takes for aborted in these records."""
    is_diverging: bool = False
    """The consumer has read beyond the log's end: it is told where that is, and truncates (KIP-320)."""
    preferred_read_replica: int = NO_REPLICA
    """The node in the consumer's rack that it is to ask instead (KIP-392)."""


class FetchPath:
    """Answers fetches of any partition."""

    def __init__(
        self,
        *,
        metadata: ApplyLoop,
        topics: TopicAdmin,
        reader: ChunkReader,
        budget: ReadBudget,
        ahead: ReadAhead,
        clock: Clock,
        broker_configs: Mapping[str, str],
        confirmed_s: Callable[[], float],
        metrics: Metrics,
    ) -> None:
        """`confirmed_s`: the monotonic time when the ledger was asked last that then confirmed this agent's session."""
        self._metadata = metadata
        self._topics = topics
        self._reader = reader
        self._budget = budget
        self._ahead = ahead
        self._clock = clock
        self._broker_configs = broker_configs
        self._confirmed_s = confirmed_s
        self._unreadable = UnreadableRecords(metadata=metadata, damaged=reader.damaged, clock=clock, metrics=metrics)

    async def fetch(
        self,
        wanted: Sequence[WantedPartition],
        *,
        max_wait_ms: int,
        bytes_min: int,
        bytes_max: int,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        fetch_wait: FetchWait | None = None,
        room: Callable[[], int] | None = None,
    ) -> list[PartitionRead]:
        """Answers for all of `wanted`, in order, once `bytes_min` are there or `max_wait_ms` are over.

        What is not in memory is read when there is room for it; if there is none for `max_wait_ms`, the answers tell
        errors and marks, and no records. When `fetch_wait` ends it waits for neither. `room` tells, once the waiting is
        over, how many bytes there is memory for.
        """
        bytes_max = min(bytes_max, FETCH_RESPONSE_BYTES_MAX)
        deadline_s = self._clock.monotonic_s() + max_wait_ms / 1000
        request = PendingFetch(
            wanted, isolation, min(bytes_min, bytes_max), bytes_max, deadline_s, fetch_wait or FetchWait()
        )
        await self._wait(request)
        if room is not None:
            request.bytes_max = min(bytes_max, room())
        plan = await self._plan(request)
        share = await self._share(request, plan)
        if share is None:
            return await self._read_all(request, None)
        if room is not None:
            request.bytes_max = min(request.bytes_max, room())
        request.read_until_s = self._clock.monotonic_s() + FETCH_READ_SECONDS_MAX
        with share:
            if len(wanted) > 1:
                # What fails here fails again where its partition is read, and is answered there.
                await self._read_counted(request, share, plan.chunks, plan.compressions, is_more=True)
            reads = await self._read_all(request, share)
        self._ahead.answered(self._metadata.state, request.steps, has_read=share.bytes_read > 0)
        return reads

    async def marks(self, wanted: Sequence[WantedPartition], isolation: IsolationLevel) -> list[PartitionRead]:
        """Answers for all of `wanted`, in order, at once and without records."""
        return await self._read_all(PendingFetch(wanted, isolation, 0, 0, 0.0, FetchWait()), None)

    async def _share(self, request: PendingFetch, plan: ReadPlan) -> Share | None:
        """Room for what is to be read, in turn; None if its turn does not come in as long as the fetch may wait."""
        share = self._budget.take_now(plan.bytes_to_read)
        wait_s = request.deadline_s - self._clock.monotonic_s()
        if share is not None or wait_s <= 0 or request.fetch_wait.is_over:
            return share
        try:
            async with self._clock.timeout(wait_s):
                return await self._budget.take(plan.bytes_to_read, request.fetch_wait)
        except TimeoutError:
            return None

    async def _read_all(self, request: PendingFetch, share: Share | None) -> list[PartitionRead]:
        reads: list[PartitionRead] = []
        bytes_left = request.bytes_max
        for number, partition in enumerate(request.wanted, 1):
            read = await self._read(request, share, partition, bytes_left, is_first=bytes_left == request.bytes_max)
            bytes_left -= read.record_bytes
            reads.append(read)
            await self._yield_at(number)
        return reads

    async def _yield_at(self, number: int) -> None:
        """Let others run after every so many partitions."""
        if number % ROWS_PER_TURN == 0:
            await self._clock.sleep(0)

    async def _wait(self, request: PendingFetch) -> None:
        """Return when there is something to say: an error, enough bytes, the end of the wait, or of this agent's trust
        in what it sees.
        """
        while True:
            keys: list[PartitionKey] = []
            for number, partition in enumerate(request.wanted, 1):
                found = await self._find(request, partition)
                if isinstance(found, ErrorCode) or found.is_diverging:
                    return
                keys.append(found.key)
                await self._yield_at(number)
            if not keys or request.fetch_wait.is_over:
                return
            now_s = self._clock.monotonic_s()
            wait_s = min(request.deadline_s, self._trusted_until_s()) - now_s
            if wait_s <= 0:
                return
            # Watched before it is counted: what is committed in between wakes the wait.
            growth = self._metadata.watch(keys)
            request.fetch_wait.wakes(growth.notify)
            try:
                if await self._is_enough(request, keys):
                    return
                async with self._clock.timeout(wait_s):
                    await growth.wait()
            except TimeoutError:
                continue  # the session may have been confirmed meanwhile
            finally:
                self._metadata.unwatch(growth)

    def _trusted_until_s(self) -> float:
        """Until when what this agent sees is taken for all there is (safety rule S4)."""
        return self._confirmed_s() + LEDGER_SESSION_SECONDS

    async def _is_enough(self, request: PendingFetch, keys: Sequence[PartitionKey]) -> bool:
        """Whether there is something to say now: enough bytes, or a topic that was deleted meanwhile."""
        available = 0
        for number, (wanted, key) in enumerate(zip(request.wanted, keys, strict=True), 1):
            partition = self._metadata.state.partition(*key)
            if partition is None:
                return True
            end = visible_end(partition, request.isolation)
            available += available_bytes(partition, wanted.fetch_offset, request.bytes_max - available, end)
            if available >= request.bytes_min:
                return True
            await self._yield_at(number)
        return available >= request.bytes_min

    async def _find(self, request: PendingFetch, wanted: WantedPartition) -> ReadablePartition | ErrorCode:
        """The partition if `wanted` can be read from it.

        Before anything is called unknown or out of range a barrier is taken, one for all of a request.
        """
        found = self._find_now(wanted, request.isolation)
        if not _needs_barrier(found):
            return found
        if request.is_confirmed is None:
            request.is_confirmed = await self._barrier()
            found = self._find_now(wanted, request.isolation)
        return found if request.is_confirmed or not _needs_barrier(found) else ErrorCode.not_leader_or_follower

    async def _barrier(self) -> bool:
        """Whether the ledger answered: then everything that was in it is applied."""
        try:
            await self._metadata.barrier()
        except LedgerUnavailable:
            return False
        return True

    def _find_now(self, wanted: WantedPartition, isolation: IsolationLevel) -> ReadablePartition | ErrorCode:
        """The partition, or why it cannot be read, as far as this agent has applied the ledger."""
        by_id = isinstance(wanted.topic, bytes)
        if isinstance(wanted.topic, str):
            topic = self._topics.known(wanted.topic)
        else:
            topic = self._metadata.state.topics.get(TopicId(wanted.topic))
        if topic is None:
            return ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
        if not 0 <= wanted.partition < len(topic.partitions):
            return ErrorCode.unknown_topic_or_partition
        epoch_error = leader_epoch_error(max(wanted.current_leader_epoch, NO_LEADER_EPOCH))
        if epoch_error is not ErrorCode.none:
            return epoch_error
        partition = topic.partitions[wanted.partition]
        if wanted.last_fetched_epoch == LEADER_EPOCH and wanted.fetch_offset > partition.log_end:
            return ReadablePartition(topic, partition, wanted.partition, is_diverging=True)
        is_epoch_unknown = wanted.last_fetched_epoch > LEADER_EPOCH
        if is_epoch_unknown or not partition.log_start <= wanted.fetch_offset <= partition.log_end:
            return ErrorCode.offset_out_of_range
        is_beyond = partition.transactions is not None and wanted.fetch_offset > visible_end(partition, isolation)
        return ReadablePartition(topic, partition, wanted.partition, is_beyond_stable=is_beyond)

    async def _read(
        self, request: PendingFetch, share: Share | None, wanted: WantedPartition, bytes_left: int, *, is_first: bool
    ) -> PartitionRead:
        """Read one partition, planning again where an object is gone meanwhile; without a share only its marks."""
        for _ in range(READ_PLANS_MAX):
            found = await self._find(request, wanted)
            if isinstance(found, ErrorCode):
                return PartitionRead(wanted, found)
            partition = found.partition
            read = PartitionRead(
                wanted,
                high_watermark=partition.log_end,
                last_stable=partition.last_stable,
                log_start=partition.log_start,
            )
            if found.is_diverging:
                read.is_diverging = True
                return read
            is_at_end = wanted.fetch_offset >= visible_end(partition, request.isolation)
            if is_at_end and self._clock.monotonic_s() >= self._trusted_until_s():
                break
            bytes_max = min(bytes_left, wanted.partition_max_bytes)
            if share is None or is_at_end or (bytes_max <= 0 and not is_first):
                return read
            compression = archive_compression(found.topic, self._broker_configs)
            step = FetchStep(found.key, wanted.fetch_offset, wanted.fetch_offset, bytes_max, compression)
            try:
                await self._read_chunks(request, share, step, read, is_first=is_first)
            except ObjectMissing:
                if await self._barrier():
                    continue
                request.is_store_away = True  # nothing can be planned again: this is not waited for once more
                break
            except StoreUnavailable:
                break
            except ObjectDamaged as error:
                self._unreadable.damaged(self._found_now(wanted), wanted.fetch_offset, error)
                return PartitionRead(wanted, ErrorCode.kafka_storage_error)
            except StoreError as error:
                self._unreadable.refused(found, wanted.fetch_offset, error)
                return PartitionRead(wanted, ErrorCode.kafka_storage_error)
            if read.records:
                request.steps.append(step._replace(offset_next=read.offset_next))
            return read
        else:
            self._unreadable.lost(self._found_now(wanted), wanted.fetch_offset)
        return PartitionRead(wanted, ErrorCode.not_leader_or_follower)

    def _found_now(self, wanted: WantedPartition) -> ReadablePartition | None:
        found = self._find_now(wanted, IsolationLevel.READ_UNCOMMITTED)
        return None if isinstance(found, ErrorCode) else found

    async def _read_chunks(
        self, request: PendingFetch, share: Share, step: FetchStep, read: PartitionRead, *, is_first: bool
    ) -> None:
        """Read on, plan after plan, until the limit cuts a chunk short or the mark that is told is reached.

        Where a chunk cannot be read, what comes before it is the answer; a fetch that begins with it gets the error.
        Archiving may join chunks on both sides of the mark meanwhile: then the mark that is told is raised. It may also
        join what is read already with what is next: then the answer ends between them.
        """
        is_committed = request.isolation is IsolationLevel.READ_COMMITTED
        offset, bytes_max = step.offset_first, step.bytes_max
        mark = read.last_stable if is_committed else read.high_watermark
        aborted = AbortedTransactions(Offset(offset)) if is_committed else None
        while chunks := self._chunks_from(step.key, offset, bytes_max - read.record_bytes, mark, aborted):
            is_more = bool(read.records)
            compressions = [step.compression] * len(chunks)
            served_chunks = await self._read_counted(request, share, chunks, compressions, is_more=is_more)
            for chunk, served in zip(chunks, served_chunks, strict=False):
                if read.records and chunk.offset_first < offset:
                    # Joined meanwhile with what is in the answer: some clients would take its records a second time.
                    return
                at_least_one = is_first and not read.records
                # A chunk may hold records before and behind the first one of an open transaction.
                cut = mark if chunk.offset_end > mark and not chunk.is_archived else None
                bytes_left = bytes_max - read.record_bytes
                part = served.from_offset(offset, bytes_left, at_least_one=at_least_one, offset_end=cut)
                if part.records:
                    read.records.append(part.records)
                    read.record_bytes += len(part.records)
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
        partition = self._metadata.state.partition(*key)
        chunks = [] if partition is None else chunks_from(partition, offset, bytes_max, offset_end=mark)
        if partition is None or not chunks or aborted is None:
            return chunks
        return chunks if aborted.plan(partition, offset, chunks[-1].offset_end) else []

    async def _read_counted(
        self,
        request: PendingFetch,
        share: Share,
        chunks: Sequence[ChunkRef],
        compressions: Sequence[Compression],
        *,
        is_more: bool,
    ) -> list[ServedChunk]:
        """`ChunkReader.read`; what was not in memory counts as part of the share.

        With `is_more` there is an answer without them: none are returned where the first cannot be read, or where there
        is no room for them. Raises as that does; `StoreUnavailable` also where the fetch may not wait for the store.
        """
        missing = [n for n, chunk in enumerate(chunks) if not self._reader.holds(chunk, compressions[n])]
        within = None
        if missing:
            within = self._clock.timeout(max(request.read_until_s - self._clock.monotonic_s(), 0.0))
            readable_count = self._readable_count(request, chunks, compressions)
            if readable_count == 0:
                if is_more:
                    return []
                raise StoreUnavailable("the store has not answered what was read before")
            chunks, compressions = chunks[:readable_count], compressions[:readable_count]
        if is_more and not share.has_room_for(stored_bytes(chunks[n] for n in missing if n < len(chunks))):
            return []
        try:
            served_chunks = await self._reader.read(self._metadata.state, chunks, compressions, share, within=within)
        except StoreError as error:
            request.is_store_away |= isinstance(error, StoreUnavailable)
            if is_more:
                return []
            raise
        share.count(sum(len(served_chunks[n].buffer) for n in missing if n < len(served_chunks)))
        return served_chunks

    def _readable_count(
        self, request: PendingFetch, chunks: Sequence[ChunkRef], compressions: Sequence[Compression]
    ) -> int:
        """How many of the chunks, from the first on, the fetch may still wait for."""
        is_over = self._clock.monotonic_s() >= request.read_until_s
        if not is_over and not request.is_store_away:
            return len(chunks)
        for number, (chunk, compression) in enumerate(zip(chunks, compressions, strict=True)):
            is_missing = self._reader.is_missing(chunk, compression)
            if is_missing or (is_over and not self._reader.holds(chunk, compression)):
                return number
        return len(chunks)

    async def _plan(self, request: PendingFetch) -> ReadPlan:
        """Plan the reads of several partitions together, so that neighbours in one object are one request.

        A row group that several partitions share counts once for those of them that are in memory, and once for those
        that are not. So no more is planned than the fetch accepts, and one chunk.
        """
        plan = ReadPlan()
        bytes_left = request.bytes_max
        counted: set[tuple[int, int, bool]] = set()
        for number, partition in enumerate(request.wanted, 1):
            await self._yield_at(number)
            if bytes_left <= 0:
                break
            found = await self._find(request, partition)
            if isinstance(found, ErrorCode) or found.is_diverging:
                continue
            limit = min(bytes_left, partition.partition_max_bytes)
            end = visible_end(found.partition, request.isolation)
            planned = chunks_from(found.partition, partition.fetch_offset, limit, offset_end=end)
            compression = archive_compression(found.topic, self._broker_configs)
            for chunk in planned:
                is_held = self._reader.holds(chunk, compression)
                expected = chunk.byte_count
                if chunk.is_archived:
                    place = (chunk.object_id, chunk.row_group, is_held)
                    if place in counted:
                        continue
                    counted.add(place)
                    expected = expected_bytes(chunk, limit)
                bytes_left -= expected
                if not is_held:
                    plan.bytes_to_read += expected
            plan.chunks += planned
            plan.compressions += [compression] * len(planned)
        return plan


def _needs_barrier(found: ReadablePartition | ErrorCode) -> bool:
    """Whether this may be so only because this agent is behind (safety rule S4)."""
    if isinstance(found, ReadablePartition):
        return found.is_diverging or found.is_beyond_stable
    return found in NEEDS_BARRIER
