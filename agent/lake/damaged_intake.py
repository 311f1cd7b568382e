"""Chunks of the intake that cannot be archived: passes leave out their partitions from there on, and nothing else.

Rule: the records of a partition are archived in order, so what stands behind an unreadable chunk waits with it; all
other partitions go on. Each is tried again after a pause, as merges do it (`agent.lake.damaged_inputs`), and is logged
once. What is here is this agent's memory alone.
"""

import logging
from collections.abc import Mapping, Sequence

from agent.lake.damaged_inputs import DamagedInputs
from agent.lake.topic_work import REMEDY_DAMAGED, REMEDY_MISSING
from agent.ledger.apply_loop import ApplyLoop
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from coordinator.state.state import ClusterState
from iceberg_export.archive.archive_pass import UnreadableChunk
from iceberg_export.archive.plan import ArchivePass
from iceberg_export.archive.topic_intake import intake_first
from protocol.types import Offset, PartitionIndex, TopicId
from storage.object_store import ObjectDamaged, ObjectMissing, StoreError

log = logging.getLogger(__name__)

_Chunk = tuple[TopicId, PartitionIndex, Offset]


class DamagedIntake:
    """The archiver has one."""

    def __init__(self, *, metadata: ApplyLoop, clock: Clock, metrics: Metrics) -> None:
        self._metadata = metadata
        self._inputs = DamagedInputs[_Chunk](clock=clock)
        self._logged: dict[_Chunk, StoreError] = {}
        """All that were found and are not archived or deleted since, and what is wrong with them."""
        self._gauge = metrics.archive_unreadable_chunks

    def waiting(self, topic_id: TopicId) -> Mapping[PartitionIndex, Offset]:
        """The topic's partitions that wait, and from which offset on."""
        waiting: dict[PartitionIndex, Offset] = {}
        if self._logged:
            for topic, partition, offset in self._inputs.left_out:
                if topic == topic_id:
                    waiting[partition] = min(waiting.get(partition, offset), offset)
        return waiting

    def found(self, planned: ArchivePass, unreadable: Sequence[UnreadableChunk]) -> bool:
        """Chunks of a pass cannot be read: leave them out. Returns False where the state has none of them any more."""
        state = self._metadata.state
        keys: list[_Chunk] = []
        for chunk, error in unreadable:
            key = planned.topic_id, chunk.partition, chunk.offset_first
            if not _is_waiting(state, key) or chunk.object_key not in state.object_ids:
                continue
            keys.append(key)
            reason = str(error).removeprefix(chunk.object_key).lstrip(": ")
            text = f"{chunk.object_key}, partition {chunk.partition}, offset {chunk.offset_first}: {reason}"
            wrong = ObjectMissing(text) if isinstance(error, ObjectMissing) else ObjectDamaged(text)
            if key not in self._logged:
                log.error(
                    "a chunk of the intake cannot be archived: its partition is not archived from there on; other "
                    "partitions are: %s",
                    REMEDY_MISSING if isinstance(wrong, ObjectMissing) else REMEDY_DAMAGED,
                    extra={
                        "topic": planned.name,
                        "partition": chunk.partition,
                        "offset": chunk.offset_first,
                        "key": chunk.object_key,
                        "reason": f"{type(error).__name__}: {reason}",
                    },
                )
            self._logged[key] = wrong
        self._inputs.found(planned.topic_id, keys)
        self._gauge.set(len(self._logged))
        return bool(keys)

    def end_pauses(self) -> None:
        """Let partitions take part again whose pause is over, and let go of chunks that are archived or deleted."""
        if not self._logged:
            return
        state = self._metadata.state
        self._logged = {key: wrong for key, wrong in self._logged.items() if _is_waiting(state, key)}
        self._inputs.forget_others(self._logged)
        self._inputs.end_pauses()
        self._gauge.set(len(self._logged))

    def check(self, topic_id: TopicId, ends: Sequence[Offset]) -> None:
        """Raise what is wrong with a chunk of the topic for which its partition waits, below these ends.

        Partitions that were added since have none.
        """
        for key in sorted(self._inputs.left_out):
            topic, partition, offset = key
            if topic == topic_id and partition < len(ends) and offset < ends[partition]:
                raise self._logged[key]

    def try_again(self, topic_id: TopicId) -> None:
        """Let all partitions of a topic take part again."""
        self._inputs.end_pauses_of(topic_id)


def _is_waiting(state: ClusterState, chunk: _Chunk) -> bool:
    topic_id, partition, offset = chunk
    return topic_id in state.topics and intake_first(state, topic_id)[partition] <= offset
