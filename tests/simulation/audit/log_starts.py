"""Which records may be gone: what moved the start of each log, and whether it was allowed to.

Rule: a start moves forward alone, and for two reasons. Somebody asked for it by DeleteRecords (KIP-107), to that offset
at most. Or retention: a chunk, as a segment in Kafka, goes from the front on where its greatest timestamp is older than
retention.ms, or where retention.bytes are there without it. Chunks' own columns and what clients know of records are
both asked. Source: org.apache.kafka.storage.internals.log.UnifiedLog.deleteRetentionMsBreachedSegments and
deleteRetentionSizeBreachedSegments (Kafka 4.3).
"""

from array import array
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

from coordinator.codec.codec import decode
from coordinator.commands.commands import AdvanceLogStart, ApplyRetention, Command
from coordinator.ledger.port import LedgerRecord
from coordinator.state.chunk_index import COLUMNS_UNCHECKED, ChunkRef
from coordinator.state.state import ClusterState, PartitionState
from protocol.types import NO_TIMESTAMP, TopicId
from tests.simulation.clients.wire import Place
from tests.simulation.history import History
from tests.simulation.plan import Plan

SKEW_MS_MAX = 11_000
"""By how much a checked clock may be ahead (safety rule S2), and what two of them need to tell."""
LATE_MS_MAX = 20_000
"""After so long retention has dropped what is due, if nothing is wrong."""


class RecordTimes(Protocol):
    """What clients know of records."""

    def newest_timestamp(self, place: Place, offset_first: int, offset_end: int) -> int: ...


class LogStarts:
    """Of the topics of one run that have the plan's limits."""

    def __init__(self, *, history: History, plan: Plan, now_ms: Callable[[], int], times: RecordTimes) -> None:
        self._history = history
        self._plan = plan
        self._now_ms = now_ms
        self._times = times
        self._starts: dict[tuple[TopicId, int], int] = defaultdict(int)
        self._rows: dict[tuple[TopicId, int], list[tuple[ChunkRef, int]]] = {}
        self._asked: dict[Place, float] = defaultdict(int)
        """The highest offset up to which somebody asked to delete."""

    def asked_to_delete(self, place: Place, offset: float) -> None:
        """Somebody is about to ask; infinity for all that there is."""
        self._asked[place] = max(self._asked[place], offset)

    def before(self, state: ClusterState, record: LedgerRecord) -> None:
        """An entry is about to be applied."""
        self._rows.clear()
        command = decode(record).command
        if isinstance(command, ApplyRetention):
            for topic_id in command.topic_ids:
                topic = state.topics.get(topic_id)
                for number, partition in enumerate([] if topic is None else topic.partitions):
                    self._rows[topic_id, number] = _rows(partition)

    def after(self, state: ClusterState, command: Command | None) -> None:
        """It was applied."""
        for topic_id, topic in state.topics.items():
            for number, partition in enumerate(topic.partitions):
                before = self._starts[topic_id, number]
                if partition.log_start != before:
                    self._starts[topic_id, number] = partition.log_start
                    place = (topic.name, number)
                    self._history.note("ledger", "log start", f"{place} {before} {partition.log_start}")
                    fault = self._fault(place, (topic_id, number), before, partition.log_start, command)
                    if fault:
                        self._history.violation(f"the log of {place} begins at {partition.log_start}, {fault}")

    def overdue(self, state: ClusterState) -> str:
        """A partition that keeps what retention should have dropped long ago; empty where there is none."""
        plan, now_ms = self._plan, self._now_ms()
        for topic in state.topics.values():
            if "retention.ms" not in topic.configs:
                continue
            for number, partition in enumerate(topic.partitions):
                rows = [row for row in _rows(partition) if row[0].offset_end > partition.log_start]
                if not rows:
                    continue
                # What has no timestamp, as the place of aborted records in the archive, is as old as what follows it.
                timed = [chunk.max_timestamp for chunk, _ in rows if chunk.max_timestamp != NO_TIMESTAMP]
                is_old = bool(timed) and timed[0] < now_ms - plan.retention_ms - LATE_MS_MAX
                is_much = sum(log_bytes for _, log_bytes in rows[1:]) >= plan.retention_bytes
                if (plan.retention_ms >= 0 and is_old) or (plan.retention_bytes >= 0 and is_much):
                    return f"{topic.name}-{number}"
        return ""

    def _fault(self, place: Place, key: tuple[TopicId, int], before: int, start: int, command: Command | None) -> str:
        """Why the start must not have moved; empty where it may have."""
        if start < before:
            return f"and began at {before} already"
        if isinstance(command, AdvanceLogStart):
            asked = self._asked[place]
            return f"though nobody asked to delete beyond {asked}" if start > asked else ""
        if not isinstance(command, ApplyRetention):
            return f"moved by {type(command).__name__}"
        return self._fault_of_retention(place, self._rows[key], before, start)

    def _fault_of_retention(self, place: Place, rows: list[tuple[ChunkRef, int]], before: int, start: int) -> str:
        newest_ms = self._now_ms() + SKEW_MS_MAX - self._plan.retention_ms
        bytes_left = sum(log_bytes for chunk, log_bytes in rows if chunk.offset_end > before)
        for chunk, log_bytes in rows:
            if not before < chunk.offset_end <= start:
                continue
            bytes_left -= log_bytes
            if 0 <= self._plan.retention_bytes <= bytes_left:
                continue
            if self._plan.retention_ms < 0:
                return f"though only {bytes_left} bytes are left"
            timestamp = max(
                chunk.max_timestamp,
                self._times.newest_timestamp(place, max(before, chunk.offset_first), chunk.offset_end),
            )
            if timestamp >= newest_ms:
                return f"though a record below it is only {self._now_ms() - timestamp} ms old"
        return ""


def _rows(partition: PartitionState) -> list[tuple[ChunkRef, int]]:
    """The chunks of a partition, with the bytes that each counts for."""
    index = partition.index
    return list(zip(index.rows_from(index.first), array("q", index.columns()[COLUMNS_UNCHECKED - 1]), strict=True))
