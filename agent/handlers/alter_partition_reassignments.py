"""AlterPartitionReassignments: sets the replicas of partitions (KIP-455).

- Versions: 0-1. From 1 on a client may ask that the number of replicas does not change (KIP-860).
- Behaviour: the request takes a barrier first (safety rule S4). Replicas that name live agents, each once, are set at
  once, with one entry for each topic. Metadata reports them from then on, and the first live one leads. To cancel a
  reassignment (null) is NO_REASSIGNMENT_IN_PROGRESS.
- Differs from Kafka: agents hold no replicas, so nothing is moved and no reassignment is ever in progress.
- Source: org.apache.kafka.controller.ReplicationControlManager.alterPartitionReassignments,
  validateManualPartitionAssignment (Kafka 4.3).
"""

from collections.abc import Sequence
from typing import Any

from agent.admin.topics import TopicError, before, deadline_s
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from coordinator.commands.admin import Replicas
from coordinator.state.rendezvous import Assignment
from protocol.errors import ErrorCode
from protocol.types import PartitionIndex

API_KEY = 45
FIRST_WITH_FACTOR_CHANGE = 1


async def handle(services: Services, request: Request, body: Any) -> Values:
    await services.ledger.barrier()
    pacer = CooperativeYield(services.clock)
    may_change_factor = request.frame.api_version < FIRST_WITH_FACTOR_CHANGE or body.allow_replication_factor_change
    zone = services.zone_of(request)
    end_s = deadline_s(services.clock, body.timeout.total_seconds())
    topics = []
    for wanted in body.topics:
        rows = []
        judged = _Judged(services, wanted.name, zone, may_change_factor=may_change_factor)
        for partition in wanted.partitions:
            rows.append(judged.result(partition))
            await pacer.step()
        await judged.assign(end_s, rows)
        topics.append({"name": wanted.name, "partitions": rows})
        await pacer.step()
    return {
        "allow_replication_factor_change": may_change_factor,
        "error_code": ErrorCode.none,
        "error_message": None,
        "responses": topics,
    }


class _Judged:
    """The partitions of one topic, judged one by one. Those that may be altered are altered together."""

    def __init__(self, services: Services, name: str, zone: str | None, *, may_change_factor: bool) -> None:
        self._services = services
        self._name = name
        self._topic = services.topics.known(name)
        self._assignments: Sequence[Assignment] = ()
        if self._topic is not None:
            self._assignments = services.assignments(self._topic, zone)
        self._may_change_factor = may_change_factor
        self._accepted: dict[PartitionIndex, Replicas] = {}

    def result(self, wanted: Any) -> dict[str, Any]:
        """The partition's row of the response, as far as it is known before anything is altered."""
        error_code, message = self._judge(wanted)
        if error_code is ErrorCode.none:
            self._accepted[PartitionIndex(wanted.partition_index)] = tuple(wanted.replicas)
        return {"partition_index": wanted.partition_index, "error_code": error_code, "error_message": message}

    async def assign(self, end_s: float, rows: Sequence[dict[str, Any]]) -> None:
        """Alters the accepted partitions by `end_s` (monotonic clock). Where that fails, sets the error in `rows`."""
        if self._topic is None or not self._accepted:
            return
        alteration = self._services.topics.assign_replicas(self._topic, self._accepted)
        try:
            await before(end_s, self._services.clock, alteration)
        except TopicError as error:
            for row in rows:
                if row["error_code"] is ErrorCode.none:
                    row.update(error_code=error.error_code, error_message=error.message)

    def _judge(self, wanted: Any) -> tuple[ErrorCode, str | None]:
        if self._topic is None:
            return ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {self._name}."
        if not 0 <= wanted.partition_index < len(self._assignments):
            message = f"Unable to find partition {self._name}:{wanted.partition_index}."
            return ErrorCode.unknown_topic_or_partition, message
        if wanted.replicas is None:
            return ErrorCode.no_reassignment_in_progress, "No reassignment is in progress: agents hold no replicas."
        problem = self._services.topics.replicas_problem(wanted.replicas)
        if problem is not None:
            return ErrorCode.invalid_replica_assignment, f"The manual partition assignment includes {problem}."
        count_before, count = len(self._assignments[wanted.partition_index].replicas), len(wanted.replicas)
        if count_before != count and not self._may_change_factor:
            message = f"The replication factor is changed from {count_before} to {count}"
            return ErrorCode.invalid_replication_factor, message
        return ErrorCode.none, None
