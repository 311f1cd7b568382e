"""When a topic is archived, and which chunks one pass takes.

Rule: pure. Nothing here reads a clock, the state or the bucket; it is told what the index holds and what time it is.
Specification: architecture, "The lake".
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import attrgetter
from types import MappingProxyType
from typing import Final

from protocol.limits import (
    ARCHIVE_AGE_MS_DEFAULT,
    ARCHIVE_AGE_UNSEEN_MS,
    ARCHIVE_BYTES_DEFAULT,
    ARCHIVE_PASS_BYTES_MAX,
    ARCHIVE_PASS_CHUNKS_MAX,
)
from protocol.types import Milliseconds, ObjectId, Offset, PartitionIndex, TopicId
from txn.isolation import AbortedBatches

NO_KEY = ""
"""In the place of an object's key: the chunk is a transaction's marker, and stands in none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeChunk:
    """A chunk that still lies in an intake object, or a marker, where all transactions before its end are decided."""

    partition: PartitionIndex
    offset_first: Offset
    offset_end: Offset
    object_id: ObjectId
    object_key: str
    byte_first: int
    """Of a marker its producer id, as the index has it."""
    byte_count: int
    append_time_ms: Milliseconds
    """-1 where timestamps are the producer's (CreateTime); else the timestamp of every record (safety rule S14)."""
    checksum: int = 0
    """As `coordinator.state.chunk_index.ChunkRef` has it; 0 where it is not known."""

    @property
    def is_marker(self) -> bool:
        """Whether there is nothing to read: the offset of a transaction's end."""
        return self.object_key == NO_KEY


NO_WAITING_OFFSETS: Final = MappingProxyType[PartitionIndex, Offset]({})

Aborted = Mapping[PartitionIndex, AbortedBatches]
"""What is left out of the archive, by partition; none of those without aborted transactions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicIntake:
    """What of a topic is not archived yet: consecutive chunks of each partition, from its first intake chunk on."""

    topic_id: TopicId
    name: str
    chunks: tuple[IntakeChunk, ...]
    aborted: Aborted = field(default_factory=dict[PartitionIndex, AbortedBatches])
    folder_name: str | None = None
    """What the topic is called in its table's folder, where that is not its name."""

    @property
    def intake_bytes(self) -> int:
        return sum(chunk.byte_count for chunk in self.chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePolicy:
    """When a topic's intake is due: whichever of the two comes first."""

    age_ms: int = ARCHIVE_AGE_MS_DEFAULT
    bytes_target: int = ARCHIVE_BYTES_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePass:
    """One pass over one topic: the chunks that one Parquet file replaces, in order of (partition, offset)."""

    topic_id: TopicId
    name: str
    chunks: tuple[IntakeChunk, ...]
    aborted: Aborted = field(default_factory=dict[PartitionIndex, AbortedBatches])
    folder_name: str | None = None
    """What the topic is called in its table's folder, where that is not its name."""

    def by_partition(self) -> list[tuple[PartitionIndex, tuple[IntakeChunk, ...]]]:
        """The chunks of each partition, partitions in order."""
        return [(index, tuple(chunks)) for index, chunks in groupby(self.chunks, key=attrgetter("partition"))]


def should_archive(
    intake_bytes: int, since_ms: Milliseconds, now_ms: Milliseconds, policy: ArchivePolicy | None = None
) -> bool:
    """Whether a topic with `intake_bytes` that are not archived, the oldest seen at `since_ms`, is due at `now_ms`."""
    policy = policy or ArchivePolicy()
    if intake_bytes == 0:
        return False
    return intake_bytes >= policy.bytes_target or now_ms - since_ms >= policy.age_ms


class ArchiveSchedule:
    """Remembers since when each topic has had something to archive.

    Times come from one monotonic clock of the caller. Nobody knows how long those topics have waited that wait already
    when it is asked for the first time: it counts as `ARCHIVE_AGE_UNSEEN_MS`, so that with all but long intervals they
    are due at once, and agents that end and start again more often than a topic is archived let no table fall behind.
    """

    def __init__(self, policy: ArchivePolicy) -> None:
        self._policy = policy
        self._since: dict[TopicId, Milliseconds] | None = None

    def due(self, topics: Iterable[tuple[TopicId, int]], now_ms: Milliseconds) -> list[TopicId]:
        """Which of all topics, given with their intake bytes, should be archived now; longest waiting first."""
        before, unseen_ms = self._since, now_ms
        if before is None:
            before, unseen_ms = {}, Milliseconds(now_ms - ARCHIVE_AGE_UNSEEN_MS)
        seen: dict[TopicId, Milliseconds] = {}
        due: list[TopicId] = []
        for topic_id, intake_bytes in topics:
            if intake_bytes == 0:
                continue
            seen[topic_id] = before.get(topic_id, unseen_ms)
            if should_archive(intake_bytes, seen[topic_id], now_ms, self._policy):
                due.append(topic_id)
        self._since = seen
        return sorted(due, key=lambda topic_id: seen[topic_id])

    def passed(self, topic_id: TopicId, now_ms: Milliseconds) -> None:
        """A pass over the topic began at `now_ms`: whatever it did not take has waited since then."""
        if self._since is not None:
            self._since[topic_id] = now_ms


def plan_pass(
    intake: TopicIntake,
    *,
    waiting: Mapping[PartitionIndex, Offset] = NO_WAITING_OFFSETS,
    bytes_max: int = ARCHIVE_PASS_BYTES_MAX,
    chunks_max: int = ARCHIVE_PASS_CHUNKS_MAX,
) -> ArchivePass | None:
    """The chunks that the next pass takes, None where there is nothing to archive.

    Oldest objects first, whatever the partition, so that no partition starves and whole intake objects are released.
    The first chunk is taken however large it is. Of partitions that wait from an offset on, nothing is taken from there
    on.
    """
    taken: list[IntakeChunk] = []
    bytes_taken = 0
    for chunk in _oldest_first(intake.chunks):
        if chunk.partition in waiting and chunk.offset_first >= waiting[chunk.partition]:
            continue
        if taken and (bytes_taken + chunk.byte_count > bytes_max or len(taken) == chunks_max):
            break
        taken.append(chunk)
        bytes_taken += chunk.byte_count
    if not taken:
        return None
    taken.sort(key=lambda chunk: (chunk.partition, chunk.offset_first))
    archive_pass = ArchivePass(
        topic_id=intake.topic_id,
        name=intake.name,
        folder_name=intake.folder_name,
        chunks=tuple(taken),
        aborted=intake.aborted,
    )
    for _, chunks in archive_pass.by_partition():
        assert _is_contiguous(chunks), "a pass takes a partition's chunks from the first on"
    return archive_pass


def _oldest_first(chunks: Sequence[IntakeChunk]) -> Iterator[IntakeChunk]:
    """In the order of their objects, but none before another of its partition with lower offsets: a marker, and what a
    transaction wrote long before it was placed, follow what they stand behind.
    """
    in_turn: list[tuple[ObjectId, PartitionIndex, Offset, IntakeChunk]] = []
    for partition, run in groupby(chunks, key=attrgetter("partition")):
        newest = ObjectId(0)
        for chunk in run:
            newest = max(newest, chunk.object_id)
            in_turn.append((newest, partition, chunk.offset_first, chunk))
    return (chunk for *_, chunk in sorted(in_turn, key=lambda each: each[:3]))


def _is_contiguous(chunks: Sequence[IntakeChunk]) -> bool:
    return all(before.offset_end == after.offset_first for before, after in pairwise(chunks))
