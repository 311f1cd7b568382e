"""Produce, by hand: the request read over a memoryview, the response packed (versions 3 to 13).

Rule: records are slices of the frame, never copied. The fields of every version stand in ProduceRequest.json and
ProduceResponse.json of Apache Kafka 4.3.1; that both directions equal kio's is a property test.

Versions: 5 log start offset; 8 record errors and error message (KIP-467); 9 flexible; 10 current leader and node
endpoints (KIP-951); 11, 12 transactions V2 (KIP-890), same bytes; 13 topic ids instead of names (KIP-516).
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from protocol.errors import ErrorCode, MalformedRequest
from protocol.leaders import LeaderAndEpoch, NodeEndpoint, pack_leader, pack_node_endpoints
from protocol.limits import ARRAY_LENGTH_MAX
from protocol.wire import (
    INT32,
    UNREADABLE,
    Buffer,
    pack_length,
    pack_string,
    pack_tagged_fields,
    pack_topic,
    read_array_length,
    read_nullable_string,
    read_tagged_fields,
    read_topic,
    read_unsigned_varint,
)

VERSION_MIN: Final = 3
VERSION_MAX: Final = 13
_LOG_START_FIRST: Final = 5
_RECORD_ERRORS_FIRST: Final = 8
_FLEXIBLE_FIRST: Final = 9
_LEADERS_FIRST: Final = 10
_TOPIC_ID_FIRST: Final = 13

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INDEX_LENGTH: Final = struct.Struct(">ii")
_PARTITION_V3: Final = struct.Struct(">ihqq")
"""Index, error code, base offset, log append time."""
_PARTITION_V5: Final = struct.Struct(">ihqqq")
"""The same with the log start offset."""
_PLAIN_END_V3: Final = b""
_PLAIN_END_V8: Final = b"\0\0\0\0\xff\xff"
"""No record errors, no message."""
_PLAIN_END_V9: Final = b"\1\0\0"
"""No record errors, no message, no tagged fields."""


@dataclass(slots=True)
class ProducePartition:
    """The records to append to one partition."""

    index: int
    records: memoryview | None
    """Concatenated record batches, big-endian, as a view of the frame."""


@dataclass(slots=True)
class ProduceTopic:
    """Partitions of one topic, which is known by its name (up to version 12) or by its id (from 13)."""

    name: str | None
    topic_id: bytes | None
    """16 bytes."""
    partitions: list[ProducePartition]


@dataclass(slots=True)
class ProduceRequest:
    """Topics and partitions may repeat: the wire allows it."""

    transactional_id: str | None
    acks: int
    """The value as sent: 0 no answer, 1 and -1 durable first; anything else is for the handler to reject."""
    timeout_ms: int
    topics: list[ProduceTopic]


@dataclass(slots=True, kw_only=True)
class RecordError:
    """One record that made its batch be rejected."""

    batch_index: int
    message: str | None = None


@dataclass(slots=True, kw_only=True)
class ProduceResponsePartition:
    """The result for one partition's records. An error comes with base offset -1 (the default): clients take an offset
    for success.
    """

    index: int
    error_code: ErrorCode = ErrorCode.none
    base_offset: int = -1
    log_append_time_ms: int = -1
    """-1 unless the topic stamps the time of appending."""
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: LeaderAndEpoch | None = None


@dataclass(slots=True, kw_only=True)
class ProduceResponseTopic:
    """The topic as the request named it."""

    name: str | None
    topic_id: bytes | None
    partitions: list[ProduceResponsePartition]


@dataclass(slots=True, kw_only=True)
class ProduceResponse:
    """Fields that the version does not have are left out when it is written."""

    topics: Sequence[ProduceResponseTopic]
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


def read_produce_request(body: memoryview, version: int) -> ProduceRequest:
    """The request in `body`. Bytes behind it are ignored, as in Kafka.

    Args:
        body: the frame without its header; unsigned bytes.
        version: 3 to 13.

    Raises:
        MalformedRequest: close the connection.
    """
    try:
        return _read_request(body, version)
    except UNREADABLE as error:
        raise MalformedRequest(f"a Produce request (version {version}) that cannot be read: {error}") from error


def _read_request(body: memoryview, version: int) -> ProduceRequest:
    is_flexible = version >= _FLEXIBLE_FIRST
    transactional_id, position = read_nullable_string(body, 0, is_flexible=is_flexible)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, position)
    topics_count, position = read_array_length(body, position + 6, is_flexible=is_flexible)
    read_partitions = _read_compact_partitions if is_flexible else _read_partitions
    elements_left = ARRAY_LENGTH_MAX
    topics: list[ProduceTopic] = []
    for _ in range(topics_count):
        name, topic_id, partitions_count, position = read_topic(
            body, position, has_id=version >= _TOPIC_ID_FIRST, is_flexible=is_flexible
        )
        elements_left -= partitions_count
        if elements_left < 0:
            raise MalformedRequest(f"more than {ARRAY_LENGTH_MAX} partitions in one request")
        partitions, position = read_partitions(body, position, partitions_count)
        topics.append(ProduceTopic(name, topic_id, partitions))
    if is_flexible:
        read_tagged_fields(body, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _read_partitions(body: memoryview, position: int, count: int) -> tuple[list[ProducePartition], int]:
    partitions: list[ProducePartition] = []
    records: memoryview | None
    for _ in range(count):
        index, length = _INDEX_LENGTH.unpack_from(body, position)
        position += 8
        if length < 0:
            records = None
        else:
            first, position = position, position + length
            records = body[first:position]
        partitions.append(ProducePartition(index, records))
    if position > len(body):
        raise MalformedRequest(f"records end at {position}, the request at {len(body)}")
    return partitions, position


def _read_compact_partitions(body: memoryview, position: int, count: int) -> tuple[list[ProducePartition], int]:
    """With compact lengths and tagged fields, and the topic's own tagged fields behind the partitions."""
    partitions: list[ProducePartition] = []
    records: memoryview | None
    for _ in range(count):
        (index,) = INT32.unpack_from(body, position)
        length, position = read_unsigned_varint(body, position + 4)
        if length == 0:
            records = None
        else:
            first, position = position, position + length - 1
            records = body[first:position]
        if body[position]:
            _, position = read_tagged_fields(body, position)
        else:
            position += 1
        partitions.append(ProducePartition(index, records))
    _, position = read_tagged_fields(body, position)
    return partitions, position


