"""Record batches of message format v2: headers read, checked and changed in place. Records themselves: `records`.

Rule: nothing here copies a batch. Base offset and leader epoch lie before the CRC's range and are written freely; what
lies within it is changed together with the CRC, which takes in the difference: damage of stored bytes stays visible.

Layout: KIP-98 and org.apache.kafka.common.record.DefaultRecordBatch (Kafka 4.3). All numbers are big-endian.

Error codes are those of Apache Kafka 4.3.1 for the same bytes, but for two. `Differs from Kafka:` magic 0 and 1 are
UNSUPPORTED_FOR_MESSAGE_FORMAT (Kafka: INVALID_RECORD), and an unknown codec is UNSUPPORTED_COMPRESSION_TYPE (Kafka:
UNKNOWN_SERVER_ERROR). Both errors name what the owner of an old client has to change.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from protocol.errors import ErrorCode, InvalidBatch, NotOneBatch
from protocol.records.compression import Compression
from protocol.records.crc import changed_prefix_crc, crc32c, crc_of_crcs, pack_crcs
from protocol.types import LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from protocol.wire import INT16, INT64, Buffer

HEADER_BYTES: Final = 61
LOG_OVERHEAD: Final = 12
"""Base offset and length: what the length does not count."""
MAGIC: Final = 2

HEADER: Final = Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base timestamp, max timestamp,
producer id, producer epoch, base sequence, record count."""
_OFFSETS: Final = Struct(">8xi11xi")
"""Length and last offset delta: what a walk over batches needs."""
_LENGTH_MAGIC_AND_CRC: Final = Struct(">8xi4xBI")
"""The fields for a walk that checks batches."""
_START: Final = Struct(">qii")
"""Base offset, length, leader epoch."""
_UINT32: Final = Struct(">I")
_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
"""Here the CRC's range begins."""
_MAX_TIMESTAMP_AT: Final = 35
_COUNT: Final = Struct(">i")
_COUNT_AT: Final = 57

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
_INT32_MAX: Final = (1 << 31) - 1


