"""From a consumer's wish to record batches: wait for enough, plan, read, cut to size.

Rule: a fetch beyond the end that this agent knows takes a barrier first (safety rule S4); a missing object means plan
again, never an empty answer (S6). Waiting is for the state's change, not for timers. Whole batches only, and at least
one however small the limit.
Source: org.apache.kafka.server.ReplicaManager.fetchMessages and readFromLog, DelayedFetch (Kafka 4.3).
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from agent.chunk_reader import ChunkReader
from agent.clock import Clock
from agent.cluster_view import NO_LEADER_EPOCH, leader_epoch_error
from agent.fetch_sessions import WantedPartition
from agent.metadata_loop import MetadataLoop
from agent.topics import TopicAdmin
from coordinator.chunk_index import ChunkRef
from coordinator.log import LedgerUnavailable
from coordinator.state import PartitionState, TopicState
from coordinator.topic_configs import effective
from protocol.compression import Compression
from protocol.errors import ErrorCode
from protocol.limits import FETCH_RESPONSE_BYTES_MAX
from protocol.types import LEADER_EPOCH, PartitionIndex, TopicId
from storage.object_store import Buffer, ObjectMissing, StoreError, StoreUnavailable

log = logging.getLogger(__name__)

PARTITIONS_PER_TURN = 2_000
"""Partitions of one fetch that are gone through before other tasks have their turn."""
PLANS_MAX = 3
"""How often a read is planned again before the client is told to ask again itself."""

BEHIND_PERHAPS = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
    ErrorCode.offset_out_of_range,
)


@dataclass(slots=True)
class PartitionRead:
    """What one partition answers. Without an error `high_watermark` and `log_start` are set."""

    wanted: WantedPartition
    error_code: ErrorCode = ErrorCode.none
    high_watermark: int = -1
    log_start: int = -1
    records: list[Buffer] = field(default_factory=list)
    record_bytes: int = 0
    is_diverging: bool = False
    """The consumer has read beyond the log's end: it is told where that is, and truncates (KIP-320)."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A partition that can be read, as it stands in the state now."""

    topic: TopicState
    partition: PartitionState
    number: int
    is_diverging: bool = False
    """The consumer read this epoch beyond its end."""

    @property
    def key(self) -> tuple[TopicId, PartitionIndex]:
        return self.topic.topic_id, PartitionIndex(self.number)


@dataclass(slots=True)
class _Request:
    """One fetch under way."""

    wanted: Sequence[WantedPartition]
    bytes_min: int
    bytes_max: int
    is_confirmed: bool | None = None
    """Whether its barrier was answered; None where none was taken so far."""


