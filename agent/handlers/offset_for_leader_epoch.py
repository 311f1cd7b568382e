"""OffsetForLeaderEpoch 2-4: where an epoch ends.

Epochs never change here: the current one ends at the log's end, a later one is unknown, and one before it ended where
the log starts. Every answer takes a barrier: an end that is behind would look like truncation (safety rule S4).
Source: org.apache.kafka.cluster.Partition.lastOffsetForLeaderEpoch (Kafka 4.3).
"""

from collections.abc import Sequence
from typing import Any

from agent.admin.cluster_view import leader_epoch_error
from agent.request.messages import answer, request_body
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield, inline_or_in_thread, rows_at_most
from coordinator.state.state import PartitionState
from protocol.errors import ErrorCode
from protocol.types import LEADER_EPOCH
from storage.object_store import Buffer

API_KEY = 23
NO_EPOCH = -1
NO_OFFSET = -1


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    body = await inline_or_in_thread(rows_at_most(request.frame.body), request_body, request.frame)
    await services.metadata.barrier()
    pacer = CooperativeYield(services.clock)
    topics = []
    row_count = 0
    for topic in body.topics:
        partitions = []
        for partition in topic.partitions:
            partitions.append(await _end_offset(services, topic.topic, partition))
            await pacer.step()
        topics.append({"topic": topic.topic, "partitions": partitions})
        row_count += 1 + len(partitions)
        await pacer.step()
    return await inline_or_in_thread(row_count, answer, request.frame, {"topics": topics})


async def _end_offset(services: Services, topic_name: str, partition: Any) -> dict[str, Any]:
    error_code, epoch, end_offset = ErrorCode.none, NO_EPOCH, NO_OFFSET
    topic = await services.topics.by_name(topic_name)
    if topic is None or not 0 <= partition.partition < len(topic.partitions):
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
