"""InitProducerId: a producer id for an idempotent producer, or the next epoch of a transactional id.

- Versions: 0-5. From 3 on a producer may name its epoch, to go on after an error (KIP-360).
- Behaviour: the next epoch fences the older producer and aborts its open transaction, in one ledger entry.
- Differs from Kafka: no client has to ask again (CONCURRENT_TRANSACTIONS) while the older transaction is aborted.
- Source: org.apache.kafka.coordinator.transaction.TransactionCoordinator.handleInitProducerId (Kafka 4.3).
"""

import logging
from datetime import timedelta
from typing import Any

from agent.ledger.producer_ids import AllocationRejected
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.request.transactional_requests import NOT_KNOWN, decided
from agent.security.required_rights import WRITE_IDEMPOTENTLY, WRITE_TOPIC, WRITE_TRANSACTION
from agent.security.rights import Rights
from coordinator.commands.transaction import InitTransactionalProducer, TransactionDecided
from coordinator.configs.broker_configs import broker_value
from coordinator.ledger.port import OutcomeUnknown
from protocol.auth.operations import CLUSTER_NAME
from protocol.errors import ErrorCode
from protocol.limits import CUT_OFF_HOLD_SECONDS, LEDGER_WAIT_SECONDS_MAX, TRANSACTIONAL_ID_CHARS_MAX
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from txn.transaction_requests import answered_code, check_init_producer_id, compared_producer

log = logging.getLogger(__name__)

API_KEY = 22
FIRST_WITH_PRODUCER = 3
EPOCH_FIRST = ProducerEpoch(0)


async def handle(services: Services, request: Request, body: Any) -> Values:
    version = request.frame.api_version
    has_producer = version >= FIRST_WITH_PRODUCER
    producer_id = ProducerId(body.producer_id) if has_producer else NO_PRODUCER_ID
    epoch = ProducerEpoch(body.producer_epoch) if has_producer else NO_PRODUCER_EPOCH
    decision = await _initialise(services, request, body, producer_id, epoch)
    return {
        "error_code": answered_code(API_KEY, version, decision.error_code),
        "producer_id": decision.producer_id,
        "producer_epoch": decision.epoch,
    }


async def _initialise(
    services: Services, request: Request, body: Any, producer_id: ProducerId, epoch: ProducerEpoch
) -> TransactionDecided:
    denial = await _denial(request.rights, body.transactional_id)
    if denial is not ErrorCode.none:
        return TransactionDecided(error_code=denial)
    timeout_ms = body.transaction_timeout // timedelta(milliseconds=1)
    rejected = check_init_producer_id(
        transactional_id=body.transactional_id,
        timeout_ms=timeout_ms,
        timeout_ms_max=int(broker_value(services.broker_configs, "transaction.max.timeout.ms")),
        producer_id=producer_id,
        epoch=epoch,
    )
    if rejected is not ErrorCode.none:
        return TransactionDecided(error_code=rejected)
    if body.transactional_id is None:
        return await _fresh(services, request)
    if len(body.transactional_id) > TRANSACTIONAL_ID_CHARS_MAX:
        return TransactionDecided(error_code=ErrorCode.invalid_request)
    producer_id, epoch = compared_producer(producer_id, epoch)
    command = InitTransactionalProducer(
        transactional_id=body.transactional_id, timeout_ms=timeout_ms, producer_id=producer_id, epoch=epoch
    )
    decision = await decided(services, request, command)
    if decision.grown or decision.ended_groups:
        log.info(
            "a producer began under a transactional id, which fenced the one before it and aborted what that had open",
            extra={
                "transactional_id": body.transactional_id,
                "producer_id": decision.producer_id,
                "epoch": decision.epoch,
                "partitions": len(decision.grown),
                "groups": len(decision.ended_groups),
                "client_id": request.frame.client_id,
                "peer": request.peer,
            },
        )
    return decision


async def _denial(rights: Rights, transactional_id: str | None) -> ErrorCode:
    """NONE where the client may write under the id; without one, where it may write to some topic (KIP-679)."""
    if transactional_id is not None:
        may_write = await rights.may_behind_barrier(*WRITE_TRANSACTION, transactional_id)
        return ErrorCode.none if may_write else ErrorCode.transactional_id_authorization_failed
    if rights.may(*WRITE_IDEMPOTENTLY, CLUSTER_NAME) or await rights.may_on_any(*WRITE_TOPIC):
        return ErrorCode.none
    may_write = await rights.may_on_cluster(WRITE_IDEMPOTENTLY.operation)
    return ErrorCode.none if may_write else ErrorCode.cluster_authorization_failed


async def _fresh(services: Services, request: Request) -> TransactionDecided:
    """A producer id that was never given before."""
    if services.producer_ids.is_used_up and await services.redirects_where_cut_off(request, CUT_OFF_HOLD_SECONDS):
        return NOT_KNOWN
    try:
        async with services.clock.timeout(LEDGER_WAIT_SECONDS_MAX):
            producer_id = await services.producer_ids.take()
    except (OutcomeUnknown, AllocationRejected, TimeoutError):
        return NOT_KNOWN
    return TransactionDecided(error_code=ErrorCode.none, producer_id=producer_id, epoch=EPOCH_FIRST)
