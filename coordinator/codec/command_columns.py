"""The columns of commands as little-endian array bytes, and back with everything checked.

Rule: after `read_batches`, `read_chunks`, `read_log_starts` and `read_offsets` every index and every byte range is
inside what it points into, so that applying needs no check of its own. They raise `LedgerCorrupt`.
"""

import sys
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

from coordinator.commands.commands import AdvanceLogStart, BatchColumns, ChunkColumns, CommitChunks
from coordinator.commands.group import CommitOffsets
from coordinator.commands.transaction import CommitTransactionalOffsets
from coordinator.ledger.port import LedgerCorrupt
from protocol.limits import BATCHES_PER_COMMIT_MAX, LOG_STARTS_PER_ENTRY_MAX, OFFSETS_PER_ENTRY_MAX
from protocol.records.crc import CRC_BYTES

assert sys.byteorder == "little", "columns are written as they lie in memory: Penstock needs a little-endian machine"

_COLUMN: Final[Callable[[str, bytes], "array[int]"]] = array
CHUNK_TYPES: Final = ("H", "I", "I", "H")
"""topic, partition, byte_first, batch_count; in `array`'s words (I is 4 bytes, H 2)."""
BATCH_TYPES: Final = ("I", "I", "q", "q", "h", "i", "B")
"""record_bytes, record_count, max_timestamp, producer_id, producer_epoch, base_sequence, is_transactional."""

LOG_START_TYPES: Final = ("I", "I", "q")
"""topic, partition, log_start."""
OFFSET_TYPES: Final = ("I", "I", "I", "q", "i", "q")
"""group, topic, partition, offset, leader_epoch, retention_ms."""
PENDING_OFFSET_TYPES: Final = ("I", "I", "q", "i")
"""topic, partition, offset, leader_epoch."""


def commit_columns(command: CommitChunks) -> tuple[list[bytes], list[bytes]]:
    """The columns of the chunks and of the batches. Raises OverflowError for a value outside its column's type."""
    chunks = command.chunks
    batches = command.batches
    return (
        _write(CHUNK_TYPES, (chunks.topic, chunks.partition, chunks.byte_first, chunks.batch_count)),
        _write(
            BATCH_TYPES,
            (
                batches.record_bytes,
                batches.record_count,
                batches.max_timestamp,
                batches.producer_id,
                batches.producer_epoch,
                batches.base_sequence,
                batches.is_transactional,
            ),
        ),
    )


def _write(types: Sequence[str], columns: Sequence[Sequence[int]]) -> list[bytes]:
    return [array(typecode, column).tobytes() for typecode, column in zip(types, columns, strict=True)]


def log_start_columns(command: AdvanceLogStart) -> list[bytes]:
    """The columns of an AdvanceLogStart. Raises OverflowError for a value outside its column's type."""
    return _write(LOG_START_TYPES, (command.topic, command.partition, command.log_start))


def read_log_starts(columns: Sequence[bytes], *, topics_count: int) -> list[list[int]]:
    """topic, partition and log start: every topic is listed, no offset is negative."""
    read = _read("log starts", LOG_START_TYPES, columns, rows_max=LOG_STARTS_PER_ENTRY_MAX)
    topic, partition, log_start = read
    if max(topic) >= topics_count:
        raise LedgerCorrupt(f"a log start of topic {max(topic)} where {topics_count} are listed")
    if max(partition) >= 1 << 31 or min(log_start) < 0:
        raise LedgerCorrupt(f"a log start of {min(log_start)}, a partition index of {max(partition)}")
    return [column.tolist() for column in read]


def offset_columns(command: CommitOffsets) -> list[bytes]:
    """The columns of a CommitOffsets. Raises OverflowError for a value outside its column's type."""
    return _write(
        OFFSET_TYPES,
        (
            command.group,
            command.topic,
            command.partition,
            command.offset,
            command.leader_epoch,
            command.retention_ms,
        ),
    )


def read_offsets(columns: Sequence[bytes], *, groups_count: int, topics_count: int) -> list[list[int]]:
    """The columns in the order of `OFFSET_TYPES`: every group and topic is listed. An offset may be negative."""
    read = _read("committed offsets", OFFSET_TYPES, columns, rows_max=OFFSETS_PER_ENTRY_MAX)
    group, topic, partition, _, _, _ = read
    if max(group) >= groups_count or max(topic) >= topics_count:
        raise LedgerCorrupt(
            f"an offset of group {max(group)}, topic {max(topic)} where {groups_count} and {topics_count} are listed"
        )
    if max(partition) >= 1 << 31:
        raise LedgerCorrupt(f"a partition index of {max(partition)}")
    return [column.tolist() for column in read]