class BatchHeader(NamedTuple):
    """A batch's header. Timestamps in milliseconds; -1 where there is no producer id, epoch, sequence or timestamp."""

    position: int
    """Where in its buffer the batch begins."""
    batch_bytes: int
    """The whole batch, base offset and length included."""
    base_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def end(self) -> int:
        """Where in its buffer the batch ends."""
        return self.position + self.batch_bytes

    @property
    def compression(self) -> Compression:
        """The codec; `read_header` has rejected unknown ones."""
        return Compression(self.attributes & CODEC_MASK)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the whole v2 batch at `position`. Raises `InvalidBatch`; counts and offsets are not judged."""
    remaining = len(buffer) - position
    if remaining <= _MAGIC_AT:
        raise _cut(position, remaining)
    if buffer[position + _MAGIC_AT] != MAGIC:
        raise _wrong_magic(buffer[position + _MAGIC_AT])
    if remaining < HEADER_BYTES:
        raise _cut(position, remaining)
    fields = HEADER.unpack_from(buffer, position)
    batch_bytes = fields[1] + LOG_OVERHEAD
    if batch_bytes < HEADER_BYTES:
        raise InvalidBatch(
            ErrorCode.corrupt_message, f"a record batch of {batch_bytes} bytes is smaller than its header"
        )
    if batch_bytes > remaining:
        raise _cut(position, remaining)
    header = BatchHeader._make((position, batch_bytes, fields[0], *fields[2:]))
    if header.attributes & CODEC_MASK > Compression.ZSTD:
        raise InvalidBatch(
            ErrorCode.unsupported_compression_type, f"compression type {header.attributes & CODEC_MASK} is not known"
        )
    return header


def is_transactional_at_sight(records: Buffer | None) -> bool:
    """Whether the first batch says that it is part of a transaction; nothing else of it is looked at or judged."""
    if records is None or len(records) < HEADER_BYTES or records[_MAGIC_AT] != MAGIC:
        return False
    return bool(records[_ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT)


def records_at_sight(records: Buffer) -> int:
    """How many records the first batch says that it has, 0 where it is cut; nothing else is looked at or judged."""
    if len(records) < HEADER_BYTES:
        return 0
    count: int = _COUNT.unpack_from(records, _COUNT_AT)[0]
    return count


def walk_batches(buffer: Buffer) -> Iterator[BatchHeader]:
    """The headers of consecutive whole batches, as they may be stored or served. Raises `InvalidBatch`."""
    position = 0
    while position < len(buffer):
        header = read_header(buffer, position)
        yield header
        position = header.end


def split_batches(buffer: Buffer) -> list[BatchHeader]:
    """The headers of consecutive batches that a producer may send; neither CRC nor records are looked at.

    Raises `InvalidBatch` as Kafka's ProduceRequest.validateRecords and LogValidator do. How many batches are allowed is
    the caller's to judge.
    """
    if len(buffer) == 0:
        raise NotOneBatch(ErrorCode.invalid_record, "there must be at least one record batch")
    headers = list(walk_batches(buffer))
    for header in headers:
        _check_produced(header)
    return headers


def _check_produced(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise _invalid(f"the base offset is {header.base_offset}, and must be 0")
    if header.record_count <= 0:
        raise _invalid(f"a record batch of {header.record_count} records")
    if header.last_offset_delta != header.record_count - 1:
        raise _invalid(f"{header.record_count} records, but the last offset delta is {header.last_offset_delta}")
    if header.is_control:
        raise _invalid("clients are not allowed to write control records")
    if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
        raise _invalid(f"sequence {header.base_sequence} from producer id {header.producer_id}")
    if header.is_log_append_time:
        raise InvalidBatch(ErrorCode.invalid_timestamp, "a producer must not set the timestamp type to LogAppendTime")


def check_crc(buffer: Buffer, header: BatchHeader) -> None:
    """Raise `InvalidBatch` unless the batch's bytes have the CRC that its header says.

    The lock of the interpreter is released for large batches.
    """
    crc = crc32c(memoryview(buffer)[header.position + _ATTRIBUTES_AT : header.end])
    if crc != header.crc:
        raise InvalidBatch(
            ErrorCode.corrupt_message, f"the record batch says CRC {header.crc:#010x}, its bytes have {crc:#010x}"
        )


def checksum_of(headers: Sequence[BatchHeader]) -> int:
    """The checksum of consecutive batches, as `check_crcs` returns it; their CRCs are not checked."""
    return crc_of_crcs(pack_crcs([header.crc for header in headers]))


def check_crcs(buffer: Buffer) -> int:
    """The checksum of the batches in `buffer` (`protocol.records.crc.crc_of_crcs`), 0 of none.

    Raises `InvalidBatch` unless `buffer` is whole batches that have the CRCs that their headers say. Nothing else of
    them is looked at: this is for bytes that were judged when they were produced. A batch takes 0.7 us, and its bytes a
    second for some 10 GB.
    """
    view, position, end = memoryview(buffer), 0, len(buffer)
    crcs: list[int] = []
    read = _LENGTH_MAGIC_AND_CRC.unpack_from
    while position < end:
        if end - position < HEADER_BYTES:
            raise _cut(position, end - position)
        length, magic, crc = read(buffer, position)
        if magic != MAGIC:
            raise _wrong_magic(magic)
        batch_end = position + length + LOG_OVERHEAD
        if not position + HEADER_BYTES <= batch_end <= end:
            raise _cut(position, end - position)
        actual = crc32c(view[position + _ATTRIBUTES_AT : batch_end])
        if actual != crc:
            raise InvalidBatch(
                ErrorCode.corrupt_message,
                f"the record batch at byte {position} says CRC {crc:#010x}, its bytes have {actual:#010x}",
            )
        crcs.append(crc)
        position = batch_end
    return crcs[0] if len(crcs) == 1 else crc_of_crcs(pack_crcs(crcs))


def patch_offsets(buffer: bytearray | memoryview, base_offset: int, leader_epoch: int = LEADER_EPOCH) -> int:
    """Give every batch in `buffer` its base offset in turn, in place, and return the offset after the last.

    buffer: concatenated whole v2 batches, writable. Raises `InvalidBatch` where the last is cut: what was written until
    then stays.
    """
    position, end = 0, len(buffer)
    read, write = _OFFSETS.unpack_from, _START.pack_into
    while position < end:
        if end - position < HEADER_BYTES:
            raise _cut(position, end - position)
        length, last_offset_delta = read(buffer, position)
        if not HEADER_BYTES - LOG_OVERHEAD <= length <= end - position - LOG_OVERHEAD:
            raise _cut(position, end - position)
        write(buffer, position, base_offset, length, leader_epoch)
        base_offset += last_offset_delta + 1
        position += length + LOG_OVERHEAD
    return base_offset


def set_log_append_time(buffer: bytearray | memoryview, timestamp_ms: int) -> None:
    """Make LogAppendTime with `timestamp_ms` of every batch in `buffer`, in place (safety rule S14).

    Raises `InvalidBatch` where bytes are not whole batches.
    """
    for header in walk_batches(buffer):
        _set_timestamp(buffer, header, header.attributes | LOG_APPEND_TIME_BIT, timestamp_ms)


def set_max_timestamp(buffer: bytearray | memoryview, header: BatchHeader, timestamp_ms: int) -> None:
    """Write the batch's max timestamp, in place; `header` must describe the batch as it is in `buffer`."""
    _set_timestamp(buffer, header, header.attributes, timestamp_ms)


