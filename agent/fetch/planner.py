"""Decides what a fetch does next. Nothing here does I/O, awaits, or reads a clock.

`FetchPlanner.next` returns a step: a wait, a barrier, a read, or the answer. `agent.fetch.fetch_path` takes it, reports
its result, and calls `next` again. A fetch has three phases, each a generator of its steps:

    wait     until the partitions have enough bytes, one has an error, or the time is over
    plan     the chunks of all partitions together, and reserve memory to read them
    answer   partition after partition, by its error or its records (`agent.fetch.record_reads`)

A loop over partitions pauses after every ROWS_PER_TURN of them, so that a large fetch does not stop the event loop.

Source: org.apache.kafka.server.ReplicaManager.fetchMessages and readFromLog, DelayedFetch (Kafka 4.3).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.cache.chunk_cache import ServedChunk
from agent.fetch.chunk_plan import archive_compression, available_bytes, chunks_from, expected_bytes
from agent.fetch.isolation import visible_end
from agent.fetch.partition_lookup import PartitionLookup
from agent.fetch.partition_read import PartitionRead
from agent.fetch.read_budget import Reservation
from agent.fetch.record_reads import ChunkMemory, RecordReads
from agent.fetch.sessions import RequestedPartition
from agent.fetch.steps import PAUSE, FetchAnswer, FetchInputs, Step, Steps, WaitForMemory, WaitForRecords
from agent.fetch.wait import FetchWait
from agent.ledger.apply_loop import PartitionKey
from coordinator.state.chunk_index import ChunkRef
from coordinator.state.state import ClusterState
from protocol.errors import ErrorCode
from protocol.limits import FETCH_READ_SECONDS_MAX, ROWS_PER_TURN
from protocol.records.compression import Compression
from protocol.types import ObjectId
from storage.object_store import StoreError
from txn.isolation import IsolationLevel


@dataclass(slots=True)
class ReadPlan:
    """The chunks of all partitions of a fetch, which are read together before each partition is answered."""

    chunks: list[ChunkRef] = field(default_factory=list)
    compressions: list[Compression] = field(default_factory=list)
    bytes_to_read: int = 0
    """The estimated bytes of the chunks that are not in memory."""
    _row_groups: set[tuple[ObjectId, int, bool]] = field(default_factory=set)
    """Object and number of each row group that is counted, and whether it is for chunks in memory."""

    def add(self, chunks: Sequence[ChunkRef], compression: Compression, bytes_max: int, memory: ChunkMemory) -> int:
        """Add chunks of one partition, which accepts `bytes_max`; returns the estimated bytes of them.

        A row group that several partitions share counts once for its chunks in memory, and once for the others.
        """
        added_bytes = 0
        for chunk in chunks:
            is_in_memory = memory.holds(chunk, compression)
            expected = self._expected(chunk, bytes_max, is_in_memory=is_in_memory)
            added_bytes += expected
            if not is_in_memory:
                self.bytes_to_read += expected
        self.chunks += chunks
        self.compressions += [compression] * len(chunks)
        return added_bytes

    def add_produced(self, chunk: ChunkRef, bytes_max: int) -> int:
        """Count an archived chunk of which the produced batches are served, so that nothing is read for it.

        Returns the estimated bytes of it, as `add` does.
        """
        return self._expected(chunk, bytes_max, is_in_memory=True)

    def _expected(self, chunk: ChunkRef, bytes_max: int, *, is_in_memory: bool) -> int:
        if not chunk.is_archived:
            return chunk.byte_count
        row_group = (chunk.object_id, chunk.row_group, is_in_memory)
        if row_group in self._row_groups:
            return 0
        self._row_groups.add(row_group)
        return expected_bytes(chunk, bytes_max)


class FetchLimits(NamedTuple):
    """The limits of a fetch: of its records, and of its waits."""

    bytes_min: int
    """The fetch waits until so many bytes are available."""
    bytes_max: int
    deadline_s: float
    """The monotonic time at which the waits end: for records, and then for memory to read them."""
    fetch_wait: FetchWait
    """Ends both waits early."""
    capacity_bytes: Callable[[], int]
    """The bytes of memory that the answer may take; called after each of the two waits."""


class FetchPlanner:
    """The decisions of one fetch."""

    __slots__ = (
        "_broker_configs",
        "_bytes_max",
        "_inputs",
        "_isolation",
        "_memory",
        "_partitions",
        "_reads",
        "_requested",
        "_steps",
    )

    def __init__(
        self,
        requested: Sequence[RequestedPartition],
        isolation: IsolationLevel,
        limits: FetchLimits | None,
        *,
        memory: ChunkMemory,
        broker_configs: Mapping[str, str],
    ) -> None:
        """`memory` says which chunks are in memory.

        Without `limits` it answers at once, with errors, high watermarks and log starts, and without records.
        """
        self._requested = requested
        self._isolation = isolation
        self._memory = memory
        self._broker_configs = broker_configs
        self._bytes_max = 0 if limits is None else limits.bytes_max
        self._inputs = FetchInputs()
        self._partitions = PartitionLookup(self._inputs, isolation)
        self._reads = RecordReads(
            self._inputs, self._partitions, isolation, memory=memory, broker_configs=broker_configs
        )
        self._steps = self._answer() if limits is None else self._fetch(limits)

    @property
    def reservation(self) -> Reservation | None:
        """The memory for its reads; None where it reads nothing."""
        return self._inputs.reservation

    def next(self, state: ClusterState, now_s: float, current_until_s: float) -> Step | FetchAnswer:
        """The next step, or the answer, after which there is none. The arguments are those of `FetchInputs`."""
        inputs = self._inputs
        inputs.state, inputs.now_s, inputs.current_until_s = state, now_s, current_until_s
        try:
            return next(self._steps)
        except StopIteration as end:
            answer: FetchAnswer = end.value
            return answer

    def close(self) -> None:
        """Give the fetch up, if it is not answered. The steps and the planner refer to each other until then."""
        self._steps.close()

    def reserved(self, reservation: Reservation | None) -> None:
        """The result of a `WaitForMemory`; None where the memory did not come in time."""
        self._inputs.reservation = reservation

    def barrier_ended(self, *, is_answered: bool) -> None:
        """The result of a `Barrier`."""
        self._inputs.is_barrier_answered = is_answered

    def read_ended(self, result: Sequence[ServedChunk] | StoreError) -> None:
        """The result of a `ReadChunks`: the chunks up to the first that cannot be read, or that one's error."""
        self._inputs.read_result = result

    def _fetch(self, limits: FetchLimits) -> Steps[FetchAnswer]:
        """The three phases of a fetch. Without memory in time it answers errors, high watermarks and log starts."""
        inputs = self._inputs
        yield from self._wait_for_records(limits)
        self._bytes_max = min(self._bytes_max, limits.capacity_bytes())
        plan = yield from self._plan()
        yield WaitForMemory(plan.bytes_to_read, limits.deadline_s - inputs.now_s)
        if inputs.reservation is not None:
            self._bytes_max = min(self._bytes_max, limits.capacity_bytes())
            self._reads.end_s = inputs.now_s + FETCH_READ_SECONDS_MAX
            if len(self._requested) > 1 and plan.bytes_to_read > 0:
                # Read together, so that neighbours in one object take one request. An error here is ignored: it comes
                # again where its partition is read.
                yield from self._reads.read(plan.chunks, plan.compressions, inputs.reservation, is_more=True)
        return (yield from self._answer())

    def _wait_for_records(self, limits: FetchLimits) -> Steps[None]:
        """Ends when there is an answer: an error, enough bytes, or the end of the wait.

        The wait ends with `current_until_s`, too: after it this agent may not say that there are no more records.
        """
        while True:
            keys: list[PartitionKey] = []
            for number, requested in enumerate(self._requested, 1):
                readable = self._partitions.find(requested)
                if readable is None:
                    readable = yield from self._partitions.find_confirmed(requested)
                if isinstance(readable, ErrorCode) or readable.is_diverging:
                    return
                keys.append(readable.key)
                if number % ROWS_PER_TURN == 0:
                    yield PAUSE
            if not keys or limits.fetch_wait.is_over:
                return
            wait_s = min(limits.deadline_s, self._inputs.current_until_s) - self._inputs.now_s
            if wait_s <= 0 or (yield from self._is_enough(keys, min(limits.bytes_min, limits.bytes_max))):
                return
            yield WaitForRecords(keys, wait_s)

    def _is_enough(self, keys: Sequence[PartitionKey], bytes_min: int) -> Steps[bool]:
        """Whether there is an answer now: enough bytes, or a topic that was deleted meanwhile."""
        available = 0
        for number, (requested, key) in enumerate(zip(self._requested, keys, strict=True), 1):
            partition = self._inputs.state.partition(*key)
            if partition is None:
                return True
            end = visible_end(partition, self._isolation)
            available += available_bytes(partition, requested.fetch_offset, self._bytes_max - available, end)
            if available >= bytes_min:
                return True
            if number % ROWS_PER_TURN == 0:
                # Watched from here on: what grows while the others are counted ends the wait that follows.
                yield WaitForRecords(keys, 0.0)
        return False

    def _plan(self) -> Steps[ReadPlan]:
        """Plan the reads of all partitions together, at most the bytes that the fetch accepts and one chunk more."""
        plan = ReadPlan()
        bytes_left = self._bytes_max
        for number, requested in enumerate(self._requested, 1):
            if number % ROWS_PER_TURN == 0:
                yield PAUSE
            if bytes_left <= 0:
                break
            readable = self._partitions.find(requested)
            if readable is None:
                readable = yield from self._partitions.find_confirmed(requested)
            if isinstance(readable, ErrorCode) or readable.is_diverging:
                continue  # it is answered without records
            bytes_max = min(bytes_left, requested.partition_max_bytes)
            end = visible_end(readable.partition, self._isolation)
            chunks = chunks_from(readable.partition, requested.fetch_offset, bytes_max, offset_end=end)
            if not chunks:
                continue
            compression = archive_compression(readable.topic, self._broker_configs)
            if self._reads.has_produced(readable.key, chunks[0], requested.fetch_offset, compression):
                bytes_left -= plan.add_produced(chunks[0], bytes_max)
            else:
                bytes_left -= plan.add(chunks, compression, bytes_max, self._memory)
        return plan

    def _answer(self) -> Steps[FetchAnswer]:
        """The answers of all partitions, of which each gets the bytes that those before it have left."""
        answers: list[PartitionRead] = []
        bytes_left = self._bytes_max
        for number, requested in enumerate(self._requested, 1):
            is_first = bytes_left == self._bytes_max
            answer = yield from self._reads.answer(requested, bytes_left, is_first=is_first)
            bytes_left -= answer.record_bytes
            answers.append(answer)
            if number % ROWS_PER_TURN == 0:
                yield PAUSE
        return FetchAnswer(answers, self._reads.fetch_steps, self._reads.unreadable)