def pending_offset_columns(command: CommitTransactionalOffsets) -> list[bytes]:
    """The columns of a CommitTransactionalOffsets. Raises OverflowError for a value outside its column's type."""
    return _write(PENDING_OFFSET_TYPES, (command.topic, command.partition, command.offset, command.leader_epoch))


def read_pending_offsets(columns: Sequence[bytes], *, topics_count: int) -> list[list[int]]:
    """The columns in the order of `PENDING_OFFSET_TYPES`: every topic is listed. An offset may be negative."""
    read = _read("pending offsets", PENDING_OFFSET_TYPES, columns, rows_max=OFFSETS_PER_ENTRY_MAX)
    topic, partition, _, _ = read
    if max(topic) >= topics_count:
        raise LedgerCorrupt(f"a pending offset of topic {max(topic)} where {topics_count} are listed")
    if max(partition) >= 1 << 31:
        raise LedgerCorrupt(f"a partition index of {max(partition)}")
    return [column.tolist() for column in read]


def _read(
    what: str, types: Sequence[str], columns: Sequence[bytes], rows_max: int = BATCHES_PER_COMMIT_MAX
) -> list["array[int]"]:
    if len(columns) != len(types):
        raise LedgerCorrupt(f"an entry has {len(columns)} columns of {what} where {len(types)} belong")
    try:
        read = [_COLUMN(typecode, data) for typecode, data in zip(types, columns, strict=True)]
    except ValueError as error:
        raise LedgerCorrupt(f"a column of {what} ends inside a value") from error
    counts = {len(column) for column in read}
    if len(counts) != 1 or not 0 < len(read[0]) <= rows_max:
        raise LedgerCorrupt(f"the columns of {what} have lengths {sorted(counts)}")
    return read


def read_batches(columns: Sequence[bytes]) -> BatchColumns:
    """The batches, with their ranges checked. Whether a producer may send them is for applying to judge."""
    record_bytes, record_count, max_timestamp, producer_id, producer_epoch, base_sequence, is_transactional = _read(
        "batches", BATCH_TYPES, columns
    )
    if min(record_bytes) < 1 or min(record_count) < 1 or max(record_count) >= 1 << 31:
        raise LedgerCorrupt("a batch without records, or with more than a batch can hold")
    if min(producer_id) < -1:
        raise LedgerCorrupt(f"a producer id below -1: {min(producer_id)}")
    return BatchColumns(
        record_bytes=record_bytes,
        record_count=record_count,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )


def check_crcs(batch_crcs: bytes, batches: BatchColumns) -> None:
    """There is a CRC of each batch, or of none."""
    if batch_crcs and len(batch_crcs) != CRC_BYTES * len(batches.record_bytes):
        raise LedgerCorrupt(f"{len(batch_crcs)} bytes of CRCs of {len(batches.record_bytes)} batches")


def read_chunks(
    columns: Sequence[bytes], *, batches: BatchColumns, topics_count: int, object_bytes: int
) -> ChunkColumns:
    """The chunks: each has batches, all batches have a chunk, every topic is listed, every byte inside the object."""
    topic, partition, byte_first, batch_count = _read("chunks", CHUNK_TYPES, columns)
    if max(topic) >= topics_count:
        raise LedgerCorrupt(f"a chunk of topic {max(topic)} where {topics_count} are listed")
    if min(batch_count) < 1 or sum(batch_count) != len(batches.record_bytes):
        raise LedgerCorrupt(f"chunks of {sum(batch_count)} batches where {len(batches.record_bytes)} are listed")
    if max(partition) >= 1 << 31:
        raise LedgerCorrupt(f"a partition index beyond 31 bits: {max(partition)}")
    for first, count in zip(byte_first, _chunk_bytes(batches.record_bytes, batch_count), strict=True):
        if first + count > object_bytes:
            raise LedgerCorrupt(f"a chunk ends at byte {first + count} of an object of {object_bytes}")
    return ChunkColumns(topic=topic, partition=partition, byte_first=byte_first, batch_count=batch_count)


def _chunk_bytes(record_bytes: Sequence[int], batch_count: Sequence[int]) -> Sequence[int]:
    if len(batch_count) == len(record_bytes):
        return record_bytes
    batch_ends = accumulate(batch_count)
    return [sum(record_bytes[end - count : end]) for end, count in zip(batch_ends, batch_count, strict=True)]
