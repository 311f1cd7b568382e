"""When records were appended, as the chunk index says: for ages in metrics, without reading a byte.

The broker stamps the chunks of topics with LogAppendTime. For all other topics the index has the greatest timestamp of
a chunk's records, which their producers set: about the append time of records that are sent when they are made. Ages
are for people only: nothing is decided by them.
"""

from coordinator.state.chunk_index import ChunkIndex, ChunkRef
from protocol.limits import ARCHIVE_AGE_MS_DEFAULT
from protocol.types import NO_TIMESTAMP, Milliseconds


def append_time(index: ChunkIndex, offset: int) -> Milliseconds | None:
    """The append time of the first record at or after `offset`.

    None where there is no such record, or where its chunk has no timestamp. Transaction markers are no records.
    """
    row = index.count_before(offset)
    while row < len(index) and not _has_records(index.row(row)):
        row += 1
    if row == len(index):
        return None
    chunk = index.row(row)
    end_ms = _end_time(chunk)
    before_ms = _end_time(index.row(row - 1)) if chunk.is_archived and row > 0 else None
    if end_ms is None or before_ms is None:
        return end_ms
    # An archived chunk has the records of many: they came one after the other, evenly, since the chunk before. A pause
    # may lie between them, so at most the usual time between two archive passes is assumed.
    begin_ms = max(before_ms, end_ms - ARCHIVE_AGE_MS_DEFAULT)
    passed_ratio = (max(offset, chunk.offset_first) + 1 - chunk.offset_first) / (chunk.offset_end - chunk.offset_first)
    return Milliseconds(begin_ms + round((end_ms - begin_ms) * passed_ratio) if begin_ms < end_ms else end_ms)


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
