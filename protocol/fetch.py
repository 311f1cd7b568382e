"""Fetch, by hand: the request read over a memoryview, the response packed around the records (versions 4 to 18).

Rule: records pass through as they are given, uncopied; only what stands between them is written here. The fields of
every version stand in FetchRequest.json and FetchResponse.json of Apache Kafka 4.3.1; that both directions equal kio's
is a property test.

Versions: 5 log start offset; 7 fetch sessions (KIP-227); 9 current leader epoch (KIP-320); 11 rack and preferred read
replica (KIP-392); 12 flexible, last fetched epoch, diverging epoch and current leader (KIP-595); 13 topic ids
(KIP-516); 15 replica state (KIP-903); 16 node endpoints (KIP-951); 17 directory ids (KIP-853); 18 high watermark
(KIP-1166).
"""

import struct
from typing import Final

from protocol.errors import MalformedRequest
from protocol.fetch_entities import (
    AbortedTransaction,
    DivergingEpoch,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
    FetchTopic,
    ForgottenTopic,
)
from protocol.leaders import pack_leader, pack_node_endpoints
from protocol.limits import ARRAY_LENGTH_MAX, REQUEST_METADATA_BYTES_MAX
from protocol.wire import (
    INT32,
    INT64,
    UNREADABLE,
    Buffer,
    pack_length,
    pack_tagged_fields,
    pack_topic,
    read_array_length,
    read_nullable_string,
    read_string,
    read_tagged_fields,
    read_topic,
    read_uuid,
)

__all__ = [
    "VERSION_MAX",
    "VERSION_MIN",
    "AbortedTransaction",
    "DivergingEpoch",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchResponsePartition",
    "FetchResponseTopic",
    "FetchTopic",
    "ForgottenTopic",
    "read_fetch_request",
    "write_fetch_response",
]

VERSION_MIN: Final = 4
VERSION_MAX: Final = 18
_LOG_START_FIRST: Final = 5
_SESSION_FIRST: Final = 7
_LEADER_EPOCH_FIRST: Final = 9
_RACK_FIRST: Final = 11
_FLEXIBLE_FIRST: Final = 12
_TOPIC_ID_FIRST: Final = 13
_REPLICA_STATE_FIRST: Final = 15
_ENDPOINTS_FIRST: Final = 16
_DIRECTORY_FIRST: Final = 17
_HIGH_WATERMARK_FIRST: Final = 18

_TAG_CLUSTER_ID: Final = 0
_TAG_REPLICA_STATE: Final = 1
_TAG_DIRECTORY_ID: Final = 0
_TAG_HIGH_WATERMARK: Final = 1
_TAG_DIVERGING_EPOCH: Final = 0
_TAG_CURRENT_LEADER: Final = 1
_TAG_NODE_ENDPOINTS: Final = 0

_WAIT_BYTES_ISOLATION: Final = struct.Struct(">iiib")
"""Wait, bytes min, bytes max, isolation level."""
_SESSION: Final = struct.Struct(">ii")
_REPLICA_STATE: Final = struct.Struct(">iq")
_PARTITION_V4: Final = struct.Struct(">iqi")
"""Index, fetch offset, bytes max."""
_PARTITION_V5: Final = struct.Struct(">iqqi")
"""Index, fetch offset, log start offset, bytes max."""
_PARTITION_V9: Final = struct.Struct(">iiqqi")
"""Index, current leader epoch, fetch offset, log start offset, bytes max."""
_PARTITION_V12: Final = struct.Struct(">iiqiqi")
"""Index, current leader epoch, fetch offset, last fetched epoch, log start offset, bytes max."""

_ANSWER_V4: Final = struct.Struct(">ihqq")
"""Index, error code, high watermark, last stable offset."""
_ANSWER_V5: Final = struct.Struct(">ihqqq")
"""The same with the log start offset."""
_ABORTED: Final = struct.Struct(">qq")
_DIVERGING_EPOCH: Final = struct.Struct(">iqB")
_THROTTLE_ERROR_SESSION: Final = struct.Struct(">ihi")


def read_fetch_request(body: memoryview, version: int) -> FetchRequest:
    """The request in `body`. Bytes behind it are ignored, as in Kafka.

    Args:
        body: the frame without its header; unsigned bytes.
        version: 4 to 18.

    Raises:
        MalformedRequest: close the connection.
    """
    if len(body) > REQUEST_METADATA_BYTES_MAX:
        raise MalformedRequest(f"a Fetch request of {len(body)} bytes; at most {REQUEST_METADATA_BYTES_MAX} are read")
    try:
        return _read_request(body, version)
    except UNREADABLE as error:
        raise MalformedRequest(f"a Fetch request (version {version}) that cannot be read: {error}") from error


