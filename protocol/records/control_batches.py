"""Control batches: the markers that end a transaction in a partition, and those that bridge offsets without data.

Rule: none of them is ever stored. A marker is made when it is read, from what the state says of the transaction: byte
for byte what Apache Kafka writes (KIP-98). Nothing is compressed, and a control batch has one record.

Source: ControlRecordType, EndTransactionMarker and MemoryRecords.withEndTransactionMarker of
org.apache.kafka.common.record (Kafka 4.3).
"""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from protocol.errors import ErrorCode, InvalidBatch
from protocol.records.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    encode_varint,
    pack_header,
)
from protocol.types import LEADER_EPOCH, NO_TIMESTAMP, Milliseconds, Offset, ProducerEpoch, ProducerId
from protocol.wire import Buffer

COORDINATOR_EPOCH: Final = 0
"""Penstock has no coordinator that could be replaced: the ledger decides, so the epoch in markers never changes."""


class ControlRecordType(IntEnum):
    """The type in a control record's key; the rest of Kafka's types are of its own metadata log."""

    ABORT = 0
    COMMIT = 1


class Marker(NamedTuple):
    """The content of a transaction marker (KIP-98)."""

    is_commit: bool
    coordinator_epoch: int


_CONTENT: Final = Struct(">BHHBHiB")
"""A control record behind its deltas: the key (its length, version, type), the value (its length, version, coordinator
epoch), no headers. Lengths are varints of one byte."""
_CONTENT_AT: Final = 4
"""In a marker's record: behind its length, attributes and two deltas of 0, one byte each."""
_KEY_LENGTH: Final = 4 << 1
_VALUE_LENGTH: Final = 6 << 1
_VERSION: Final = 0
_INT32_MAX: Final = (1 << 31) - 1


def marker_batch(
    *,
    offset: Offset,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    is_commit: bool,
    timestamp_ms: Milliseconds,
    coordinator_epoch: int = COORDINATOR_EPOCH,
    leader_epoch: int = LEADER_EPOCH,
) -> bytes:
    """The whole batch, 78 bytes, of the marker at `offset`. Its CRC is right; it needs no patching."""
    record = _control_record(0, ControlRecordType.COMMIT if is_commit else ControlRecordType.ABORT, coordinator_epoch)
    header = pack_header(
        base_offset=offset,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        record_count=1,
        records=record,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    return bytes(header) + record


def read_marker(buffer: Buffer, header: BatchHeader) -> Marker:
    """The outcome of a transaction by the control batch at `header`, as `marker_batch` or Kafka wrote it.

    Raises `InvalidBatch` where it is no marker: a batch of other records, or a control record of another type.
    """
    if not (header.is_control and header.is_transactional and header.record_count == 1):
        raise InvalidBatch(ErrorCode.invalid_record, f"the batch at {header.base_offset} is no transaction's marker")
    content_first = header.position + HEADER_BYTES + _CONTENT_AT
    if content_first + _CONTENT.size > header.end:
        raise InvalidBatch(ErrorCode.corrupt_message, f"the marker at {header.base_offset} is cut")
    _, _, kind, _, _, coordinator_epoch, _ = _CONTENT.unpack_from(buffer, content_first)
    if kind not in tuple(ControlRecordType):
        raise InvalidBatch(ErrorCode.invalid_record, f"the control record at {header.base_offset} is of type {kind}")
    return Marker(is_commit=kind == ControlRecordType.COMMIT, coordinator_epoch=coordinator_epoch)


def _control_record(offset_delta: int, record_type: ControlRecordType, coordinator_epoch: int) -> bytes:
    """A whole record, its length included."""
    content = _CONTENT.pack(_KEY_LENGTH, _VERSION, record_type, _VALUE_LENGTH, _VERSION, coordinator_epoch, 0)
    body = b"\x00\x00" + encode_varint(offset_delta) + content
    return encode_varint(len(body)) + body


def empty_control_batch(offset_first: int, offset_end: int) -> bytes:
    """Batches without data that cover exactly `[offset_first, offset_end)`: clients step over them (safety rule S5).

    One batch for up to 2^31 - 1 offsets, more for more; nothing for an empty range. Each is a control batch with
    producer id -1, and one commit marker at its last offset. Why this shape:

    * Java passes over control batches and goes on behind the batch's last offset; without a producer id it does not
      look at the marker.
    * librdkafka goes on behind the last offset too, but takes a response without any message or control record for a
      message that is too large: so a batch of no records, as Kafka's compaction leaves them, will not do. It counts
      only records at or after the offset it asked for: so the marker stands at the last offset.
    * An abort marker makes librdkafka warn of a transaction it does not know, and aiokafka forget a producer id that
      it never met; a commit marker means nothing to any client.
    * franz-go drops control records, and goes on behind the last offset.
    """
    batches = bytearray()
    while offset_first < offset_end:
        last_offset_delta = min(offset_end - offset_first - 1, _INT32_MAX - 1)
        record = _control_record(last_offset_delta, ControlRecordType.COMMIT, COORDINATOR_EPOCH)
        batches += pack_header(
            base_offset=offset_first,
            attributes=CONTROL_BIT,
            last_offset_delta=last_offset_delta,
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=NO_TIMESTAMP,
            record_count=1,
            records=record,
        )
        batches += record
        offset_first += last_offset_delta + 1
    return bytes(batches)
