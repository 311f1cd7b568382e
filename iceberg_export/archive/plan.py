"""Decides when a topic is archived, and which chunks one pass takes.

Pure: nothing here reads a clock, the state or the bucket. The caller passes the topic's chunks and the time.
Specification: architecture, "The lake".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocol.limits import (
    ARCHIVE_AGE_MS_DEFAULT,
    ARCHIVE_AGE_UNSEEN_MS,
    ARCHIVE_BYTES_DEFAULT,
    ARCHIVE_EARLY_AGE_DIVISOR,
    ARCHIVE_EARLY_BYTES_DIVISOR,
    ARCHIVE_EARLY_SAVED_MS_MAX,
    ARCHIVE_EARLY_SHARE,
    ARCHIVE_PASS_BYTES_MAX,
    ARCHIVE_PASS_CHUNKS_MAX,
)
from protocol.types import Milliseconds, ObjectId, Offset, PartitionIndex, TopicId
from txn.isolation import AbortedBatches

NO_KEY = ""
"""Replaces an object's key: the chunk is a transaction marker, which no object holds."""


class IntakeChunk(NamedTuple):
    """A chunk in an intake object, or a transaction marker. Every transaction before its end is decided."""

    partition: PartitionIndex
    offset_first: Offset
    offset_end: Offset
    object_id: ObjectId
    object_key: str
    byte_first: int
    """The chunk's first byte in the object; the producer id of a marker, as in the chunk index."""
    byte_count: int
    append_time_ms: Milliseconds
    """-1 where timestamps are the producer's (CreateTime); else the timestamp of every record (safety rule S14)."""
    checksum: int = 0
    """The checksum of `coordinator.state.chunk_index.ChunkRef`; 0 where it is unknown."""

    @property
    def is_marker(self) -> bool:
        """True for a transaction marker: one offset, and no bytes to read."""
        return self.object_key == NO_KEY


NO_WAITING_OFFSETS: Final = MappingProxyType[PartitionIndex, Offset]({})

Aborted = Mapping[PartitionIndex, AbortedBatches]
"""The aborted batches, which the archive leaves out, by partition. A partition without any has no item."""


class IntakeRows(NamedTuple):
    """Chunks that could be archived, one row each, in the order of (partition, offset); contiguous in each partition.

    The columns are those of `IntakeChunk`. A marker's object is 0.
    """

    partition: NDArray[np.int64]
    offset_first: NDArray[np.int64]
    offset_end: NDArray[np.int64]
    object_id: NDArray[np.int64]
    byte_count: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePolicy:
    """The limits of a topic's intake. A topic is archived as soon as it reaches one of them, and a hot one early.

    A topic is hot that reaches a part of both within that part of the time: few large files of a slow topic, and a
    table that is seconds old of a fast one. Both parts follow the limits, so a longer interval makes fewer files.
    """

    age_ms: int = ARCHIVE_AGE_MS_DEFAULT
    """How long the oldest chunk may wait."""
    bytes_target: int = ARCHIVE_BYTES_DEFAULT
    """How many bytes may wait."""

    @property
    def early_age_ms(self) -> int:
        """How long the oldest chunk of a hot topic waits at least."""
        return self.age_ms // ARCHIVE_EARLY_AGE_DIVISOR

    @property
    def early_bytes(self) -> int:
        """How many bytes of a hot topic wait at least."""
        return self.bytes_target // ARCHIVE_EARLY_BYTES_DIVISOR


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePass:
    """One pass over one topic: the chunks that one Parquet file replaces, in order of (partition, offset)."""

    topic_id: TopicId
    name: str
    chunks: tuple[IntakeChunk, ...]
    aborted: Aborted = field(default_factory=dict[PartitionIndex, AbortedBatches])
    folder_name: str | None = None
    """The topic's name in the path of its table's folder; None: the same as `name`."""

    def by_partition(self) -> list[tuple[PartitionIndex, tuple[IntakeChunk, ...]]]:
        """The chunks of each partition, partitions in order."""
        return [(index, tuple(chunks)) for index, chunks in groupby(self.chunks, key=attrgetter("partition"))]


def should_archive(
    intake_bytes: int, since_ms: Milliseconds, now_ms: Milliseconds, policy: ArchivePolicy | None = None
) -> bool:
    """True where a topic with `intake_bytes` in the intake, the oldest of them since `since_ms`, should be archived."""
    policy = policy or ArchivePolicy()
    if intake_bytes == 0:
        return False
    return intake_bytes >= policy.bytes_target or now_ms - since_ms >= policy.age_ms


