"""A batch of records as the commands produce it: uncompressed, with key, value, headers and a timestamp."""

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.records.batch import encode_varint, pack_header


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRecord:
    """One record to produce."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def encode_batch(records: Sequence[OutgoingRecord]) -> bytes:
    """One uncompressed batch of at least one record, base offset 0."""
    base_timestamp = records[0].timestamp_ms
    encoded = bytearray()
    for delta, record in enumerate(records):
        body = b"".join(
            (
                b"\x00",
                encode_varint(record.timestamp_ms - base_timestamp),
                encode_varint(delta),
                _nullable(record.key),
                _nullable(record.value),
                encode_varint(len(record.headers)),
                *(_nullable(name.encode()) + _nullable(value) for name, value in record.headers),
            )
        )
        encoded += encode_varint(len(body)) + body
    header = pack_header(
        base_offset=0,
        attributes=0,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp_ms for record in records),
        record_count=len(records),
        records=encoded,
    )
    return bytes(header + encoded)


def _nullable(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data
