"""AddPartitionsToTxn: adds partitions to the transaction.

- Versions: 0-5. Clients of transaction.version 1 send 0 to 3; those of KIP-890 write without it. Kafka's brokers send 4
  and 5 to each other: several transactional ids, each of which may only ask whether its partitions were added
  (VerifyOnly), which changes nothing.
- Behaviour: the transaction begins where none is open. All partitions of a transactional id are added, or none: where
  one cannot be, the others are OPERATION_NOT_ATTEMPTED. A partition is called unknown only after a barrier (safety rule
  S4). The command carries the epoch of the request's connection (safety rule S7).
- Source: org.apache.kafka.server.KafkaApis.handleAddPartitionsToTxnRequest,
  org.apache.kafka.coordinator.transaction.TransactionCoordinator (Kafka 4.3).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agent.admin.topics import TopicLookup
from agent.request.barriers import passes_barrier
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.request.transactional_requests import connection_epoch_of, decided
from agent.runtime.yielding import CooperativeYield
from agent.security.required_rights import WRITE_TOPIC, WRITE_TRANSACTION
from agent.security.rights import Rights
from coordinator.commands.transaction import AddToTransaction, TransactionPartition
from coordinator.configs.topic_names import INTERNAL_TOPICS
from coordinator.ledger.port import LedgerUnavailable
from coordinator.state.state import TopicState
from protocol.errors import ErrorCode
from protocol.types import PartitionIndex, ProducerEpoch, ProducerId
from txn.transaction import VerifyInTransaction
from txn.transaction_requests import answered_code, check_transactional_id, compared_producer
from txn.transitions import decide

API_KEY = 24
LAST_OF_CLIENTS = 3

PartitionName = tuple[str, int]
ErrorCodes = Mapping[PartitionName, ErrorCode]


class _Asked(NamedTuple):
    """The part of a request for one transactional id."""

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch
    topics: Sequence[Any]
    is_verify_only: bool = False

    @property
    def names(self) -> list[PartitionName]:
        return [(topic.name, index) for topic in self.topics for index in topic.partitions]


async def handle(services: Services, request: Request, body: Any) -> Values:
    version = request.frame.api_version
    pacer, lookup = CooperativeYield(services.clock), TopicLookup(services.topics)
    if version <= LAST_OF_CLIENTS:
        producer_id, epoch = compared_producer(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        asked = _Asked(
            transactional_id=body.v3_and_below_transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            topics=body.v3_and_below_topics,
        )
        error_codes = await _denials(request.rights, asked)
        if error_codes is None:
            error_codes = await _add(services, request, asked, lookup, pacer)
        rows = _rows(asked, error_codes, version)
        return {"results_by_topic_v3_and_below": rows}
    results = []
    for transaction in body.transactions:
        producer_id, epoch = compared_producer(transaction.producer_id, transaction.producer_epoch)
        asked = _Asked(
            transactional_id=transaction.transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            topics=transaction.topics,
            is_verify_only=transaction.verify_only,
        )
        rows = _rows(asked, await _add(services, request, asked, lookup, pacer), version)
        results.append({"transactional_id": asked.transactional_id, "topic_results": rows})
        await pacer.step()
    return {"error_code": ErrorCode.none, "results_by_transaction": results}


def _rows(asked: _Asked, error_codes: ErrorCodes, version: int) -> list[Values]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {
                    "partition_index": index,
                    "partition_error_code": answered_code(API_KEY, version, error_codes[topic.name, index]),
                }
                for index in topic.partitions
            ],
        }
        for topic in asked.topics
    ]


async def _denials(rights: Rights, asked: _Asked) -> ErrorCodes | None:
    """The error of each partition where the client may not write to all of them; None where it may."""
    names = asked.names
    if not await rights.may_behind_barrier(*WRITE_TRANSACTION, asked.transactional_id):
        return dict.fromkeys(names, ErrorCode.transactional_id_authorization_failed)
    denied = await rights.denied_names(*WRITE_TOPIC, {name for name, _ in names})
    if not denied:
        return None
    return {
        (name, index): ErrorCode.topic_authorization_failed if name in denied else ErrorCode.operation_not_attempted
        for name, index in names
    }


async def _add(
    services: Services, request: Request, asked: _Asked, lookup: TopicLookup, pacer: CooperativeYield
) -> ErrorCodes:
    """The error of each partition."""
    names = asked.names
    missing: dict[PartitionName, ErrorCode] = {}
    partition_names: dict[TransactionPartition, PartitionName] = {}
    for name, index in names:
        topic = await _find(lookup, name, index)
        if isinstance(topic, ErrorCode):
            missing[name, index] = topic
        else:
            partition_names[topic.topic_id, PartitionIndex(index)] = name, index
        await pacer.step()
    if missing:
        return {name: missing.get(name, ErrorCode.operation_not_attempted) for name in names}
    rejected = check_transactional_id(asked.transactional_id)
    if rejected is not ErrorCode.none:
        return dict.fromkeys(names, rejected)
    if asked.is_verify_only:
        return await _verified(services, asked, partition_names)
    command = AddToTransaction(
        transactional_id=asked.transactional_id,
        producer_id=asked.producer_id,
        epoch=asked.epoch,
        partitions=tuple(partition_names),
        groups=(),
        connection_epoch=await connection_epoch_of(services, request),
    )
    return dict.fromkeys(names, (await decided(services, request, command)).error_code)


async def _find(lookup: TopicLookup, name: str, index: int) -> TopicState | ErrorCode:
    """The topic with the partition, or the error."""
    if name in INTERNAL_TOPICS:  # a producer that writes there expects groups to change
        return ErrorCode.topic_authorization_failed
    try:
        topic = await lookup.by_name(name)
        if topic is not None and not 0 <= index < len(topic.partitions):
            topic = await lookup.grown_to(topic, index)
    except LedgerUnavailable:
        return ErrorCode.coordinator_not_available
    return ErrorCode.unknown_topic_or_partition if topic is None else topic


async def _verified(
    services: Services, asked: _Asked, partition_names: Mapping[TransactionPartition, PartitionName]
) -> ErrorCodes:
    """The error for each partition: whether it is part of the transaction, after a barrier."""
    if not await passes_barrier(services):
        return dict.fromkeys(partition_names.values(), ErrorCode.coordinator_not_available)
    held = services.state.transactional_ids.get(asked.transactional_id)
    error_codes: dict[PartitionName, ErrorCode] = {}
    for key, name in partition_names.items():
        is_added = held is not None and key in held.partitions
        event = VerifyInTransaction(producer_id=asked.producer_id, epoch=asked.epoch, is_added=is_added)
        metadata = None if held is None else held.metadata
        error_codes[name] = decide(metadata, event, services.state.producer_id_next).error_code
    return error_codes
