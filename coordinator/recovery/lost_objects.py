"""Removes objects from the state that are not in the bucket any more, and bridges their offsets (safety rule S5).

In: the keys of the missing objects. Out: the state without them, and, where offsets have to be bridged, an intake
object of empty control batches to put before the state is used. Offsets whose objects are lost are never given again:
the rest of the log stays where it was, and the gap is bridged, as the gaps of archived logs are.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass

from coordinator.apply.objects import add_object, release_references
from coordinator.apply.retention import forget_markers
from coordinator.commands.rules import RULES_CHECKED_STORAGE
from coordinator.ledger.port import POSITION_REVISION_BITS, position_first
from coordinator.recovery.recovered_topics import RecoveredTopics
from coordinator.state.chunk_index import NO_CHECKSUM, NO_ROWS, OFFSET_FIRST, ChunkRef
from coordinator.state.state import ClusterState, PartitionState
from protocol.records.batch import check_crcs
from protocol.records.control_batches import empty_control_batch
from protocol.types import NO_TIMESTAMP, ObjectId, ObjectNumber, PartitionIndex, SessionId, TopicId
from storage.chunk_format import ChunkParts, encode_object
from storage.object_store import Buffer
from storage.refs import ObjectKind, intake_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge:
    """An intake object without records, to put: chunks of the index that lost theirs lead to it."""

    key: str
    parts: Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class _Gap:
    """A row of the index whose object is lost."""

    topic_id: TopicId
    partition: PartitionIndex
    row: int


def bridge_session(incarnation: int) -> SessionId:
    """The session in the key of a bridge: before every session of the incarnation that begins."""
    return SessionId(position_first(incarnation))


def is_bridge_session(session: SessionId) -> bool:
    """Whether it is a recovery's own: its objects hold no records."""
    return session % (1 << POSITION_REVISION_BITS) == 0


class LostObjects:
    """Objects of the state that are not in the bucket: `keys`."""

    def __init__(self, state: ClusterState, topics: RecoveredTopics, keys: Container[str]) -> None:
        self._state = state
        self._topics = topics
        self._keys = keys

    def remove(self, incarnation: int) -> Bridge | None:
        """Remove the objects, and bridge what they held, in `incarnation`; None if nothing needs a bridge.

        A log that begins with a gap begins behind it. A gap behind archived records is an archived chunk without rows,
        which is served as an empty control batch. A gap behind other records leads to the bridge.
        """
        self._drop_tables()  # first: an object that only a table refers to is not in the state then
        lost = {object_id for object_id, known in self._state.objects.items() if known.key in self._keys}
        gaps = [
            _Gap(topic_id, PartitionIndex(number), row)
            for topic_id, topic in self._state.topics.items()
            for number, partition in enumerate(topic.partitions)
            for row in self._close_gaps(topic_id, partition, lost)
        ]
        for object_id in lost:
            del self._state.object_ids[self._state.objects.pop(object_id).key]
        return self._bridge(gaps, bridge_session(incarnation)) if gaps else None

    def _drop_tables(self) -> None:
        """Drop a table that lost a file: readers would fail. It is built again from what the log has."""
        for topic in self._state.topics.values():
            if topic.table is not None and any(
                self._state.objects[object_id].key in self._keys for object_id in topic.table.objects
            ):
                release_references(self._state, sorted(topic.table.objects))
                topic.table = None

    def _close_gaps(self, topic_id: TopicId, partition: PartitionState, lost: Container[int]) -> list[int]:
        """Close the gaps of a partition where possible. Returns the rows that need a bridge."""
        index = partition.index
        object_ids = index.object_ids()
        offsets = [index.row(row) for row, object_id in enumerate(object_ids) if object_id in lost]
        if not offsets:
            return []
        self._topics.outcome(topic_id).offsets_lost += sum(chunk.offset_end - chunk.offset_first for chunk in offsets)
        leading = next((row for row, object_id in enumerate(object_ids) if object_id not in lost), len(index))
        if leading:
            index.truncate_before(index.row(leading - 1).offset_end)
            partition.log_start = max(partition.log_start, index.first)
            partition.table_start = max(partition.table_start, index.first)
            forget_markers(partition, OFFSET_FIRST, index.first)
        rows: list[int] = []
        for row in range(1, len(index)):
            chunk, before = index.row(row), index.row(row - 1)
            if chunk.object_id in lost and before.is_archived:
                index.replace(row, row + 1, [_without_rows(chunk, before.object_id)])
                self._state.objects[before.object_id].references += 1
            elif chunk.object_id in lost:
                rows.append(row)
        return rows

    def _bridge(self, gaps: Sequence[_Gap], session: SessionId) -> Bridge:
        indexes = [self._state.topics[gap.topic_id].partitions[gap.partition].index for gap in gaps]
        chunks = [index.row(gap.row) for gap, index in zip(gaps, indexes, strict=True)]
        batches = [empty_control_batch(0, chunk.offset_end - chunk.offset_first) for chunk in chunks]
        encoded = encode_object(
            session,
            ObjectNumber(0),
            [
                ChunkParts(topic_id=gap.topic_id, partition=gap.partition, parts=[batch])
                for gap, batch in zip(gaps, batches, strict=True)
            ],
        )
        bridge = Bridge(key=intake_key(session, ObjectNumber(0)), parts=encoded.parts)
        # Whether agents of the rules in force, which the state keeps, know checksums of chunks.
        has_checksums = self._state.rules_version >= RULES_CHECKED_STORAGE
        object_id = self._state.object_id_next
        add_object(
            self._state,
            key=bridge.key,
            kind=ObjectKind.INTAKE,
            object_bytes=encoded.object_bytes,
            references=len(gaps),
        )
        for gap, index, chunk, batch, byte_first in zip(
            gaps, indexes, chunks, batches, encoded.byte_firsts, strict=True
        ):
            row = ChunkRef(
                offset_first=chunk.offset_first,
                offset_end=chunk.offset_end,
                object_id=object_id,
                byte_first=byte_first,
                byte_count=len(batch),
                max_timestamp=NO_TIMESTAMP,
                append_time_ms=NO_TIMESTAMP,
                row_group=NO_ROWS,
                row_first=NO_ROWS,
                row_count=NO_ROWS,
                checksum=check_crcs(batch) if has_checksums else NO_CHECKSUM,
            )
            index.replace(gap.row, gap.row + 1, [row])
        self._state.sessions_ended[session] = self._state.time_ms
        return bridge


def _without_rows(lost: ChunkRef, object_id: ObjectId) -> ChunkRef:
    """Its offsets as a chunk of a file that has no rows of them, such as archive passes make of aborted records: so
    readers of the table know that no file answers for them."""
    times = lost._replace(max_timestamp=NO_TIMESTAMP, append_time_ms=NO_TIMESTAMP, checksum=NO_CHECKSUM)
    return times._replace(object_id=object_id, byte_first=0, byte_count=0, row_group=0, row_first=0, row_count=0)
