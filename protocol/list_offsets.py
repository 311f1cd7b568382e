"""ListOffsets, by hand: a client that waits for a transaction to be visible asks for a thousand partitions at a time.

Rule: the fields of every version stand in ListOffsetsRequest.json and ListOffsetsResponse.json of Apache Kafka 4.3.1;
that both directions equal kio's is a property test.

Versions 1 to 11: 2 isolation level (KIP-98); 4 leader epochs (KIP-320); 6 flexible (KIP-482); 10 a timeout (KIP-1075).
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from protocol.errors import ErrorCode, MalformedRequest
from protocol.limits import ARRAY_LENGTH_MAX, REQUEST_METADATA_BYTES_MAX
from protocol.wire import (
    INT32,
    UNREADABLE,
    Buffer,
    pack_length,
    pack_string,
    read_array_length,
    read_string,
    read_tagged_fields,
)

VERSION_MIN: Final = 1
VERSION_MAX: Final = 11
_ISOLATION_FIRST: Final = 2
_THROTTLE_FIRST: Final = 2
_LEADER_EPOCH_FIRST: Final = 4
_FLEXIBLE_FIRST: Final = 6
_TIMEOUT_FIRST: Final = 10
NO_EPOCH: Final = -1

_REPLICA_ISOLATION: Final = struct.Struct(">ib")
_PARTITION_V1: Final = struct.Struct(">iq")
"""Index, timestamp."""
_PARTITION_V4: Final = struct.Struct(">iiq")
"""Index, current leader epoch, timestamp."""
_ANSWER_V1: Final = struct.Struct(">ihqq")
"""Index, error code, timestamp, offset."""
_ANSWER_V4: Final = struct.Struct(">ihqqi")
"""The same with the leader epoch."""
_ANSWER_V6: Final = struct.Struct(">ihqqiB")
"""The same with no tagged fields."""


class OffsetQuery(NamedTuple):
    """One partition of a request. `timestamp`: milliseconds, or one of Kafka's negative words for an offset."""

    partition_index: int
    current_leader_epoch: int
    timestamp: int


class PartitionOffset(NamedTuple):
    """One partition of an answer."""

    partition_index: int
    error_code: ErrorCode
    timestamp: int
    offset: int
    leader_epoch: int


class TopicOffsetQueries(NamedTuple):
    name: str
    partitions: Sequence[OffsetQuery]


class TopicOffsets(NamedTuple):
    name: str
    partitions: Sequence[PartitionOffset]


class ListOffsetsRequest(NamedTuple):
    """Without what only followers say, and the timeout: nothing here waits for another tier."""

    isolation_level: int
    topics: Sequence[TopicOffsetQueries]


def read_list_offsets_request(body: memoryview, version: int) -> ListOffsetsRequest:
    """The request in `body`, of version 1 to 11. Bytes behind it are ignored, as in Kafka.

    Raises `MalformedRequest`: close the connection.
    """
    if len(body) > REQUEST_METADATA_BYTES_MAX:
        raise MalformedRequest(f"a ListOffsets request of {len(body)} bytes; at most {REQUEST_METADATA_BYTES_MAX}")
    try:
        return _read_request(body, version)
    except UNREADABLE as error:
        raise MalformedRequest(f"a ListOffsets request (version {version}) that cannot be read: {error}") from error


def _read_request(body: memoryview, version: int) -> ListOffsetsRequest:
    is_flexible = version >= _FLEXIBLE_FIRST
    isolation_level = 0
    if version >= _ISOLATION_FIRST:
        _, isolation_level = _REPLICA_ISOLATION.unpack_from(body, 0)
        position = _REPLICA_ISOLATION.size
    else:
        INT32.unpack_from(body, 0)
        position = INT32.size
    topics_count, position = read_array_length(body, position, is_flexible=is_flexible)
    topics: list[TopicOffsetQueries] = []
    elements_left = ARRAY_LENGTH_MAX - topics_count
    for _ in range(topics_count):
        name, position = read_string(body, position, is_flexible=is_flexible)
        count, position = read_array_length(body, position, is_flexible=is_flexible)
        elements_left -= count
        if elements_left < 0:
            raise MalformedRequest(f"more than {ARRAY_LENGTH_MAX} elements in one request")
        partitions, position = _read_partitions(body, position, count, version)
        if is_flexible:
            _, position = read_tagged_fields(body, position)
        topics.append(TopicOffsetQueries(name, partitions))
    if version >= _TIMEOUT_FIRST:
        INT32.unpack_from(body, position)
        position += INT32.size
    if is_flexible:
        read_tagged_fields(body, position)
    return ListOffsetsRequest(isolation_level, topics)


def _read_partitions(body: memoryview, position: int, count: int, version: int) -> tuple[list[OffsetQuery], int]:
    is_flexible = version >= _FLEXIBLE_FIRST
    partitions: list[OffsetQuery] = []
    for _ in range(count):
        if version >= _LEADER_EPOCH_FIRST:
            index, leader_epoch, timestamp = _PARTITION_V4.unpack_from(body, position)
            position += _PARTITION_V4.size
        else:
            index, timestamp = _PARTITION_V1.unpack_from(body, position)
            leader_epoch = NO_EPOCH
            position += _PARTITION_V1.size
        if is_flexible:
            _, position = read_tagged_fields(body, position)
        partitions.append(OffsetQuery(index, leader_epoch, timestamp))
    return partitions, position


def write_list_offsets_response(correlation_id: int, version: int, topics: Sequence[TopicOffsets]) -> list[Buffer]:
    """Response header and body, ready for `ServerConnection.respond`; the throttle time is 0."""
    is_flexible = version >= _FLEXIBLE_FIRST
    out = bytearray(INT32.pack(correlation_id))
    if is_flexible:
        out += b"\0"
    if version >= _THROTTLE_FIRST:
        out += INT32.pack(0)
    out += pack_length(len(topics), is_flexible=is_flexible)
    for topic in topics:
        out += pack_string(topic.name, is_flexible=is_flexible)
        out += pack_length(len(topic.partitions), is_flexible=is_flexible)
        if is_flexible:
            out += b"".join([_ANSWER_V6.pack(*partition, 0) for partition in topic.partitions]) + b"\0"
        elif version >= _LEADER_EPOCH_FIRST:
            out += b"".join([_ANSWER_V4.pack(*partition) for partition in topic.partitions])
        else:
            out += b"".join([_ANSWER_V1.pack(*partition[:-1]) for partition in topic.partitions])
    if is_flexible:
        out += b"\0"
    return [out]
