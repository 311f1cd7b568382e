"""AlterPartitionReassignments 0-1: moves nothing, for agents hold no replicas (KIP-455).

What names agents that live, each once, is taken, and is over at once: who leads follows from which agents live, before
as after. Nothing is ever under way, so what is to be cancelled (null) is NO_REASSIGNMENT_IN_PROGRESS. From version 1 on
a client may ask that the number of replicas stays as it is told (KIP-860). The request takes a barrier first (safety
rule S4).
Source: org.apache.kafka.controller.ReplicationControlManager.alterPartitionReassignments,
validateManualPartitionAssignment (Kafka 4.3).
"""

from collections.abc import Sequence
from typing import Any

from agent.handlers.entities import answer, request_body
from agent.services import Request, Services
from agent.turns import Turns, rows_at_most, work
from protocol.errors import ErrorCode
from storage.object_store import Buffer

API_KEY = 45
FIRST_WITH_FACTOR_CHANGE = 1


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    body = await work(rows_at_most(request.frame.body), request_body, request.frame)
    await services.metadata.barrier()
    turns = Turns(services.clock)
    may_change_factor = request.frame.api_version < FIRST_WITH_FACTOR_CHANGE or body.allow_replication_factor_change
    zone = services.zone_of(request)
    topics = []
    row_count = 0
    for wanted in body.topics:
        rows = []
        for partition in wanted.partitions:
            rows.append(_result(services, wanted.name, partition, zone, may_change_factor=may_change_factor))
            await turns.row()
        topics.append({"name": wanted.name, "partitions": rows})
        row_count += 1 + len(rows)
        await turns.row()
    values = {
        "allow_replication_factor_change": may_change_factor,
        "error_code": ErrorCode.none,
        "error_message": None,
        "responses": topics,
    }
    return await work(row_count, answer, request.frame, values)


def _result(services: Services, name: str, wanted: Any, zone: str | None, *, may_change_factor: bool) -> dict[str, Any]:
    error_code, message = _judge(services, name, wanted, zone, may_change_factor=may_change_factor)
    return {"partition_index": wanted.partition_index, "error_code": error_code, "error_message": message}


def _judge(
    services: Services, name: str, wanted: Any, zone: str | None, *, may_change_factor: bool
) -> tuple[ErrorCode, str | None]:
    topic = services.topics.known(name)
    if topic is None:
        return ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {name}."
    if not 0 <= wanted.partition_index < len(topic.partitions):
        return ErrorCode.unknown_topic_or_partition, f"Unable to find partition {name}:{wanted.partition_index}."
    if wanted.replicas is None:
        return ErrorCode.no_reassignment_in_progress, "No reassignment is in progress: agents hold no replicas."
    problem = _problem(services, wanted.replicas)
    if problem is not None:
        return ErrorCode.invalid_replica_assignment, f"The manual partition assignment includes {problem}."
    before, after = len(services.assignments(topic, zone)[wanted.partition_index].replicas), len(wanted.replicas)
    if before != after and not may_change_factor:
        return ErrorCode.invalid_replication_factor, f"The replication factor is changed from {before} to {after}"
    return ErrorCode.none, None


def _problem(services: Services, replicas: Sequence[int]) -> str | None:
    """What Kafka does not take either: it looks at the ids in their order, and tells the first."""
    if not replicas:
        return "an empty replica list"
    live = {services.node_id, *(session.node_id for session in services.state.sessions.values())}
    previous = None
    for node_id in sorted(replicas):
        if node_id not in live:
            return f"broker {node_id}, but no such broker is registered"
        if node_id == previous:
            return f"the broker {node_id} more than once"
        previous = node_id
    return None