class FetchPath:
    """Answers fetches of any partition."""

    def __init__(
        self,
        *,
        metadata: MetadataLoop,
        topics: TopicAdmin,
        reader: ChunkReader,
        clock: Clock,
        broker_configs: dict[str, str],
    ) -> None:
        self._metadata = metadata
        self._topics = topics
        self._reader = reader
        self._clock = clock
        self._broker_configs = broker_configs

    async def fetch(
        self, wanted: Sequence[WantedPartition], *, max_wait_ms: int, bytes_min: int, bytes_max: int
    ) -> list[PartitionRead]:
        """Answers for all of `wanted`, in order, once `bytes_min` are there or `max_wait_ms` are over."""
        bytes_max = min(bytes_max, FETCH_RESPONSE_BYTES_MAX)
        request = _Request(wanted, min(bytes_min, bytes_max), bytes_max)
        await self._wait(request, self._clock.monotonic_s() + max_wait_ms / 1000)
        if len(wanted) > 1:
            await self._read_ahead(request)
        reads: list[PartitionRead] = []
        bytes_left = bytes_max
        for number, partition in enumerate(wanted, 1):
            read = await self._read(request, partition, bytes_left, is_first=bytes_left == bytes_max)
            bytes_left -= read.record_bytes
            reads.append(read)
            await self._yield_at(number)
        return reads

    async def _yield_at(self, number: int) -> None:
        """Let others run after every so many partitions."""
        if number % PARTITIONS_PER_TURN == 0:
            await self._clock.sleep(0)

    async def _wait(self, request: "_Request", deadline_s: float) -> None:
        """Return when there is something to say: an error, enough bytes, or the end of the wait."""
        while True:
            each_found: list[_Found] = []
            for number, partition in enumerate(request.wanted, 1):
                found = await self._find(request, partition)
                if isinstance(found, ErrorCode) or found.is_diverging:
                    return
                each_found.append(found)
                await self._yield_at(number)
            if not each_found or self._clock.monotonic_s() >= deadline_s:
                return
            # Watched before it is counted: what is committed in between wakes the wait.
            growth = self._metadata.watch([found.key for found in each_found])
            try:
                if await self._is_enough(request, each_found):
                    return
                async with self._clock.timeout(deadline_s - self._clock.monotonic_s()):
                    await growth.wait()
            except TimeoutError:
                return
            finally:
                self._metadata.unwatch(growth)

    async def _is_enough(self, request: "_Request", each_found: Sequence["_Found"]) -> bool:
        """Whether there is something to say now: enough bytes, or a topic that was deleted meanwhile."""
        available = 0
        for number, (partition, found) in enumerate(zip(request.wanted, each_found, strict=True), 1):
            if found.topic.topic_id not in self._metadata.state.topics:
                return True
            available += _available_bytes(found.partition, partition.fetch_offset, request.bytes_max - available)
            if available >= request.bytes_min:
                return True
            await self._yield_at(number)
        return available >= request.bytes_min

    async def _find(self, request: "_Request", wanted: WantedPartition) -> "_Found | ErrorCode":
        """The partition if `wanted` can be read from it.

        Before anything is called unknown or out of range a barrier is taken, one for all of a request.
        """
        found = self._find_now(wanted)
        if not _needs_barrier(found):
            return found
        if request.is_confirmed is None:
            try:
                await self._metadata.barrier()
                request.is_confirmed = True
            except LedgerUnavailable:
                request.is_confirmed = False
            found = self._find_now(wanted)
        return found if request.is_confirmed or not _needs_barrier(found) else ErrorCode.not_leader_or_follower

    def _find_now(self, wanted: WantedPartition) -> "_Found | ErrorCode":
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
            return _Found(topic, partition, wanted.partition, is_diverging=True)
        is_epoch_unknown = wanted.last_fetched_epoch > LEADER_EPOCH
        if is_epoch_unknown or not partition.log_start <= wanted.fetch_offset <= partition.log_end:
            return ErrorCode.offset_out_of_range
        return _Found(topic, partition, wanted.partition)

    async def _read(
        self, request: "_Request", wanted: WantedPartition, bytes_left: int, *, is_first: bool
    ) -> PartitionRead:
        """Read one partition, planning again where an object is gone meanwhile."""
        for _ in range(PLANS_MAX):
            found = await self._find(request, wanted)
            if isinstance(found, ErrorCode):
                return PartitionRead(wanted, found)
            partition = found.partition
            read = PartitionRead(wanted, high_watermark=partition.log_end, log_start=partition.log_start)
            if found.is_diverging:
                read.is_diverging = True
                return read
            bytes_max = min(bytes_left, wanted.partition_max_bytes)
            if wanted.fetch_offset == partition.log_end or (bytes_max <= 0 and not is_first):
                return read
            try:
                await self._read_chunks(found, read, bytes_max, is_first=is_first)
            except ObjectMissing:
                await self._metadata.barrier()
                continue
            except StoreUnavailable:
                break
            except StoreError as error:
                log.error(
                    "records cannot be read",
                    extra={"topic": found.topic.name, "partition": wanted.partition, "reason": str(error)},
                )
                return PartitionRead(wanted, ErrorCode.kafka_storage_error)
            return read
        return PartitionRead(wanted, ErrorCode.not_leader_or_follower)

    async def _read_chunks(self, found: _Found, read: PartitionRead, bytes_max: int, *, is_first: bool) -> None:
        """Read on, plan after plan, until the limit cuts a chunk short or the mark that is told is reached.

        Archiving may join chunks on both sides of the mark meanwhile: then the mark that is told is raised.
        """
        offset = read.wanted.fetch_offset
        compression = archive_compression(found.topic, self._broker_configs)
        mark = read.high_watermark
        while chunks := chunks_from(found.partition, offset, bytes_max - read.record_bytes, offset_end=mark):
            served_chunks = await self._reader.read(self._metadata.state, chunks, [compression] * len(chunks))
            for chunk, served in zip(chunks, served_chunks, strict=True):
                at_least_one = is_first and not read.records
                part, is_rest = served.from_offset(offset, bytes_max - read.record_bytes, at_least_one=at_least_one)
                if part:
                    read.records.append(part)
                    read.record_bytes += len(part)
                    read.high_watermark = max(read.high_watermark, chunk.offset_end)
                if not is_rest or read.record_bytes >= bytes_max:
                    return
                offset = chunk.offset_end

    async def _read_ahead(self, request: "_Request") -> None:
        """Read what several partitions want at once, so that neighbours in one object are one request.

        What fails here fails again where its partition is read, and is answered there.
        """
        chunks: list[ChunkRef] = []
        compressions: list[Compression] = []
        bytes_max = request.bytes_max
        for number, partition in enumerate(request.wanted, 1):
            await self._yield_at(number)
            if bytes_max <= 0:
                break
            found = await self._find(request, partition)
            if isinstance(found, ErrorCode) or found.is_diverging:
                continue
            limit = min(bytes_max, partition.partition_max_bytes)
            planned = chunks_from(found.partition, partition.fetch_offset, limit)
            chunks += planned
            compressions += [archive_compression(found.topic, self._broker_configs)] * len(planned)
            bytes_max -= sum(chunk.byte_count for chunk in planned)
        with suppress(StoreError):
            await self._reader.read(self._metadata.state, chunks, compressions)


