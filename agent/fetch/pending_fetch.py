"""The state of a fetch while it waits, plans and reads (`agent.fetch.fetch_path`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.fetch.read_ahead import FetchStep
from agent.fetch.sessions import RequestedPartition
from agent.fetch.wait import FetchWait
from agent.ledger.apply_loop import PartitionKey
from coordinator.state.chunk_index import ChunkRef
from coordinator.state.state import PartitionState, TopicState
from protocol.records.compression import Compression
from protocol.types import PartitionIndex
from txn.isolation import IsolationLevel


class ReadablePartition(NamedTuple):
    """A partition that can be read, in the state of this moment: never keep it across an await."""

    topic: TopicState
    partition: PartitionState
    number: int
    is_diverging: bool = False
    """The consumer has read beyond the end of this epoch (KIP-320)."""
    is_beyond_stable: bool = False
    """A read_committed consumer's offset is beyond the last stable offset that this agent knows."""

    @property
    def key(self) -> PartitionKey:
        return self.topic.topic_id, PartitionIndex(self.number)


@dataclass(slots=True)
class PendingFetch:
    """One fetch that is being answered."""

    targets: Sequence[RequestedPartition]
    isolation: IsolationLevel
    bytes_min: int
    bytes_max: int
    deadline_s: float
    """The monotonic time at which its waits end: for records, and then for memory to read them."""
    fetch_wait: FetchWait
    read_until_s: float = 0.0
    """The monotonic time after which it answers only with chunks in memory."""
    is_store_away: bool = False
    """Whether the store did not answer one of its reads: it awaits reads in progress, and begins no others."""
    is_confirmed: bool | None = None
    """Whether its barrier was answered; None before it takes one."""
    steps: list[FetchStep] = field(default_factory=list)
    """Partitions that answered with records."""


@dataclass(slots=True)
class ReadPlan:
    """The chunks of all partitions of a fetch that are read together, before each partition is answered."""

    chunks: list[ChunkRef] = field(default_factory=list)
    compressions: list[Compression] = field(default_factory=list)
    bytes_to_read: int = 0
    """The estimated bytes of the chunks that are not in memory."""