def _read_request(body: memoryview, version: int) -> FetchRequest:
    is_flexible = version >= _FLEXIBLE_FIRST
    position = 0
    replica_id = replica_epoch = session_epoch = -1
    if version < _REPLICA_STATE_FIRST:
        (replica_id,) = INT32.unpack_from(body, 0)
        position = 4
    max_wait_ms, bytes_min, bytes_max, isolation_level = _WAIT_BYTES_ISOLATION.unpack_from(body, position)
    position += _WAIT_BYTES_ISOLATION.size
    session_id = 0
    if version >= _SESSION_FIRST:
        session_id, session_epoch = _SESSION.unpack_from(body, position)
        position += _SESSION.size
    topics, position = _read_topics(body, position, version)
    forgotten_topics: list[ForgottenTopic] = []
    if version >= _SESSION_FIRST:
        forgotten_topics, position = _read_forgotten_topics(body, position, version)
    rack_id, cluster_id = "", None
    if version >= _RACK_FIRST:
        rack_id, position = read_string(body, position, is_flexible=is_flexible)
    if is_flexible:
        tags, position = read_tagged_fields(body, position, tags_end=2)
        if _TAG_CLUSTER_ID in tags:
            cluster_id, _ = read_nullable_string(tags[_TAG_CLUSTER_ID], 0, is_flexible=True)
        if _TAG_REPLICA_STATE in tags and version >= _REPLICA_STATE_FIRST:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(tags[_TAG_REPLICA_STATE])
            read_tagged_fields(tags[_TAG_REPLICA_STATE], _REPLICA_STATE.size)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        bytes_min=bytes_min,
        bytes_max=bytes_max,
        isolation_level=isolation_level,
        topics=topics,
        forgotten_topics=forgotten_topics,
        session_id=session_id,
        session_epoch=session_epoch,
        rack_id=rack_id,
        replica_id=replica_id,
        replica_epoch=replica_epoch,
        cluster_id=cluster_id,
    )


def _read_topics(body: memoryview, position: int, version: int) -> tuple[list[FetchTopic], int]:
    is_flexible, has_id = version >= _FLEXIBLE_FIRST, version >= _TOPIC_ID_FIRST
    topics_count, position = read_array_length(body, position, is_flexible=is_flexible)
    elements_left = ARRAY_LENGTH_MAX
    topics: list[FetchTopic] = []
    for _ in range(topics_count):
        name, topic_id, count, position = read_topic(body, position, has_id=has_id, is_flexible=is_flexible)
        elements_left -= count
        if elements_left < 0:
            raise MalformedRequest(f"more than {ARRAY_LENGTH_MAX} partitions in one request")
        partitions: list[FetchPartition] = []
        for _ in range(count):
            partition, position = _read_partition(body, position, version)
            partitions.append(partition)
        if is_flexible:
            _, position = read_tagged_fields(body, position)
        topics.append(FetchTopic(name=name, topic_id=topic_id, partitions=partitions))
    return topics, position


def _read_partition(body: memoryview, position: int, version: int) -> tuple[FetchPartition, int]:
    leader_epoch = last_fetched_epoch = log_start_offset = -1
    if version >= _FLEXIBLE_FIRST:
        index, leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, bytes_max = _PARTITION_V12.unpack_from(
            body, position
        )
        position += _PARTITION_V12.size
    elif version >= _LEADER_EPOCH_FIRST:
        index, leader_epoch, fetch_offset, log_start_offset, bytes_max = _PARTITION_V9.unpack_from(body, position)
        position += _PARTITION_V9.size
    elif version >= _LOG_START_FIRST:
        index, fetch_offset, log_start_offset, bytes_max = _PARTITION_V5.unpack_from(body, position)
        position += _PARTITION_V5.size
    else:
        index, fetch_offset, bytes_max = _PARTITION_V4.unpack_from(body, position)
        position += _PARTITION_V4.size
    partition = FetchPartition(
        index=index,
        fetch_offset=fetch_offset,
        bytes_max=bytes_max,
        current_leader_epoch=leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
        log_start_offset=log_start_offset,
    )
    if version >= _FLEXIBLE_FIRST:
        tags, position = read_tagged_fields(body, position, tags_end=2)
        if _TAG_DIRECTORY_ID in tags and version >= _DIRECTORY_FIRST:
            partition.replica_directory_id, _ = read_uuid(tags[_TAG_DIRECTORY_ID], 0)
        if _TAG_HIGH_WATERMARK in tags and version >= _HIGH_WATERMARK_FIRST:
            (partition.high_watermark,) = INT64.unpack_from(tags[_TAG_HIGH_WATERMARK])
    return partition, position