def chunks_from(
    partition: PartitionState, offset: int, bytes_max: int, *, offset_end: int | None = None
) -> list[ChunkRef]:
    """The chunks that hold `offset` and what follows, until their bytes reach `bytes_max`; at least one.

    With `offset_end` only chunks that begin before it.

    How many bytes archived records are served as is not known before they are read, so such a chunk ends the plan.
    """
    row = partition.index.locate(offset)
    chunks: list[ChunkRef] = []
    byte_count = 0
    while row is not None and row < len(partition.index):
        chunk = partition.index.row(row)
        if offset_end is not None and chunk.offset_first >= offset_end:
            break
        chunks.append(chunk)
        byte_count += chunk.byte_count
        if byte_count >= bytes_max or chunk.is_archived:
            break
        row += 1
    return chunks


def archive_compression(topic: TopicState, broker_configs: dict[str, str]) -> Compression:
    """How archived records are compressed when they are served: as the topic says, or not at all by default."""
    name = effective(topic.configs, broker_configs, "compression.type")
    return Compression[name.upper()] if name.upper() in Compression.__members__ else Compression.NONE


def _needs_barrier(found: _Found | ErrorCode) -> bool:
    """Whether this may be so only because this agent is behind (safety rule S4)."""
    if isinstance(found, _Found):
        return found.is_diverging
    return found in BEHIND_PERHAPS


def _available_bytes(partition: PartitionState, offset: int, bytes_wanted: int) -> int:
    """About how many bytes wait from `offset` on, up to `bytes_wanted`: chunks count whole, as they are stored."""
    if offset >= partition.log_end or bytes_wanted <= 0:
        return 0
    return sum(chunk.byte_count for chunk in chunks_from(partition, offset, bytes_wanted))
