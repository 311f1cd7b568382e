"""Records as plain values, written to and read from Kafka's batches one by one.

Rule: the slow and obvious way, apart from the vectorised code of `protocol.records.records` that tests hold against it.
Layout: KIP-98, org.apache.kafka.common.record.DefaultRecord (Kafka 4.3).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from protocol.limits import DECOMPRESSED_BYTES_MAX
from protocol.records.batch import HEADER_BYTES, TRANSACTIONAL_BIT, check_crc, encode_varint, pack_header, walk_batches
from protocol.records.compression import Compression, compress, decompress
from protocol.types import NO_PRODUCER_ID

Header = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
    is_append_time: bool = False


def make_batch(
    records: Sequence[Record],
    compression: Compression = Compression.NONE,
    *,
    last: int | None = None,
    transactional_producer: int | None = None,
) -> bytes:
    """One batch as a producer sends it: base offset 0, offsets counted from the first record's.

    `last`: the offset that the batch ends with, where it is beyond the last record's. `transactional_producer`: whose
    transaction it is part of.
    """
    base_offset, base_timestamp = records[0].offset, records[0].timestamp
    encoded = b"".join(_encode(record, base_offset, base_timestamp) for record in records)
    payload = bytes(compress(compression, encoded))
    header = pack_header(
        base_offset=0,
        attributes=int(compression) | (0 if transactional_producer is None else TRANSACTIONAL_BIT),
        producer_id=NO_PRODUCER_ID if transactional_producer is None else transactional_producer,
        last_offset_delta=(records[-1].offset if last is None else last) - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        record_count=len(records),
        records=payload,
    )
    return bytes(header) + payload


def _encode(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    body = bytearray(b"\x00")
    body += encode_varint(record.timestamp - base_timestamp)
    body += encode_varint(record.offset - base_offset)
    body += _encode_bytes(record.key)
    body += _encode_bytes(record.value)
    body += encode_varint(len(record.headers))
    for key, value in record.headers:
        body += _encode_bytes(key) + _encode_bytes(value)
    return encode_varint(len(body)) + bytes(body)


def _encode_bytes(value: bytes | None) -> bytes:
    return encode_varint(-1) if value is None else encode_varint(len(value)) + value


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBatches:
    """What a consumer learns: the records, and every offset that some batch covers, as half-open ranges."""

    records: list[Record]
    ranges: list[tuple[int, int]]


def read_batches(buffer: bytes) -> ReadBatches:
    """Every record of every data batch, with the offsets that all batches cover. CRCs are checked."""
    records: list[Record] = []
    ranges: list[tuple[int, int]] = []
    for header in walk_batches(buffer):
        check_crc(buffer, header)
        ranges.append((header.base_offset, header.base_offset + header.last_offset_delta + 1))
        if header.is_control:
            continue
        stored = buffer[header.position + HEADER_BYTES : header.end]
        payload = bytes(decompress(header.compression, stored, DECOMPRESSED_BYTES_MAX))
        cursor = _Cursor(payload)
        for _ in range(header.record_count):
            cursor.varint()
            cursor.position += 1
            timestamp = header.base_timestamp + cursor.varint()
            records.append(
                Record(
                    offset=header.base_offset + cursor.varint(),
                    timestamp=header.max_timestamp if header.is_log_append_time else timestamp,
                    key=cursor.bytes(),
                    value=cursor.bytes(),
                    headers=tuple(cursor.headers()),
                    is_append_time=header.is_log_append_time,
                )
            )
        assert cursor.position == len(payload)
    return ReadBatches(records=records, ranges=ranges)


class _Cursor:
    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.position = 0

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.payload[self.position]
            self.position += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)

    def bytes(self) -> bytes | None:
        length = self.varint()
        if length < 0:
            return None
        self.position += length
        return self.payload[self.position - length : self.position]

    def headers(self) -> Iterator[Header]:
        for _ in range(self.varint()):
            key = self.bytes()
            assert key is not None
            yield key, self.bytes()
