"""DescribeLogDirs: the bytes of partitions in the one log directory that there is, the bucket.

- Versions: 1-5. 5 adds cordoned directories (KIP-1066); the bucket is never one.
- Behaviour: the request takes a barrier first (safety rule S4). Each agent reports the partitions that it leads for
  clients without a zone: the responses of all agents name every partition once, and add up to the cluster. A
  partition's size is the one that `retention.bytes` counts: its batches from the log's start on, as they were produced.
- Differs from Kafka: the directory's size is unknown (-1). As Parquet the records take less than their reported size.
- Source: org.apache.kafka.server.KafkaApis.handleDescribeLogDirsRequest, ReplicaManager.describeLogDirs (Kafka 4.3).
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from coordinator.state.state import TopicState
from protocol.errors import ErrorCode

API_KEY = 35
UNKNOWN_BYTES = -1
NO_LAG = 0


async def handle(services: Services, request: Request, body: Any) -> Values:
    await services.ledger.barrier()
    pacer = CooperativeYield(services.clock)
    topics = []
    async for topic, indexes in _wanted(services, body.topics, pacer):
        assignments = services.assignments(topic, zone=None)
        partitions = []
        for index in indexes:
            if 0 <= index < len(assignments) and assignments[index].leader == services.node_id:
                partitions.append(_described(topic, index))
            await pacer.step()
        if partitions:
            topics.append({"name": topic.name, "partitions": partitions})
    directory = {
        "error_code": ErrorCode.none,
        "log_dir": services.store_url,
        "topics": topics,
        "total_bytes": UNKNOWN_BYTES,
        "usable_bytes": UNKNOWN_BYTES,
        "is_cordoned": False,
    }
    return {"error_code": ErrorCode.none, "results": [directory]}


async def _wanted(
    services: Services, topics: Sequence[Any] | None, pacer: CooperativeYield
) -> AsyncIterator[tuple[TopicState, Sequence[int]]]:
    """The existing topics among `topics` (None: all topics), each with the partitions that the request names."""
    if topics is None:
        for topic in list(services.state.topics.values()):
            yield topic, range(len(topic.partitions))
        return
    indexes: dict[str, dict[int, None]] = {}
    for wanted in topics:
        indexes.setdefault(wanted.topic, {}).update(dict.fromkeys(wanted.partitions))
        await pacer.step()
    for name, of_topic in indexes.items():
        known = services.topics.known(name)
        if known is not None:
            yield known, tuple(of_topic)


def _described(topic: TopicState, index: int) -> dict[str, Any]:
    partition = topic.partitions[index]
    return {
        "partition_index": index,
        "partition_size": partition.index.log_bytes_from(partition.log_start),
        "offset_lag": NO_LAG,
        "is_future_key": False,
    }
