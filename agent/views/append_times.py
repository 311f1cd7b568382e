"""When records were appended, as the chunk index says: for ages in metrics, without reading a byte.

The broker stamps the chunks of topics with LogAppendTime. For all other topics the index has the greatest timestamp of
a chunk's records, which their producers set: about the append time of records that are sent when they are made. Ages
are for people only: nothing is decided by them.
"""

from collections.abc import Mapping

from coordinator.state.chunk_index import ChunkIndex, ChunkRef
from coordinator.state.state import ObjectState
from protocol.limits import ARCHIVE_AGE_MS_DEFAULT
from protocol.types import NO_TIMESTAMP, Milliseconds, ObjectId
from storage.refs import is_merged_key


def append_time(
    index: ChunkIndex, offset: int, objects: Mapping[ObjectId, ObjectState], created_ms: Milliseconds
) -> Milliseconds | None:
    """The append time of the first record at or after `offset`.

    `objects`: those that the index's chunks are in. `created_ms`: when the topic was created.

    None where there is no such record, or where its chunk has no timestamp. Transaction markers are no records.
    """
    row = index.count_before(offset)
    while row < len(index) and not _has_records(index.row(row)):
        row += 1
    if row == len(index):
        return None
    chunk = index.row(row)
    end_ms = _end_time(chunk)
    if end_ms is None or not chunk.is_archived:
        return end_ms
    before_ms = _end_time(index.row(row - 1)) if row > 0 else _begin_time(index, end_ms, created_ms)
    if before_ms is None:
        return end_ms
    # An archived chunk has the records of many: they came one after the other, evenly, since the chunk before. Before
    # those of a pass may lie a pause, so at most the usual time between two passes is assumed. A merged file has the
    # records of hours, with the pauses between them.
    is_merged = is_merged_key(objects[chunk.object_id].key)
    begin_ms = before_ms if is_merged else max(before_ms, end_ms - ARCHIVE_AGE_MS_DEFAULT)
    passed_ratio = (max(offset, chunk.offset_first) + 1 - chunk.offset_first) / (chunk.offset_end - chunk.offset_first)
    return Milliseconds(begin_ms + round((end_ms - begin_ms) * passed_ratio) if begin_ms < end_ms else end_ms)


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
