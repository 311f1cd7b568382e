"""InitProducerId 0-5: a producer id for an idempotent producer.

Transactional ids are not served yet; see docs/UNSUPPORTED.md.
Source: org.apache.kafka.coordinator.transaction.TransactionCoordinator.handleInitProducerId (Kafka 4.3).
"""

from collections.abc import Sequence

from agent.handlers.entities import answer, request_body
from agent.ledger_writer import OutcomeUnknown
from agent.producer_ids import AllocationRefused
from agent.services import Request, Services
from protocol.errors import ErrorCode
from protocol.limits import LEDGER_WAIT_SECONDS_MAX
from storage.object_store import Buffer

API_KEY = 22


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    body = request_body(request.frame)
    if body.transactional_id is not None:
        unsupported = ErrorCode.invalid_request if body.transactional_id == "" else ErrorCode.unsupported_version
        return answer(request.frame, {"error_code": unsupported, "producer_id": -1, "producer_epoch": -1})
    try:
        async with services.clock.timeout(LEDGER_WAIT_SECONDS_MAX):
            producer_id = await services.producer_ids.take()
    except (OutcomeUnknown, AllocationRefused, TimeoutError):
        return answer(
            request.frame, {"error_code": ErrorCode.coordinator_not_available, "producer_id": -1, "producer_epoch": -1}
        )
    return answer(request.frame, {"error_code": ErrorCode.none, "producer_id": producer_id, "producer_epoch": 0})
