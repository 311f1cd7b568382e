"""OffsetForLeaderEpoch: the offset at which a leader epoch ends.

- Versions: 2-4.
- Behaviour: the request takes a barrier first: an end that is behind would look like truncation (safety rule S4). The
  current epoch ends at the log's end, and one before it ended at the log's start. A later one is unknown.
- Differs from Kafka: epochs never change.
- Source: org.apache.kafka.cluster.Partition.lastOffsetForLeaderEpoch (Kafka 4.3).
"""

from collections.abc import Set as AbstractSet
from typing import Any

from agent.admin.cluster_view import leader_epoch_error
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from agent.security.required_rights import ACT_ON_CLUSTER, DESCRIBE_TOPIC
from agent.security.rights import Rights
from coordinator.state.state import PartitionState
from protocol.auth.operations import CLUSTER_NAME
from protocol.errors import ErrorCode
from protocol.types import LEADER_EPOCH

API_KEY = 23
NO_EPOCH = -1
NO_OFFSET = -1


async def handle(services: Services, request: Request, body: Any) -> Values:
    denied = await _denied(request.rights, {topic.topic for topic in body.topics})
    await services.ledger.barrier()
    pacer = CooperativeYield(services.clock)
    topics = []
    for topic in body.topics:
        partitions = []
        for partition in topic.partitions:
            is_denied = topic.topic in denied
            partitions.append(await _end_offset(services, topic.topic, partition, is_denied=is_denied))
            await pacer.step()
        topics.append({"topic": topic.topic, "partitions": partitions})
        await pacer.step()
    return {"topics": topics}


async def _denied(rights: Rights, names: AbstractSet[str]) -> frozenset[str]:
    """The topics that the client may neither describe nor replicate."""
    if rights.may(*ACT_ON_CLUSTER, CLUSTER_NAME):
        return frozenset()
    denied = await rights.denied_names(*DESCRIBE_TOPIC, names)
    return frozenset() if denied and rights.may(*ACT_ON_CLUSTER, CLUSTER_NAME) else denied


async def _end_offset(services: Services, topic_name: str, partition: Any, *, is_denied: bool) -> dict[str, Any]:
    error_code, epoch, end_offset = ErrorCode.none, NO_EPOCH, NO_OFFSET
    topic = None if is_denied else await services.topics.by_name(topic_name)
    if is_denied:
        error_code = ErrorCode.topic_authorization_failed
    elif topic is None or not 0 <= partition.partition < len(topic.partitions):
        error_code = ErrorCode.unknown_topic_or_partition
    else:
        error_code = leader_epoch_error(partition.current_leader_epoch)
        if error_code is ErrorCode.none:
            epoch, end_offset = end_of_epoch(topic.partitions[partition.partition], partition.leader_epoch)
    return {
        "error_code": error_code,
        "partition": partition.partition,
        "leader_epoch": epoch,
        "end_offset": end_offset,
    }


def end_of_epoch(partition: PartitionState, leader_epoch: int) -> tuple[int, int]:
    """The epoch, and the offset at which it ends: -1, -1 for one that is not known."""
    if leader_epoch == NO_EPOCH or leader_epoch > LEADER_EPOCH:
        return NO_EPOCH, NO_OFFSET
    return leader_epoch, partition.log_end if leader_epoch == LEADER_EPOCH else partition.log_start