def _read_forgotten_topics(body: memoryview, position: int, version: int) -> tuple[list[ForgottenTopic], int]:
    is_flexible, has_id = version >= _FLEXIBLE_FIRST, version >= _TOPIC_ID_FIRST
    topics_count, position = read_array_length(body, position, is_flexible=is_flexible)
    elements_left = ARRAY_LENGTH_MAX
    topics: list[ForgottenTopic] = []
    for _ in range(topics_count):
        name, topic_id, count, position = read_topic(body, position, has_id=has_id, is_flexible=is_flexible)
        elements_left -= count
        if elements_left < 0:
            raise MalformedRequest(f"more than {ARRAY_LENGTH_MAX} forgotten partitions in one request")
        partitions = list(struct.unpack_from(f">{count}i", body, position))
        position += 4 * count
        if is_flexible:
            _, position = read_tagged_fields(body, position)
        topics.append(ForgottenTopic(name=name, topic_id=topic_id, partitions=partitions))
    return topics, position


def write_fetch_response(correlation_id: int, version: int, response: FetchResponse) -> list[Buffer]:
    """Response header and body, ready for `ServerConnection.respond`; records are passed on uncopied.

    Args:
        version: of the request, 4 to 18.
    """
    is_flexible, has_id = version >= _FLEXIBLE_FIRST, version >= _TOPIC_ID_FIRST
    buffers: list[Buffer] = []
    out = bytearray(INT32.pack(correlation_id))
    if is_flexible:
        out += b"\0"
    if version >= _SESSION_FIRST:
        out += _THROTTLE_ERROR_SESSION.pack(response.throttle_time_ms, response.error_code, response.session_id)
    else:
        out += INT32.pack(response.throttle_time_ms)
    out += pack_length(len(response.topics), is_flexible=is_flexible)
    for topic in response.topics:
        out += pack_topic(topic.name, topic.topic_id, len(topic.partitions), has_id=has_id, is_flexible=is_flexible)
        for partition in topic.partitions:
            out += _pack_partition(partition, version)
            if partition.records:
                buffers.append(out)
                buffers += partition.records
                out = bytearray()
            if is_flexible:
                out += _pack_partition_tags(partition)
        if is_flexible:
            out += b"\0"
    if version >= _ENDPOINTS_FIRST and response.node_endpoints:
        out += pack_tagged_fields([(_TAG_NODE_ENDPOINTS, pack_node_endpoints(response.node_endpoints))])
    elif is_flexible:
        out += b"\0"
    if out:
        buffers.append(out)
    return buffers


def _pack_partition(partition: FetchResponsePartition, version: int) -> bytes:
    """The partition up to the length of its records, which follow."""
    is_flexible = version >= _FLEXIBLE_FIRST
    if version >= _LOG_START_FIRST:
        packed = _ANSWER_V5.pack(
            partition.index,
            partition.error_code,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log_start_offset,
        )
    else:
        packed = _ANSWER_V4.pack(
            partition.index, partition.error_code, partition.high_watermark, partition.last_stable_offset
        )
    aborted = partition.aborted_transactions
    if aborted is None:
        packed += pack_length(-1, is_flexible=is_flexible)
    else:
        packed += pack_length(len(aborted), is_flexible=is_flexible)
        for transaction in aborted:
            packed += _ABORTED.pack(transaction.producer_id, transaction.offset_first)
            if is_flexible:
                packed += b"\0"
    if version >= _RACK_FIRST:
        packed += INT32.pack(partition.preferred_read_replica)
    if partition.records is None:
        return packed + pack_length(-1, is_flexible=is_flexible)
    records_bytes = 0
    for buffer in partition.records:
        records_bytes += len(buffer) if type(buffer) is bytes else memoryview(buffer).nbytes
    return packed + pack_length(records_bytes, is_flexible=is_flexible)


def _pack_partition_tags(partition: FetchResponsePartition) -> bytes:
    if partition.diverging_epoch is None and partition.current_leader is None:
        return b"\0"
    fields: list[tuple[int, bytes]] = []
    if partition.diverging_epoch is not None:
        diverging = partition.diverging_epoch
        fields.append((_TAG_DIVERGING_EPOCH, _DIVERGING_EPOCH.pack(diverging.epoch, diverging.end_offset, 0)))
    if partition.current_leader is not None:
        fields.append((_TAG_CURRENT_LEADER, pack_leader(partition.current_leader)))
    return pack_tagged_fields(fields)
