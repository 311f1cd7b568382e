"""Takes the steps of a fetch's planner without an event loop: a state of chunks, and what became of each step."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from agent.cache.chunk_cache import ServedChunk
from agent.fetch.planner import FetchLimits, FetchPlanner
from agent.fetch.read_budget import ReadBudget, Reservation
from agent.fetch.sessions import RequestedPartition
from agent.fetch.steps import Barrier, FetchAnswer, ReadChunks, Step, WaitForMemory, WaitForRecords
from agent.fetch.wait import FetchWait
from agent.ledger.apply_loop import PartitionKey
from coordinator.state.chunk_index import NO_OBJECT, ChunkIndex, ChunkRef
from coordinator.state.state import ClusterState, ObjectState, PartitionState, TopicState
from protocol.records.batch import patch_offsets
from protocol.records.compression import Compression
from protocol.types import NO_TIMESTAMP, Milliseconds, ObjectId, Offset
from storage.object_store import StoreError
from storage.refs import ObjectKind
from tests.support.commands.commands import TOPIC
from tests.support.records.plain_records import Record, make_batch
from txn.isolation import IsolationLevel

MIB = 1 << 20
CURRENT_S = 10.0
"""How long the state of a `FetchWorld` counts as current."""


class FetchWorld:
    """A topic `t` on an agent whose clock stands still between steps. Every chunk is an object of its own."""

    def __init__(self, partition_count: int = 1, *, budget_bytes: int = 64 * MIB) -> None:
        self.state = ClusterState(cluster_id="c", incarnation=1)
        self.budget = ReadBudget(bytes_max=budget_bytes)
        self.now_s = 0.0
        self.current_until_s = CURRENT_S
        self.is_ledger_away = False
        self.in_memory: set[ObjectId] = set()
        self.being_read: set[ObjectId] = set()
        self.errors: dict[ObjectId, StoreError] = {}
        """Objects that cannot be read."""
        self.steps: list[Step] = []
        """The steps of all planners."""
        self.during: dict[type, Callable[[], object]] = {}
        """What happens during each step of a kind."""
        self._served: dict[ObjectId, ServedChunk] = {}
        self._replaced: dict[ObjectId, list[ChunkRef]] = {}
        """What is in memory as it was produced, by the archive file that replaced it."""
        self.create("t", partition_count)

    @property
    def topic(self) -> TopicState:
        return self.state.topics[TOPIC]

    @property
    def kinds(self) -> list[type]:
        """The kinds of the steps."""
        return [type(step) for step in self.steps]

    def create(self, name: str, partition_count: int = 1) -> None:
        topic = TopicState(
            topic_id=TOPIC,
            name=name,
            configs={},
            partitions=[PartitionState() for _ in range(partition_count)],
            created_ms=Milliseconds(0),
        )
        self.state.topics[TOPIC], self.state.topic_ids[name] = topic, TOPIC

    def append(
        self, partition: int = 0, *batch_sizes: int, is_in_memory: bool = False, error: StoreError | None = None
    ) -> ChunkRef:
        """One more chunk: a batch of one record for each size of a value, or one of 100 bytes."""
        grown, object_id = self.topic.partitions[partition], ObjectId(len(self._served) + 1)
        values = [bytes(size) for size in batch_sizes or (100,)]
        batches = bytearray().join(make_batch([Record(offset=0, timestamp=1, value=value)]) for value in values)
        grown.log_end = Offset(patch_offsets(batches, grown.log_end))
        grown.index.append(grown.log_end, object_id, 0, len(batches), 1, NO_TIMESTAMP)
        key = f"object-{object_id}"
        self.state.objects[object_id] = ObjectState(
            key=key, kind=ObjectKind.INTAKE, object_bytes=len(batches), references=1
        )
        self._served[object_id] = ServedChunk(batches)
        if is_in_memory:
            self.in_memory.add(object_id)
        if error is not None:
            self.errors[object_id] = error
        return grown.index.row(len(grown.index) - 1)

    def archive(self, *, is_produced_in_memory: bool) -> ChunkRef:
        """An archive file replaces all chunks of partition 0, which has a record for each offset."""
        index, object_id = self.topic.partitions[0].index, ObjectId(len(self._served) + 1)
        replaced = [index.row(row) for row in range(len(index))]
        batches = bytearray().join(bytes(self._served[chunk.object_id].buffer) for chunk in replaced)
        self._served[object_id] = ServedChunk(batches)
        if is_produced_in_memory:
            self._replaced[object_id] = replaced
        archived = replaced[-1]._replace(
            offset_first=replaced[0].offset_first,
            object_id=object_id,
            byte_count=len(batches),
            row_group=0,
            row_first=0,
            row_count=index.end - index.first,
        )
        index.replace(0, len(index), [archived])
        self.state.objects[object_id] = ObjectState(
            key=f"file-{object_id}", kind=ObjectKind.PARQUET, object_bytes=len(batches), references=1
        )
        return archived

    def holds(self, chunk: ChunkRef, _compression: Compression) -> bool:
        return chunk.object_id == NO_OBJECT or chunk.object_id in self.in_memory

    def from_memory(self, chunk: ChunkRef, compression: Compression) -> ServedChunk:
        assert self.holds(chunk, compression)
        return self._served[chunk.object_id]

    def is_missing(self, chunk: ChunkRef, compression: Compression) -> bool:
        return not self.holds(chunk, compression) and chunk.object_id not in self.being_read

    def has_produced(self, _key: PartitionKey, _index: ChunkIndex, chunk: ChunkRef, offset: int) -> bool:
        return bool(self._parts(chunk, offset))

    def produced(self, _key: PartitionKey, chunk: ChunkRef, offset: int) -> Iterator[tuple[ChunkRef, ServedChunk]]:
        yield from self._parts(chunk, offset)

    def _parts(self, chunk: ChunkRef, offset: int) -> list[tuple[ChunkRef, ServedChunk]]:
        parts = self._replaced.get(chunk.object_id, []) if chunk.is_archived else []
        return [(part, self._served[part.object_id]) for part in parts if part.offset_end > offset]

    def planner(
        self,
        *requested: RequestedPartition,
        bytes_min: int = 1,
        bytes_max: int = MIB,
        wait_s: float = 0.0,
        fetch_wait: FetchWait | None = None,
        capacity_bytes: Callable[[], int] = lambda: MIB,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        broker_configs: Mapping[str, str] | None = None,
    ) -> FetchPlanner:
        limits = FetchLimits(bytes_min, bytes_max, self.now_s + wait_s, fetch_wait or FetchWait(), capacity_bytes)
        return FetchPlanner(requested, isolation, limits, memory=self, broker_configs=broker_configs or {})

    def next(self, planner: FetchPlanner) -> Step | FetchAnswer:
        return planner.next(self.state, self.now_s, self.current_until_s)

    def run(self, planner: FetchPlanner) -> FetchAnswer:
        """Take every step. A wait for records ends when its time is over; memory that is not free does not come."""
        while not isinstance(step := self.next(planner), FetchAnswer):
            self.steps.append(step)
            self.during.get(type(step), lambda: None)()
            match step:
                case WaitForRecords():
                    self.now_s += step.seconds
                case WaitForMemory():
                    planner.reserved(self.budget.take_now(step.byte_count))
                case Barrier():
                    planner.barrier_ended(is_answered=not self.is_ledger_away)
                case ReadChunks():
                    planner.read_ended(self._read(step.chunks))
        self.give_back(planner.reservation)
        return step

    def give_back(self, reservation: Reservation | None) -> None:
        if reservation is not None:
            self.budget.give_back(reservation.bytes_taken)

    def _read(self, chunks: Sequence[ChunkRef]) -> list[ServedChunk] | StoreError:
        """As `ChunkReader.read`: the chunks up to the first that cannot be read."""
        served: list[ServedChunk] = []
        for chunk in chunks:
            error = self.errors.get(chunk.object_id)
            if error is not None and chunk.object_id not in self.in_memory:
                return served or error
            self.in_memory.add(chunk.object_id)
            served.append(self._served[chunk.object_id])
        return served


def requested_at(offset: int, partition: int = 0, *, topic: str = "t", bytes_max: int = MIB) -> RequestedPartition:
    return RequestedPartition(topic, partition, offset, bytes_max, -1, -1)
