"""AddOffsetsToTxn: adds a group to the transaction, before its offsets are committed in it.

- Versions: 0-4. Clients of transaction.version 1 send it; those of KIP-890 commit the offsets without it.
- Behaviour: the transaction begins where none is open. The command carries the epoch of the request's connection
  (safety rule S7).
- Differs from Kafka: the group becomes part of the transaction, not a partition of __consumer_offsets.
- Source: org.apache.kafka.server.KafkaApis.handleAddOffsetsToTxnRequest (Kafka 4.3).
"""

from typing import Any

from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.request.transactional_requests import connection_epoch_of, decided
from agent.security.required_rights import READ_GROUP, WRITE_TRANSACTION
from coordinator.commands.transaction import AddToTransaction
from protocol.errors import ErrorCode
from protocol.limits import GROUP_ID_BYTES_MAX
from txn.transaction_requests import answered_code, check_transactional_id, compared_producer

API_KEY = 25


async def handle(services: Services, request: Request, body: Any) -> Values:
    if not await request.rights.may_behind_barrier(*WRITE_TRANSACTION, body.transactional_id):
        return {"error_code": ErrorCode.transactional_id_authorization_failed}
    if not await request.rights.may_behind_barrier(*READ_GROUP, body.group_id):
        return {"error_code": ErrorCode.group_authorization_failed}
    error_code = check_transactional_id(body.transactional_id)
    if error_code is ErrorCode.none and len(body.group_id.encode()) > GROUP_ID_BYTES_MAX:
        error_code = ErrorCode.invalid_group_id
    if error_code is ErrorCode.none:
        producer_id, epoch = compared_producer(body.producer_id, body.producer_epoch)
        command = AddToTransaction(
            transactional_id=body.transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            partitions=(),
            groups=(body.group_id,),
            connection_epoch=await connection_epoch_of(services, request),
        )
        error_code = (await decided(services, request, command)).error_code
    error_code = answered_code(API_KEY, request.frame.api_version, error_code)
    return {"error_code": error_code}
