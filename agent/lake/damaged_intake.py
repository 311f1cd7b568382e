"""Unreadable chunks of the intake: their partitions are archived up to them, all other partitions as usual.

The records of a partition are archived in order, so everything behind an unreadable chunk waits with it. Each chunk is
logged once, and tried again after a pause (`agent.lake.damaged_inputs`). All of this is in the memory of one agent.
"""

import logging
from collections.abc import Mapping, Sequence

from agent.lake.damaged_inputs import DamagedInputs
from agent.lake.topic_work import REMEDY_DAMAGED, REMEDY_MISSING
from agent.ledger.ledger_client import LedgerClient
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
    """The unreadable intake chunks that the archiver met."""

    def __init__(self, *, ledger: LedgerClient, clock: Clock, metrics: Metrics) -> None:
        self._ledger = ledger
        self._inputs = DamagedInputs[_Chunk](clock=clock)
        self._logged: dict[_Chunk, StoreError] = {}
        """The unreadable chunks that are still in the intake, with their errors."""
        self._gauge = metrics.archive_unreadable_chunks

    def waiting(self, topic_id: TopicId) -> Mapping[PartitionIndex, Offset]:
        """The topic's partitions with an excluded chunk, and the offset of their first one."""
        waiting: dict[PartitionIndex, Offset] = {}
        if self._logged:
            for topic, partition, offset in self._inputs.excluded:
                if topic == topic_id:
                    waiting[partition] = min(waiting.get(partition, offset), offset)
        return waiting

    def exclude(self, planned: ArchivePass, unreadable: Sequence[UnreadableChunk]) -> bool:
        """Exclude unreadable chunks of a pass. Returns False where none of them is still in the intake."""
        state = self._ledger.state
        keys: list[_Chunk] = []
        for chunk, error in unreadable:
            key = planned.topic_id, chunk.partition, chunk.offset_first
            # An archived or deleted chunk is not unreadable: its object was garbage and is deleted (safety rule S6).
            if not _is_in_intake(state, key) or chunk.object_key not in state.object_ids:
                continue
            keys.append(key)
            reason = str(error).removeprefix(chunk.object_key).lstrip(": ")
            text = f"{chunk.object_key}, partition {chunk.partition}, offset {chunk.offset_first}: {reason}"
            failure = ObjectMissing(text) if isinstance(error, ObjectMissing) else ObjectDamaged(text)
            if key not in self._logged:
                log.error(
                    "a chunk of the intake is unreadable: its partition is not archived from this offset on; other "
                    "partitions are not affected: %s",
                    REMEDY_MISSING if isinstance(failure, ObjectMissing) else REMEDY_DAMAGED,
                    extra={
                        "topic": planned.name,
                        "partition": chunk.partition,
                        "offset": chunk.offset_first,
                        "key": chunk.object_key,
                        "reason": f"{type(error).__name__}: {reason}",
                    },
                )
            self._logged[key] = failure
        self._inputs.exclude(planned.topic_id, keys)
        self._gauge.set(len(self._logged))
        return bool(keys)

    def end_pauses(self) -> None:
        """End the pauses that are over, and forget chunks that were archived or deleted."""
        if not self._logged:
            return
        state = self._ledger.state
        self._logged = {key: failure for key, failure in self._logged.items() if _is_in_intake(state, key)}
        self._inputs.forget_others(self._logged)
        self._inputs.end_pauses()
        self._gauge.set(len(self._logged))

    def check(self, topic_id: TopicId, ends: Sequence[Offset]) -> None:
        """Raise the error of the topic's first excluded chunk below the end offsets.

        A partition that was added since the caller read `ends` has no end there, and is skipped.
        """
        for key in sorted(self._inputs.excluded):
            topic, partition, offset = key
            if topic == topic_id and partition < len(ends) and offset < ends[partition]:
                raise self._logged[key]

    def try_again(self, topic_id: TopicId) -> None:
        """End the pauses of all partitions of a topic."""
        self._inputs.end_pauses_of(topic_id)


def _is_in_intake(state: ClusterState, chunk: _Chunk) -> bool:
    topic_id, partition, offset = chunk
    return topic_id in state.topics and intake_first(state, topic_id)[partition] <= offset
