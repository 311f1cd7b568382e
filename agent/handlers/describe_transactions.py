"""DescribeTransactions: the newest transaction of each transactional id (KIP-664).

- Versions: 0.
- Behaviour: the request takes a barrier first (safety rule S4). Any agent responds, because the state has every
  transaction. A response has a limit: transactional ids beyond it are COORDINATOR_LOAD_IN_PROGRESS, and clients ask
  again. A group that commits offsets is named by the partition of __consumer_offsets in which Kafka would keep them.
- Differs from Kafka: a transaction that has ended has no start time. Kafka's states between a decision and its last
  marker do not exist.
- Source: org.apache.kafka.coordinator.transaction.TransactionCoordinator.handleDescribeTransactions (Kafka 4.3).
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from agent.request.barriers import passes_barrier
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from agent.security.required_rights import DESCRIBE_TOPIC, DESCRIBE_TRANSACTION
from coordinator.configs.broker_configs import broker_value
from coordinator.state.state import ClusterState
from coordinator.state.transactions import TransactionalId
from protocol.errors import ErrorCode
from protocol.limits import TRANSACTION_MEMBERS_LISTED_MAX
from protocol.types import PartitionIndex, TopicId

API_KEY = 65
GROUPS_TOPIC: Final = "__consumer_offsets"
EPOCH_OF_UNIX: Final = datetime.fromtimestamp(0, tz=UTC)


async def handle(services: Services, request: Request, body: Any) -> Values:
    asked = body.transactional_ids
    denied = await request.rights.denied_names(*DESCRIBE_TRANSACTION, asked)
    if not await passes_barrier(services):
        away = [_error(transactional_id, ErrorCode.coordinator_not_available) for transactional_id in asked]
        return {"transaction_states": away}
    request.rights.refresh()
    pacer = CooperativeYield(services.clock)
    offsets_partitions = int(broker_value(services.broker_configs, "offsets.topic.num.partitions"))
    rows = []
    members_count = 0
    for transactional_id in asked:
        if transactional_id in denied:
            rows.append(_error(transactional_id, ErrorCode.transactional_id_authorization_failed))
            continue
        is_full = members_count >= TRANSACTION_MEMBERS_LISTED_MAX
        row = _row(services.state, transactional_id, offsets_partitions, is_full=is_full)
        row["topics"] = [topic for topic in row["topics"] if request.rights.may(*DESCRIBE_TOPIC, topic["topic"])]
        rows.append(row)
        members_count += sum(len(topic["partitions"]) for topic in rows[-1]["topics"])
        await pacer.step()
    return {"transaction_states": rows}


def _row(state: ClusterState, transactional_id: str, offsets_partitions: int, *, is_full: bool) -> dict[str, Any]:
    if is_full:
        return _error(transactional_id, ErrorCode.coordinator_load_in_progress)
    if not transactional_id:
        return _error(transactional_id, ErrorCode.invalid_request)
    held = state.transactional_ids.get(transactional_id)
    if held is None:
        return _error(transactional_id, ErrorCode.transactional_id_not_found)
    metadata = held.metadata
    return {
        "error_code": ErrorCode.none,
        "transactional_id": transactional_id,
        "transaction_state": metadata.status.value,
        "transaction_timeout": timedelta(milliseconds=metadata.timeout_ms),
        "transaction_start_time": EPOCH_OF_UNIX + timedelta(milliseconds=held.started_ms),
        "producer_id": metadata.producer_id,
        "producer_epoch": metadata.epoch,
        "topics": _topics(state, held, offsets_partitions),
    }


def _topics(state: ClusterState, held: TransactionalId, offsets_partitions: int) -> list[dict[str, Any]]:
    by_topic: dict[TopicId, list[PartitionIndex]] = {}
    for topic_id, index in held.partitions:
        by_topic.setdefault(topic_id, []).append(index)
    topics = [{"topic": state.topics[topic_id].name, "partitions": indexes} for topic_id, indexes in by_topic.items()]
    if held.groups:
        partitions = {partition_of_group(group_id, offsets_partitions) for group_id in held.groups}
        topics.append({"topic": GROUPS_TOPIC, "partitions": sorted(partitions)})
    return topics


def partition_of_group(group_id: str, partition_count: int) -> int:
    """The partition in which Kafka keeps a group's offsets, by Java's String.hashCode.

    Source: GroupMetadataManager.partitionFor.
    """
    units = group_id.encode("utf-16-be", "surrogatepass")
    code = 0
    for first in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[first : first + 2], "big")) & 0xFFFFFFFF
    # Utils.abs keeps the lower 31 bits of the absolute value; of the least number that is 0.
    absolute = code if code < 1 << 31 else (1 << 32) - code
    return (absolute & 0x7FFFFFFF) % partition_count


def _error(transactional_id: str, error_code: ErrorCode) -> dict[str, Any]:
    return {
        "error_code": error_code,
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout": timedelta(),
        "transaction_start_time": EPOCH_OF_UNIX,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": [],
    }
