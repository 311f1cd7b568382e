"""What tail manifests may say: of each topic exactly what was true of it at one position.

Rule: a manifest is judged when it arrives in the bucket. Of every topic it tells what was true at one position between
its own and the ledger's head, all partitions and the table together, and it lacks none that was there all the time.
The chunks are compared with what the entries said when they were committed, not with what the index makes of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.state.chunk_index import NO_OBJECT
from coordinator.state.state import ClusterState, PartitionState, TopicState
from iceberg_export.tail.manifest import (
    NO_KEY,
    NO_ROWS,
    TailChunk,
    TailManifest,
    TailPartition,
    TailTopic,
    decode_manifest,
)
from protocol.types import Milliseconds, Offset, Position, TopicId
from tests.simulation.history import History
from txn.isolation import AbortedExtent


@dataclass(frozen=True, slots=True)
class _Figures:
    """Of a partition."""

    log_start: int
    archived_end: int
    last_stable: int
    aborted: frozenset[AbortedExtent]


@dataclass(slots=True)
class _Topic:
    """What was true of a topic since when; None since it is gone."""

    versions: list[tuple[Position, tuple[str, tuple[_Figures, ...]] | None]] = field(default_factory=list)
    chunks: list[dict[int, TailChunk]] = field(default_factory=list)
    """Of each partition, as they were committed, by first offset."""


class Tails:
    """Of one run."""

    def __init__(self, history: History, state: Callable[[], ClusterState]) -> None:
        self._history = history
        self._state = state
        self._topics: dict[TopicId, _Topic] = {}

    def restart(self) -> None:
        """Another incarnation begins."""
        self._topics.clear()
        self.applied()

    def applied(self) -> None:
        """Something was appended to the ledger."""
        state = self._state()
        for topic_id, topic in state.topics.items():
            known = self._topics.setdefault(topic_id, _Topic())
            self._note_chunks(state, topic, known)
            told = _metadata_key(topic), tuple(map(_figures, topic.partitions))
            if not known.versions or known.versions[-1][1] != told:
                known.versions.append((state.position, told))
        for topic_id, known in self._topics.items():
            if topic_id not in state.topics and known.versions[-1][1] is not None:
                known.versions.append((state.position, None))

    def _note_chunks(self, state: ClusterState, topic: TopicState, known: _Topic) -> None:
        while len(known.chunks) < len(topic.partitions):
            known.chunks.append({})
        for held, chunks in zip(topic.partitions, known.chunks, strict=True):
            for row in range(len(held.index) - 1, held.index.intake_row - 1, -1):
                chunk = held.index.row(row)
                if chunk.offset_first in chunks:
                    break
                is_marker = chunk.object_id == NO_OBJECT
                chunks[chunk.offset_first] = TailChunk(
                    offset_first=chunk.offset_first,
                    offset_end=chunk.offset_end,
                    object_key=NO_KEY if is_marker else state.objects[chunk.object_id].key,
                    byte_first=0 if is_marker else chunk.byte_first,
                    byte_count=0 if is_marker else chunk.byte_count,
                    append_time_ms=Milliseconds(chunk.append_time_ms),
                    checksum=chunk.checksum,
                )

    def judge(self, content: bytes) -> None:
        """A manifest arrived."""
        manifest, state = decode_manifest(content), self._state()
        self._history.note("bucket", "tail manifest", str(manifest.position))
        if manifest.incarnation < state.incarnation:
            return  # of an agent that has not heard of the recovery yet: readers go by the incarnation
        if manifest.cluster_id != state.cluster_id or manifest.incarnation > state.incarnation:
            self._history.violation(f"a tail manifest of {manifest.cluster_id} {manifest.incarnation}")
        for fault in self._faults(manifest, manifest.position):
            self._history.violation(
                f"the tail manifest at {manifest.position}, with the head at {state.position}: {fault}"
            )

    def is_current(self, content: bytes) -> bool:
        """Whether a manifest says what is true now."""
        manifest, state = decode_manifest(content), self._state()
        return manifest.incarnation == state.incarnation and not self._faults(manifest, state.position)

    def _faults(self, manifest: TailManifest, since: Position) -> list[str]:
        faults: list[str] = []
        told = {topic.topic_id: topic for topic in manifest.topics}
        for topic_id, known in self._topics.items():
            versions = known.versions
            ends = [*(position for position, _ in versions[1:]), None]
            true = [said for (_, said), end in zip(versions, ends, strict=True) if end is None or end > since]
            may_be_absent = None in true or versions[0][0] > since
            topic = told.pop(topic_id, None)
            if topic is None:
                if not may_be_absent:
                    faults.append(f"it lacks the topic {topic_id.hex()}")
            elif not any(said is not None and _agrees(topic, known, *said) for said in true):
                faults.append(f"it says of {topic.name} what was never true: {topic}, true was {true}")
        return [*faults, *(f"it has the unknown topic {topic.name}" for topic in told.values())]


def _figures(held: PartitionState) -> _Figures:
    archived_end = held.index.offset_first(held.index.intake_row)
    extents: list[AbortedExtent] = []
    first = max(archived_end, held.log_start)
    if held.transactions is not None and first < held.last_stable:  # else there is nothing to leave out of
        extents = held.transactions.aborted_extents(first, held.last_stable)
    return _Figures(held.log_start, archived_end, held.last_stable, frozenset(extents))


def _metadata_key(topic: TopicState) -> str:
    """Without a table: whether anything was archived, and was nothing but offsets without rows."""
    if topic.table is not None:
        return topic.table.metadata_key
    archived = [held.index.row(row) for held in topic.partitions for row in range(held.index.intake_row)]
    return NO_ROWS if archived and not any(chunk.row_count for chunk in archived) else NO_KEY


def _agrees(topic: TailTopic, known: _Topic, metadata_key: str, figures: tuple[_Figures, ...]) -> bool:
    return (
        topic.metadata_key == metadata_key
        and len(topic.partitions) == len(figures)
        and all(map(_partition_agrees, topic.partitions, figures, known.chunks))
    )


def _partition_agrees(partition: TailPartition, true: _Figures, chunks: dict[int, TailChunk]) -> bool:
    offset: Offset = partition.archived_end
    for chunk in partition.chunks:
        if chunks.get(offset) != chunk:
            return False
        offset = chunk.offset_end
    return (
        (partition.log_start, partition.archived_end) == (true.log_start, true.archived_end)
        and partition.last_stable == partition.readable_end == true.last_stable
        and _aborted_below(partition, true.last_stable) == true.aborted
    )


def _aborted_below(partition: TailPartition, last_stable: int) -> frozenset[AbortedExtent]:
    """What is to be left out of chunks that may be read."""
    first = max(partition.archived_end, partition.log_start)
    if first >= last_stable:
        return frozenset()
    return frozenset(
        extent for extent in partition.aborted if extent.offset_first < last_stable and extent.marker >= first
    )