def _set_timestamp(buffer: bytearray | memoryview, header: BatchHeader, attributes: int, timestamp_ms: int) -> None:
    first = header.position + _ATTRIBUTES_AT
    prefix_end = header.position + HEADER_BYTES
    old_prefix = bytes(buffer[first:prefix_end])
    INT16.pack_into(buffer, first, attributes)
    INT64.pack_into(buffer, header.position + _MAX_TIMESTAMP_AT, timestamp_ms)
    crc = changed_prefix_crc(header.crc, old_prefix, buffer[first:prefix_end], header.batch_bytes - HEADER_BYTES)
    _UINT32.pack_into(buffer, header.position + _CRC_AT, crc)


def pack_header(
    *,
    base_offset: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
    records: Buffer,
    leader_epoch: int = LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytearray:
    """The header of a batch whose records are encoded, and compressed, as `records`."""
    header = bytearray(HEADER_BYTES)
    fields = (
        attributes, last_offset_delta, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence,
        record_count,
    )  # fmt: skip
    length = HEADER_BYTES - LOG_OVERHEAD + len(records)
    HEADER.pack_into(header, 0, base_offset, length, leader_epoch, MAGIC, 0, *fields)
    _UINT32.pack_into(header, _CRC_AT, crc32c(records, crc32c(memoryview(header)[_ATTRIBUTES_AT:])))
    return header


def encode_varint(number: int) -> bytes:
    """A signed number as Kafka's zigzag varint. Source: KIP-98, org.apache.kafka.common.utils.ByteUtils."""
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _cut(position: int, remaining: int) -> NotOneBatch:
    # Where the first batch is cut, Kafka finds no batch at all: INVALID_RECORD.
    code = ErrorCode.corrupt_message if position else ErrorCode.invalid_record
    return NotOneBatch(code, f"a record batch at byte {position} is cut: {remaining} bytes remain")


def _wrong_magic(magic: int) -> NotOneBatch:
    if magic < MAGIC:
        code = ErrorCode.unsupported_for_message_format
        return NotOneBatch(
            code, f"message format {magic} is not supported: use a client that writes format 2 (Kafka 0.11)"
        )
    return NotOneBatch(ErrorCode.corrupt_message, f"{magic} is no magic of a record batch")


def _invalid(reason: str) -> InvalidBatch:
    return InvalidBatch(ErrorCode.invalid_record, reason)
