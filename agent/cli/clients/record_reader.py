"""Decodes fetched batches into records, one object each: for output to people, where speed matters little."""

from collections.abc import Iterator
from dataclasses import dataclass

from agent.cli.clients.kafka_client import FetchedPartition
from protocol.records.batch import walk_batches
from protocol.records.columns import HeaderColumns
from protocol.records.records import decode_headers, decode_records


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecord:
    """One record."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_records(fetched: FetchedPartition) -> Iterator[ReadRecord]:
    """All records of the batches without control records. Raises `InvalidBatch` for damaged bytes."""
    for batch in walk_batches(fetched.batches):
        if batch.is_control:
            continue
        columns = decode_records(fetched.batches, batch)
        headers = decode_headers(columns)
        payload = columns.payload.tobytes()
        for row in range(len(columns.offset_delta)):
            yield ReadRecord(
                partition=fetched.partition,
                offset=batch.base_offset + int(columns.offset_delta[row]),
                timestamp_ms=batch.max_timestamp if batch.is_log_append_time else int(columns.timestamp[row]),
                key=_bytes(payload, int(columns.key_first[row]), int(columns.key_bytes[row])),
                value=_bytes(payload, int(columns.value_first[row]), int(columns.value_bytes[row])),
                headers=_headers(payload, headers, row),
            )


def _headers(payload: bytes, headers: HeaderColumns, row: int) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(
        (
            (_bytes(payload, int(headers.key_first[i]), int(headers.key_bytes[i])) or b"").decode(errors="replace"),
            _bytes(payload, int(headers.value_first[i]), int(headers.value_bytes[i])),
        )
        for i in range(int(headers.ends[row]), int(headers.ends[row + 1]))
    )


def _bytes(payload: bytes, first: int, length: int) -> bytes | None:
    return None if length < 0 else payload[first : first + length]
