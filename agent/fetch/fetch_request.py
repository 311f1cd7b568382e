"""A Fetch request in one shape for all versions: fields that its version lacks have Kafka's defaults.

Specification: FetchRequest.json of Apache Kafka 4.3.1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from agent.fetch.sessions import PartitionName, RequestedPartition, TopicKey
from protocol.connection import RequestFrame
from protocol.errors import MalformedRequest
from protocol.limits import FETCH_PARTITIONS_MAX
from protocol.messages import read_request
from protocol.types import TopicId
from protocol.wire import NO_UUID

FIRST_WITH_SESSIONS: Final = 7
FIRST_WITH_TOPIC_IDS: Final = 13
_FIRST_WITH_LEADER_EPOCHS: Final = 9
_FIRST_WITH_RACK: Final = 11
_FIRST_WITH_FETCHED_EPOCHS: Final = 12
_FIRST_WITH_REPLICA_STATE: Final = 15
_NO_EPOCH: Final = -1
_NO_SESSION: Final = 0
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(slots=True, kw_only=True)  # to make a frozen one takes twice as long
class FetchRequest:
    """The partitions that a client fetches, and its limits."""

    max_wait_ms: int
    bytes_min: int
    bytes_max: int
    isolation_level: int
    """The number that the client sent, which may be none of `txn.isolation`."""
    session_id: int
    session_epoch: int
    requested: Sequence[RequestedPartition]
    """Each partition once: its last mention counts."""
    forgotten: Sequence[PartitionName]
    rack: str
    is_replica: bool
    """Whether the client calls itself a follower."""


def read_fetch_request(frame: RequestFrame) -> FetchRequest:
    """The request of a frame.

    Raises `MalformedRequest`, also where it names more partitions than any client has: close the connection.
    """
    version = frame.api_version
    body: Any = read_request(frame)
    named_count = sum([len(topic.partitions) for topic in body.topics])
    if named_count > FETCH_PARTITIONS_MAX:
        raise MalformedRequest(f"a fetch of {named_count} partitions; at most {FETCH_PARTITIONS_MAX} are served")
    has_session = version >= FIRST_WITH_SESSIONS
    replica_id = body.replica_state.replica_id if version >= _FIRST_WITH_REPLICA_STATE else body.replica_id
    return FetchRequest(
        max_wait_ms=body.max_wait // _MILLISECOND,
        bytes_min=body.min_bytes,
        bytes_max=body.max_bytes,
        isolation_level=body.isolation_level,
        session_id=body.session_id if has_session else _NO_SESSION,
        session_epoch=body.session_epoch if has_session else _NO_EPOCH,
        requested=list(_requested(body, version).values()),
        forgotten=_forgotten(body, version) if has_session else (),
        rack=body.rack_id if version >= _FIRST_WITH_RACK else "",
        is_replica=replica_id >= 0,
    )


def _requested(body: Any, version: int) -> Mapping[PartitionName, RequestedPartition]:
    has_leader_epochs = version >= _FIRST_WITH_LEADER_EPOCHS
    has_fetched_epochs = version >= _FIRST_WITH_FETCHED_EPOCHS
    requested: dict[PartitionName, RequestedPartition] = {}
    for topic in body.topics:
        key = _key(topic, version)
        for partition in topic.partitions:
            requested[key, partition.partition] = RequestedPartition(
                topic=key,
                partition=partition.partition,
                fetch_offset=partition.fetch_offset,
                partition_max_bytes=partition.partition_max_bytes,
                current_leader_epoch=partition.current_leader_epoch if has_leader_epochs else _NO_EPOCH,
                last_fetched_epoch=partition.last_fetched_epoch if has_fetched_epochs else _NO_EPOCH,
            )
    return requested


def _forgotten(body: Any, version: int) -> list[PartitionName]:
    """The partitions that leave the session."""
    return [(_key(topic, version), index) for topic in body.forgotten_topics_data for index in topic.partitions]


def _key(topic: Any, version: int) -> TopicKey:
    if version < FIRST_WITH_TOPIC_IDS:
        return str(topic.topic)
    return TopicId(NO_UUID if topic.topic_id is None else topic.topic_id.bytes)