class ArchiveSchedule:
    """Remembers since when each topic has had records to archive, and how much time passes took that were early.

    Times are of one monotonic clock of the caller. The age of an intake that exists at the first call is unknown, and
    counts as `ARCHIVE_AGE_UNSEEN_MS`. With an `age_ms` up to that, such a topic is archived at once, so that agents
    that restart often still archive it. A restart cuts a longer interval by at most that much.
    """

    def __init__(self, policy: ArchivePolicy) -> None:
        self._policy = policy
        self._since: dict[TopicId, Milliseconds] | None = None
        self._hot: list[TopicId] = []
        """The topics that had enough bytes for an early pass when they were last looked at."""
        self._early_ms = 0.0
        """The time that is left for early passes; below 0 where one took longer."""
        self._looked_ms: Milliseconds | None = None

    def topics_due(self, topics: Iterable[tuple[TopicId, int]], now_ms: Milliseconds) -> list[TopicId]:
        """The topics that should be archived now, the longest waiting first.

        `topics`: every topic with its intake bytes. A topic that is missing is forgotten.
        """
        before, unseen_ms = self._since, now_ms
        if before is None:
            before, unseen_ms = {}, Milliseconds(now_ms - ARCHIVE_AGE_UNSEEN_MS)
        since: dict[TopicId, Milliseconds] = {}
        topic_ids: list[TopicId] = []
        self._hot = []
        for topic_id, intake_bytes in topics:
            if intake_bytes == 0:
                continue
            since[topic_id] = before.get(topic_id, unseen_ms)
            if should_archive(intake_bytes, since[topic_id], now_ms, self._policy):
                topic_ids.append(topic_id)
            elif intake_bytes >= self._policy.early_bytes:
                self._hot.append(topic_id)
        self._save_up(now_ms)
        self._since = since
        return sorted(topic_ids, key=lambda topic_id: since[topic_id])

    def topics_early(self, now_ms: Milliseconds) -> list[TopicId]:
        """The hot topics that may be archived now although they are not due, the longest waiting first.

        Those that `topics_due` was asked about last. The caller takes one after the other while `has_early_time`.
        """
        since = self._since or {}
        ripe = (topic_id for topic_id in self._hot if now_ms - since[topic_id] >= self._policy.early_age_ms)
        return sorted(ripe, key=lambda topic_id: since[topic_id])

    @property
    def has_early_time(self) -> bool:
        """Whether an early pass may begin: they take `ARCHIVE_EARLY_SHARE` of the time."""
        return self._early_ms > 0

    def spend_early_time(self, pass_ms: float) -> None:
        """Record that an early pass took so long."""
        self._early_ms -= pass_ms

    def _save_up(self, now_ms: Milliseconds) -> None:
        saved_ms = ARCHIVE_EARLY_SAVED_MS_MAX if self._looked_ms is None else now_ms - self._looked_ms
        self._early_ms = min(self._early_ms + saved_ms * ARCHIVE_EARLY_SHARE, ARCHIVE_EARLY_SAVED_MS_MAX)
        self._looked_ms = now_ms

    def passed(self, topic_id: TopicId, now_ms: Milliseconds) -> None:
        """Record that a pass over the topic began at `now_ms`: chunks that it did not take wait since then."""
        if self._since is not None:
            self._since[topic_id] = now_ms


def plan_rows(
    rows: IntakeRows,
    *,
    waiting: Mapping[PartitionIndex, Offset] = NO_WAITING_OFFSETS,
    bytes_max: int = ARCHIVE_PASS_BYTES_MAX,
    chunks_max: int = ARCHIVE_PASS_CHUNKS_MAX,
) -> NDArray[np.intp]:
    """The rows of the chunks that the next pass takes, ascending; empty where there is nothing to archive.

    Chunks of the oldest objects come first, whatever their partition, so that no partition starves and whole intake
    objects are released. Rows that are missing behind a partition's last one change nothing if that one is not taken.

    `waiting`: by partition, the first offset that must not be archived yet; a partition without an item has no limit.
    `bytes_max`, `chunks_max`: bounds of the pass.
    """
    oldest_first = np.lexsort((rows.offset_first, rows.partition, _ages(rows)))
    if waiting:
        is_waiting = np.zeros(len(rows.partition), dtype=np.bool_)
        for partition, offset in waiting.items():
            is_waiting |= (rows.partition == partition) & (rows.offset_first >= offset)
        oldest_first = oldest_first[~is_waiting[oldest_first]]
    if not len(oldest_first):
        return oldest_first
    byte_ends = np.cumsum(rows.byte_count[oldest_first[:chunks_max]])
    # The first chunk is taken whatever its size: one that is larger than `bytes_max` would block its topic.
    count = max(int(np.searchsorted(byte_ends, bytes_max, side="right")), 1)
    chosen = np.sort(oldest_first[:count])
    # `ReplaceChunks` replaces a contiguous run of a partition: a gap would leave records behind for good.
    is_next = rows.partition[chosen[1:]] == rows.partition[chosen[:-1]]
    is_contiguous = rows.offset_first[chosen[1:]] == rows.offset_end[chosen[:-1]]
    assert bool((is_contiguous | ~is_next).all()), "a pass takes a partition's chunks from the first on"
    return chosen


def _ages(rows: IntakeRows) -> NDArray[np.int64]:
    """For each row a number that is lower for older objects, and never falls within a partition.

    An object id alone is no order of offsets: a marker is in no object, and the batches of a transaction may be placed
    long after their object was written. So a chunk counts as no older than the chunks before it in its partition.
    """
    object_ids, ages = np.unique(rows.object_id, return_inverse=True)
    ranks = np.cumsum(np.diff(rows.partition, prepend=rows.partition[:1]) != 0) * len(object_ids)
    oldest: NDArray[np.int64] = np.maximum.accumulate(ages + ranks) - ranks
    return oldest
