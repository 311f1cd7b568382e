"""EndTxn: commits or aborts a transaction, in all its partitions and groups at once.

- Versions: 0-5. From 5 on the response has the producer id and epoch of the next transaction (KIP-890). Older requests
  carry the epoch of their connection (safety rule S7).
- Behaviour: one ledger entry decides, and the response comes when it is applied.
- Source: org.apache.kafka.coordinator.transaction.TransactionCoordinator.handleEndTransaction (Kafka 4.3).
"""

from typing import Any

from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.request.transactional_requests import connection_epoch_of, decided
from agent.security.required_rights import WRITE_TRANSACTION
from coordinator.commands.transaction import EndTransaction, TransactionDecided
from protocol.errors import ErrorCode
from txn.transaction import TransactionVersion
from txn.transaction_requests import answered_code, check_transactional_id, compared_producer, transaction_version

API_KEY = 26


async def handle(services: Services, request: Request, body: Any) -> Values:
    version = transaction_version(API_KEY, request.frame.api_version)
    if not await request.rights.may_behind_barrier(*WRITE_TRANSACTION, body.transactional_id):
        denial = TransactionDecided(error_code=ErrorCode.transactional_id_authorization_failed)
        return _values(request.frame.api_version, denial)
    rejected = check_transactional_id(body.transactional_id)
    if rejected is not ErrorCode.none:
        return _values(request.frame.api_version, TransactionDecided(error_code=rejected))
    producer_id, epoch = compared_producer(body.producer_id, body.producer_epoch)
    decision = await decided(
        services,
        request,
        EndTransaction(
            transactional_id=body.transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            version=version,
            is_commit=body.committed,
            connection_epoch=await connection_epoch_of(services, request) if version is TransactionVersion.V1 else None,
        ),
    )
    return _values(request.frame.api_version, decision)


def _values(api_version: int, decision: TransactionDecided) -> Values:
    return {
        "error_code": answered_code(API_KEY, api_version, decision.error_code),
        "producer_id": decision.producer_id,
        "producer_epoch": decision.epoch,
    }
