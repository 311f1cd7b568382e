"""The steps of a fetch: what `agent.fetch.planner.FetchPlanner` returns, and what it knows when it decides.

There are four kinds: a wait (for records, or for memory), a barrier, a read, and the answer.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

from agent.cache.chunk_cache import ServedChunk
from agent.fetch.partition_read import PartitionRead, UnreadableRead
from agent.fetch.read_ahead import FetchStep
from agent.fetch.read_budget import Reservation
from agent.ledger.apply_loop import PartitionKey
from coordinator.state.chunk_index import ChunkRef
from coordinator.state.state import ClusterState
from protocol.records.compression import Compression
from storage.object_store import StoreError


class WaitForRecords(NamedTuple):
    """Wait until a partition of `keys` grows, at most `seconds`; 0 lets other tasks run once.

    Steps in a row with the same list are one wait: growth since the first of them ends it.
    """

    keys: Sequence[PartitionKey]
    seconds: float


class WaitForMemory(NamedTuple):
    """Reserve `byte_count` bytes of the read budget, and wait for them at most `seconds`."""

    byte_count: int
    seconds: float


class Barrier(NamedTuple):
    """Take a barrier (safety rule S4)."""


class ReadChunks(NamedTuple):
    """Read chunks, of which some are not in memory, for at most `seconds`."""

    chunks: Sequence[ChunkRef]
    compressions: Sequence[Compression]
    seconds: float


class FetchAnswer(NamedTuple):
    """The answers of all requested partitions, in their order: the end of the steps."""

    reads: list[PartitionRead]
    fetch_steps: list[FetchStep]
    """Partitions that answered with records."""
    unreadable: list[UnreadableRead]


Step: TypeAlias = WaitForRecords | WaitForMemory | Barrier | ReadChunks
T = TypeVar("T")
Steps: TypeAlias = Generator[Step, None, T]
"""Yields steps, and goes on after each with the new `FetchInputs`; returns a T."""

BARRIER = Barrier()
PAUSE = WaitForRecords((), 0.0)


@dataclass(slots=True)
class FetchInputs:
    """The inputs of a planner's current step. Only the planner sets them."""

    state: ClusterState = field(init=False)
    now_s: float = 0.0
    """The monotonic time."""
    current_until_s: float = 0.0
    """The monotonic time until which this agent may say that a partition has no more records (safety rule S4)."""
    reservation: Reservation | None = None
    """The memory for the reads of this fetch; None before it is reserved, or where it did not come in time."""
    is_barrier_answered: bool = False
    """Whether the ledger answered the last barrier: then everything that was in it is applied."""
    read_result: Sequence[ServedChunk] | StoreError = ()
    """The chunks of the last read, up to the first that cannot be read; the error where that is the first."""
