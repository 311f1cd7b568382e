"""The answer of a fetch for one partition, and the read of one that failed."""

from dataclasses import dataclass, field
from typing import NamedTuple

from agent.cache.chunk_cache import ChunkPart
from agent.fetch.sessions import RequestedPartition
from coordinator.state.chunk_index import ChunkRef
from protocol.errors import ErrorCode
from storage.object_store import Buffer, StoreError
from txn.isolation import AbortedRange

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

    def add(self, chunk: ChunkRef, part: ChunkPart) -> None:
        """Append a part of a chunk: the next records behind those that the answer has."""
        self.records.append(part.records)
        self.record_bytes += len(part.records)
        self.offset_next = part.offset_end
        # An archive pass may have joined chunks on both sides of the ends that were read before: the answer must not
        # have records beyond its own high watermark or last stable offset.
        self.high_watermark = max(self.high_watermark, chunk.offset_end)
        if chunk.offset_end > self.last_stable and chunk.is_archived:
            self.last_stable = chunk.offset_end


class UnreadableRead(NamedTuple):
    """A read of a partition that failed, and will fail again until an operator mends it."""

    error: StoreError
    topic: str | None
    """The topic's name; None where the topic was deleted meanwhile."""
    partition: int
    offset: int
    key: str | None
    """The object that has the record at `offset`; None where no object has it any more."""