def write_produce_response(correlation_id: int, version: int, response: ProduceResponse) -> list[Buffer]:
    """Response header and body, ready for `ServerConnection.respond`.

    Args:
        version: of the request, 3 to 13.
    """
    is_flexible, has_id = version >= _FLEXIBLE_FIRST, version >= _TOPIC_ID_FIRST
    out = bytearray(INT32.pack(correlation_id))
    if is_flexible:
        out += b"\0"
    out += pack_length(len(response.topics), is_flexible=is_flexible)
    for topic in response.topics:
        out += pack_topic(topic.name, topic.topic_id, len(topic.partitions), has_id=has_id, is_flexible=is_flexible)
        for partition in topic.partitions:
            out += _pack_partition(partition, version)
        if is_flexible:
            out += b"\0"
    out += INT32.pack(response.throttle_time_ms)
    if version >= _LEADERS_FIRST and response.node_endpoints:
        out += pack_tagged_fields([(0, pack_node_endpoints(response.node_endpoints))])
    elif is_flexible:
        out += b"\0"
    return [bytes(out)]


def _pack_partition(partition: ProduceResponsePartition, version: int) -> bytes:
    error_code, base_offset = partition.error_code, partition.base_offset
    assert error_code is ErrorCode.none or base_offset == -1, f"{error_code!r} with base offset {base_offset}"
    if version < _LOG_START_FIRST:
        return _PARTITION_V3.pack(partition.index, error_code, base_offset, partition.log_append_time_ms)
    packed = _PARTITION_V5.pack(
        partition.index, error_code, base_offset, partition.log_append_time_ms, partition.log_start_offset
    )
    if version < _RECORD_ERRORS_FIRST:
        return packed
    if (
        error_code is ErrorCode.none
        and not partition.record_errors
        and partition.error_message is None
        and partition.current_leader is None
    ):
        return packed + (_PLAIN_END_V9 if version >= _FLEXIBLE_FIRST else _PLAIN_END_V8)
    return packed + _pack_rejection(partition, version)


def _pack_rejection(partition: ProduceResponsePartition, version: int) -> bytes:
    """The fields after the offsets: why the records were rejected, and which broker leads the partition."""
    is_flexible = version >= _FLEXIBLE_FIRST
    parts = [pack_length(len(partition.record_errors), is_flexible=is_flexible)]
    for record_error in partition.record_errors:
        parts += (INT32.pack(record_error.batch_index), pack_string(record_error.message, is_flexible=is_flexible))
        if is_flexible:
            parts.append(b"\0")
    parts.append(pack_string(partition.error_message, is_flexible=is_flexible))
    if version >= _LEADERS_FIRST and partition.current_leader is not None:
        parts.append(pack_tagged_fields([(0, pack_leader(partition.current_leader))]))
    elif is_flexible:
        parts.append(b"\0")
    return b"".join(parts)
