"""WriteTxnMarkers: Kafka's tools abort a hanging transaction (kafka-transactions.sh abort).

- Versions: 1-2.
- Behaviour: the request takes a barrier first (safety rule S4). ABORT at the current producer id and epoch aborts the
  whole transaction, because one transaction is one state, and fences its producer (safety rule S15). COMMIT is
  rejected: only the producer knows what belongs together. A marker for a partition that the transaction has not written
  to ends nothing. A request that changes nothing writes no entry.
- Differs from Kafka: its brokers send every marker by this request; here markers follow from the entry that decides. A
  marker where nothing is open is not written, and the response is as if it were. A coordinator's epoch has no meaning.
- Source: org.apache.kafka.server.KafkaApis.handleWriteTxnMarkersRequest; for the errors that the tool expects
  org.apache.kafka.clients.admin.internals.AbortTransactionHandler (Kafka 4.3).
"""

import logging
from collections.abc import Sequence
from typing import Any

from agent.request.barriers import passes_barrier
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from coordinator.commands.commands import Rejected
from coordinator.commands.transaction import TerminateTransaction, TransactionDecided, TransactionPartition
from coordinator.ledger.port import OutcomeUnknown
from coordinator.state.state import ClusterState
from protocol.errors import ErrorCode
from protocol.limits import LEDGER_WAIT_SECONDS_MAX
from protocol.types import PartitionIndex, ProducerId
from txn.transaction import ForceTerminate
from txn.transaction_requests import compared_producer
from txn.transitions import decide

log = logging.getLogger(__name__)

API_KEY = 27
LOOK_AGAIN = ErrorCode.not_leader_or_follower
"""The tool repeats the request, as it does while a partition has no leader."""

Results = dict[str, dict[int, ErrorCode]]
"""By topic and partition."""


async def handle(services: Services, request: Request, body: Any) -> Values:
    is_caught_up = await passes_barrier(services)
    pacer = CooperativeYield(services.clock)
    results: dict[ProducerId, Results] = {}
    for marker in body.markers:
        known = await _known_partitions(services, marker, pacer)
        error_code = await _ended(services, request, marker, known) if is_caught_up and known else LOOK_AGAIN
        topics = results.setdefault(ProducerId(marker.producer_id), {})
        for topic in marker.topics:
            partitions = topics.setdefault(topic.name, {})
            for index in topic.partition_indexes:
                is_known = not is_caught_up or (topic.name, index) in known
                partitions[index] = error_code if is_known else ErrorCode.unknown_topic_or_partition
                await pacer.step()
    return {"markers": _rows(results)}


def _rows(results: dict[ProducerId, Results]) -> list[dict[str, Any]]:
    return [
        {
            "producer_id": producer_id,
            "topics": [
                {
                    "name": name,
                    "partitions": [
                        {"partition_index": index, "error_code": code} for index, code in partitions.items()
                    ],
                }
                for name, partitions in topics.items()
            ],
        }
        for producer_id, topics in results.items()
    ]


async def _known_partitions(
    services: Services, marker: Any, pacer: CooperativeYield
) -> dict[tuple[str, int], TransactionPartition]:
    """The partitions that exist, by topic's name and index."""
    partition_keys: dict[tuple[str, int], TransactionPartition] = {}
    for topic in marker.topics:
        known = services.topics.known(topic.name)
        for index in topic.partition_indexes:
            if known is not None and services.state.partition(known.topic_id, index) is not None:
                partition_keys[topic.name, index] = (known.topic_id, PartitionIndex(index))
            await pacer.step()
    return partition_keys


async def _ended(
    services: Services, request: Request, marker: Any, known: dict[tuple[str, int], TransactionPartition]
) -> ErrorCode:
    """The error of a marker for partitions that exist."""
    producer_id, epoch = compared_producer(marker.producer_id, marker.producer_epoch)
    command = TerminateTransaction(
        producer_id=producer_id,
        epoch=epoch,
        is_commit=marker.transaction_result,
    )
    error_codes = _without_entry(services.state, command, list(known.values()))
    if error_codes is not None:
        return error_codes
    transactional_id = services.state.producers_of_transactions.get(command.producer_id)
    try:
        async with services.clock.timeout(LEDGER_WAIT_SECONDS_MAX):
            outcome = await services.ledger.propose(command)
    except (OutcomeUnknown, TimeoutError):
        return LOOK_AGAIN
    if isinstance(outcome, Rejected):
        return LOOK_AGAIN
    assert isinstance(outcome, TransactionDecided), f"unexpected outcome of a marker: {outcome}"
    if outcome.grown:
        log.warning(
            "aborted a transaction because a tool asked for it; its producer is fenced",
            extra={
                "transactional_id": transactional_id,
                "producer_id": command.producer_id,
                "epoch": command.epoch,
                "partitions": len(outcome.grown),
                "client_id": request.frame.client_id,
                "peer": request.peer,
            },
        )
    return outcome.error_code


def _without_entry(
    state: ClusterState, command: TerminateTransaction, partitions: Sequence[TransactionPartition]
) -> ErrorCode | None:
    """The error where no entry is needed, because it would change nothing; None where it would change something."""
    transactional_id = state.producers_of_transactions.get(command.producer_id)
    held = None if transactional_id is None else state.transactional_ids[transactional_id]
    event = ForceTerminate(producer_id=command.producer_id, epoch=command.epoch, is_commit=command.is_commit)
    decision = decide(None if held is None else held.metadata, event, state.producer_id_next)
    if decision.following is None:
        return decision.error_code
    is_written_to = held is not None and any(key in held.partitions for key in partitions)
    return None if is_written_to else ErrorCode.none
