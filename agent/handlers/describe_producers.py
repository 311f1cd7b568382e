"""DescribeProducers: the idempotent producers that a partition remembers (KIP-664).

- Versions: 0.
- Behaviour: the request takes a barrier first (safety rule S4). Any agent responds, because the state has every
  partition. A partition that is named twice has one row, because it may have many producers. A producer's last
  timestamp is the cluster's time at which its newest batch, or its transaction's marker, was committed.
- Differs from Kafka: the ledger is the only coordinator of transactions, so all markers have its epoch.
- Source: org.apache.kafka.server.KafkaApis.handleDescribeProducersRequest, ReplicaManager.activeProducerState (Kafka
  4.3).
"""

from typing import Any

from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from agent.security.required_rights import READ_TOPIC
from coordinator.state.state import PartitionState
from protocol.errors import ErrorCode
from protocol.records.control_batches import COORDINATOR_EPOCH
from protocol.types import NO_TIMESTAMP, SEQUENCE_END, PartitionIndex
from txn.producer_state import NO_ACTIVITY_TIME

API_KEY = 61
NO_COORDINATOR_EPOCH = -1
NO_TRANSACTION = -1
NO_SEQUENCE = -1


async def handle(services: Services, request: Request, body: Any) -> Values:
    denied = await request.rights.denied_names(*READ_TOPIC, [topic.name for topic in body.topics])
    await services.ledger.barrier()
    pacer = CooperativeYield(services.clock)
    wanted: dict[str, dict[PartitionIndex, None]] = {}
    for topic in body.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        await pacer.step()
    topics = []
    for name, indexes in wanted.items():
        known = services.topics.known(name)
        partitions = []
        for index in indexes:
            partition = None if known is None else services.state.partition(known.topic_id, index)
            if name in denied:
                row = _error(index, ErrorCode.topic_authorization_failed)
            elif partition is None:
                row = _error(index, ErrorCode.unknown_topic_or_partition)
            else:
                row = await _described(services, index, partition, pacer)
            partitions.append(row)
            await pacer.step()
        topics.append({"name": name, "partitions": partitions})
        await pacer.step()
    return {"topics": topics}


def _error(index: int, error_code: ErrorCode) -> dict[str, Any]:
    return {"partition_index": index, "error_code": error_code, "error_message": None, "active_producers": []}


async def _described(
    services: Services, index: int, partition: PartitionState, pacer: CooperativeYield
) -> dict[str, Any]:
    producers = []
    open_here = {} if partition.transactions is None else partition.transactions.open
    transactional = services.state.producers_of_transactions
    for producer_id, producer in list(partition.producers.items()):
        row = {
            "producer_id": producer_id,
            "producer_epoch": producer.epoch,
            "last_sequence": (producer.sequence_next - 1) % SEQUENCE_END if producer.recent else NO_SEQUENCE,
            "last_timestamp": NO_TIMESTAMP if producer.last_active_ms == NO_ACTIVITY_TIME else producer.last_active_ms,
            "coordinator_epoch": COORDINATOR_EPOCH if producer_id in transactional else NO_COORDINATOR_EPOCH,
            "current_txn_start_offset": open_here.get(producer_id, NO_TRANSACTION),
        }
        producers.append(row)
        await pacer.step()
    return {
        "partition_index": index,
        "error_code": ErrorCode.none,
        "error_message": None,
        "active_producers": producers,
    }
