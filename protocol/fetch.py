"""The response of a Fetch, by hand: packed around the records, in versions 4 to 18.

Rule: records pass through as they are given, uncopied; only what stands between them is written here. The fields of
every version stand in FetchResponse.json of Apache Kafka 4.3.1; that they equal kio's is a property test.

Versions: 5 log start offset; 7 fetch sessions (KIP-227); 11 preferred read replica (KIP-392); 12 flexible, diverging
epoch and current leader (KIP-595); 13 topic ids (KIP-516); 16 node endpoints (KIP-951).
"""

import struct
from typing import Final

from protocol.fetch_entities import (
    AbortedTransaction,
    DivergingEpoch,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from protocol.leaders import pack_leader, pack_node_endpoints
from protocol.wire import INT32, Buffer, pack_length, pack_tagged_fields, pack_topic

__all__ = [
    "VERSION_MAX",
    "VERSION_MIN",
    "AbortedTransaction",
    "DivergingEpoch",
    "FetchResponse",
    "FetchResponsePartition",
    "FetchResponseTopic",
    "write_fetch_response",
]

VERSION_MIN: Final = 4
VERSION_MAX: Final = 18
_LOG_START_FIRST: Final = 5
_SESSION_FIRST: Final = 7
_RACK_FIRST: Final = 11
_FLEXIBLE_FIRST: Final = 12
_TOPIC_ID_FIRST: Final = 13
_ENDPOINTS_FIRST: Final = 16

_TAG_DIVERGING_EPOCH: Final = 0
_TAG_CURRENT_LEADER: Final = 1
_TAG_NODE_ENDPOINTS: Final = 0

_ANSWER_V4: Final = struct.Struct(">ihqq")
"""Index, error code, high watermark, last stable offset."""
_ANSWER_V5: Final = struct.Struct(">ihqqq")
"""The same with the log start offset."""
_ABORTED: Final = struct.Struct(">qq")
_DIVERGING_EPOCH: Final = struct.Struct(">iqB")
_THROTTLE_ERROR_SESSION: Final = struct.Struct(">ihi")


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
