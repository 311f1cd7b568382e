"""The state of a fetch while it waits, plans and reads. Part of `agent.fetch.fetch_path`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.fetch.read_ahead import FetchStep
from agent.fetch.sessions import WantedPartition
from agent.fetch.wait import FetchWait
from agent.ledger.apply_loop import PartitionKey
from coordinator.state.chunk_index import ChunkRef
from coordinator.state.state import PartitionState, TopicState
from protocol.records.compression import Compression
from protocol.types import PartitionIndex
from txn.isolation import IsolationLevel


class ReadablePartition(NamedTuple):
    """A partition that can be read, as it stands in the state now: topic and partition are not kept over an await."""

    topic: TopicState
    partition: PartitionState
    number: int
    is_diverging: bool = False
    """The consumer read this epoch beyond its end."""
    is_beyond_stable: bool = False
    """The consumer reads what is committed, and is beyond all that is decided as far as this agent knows."""

    @property
    def key(self) -> PartitionKey:
        return self.topic.topic_id, PartitionIndex(self.number)


@dataclass(slots=True)
class PendingFetch:
    """One fetch under way."""

    wanted: Sequence[WantedPartition]
    isolation: IsolationLevel
    bytes_min: int
    bytes_max: int
    deadline_s: float
    """The monotonic time until which it waits, for records and then for its turn to read them."""
    fetch_wait: FetchWait
    read_until_s: float = 0.0
    """The monotonic time after which only what is in memory is answered."""
    is_store_away: bool = False
    """Whether the store did not answer a read of it: it waits for what is on its way already and begins no more."""
    is_confirmed: bool | None = None
    """Whether its barrier was answered; None where none was taken so far."""
    steps: list[FetchStep] = field(default_factory=list)
    """Partitions that answered with records."""


@dataclass(slots=True)
class ReadPlan:
    """The chunks that a fetch is going to read first, of all its partitions."""

    chunks: list[ChunkRef] = field(default_factory=list)
    compressions: list[Compression] = field(default_factory=list)
    bytes_to_read: int = 0
    """About what is not in memory yet."""
