"""AlterPartitionReassignments 0-1: moves nothing, for agents hold no replicas (KIP-455).

The replicas that a partition is told to have already are taken, and that is all there is to do; others are refused with
INVALID_REPLICA_ASSIGNMENT, for leaders follow from which agents live. Nothing is ever under way, so what is to be
cancelled (null) is NO_REASSIGNMENT_IN_PROGRESS. The request takes a barrier first (safety rule S4).
Source: org.apache.kafka.controller.ReplicationControlManager.alterPartitionReassignments (Kafka 4.3).
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
    zone = services.zone_of(request)
    topics = []
    row_count = 0
    for wanted in body.topics:
        rows = []
        for partition in wanted.partitions:
            rows.append(_result(services, wanted.name, partition, zone))
            await turns.row()
        topics.append({"name": wanted.name, "partitions": rows})
        row_count += 1 + len(rows)
        await turns.row()
    may_change_factor = request.frame.api_version < FIRST_WITH_FACTOR_CHANGE or body.allow_replication_factor_change
    values = {
        "allow_replication_factor_change": may_change_factor,
        "error_code": ErrorCode.none,
        "error_message": None,
        "responses": topics,
    }
    return await work(row_count, answer, request.frame, values)


def _result(services: Services, name: str, wanted: Any, zone: str | None) -> dict[str, Any]:
    error_code, message = _judge(services, name, wanted, zone)
    return {"partition_index": wanted.partition_index, "error_code": error_code, "error_message": message}


def _judge(services: Services, name: str, wanted: Any, zone: str | None) -> tuple[ErrorCode, str | None]:
    topic = services.topics.known(name)
    if topic is None:
        return ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {name}."
    if not 0 <= wanted.partition_index < len(topic.partitions):
        return ErrorCode.unknown_topic_or_partition, f"Unable to find partition {name}:{wanted.partition_index}."
    if wanted.replicas is None:
        return ErrorCode.no_reassignment_in_progress, "No reassignment is in progress: agents hold no replicas."
    replicas = services.assignments(topic, zone)[wanted.partition_index].replicas
    if set(wanted.replicas) == set(replicas):
        return ErrorCode.none, None
    return (
        ErrorCode.invalid_replica_assignment,
        f"Agents hold no replicas, so nothing can be moved to {list(wanted.replicas)}: the object store replicates, "
        f"and who leads follows from which agents live ({list(replicas)} now).",
    )
