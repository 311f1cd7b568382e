"""AlterReplicaLogDirs: accepts the one log directory that there is, the bucket (KIP-113).

- Versions: 1-2.
- Behaviour: the request takes a barrier first (safety rule S4). A partition is in the directory that DescribeLogDirs
  names, so a move to it succeeds at once. Another directory is LOG_DIR_NOT_FOUND, as a path that a broker does not
  have.
- Differs from Kafka: nothing is ever moved.
- Source: org.apache.kafka.server.KafkaApis.handleAlterReplicaLogDirsRequest, ReplicaManager.alterReplicaLogDirs (Kafka
  4.3).
"""

from typing import Any

from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from protocol.errors import ErrorCode

API_KEY = 34


async def handle(services: Services, request: Request, body: Any) -> Values:
    await services.ledger.barrier()
    pacer = CooperativeYield(services.clock)
    topics: dict[str, list[dict[str, Any]]] = {}
    for directory in body.dirs:
        is_found = directory.path == services.store_url
        for wanted in directory.topics:
            rows = topics.setdefault(wanted.name, [])
            for index in wanted.partitions:
                error_code = _error(services, wanted.name, index) if is_found else ErrorCode.log_dir_not_found
                rows.append({"partition_index": index, "error_code": error_code})
                await pacer.step()
            await pacer.step()
    results = [{"topic_name": name, "partitions": rows} for name, rows in topics.items()]
    return {"results": results}


def _error(services: Services, name: str, index: int) -> ErrorCode:
    topic = services.topics.known(name)
    is_known = topic is not None and 0 <= index < len(topic.partitions)
    return ErrorCode.none if is_known else ErrorCode.unknown_topic_or_partition
