"""ExpireDelegationToken: ends a token at once, or sets its end, by its owner or a renewer (KIP-48).

- Versions: 1-2.
- Behaviour: a negative period removes the token, so that the end in the answer is now, and ends the connections that it
  authenticated within a second. Any other period sets its end, and never beyond its longest life. A token that is not
  known is looked for behind a barrier (safety rule S4).
- Differs from Kafka: it leaves the connections of a token that is removed until their sessions end.
- Source: org.apache.kafka.server.KafkaApis.handleExpireTokenRequest, org.apache.kafka.controller.
  DelegationTokenControlManager.expireDelegationToken (Kafka 4.3).
"""

from typing import Any

from agent.admin.topics import TopicError, deadline_s
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.request.token_requests import (
    NO_TIME,
    UNSET_TIME,
    carry_out,
    disabled_error,
    expiry_answer,
    find_token,
    may_request_tokens,
    milliseconds,
    record_rejection,
)
from coordinator.commands.delegation_tokens import ExpireDelegationToken, TokenExpirySet
from protocol.auth.operations import Operation
from protocol.errors import ErrorCode
from protocol.types import Milliseconds

API_KEY = 40


async def handle(services: Services, request: Request, body: Any) -> Values:
    if not may_request_tokens(request):
        record_rejection(services, ErrorCode.delegation_token_request_not_allowed, Operation.ALTER)
        return expiry_answer(ErrorCode.delegation_token_request_not_allowed, NO_TIME)
    error_code = disabled_error(services)
    if error_code is not None:
        return expiry_answer(error_code, UNSET_TIME)
    end_s, period_ms = deadline_s(services.clock), milliseconds(body.expiry_time_period)
    token_id = ""
    try:
        token_id = await find_token(services, bytes(body.hmac), end_s)
        command = ExpireDelegationToken(
            token_id=token_id,
            requester=str(request.principal),
            period_ms=None if period_ms < 0 else Milliseconds(period_ms),
        )
        outcome = await carry_out(services, command, end_s)
    except TopicError as error:
        record_rejection(services, error.error_code, Operation.ALTER, token_id)
        return expiry_answer(error.error_code, UNSET_TIME)
    assert isinstance(outcome, TokenExpirySet)
    removed_ms = services.delegation_tokens.now_ms
    return expiry_answer(ErrorCode.none, removed_ms if outcome.expiry_ms is None else outcome.expiry_ms, token_id)
