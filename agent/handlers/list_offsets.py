"""ListOffsets: the offset of a partition at its start, at its end, or at a time.

- Versions: 1-11. 2 adds read_committed (KIP-98). Special timestamps: -1 latest, -2 earliest, -3 the record with the
  greatest timestamp (7, KIP-734), -4 earliest local (8, KIP-405), -5 latest tiered (9, KIP-1005), -6 earliest pending
  upload (11, KIP-1023).
- Behaviour: every request takes a barrier (safety rule S4); without an answer of the ledger every partition is
  NOT_LEADER_OR_FOLLOWER. With read_committed the latest offset is the last stable one, and a record at or behind it is
  not found by its time. An unknown isolation level fails every partition. A partition that is named twice has one row,
  with an error.
- Differs from Kafka: there is one tier. The earliest local offset is the earliest, and nothing is tiered or pending.
- Source: org.apache.kafka.storage.internals.log.UnifiedLog.fetchOffsetByTimestamp,
  org.apache.kafka.cluster.Partition.fetchOffsetForTimestamp (Kafka 4.3).
"""

from collections import Counter
from typing import Any

from agent.admin.cluster_view import leader_epoch_error
from agent.fetch.isolation import visible_end
from agent.fetch.timestamp_search import TimestampSearch
from agent.ledger.apply_loop import PartitionKey
from agent.request.barriers import passes_barrier
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield, inline_or_in_thread
from agent.security.required_rights import DESCRIBE_TOPIC
from coordinator.ledger.port import LedgerUnavailable
from coordinator.state.state import PartitionState, TopicState
from protocol.errors import ErrorCode
from protocol.types import LEADER_EPOCH, PartitionIndex
from storage.object_store import ObjectMissing, StoreError, StoreUnavailable
from txn.isolation import IsolationLevel

API_KEY = 2
FIRST_WITH_ISOLATION = 2
FIRST_WITH_LEADER_EPOCHS = 4
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
FIRST_VERSION = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
LEVELS = tuple(IsolationLevel)
Answer = tuple[ErrorCode, tuple[int, int, int]]
"""An error, or timestamp, offset and leader epoch."""
NOTHING = (-1, -1, -1)
"""Timestamp, offset and leader epoch of no record."""


async def handle(services: Services, request: Request, body: Any) -> Values:
    version = request.frame.api_version
    partitions_count = sum(len(topic.partitions) for topic in body.topics)
    repeated = await inline_or_in_thread(partitions_count, _repeated, body)
    isolation_level = body.isolation_level if version >= FIRST_WITH_ISOLATION else IsolationLevel.READ_UNCOMMITTED
    isolation = IsolationLevel(isolation_level) if isolation_level in LEVELS else None
    denied = await request.rights.denied_names(*DESCRIBE_TOPIC, [topic.name for topic in body.topics])
    is_behind = isolation is not None and not await passes_barrier(services)
    pacer = CooperativeYield(services.clock)
    topics: list[dict[str, Any]] = []
    for topic in body.topics:
        partitions: list[dict[str, Any]] = []
        # As in Kafka, each mention of a partition has its row in a denied topic, and the last one in any other.
        is_denied = topic.name in denied
        last_mentions = {each.partition_index: each for each in topic.partitions}.values()
        for partition in topic.partitions if is_denied else last_mentions:
            error_code = ErrorCode.not_leader_or_follower if is_behind else ErrorCode.none
            if is_denied:
                error_code = ErrorCode.topic_authorization_failed
            elif (topic.name, partition.partition_index) in repeated:
                error_code = ErrorCode.invalid_request
            timed_offset = NOTHING
            if isolation is None:
                error_code = ErrorCode.unknown_server_error
            elif error_code is ErrorCode.none:
                held = _find(services, version, topic.name, partition)
                if isinstance(held, ErrorCode):
                    error_code = held
                else:
                    key = (held.topic_id, PartitionIndex(partition.partition_index))
                    now, timestamp = held.partitions[partition.partition_index], partition.timestamp
                    known = _known(now, timestamp, isolation)
                    error_code, timed_offset = known or await offset_at(
                        services.timestamps, key, now, timestamp, isolation
                    )
            offset_timestamp, offset, leader_epoch = timed_offset
            partitions.append(
                {
                    "partition_index": partition.partition_index,
                    "error_code": error_code,
                    "timestamp": offset_timestamp,
                    "offset": offset,
                    "leader_epoch": leader_epoch,
                }
            )
            await pacer.step()
        topics.append({"name": topic.name, "partitions": partitions})
        await pacer.step()
    return {"topics": topics}


def _repeated(body: Any) -> set[tuple[str, int]]:
    """The partitions that the request names more than once."""
    mentions = Counter(
        (topic.name, partition.partition_index) for topic in body.topics for partition in topic.partitions
    )
    return {name for name, count in mentions.items() if count > 1}


def _find(services: Services, version: int, topic_name: str, query: Any) -> TopicState | ErrorCode:
    """The topic of the partition that is asked for as it is now, or the error of the partition."""
    topic = services.topics.known(topic_name)
    if topic is None or not 0 <= query.partition_index < len(topic.partitions):
        return ErrorCode.unknown_topic_or_partition
    if query.timestamp < EARLIEST_PENDING_UPLOAD or version < FIRST_VERSION.get(query.timestamp, 0):
        return ErrorCode.unsupported_version
    if version < FIRST_WITH_LEADER_EPOCHS:
        return topic
    epoch_error = leader_epoch_error(query.current_leader_epoch)
    return topic if epoch_error is ErrorCode.none else epoch_error


def _known(partition: PartitionState, timestamp: int, isolation: IsolationLevel) -> Answer | None:
    """The result that needs no records; None where they have to be read."""
    match timestamp:
        case -1:
            return ErrorCode.none, (-1, visible_end(partition, isolation), LEADER_EPOCH)
        case -2 | -4:
            return ErrorCode.none, (-1, partition.log_start, LEADER_EPOCH)
        case -5 | -6:
            return ErrorCode.none, NOTHING
        case _:
            return None


async def offset_at(
    timestamps: TimestampSearch, key: PartitionKey, partition: PartitionState, timestamp: int, isolation: IsolationLevel
) -> Answer:
    """The result that has to be read from records. `partition` is the partition as it is now.

    Without ledger or store it is NOT_LEADER_OR_FOLLOWER, and clients ask again. They do not for damaged objects.
    """
    end = visible_end(partition, isolation)
    try:
        timed_offset = await timestamps.find(key, None if timestamp == MAX_TIMESTAMP else timestamp)
    except (StoreUnavailable, ObjectMissing, LedgerUnavailable):
        return ErrorCode.not_leader_or_follower, NOTHING
    except StoreError:
        return ErrorCode.kafka_storage_error, NOTHING
    if timed_offset is None or (isolation is IsolationLevel.READ_COMMITTED and timed_offset.offset >= end):
        return ErrorCode.none, NOTHING
    return ErrorCode.none, (timed_offset.timestamp, timed_offset.offset, LEADER_EPOCH)
