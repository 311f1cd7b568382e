"""When records were appended, as the chunk index says: for ages in metrics, without reading a byte.

The broker stamps the chunks of topics with LogAppendTime. For all other topics the index has the greatest timestamp of
a chunk's records, which their producers set: about the append time of records that are sent when they are made. Ages
are for people only: nothing is decided by them.
"""

from collections.abc import Mapping
from typing import NamedTuple

from coordinator.state.chunk_index import ChunkIndex, ChunkRef
from coordinator.state.state import ObjectState, PartitionState, TopicState
from protocol.limits import METRIC_CHUNKS_BEFORE_MAX
from protocol.types import NO_TIMESTAMP, Milliseconds, ObjectId
from storage.refs import is_merged_key


class AppendTimes(NamedTuple):
    """The append times of records of a state."""

    objects: Mapping[ObjectId, ObjectState]
    """The state's objects."""
    pass_interval_ms: int
    """The usual time between two archive passes of a topic."""

    def first(self, topic: TopicState, partition: PartitionState, offset: int) -> Milliseconds | None:
        """The append time of a partition's first record at or after `offset`.

        None where there is no such record, or where its chunk has no timestamp. Transaction markers are no records.
        """
        index = partition.index
        row = index.count_before(offset)
        while row < len(index) and not _has_records(index.row(row)):
            row += 1
        if row == len(index):
            return None
        chunk = index.row(row)
        end_ms = _end_time(chunk)
        if end_ms is None or not chunk.is_archived:
            return end_ms
        before_ms = _time_before(index, row) if row > 0 else _begin_time(index, end_ms, topic.created_ms)
        if before_ms is None:
            return end_ms
        # An archived chunk has the records of many: they came one after the other, evenly, since the chunk before.
        # Before those of a pass may lie a pause, so at most the usual time between two passes is assumed. A merged file
        # has the records of hours, with the pauses between them.
        is_merged = is_merged_key(self.objects[chunk.object_id].key)
        begin_ms = before_ms if is_merged else max(before_ms, end_ms - self.pass_interval_ms)
        passed = max(offset, chunk.offset_first) + 1 - chunk.offset_first
        passed_ratio = passed / (chunk.offset_end - chunk.offset_first)
        return Milliseconds(begin_ms + round((end_ms - begin_ms) * passed_ratio) if begin_ms < end_ms else end_ms)


def _time_before(index: ChunkIndex, row: int) -> Milliseconds | None:
    """The append time of the last record before a row's, of those that have one."""
    times = (_end_time(index.row(before)) for before in range(row - 1, max(row - 1 - METRIC_CHUNKS_BEFORE_MAX, -1), -1))
    return next((time_ms for time_ms in times if time_ms is not None), None)


def _begin_time(index: ChunkIndex, end_ms: Milliseconds, created_ms: Milliseconds) -> Milliseconds | None:
    """When the records of the first chunk began to come, as fast as those after it; None where there are none.

    `end_ms`: the append time of its last record.
    """
    first, last = index.row(0), index.row(len(index) - 1)
    last_ms = _end_time(last)
    if last_ms is None or last.offset_end == first.offset_end:
        return None
    records_ratio = (first.offset_end - first.offset_first) / (last.offset_end - first.offset_end)
    return max(Milliseconds(end_ms - round((last_ms - end_ms) * records_ratio)), created_ms)


def _has_records(chunk: ChunkRef) -> bool:
    """False for a marker, and for an archived chunk that had only markers and aborted records."""
    return not chunk.is_marker and chunk.row_count != 0


def _end_time(chunk: ChunkRef) -> Milliseconds | None:
    """The append time of a chunk's last record; None where it is not known."""
    time_ms = max(chunk.append_time_ms, chunk.max_timestamp)
    return None if time_ms == NO_TIMESTAMP else time_ms


def age_seconds(time_ms: Milliseconds | None, now_ms: Milliseconds) -> float:
    """The seconds since `time_ms`; 0 for times that are not known or lie ahead."""
    return 0.0 if time_ms is None else max(0, now_ms - time_ms) / 1000
