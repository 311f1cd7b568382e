"""DescribeQuorum: the end of the ledger, and the agent that is the maintenance leader (KIP-595, KIP-836).

- Versions: 0-2.
- Behaviour: the ledger takes the part of the partition 0 of `__cluster_metadata`. Its position is the high watermark.
  The maintenance leader, with its epoch, is the leader and only voter; the other agents are observers. The request
  takes a barrier first (safety rule S4). NOT_LEADER_OR_FOLLOWER, after which clients ask again, means that there is no
  maintenance leader or that the ledger does not answer.
- Differs from Kafka: the position of an observer is unknown (-1). The ledger's replicas are etcd's: see `etcdctl
  endpoint status`.
- Source: org.apache.kafka.raft.KafkaRaftClient.handleDescribeQuorumRequest (Kafka 4.3).
"""

from collections.abc import Sequence
from typing import Any

from agent.request.barriers import passes_barrier
from agent.request.messages import Values
from agent.request.services import Request, Services
from coordinator.state.state import SessionState
from protocol.errors import ErrorCode

API_KEY = 55
METADATA_TOPIC = "__cluster_metadata"
METADATA_PARTITION = 0
UNKNOWN = -1


async def handle(services: Services, request: Request, body: Any) -> Values:
    asked = [(topic.topic_name, [partition.partition_index for partition in topic.partitions]) for topic in body.topics]
    if asked != [(METADATA_TOPIC, [METADATA_PARTITION])]:
        rejected = [
            (name, [_partition(ErrorCode.unknown_topic_or_partition, index) for index in indexes])
            for name, indexes in asked
        ]
        return _values(rejected, [])
    if not await passes_barrier(services):
        return _values([(METADATA_TOPIC, [_partition(ErrorCode.not_leader_or_follower)])], [])
    state = services.state
    if state.maintenance_leader is None:
        return _values([(METADATA_TOPIC, [_partition(ErrorCode.not_leader_or_follower)])], [])
    leader = state.sessions[state.maintenance_leader]
    observers = [session for session_id, session in state.sessions.items() if session_id != state.maintenance_leader]
    now_ms = services.clock.now_ms()
    described = _partition(ErrorCode.none) | {
        "leader_id": leader.node_id,
        "leader_epoch": state.maintenance_leader_epoch,
        "high_watermark": state.position,
        "current_voters": [_replica(leader, state.position, now_ms)],
        "observers": [_replica(observer, UNKNOWN, UNKNOWN) for observer in observers],
    }
    return _values([(METADATA_TOPIC, [described])], [leader])


def _values(topics: Sequence[tuple[str, list[dict[str, Any]]]], voters: Sequence[SessionState]) -> Values:
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "topics": [{"topic_name": name, "partitions": partitions} for name, partitions in topics],
        "nodes": [_node(voter) for voter in voters],
    }


def _partition(error_code: ErrorCode, index: int = METADATA_PARTITION) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": error_code,
        "error_message": None,
        "leader_id": UNKNOWN,
        "leader_epoch": UNKNOWN,
        "high_watermark": UNKNOWN,
        "current_voters": [],
        "observers": [],
    }


def _replica(session: SessionState, log_end_offset: int, caught_up_ms: int) -> dict[str, Any]:
    return {
        "replica_id": session.node_id,
        "replica_directory_id": None,
        "log_end_offset": log_end_offset,
        "last_fetch_timestamp": UNKNOWN,
        "last_caught_up_timestamp": caught_up_ms,
    }


def _node(session: SessionState) -> dict[str, Any]:
    listeners = [{"name": point.listener, "host": point.host, "port": point.port} for point in session.endpoints]
    return {"node_id": session.node_id, "listeners": listeners}
