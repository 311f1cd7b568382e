"""RenewDelegationToken: lets a token last longer, by its owner or a renewer (KIP-48).

- Versions: 1-2.
- Behaviour: the token lasts for the period from now on, or for delegation.token.expiry.time.ms where that is less or
  the period is not positive, and never beyond its longest life. A token that is not known is looked for behind a
  barrier (safety rule S4).
- Source: org.apache.kafka.server.KafkaApis.handleRenewTokenRequest, org.apache.kafka.controller.
  DelegationTokenControlManager.renewDelegationToken (Kafka 4.3).
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
from coordinator.commands.delegation_tokens import RenewDelegationToken, TokenExpirySet
from protocol.auth.operations import Operation
from protocol.errors import ErrorCode

API_KEY = 39


async def handle(services: Services, request: Request, body: Any) -> Values:
    if not may_request_tokens(request):
        record_rejection(services, ErrorCode.delegation_token_request_not_allowed, Operation.ALTER)
        return expiry_answer(ErrorCode.delegation_token_request_not_allowed, NO_TIME)
    error_code = disabled_error(services)
    if error_code is not None:
        return expiry_answer(error_code, UNSET_TIME)
    end_s, renewal_ms = deadline_s(services.clock), services.delegation_tokens.settings.renewal_ms
    asked_ms = milliseconds(body.renew_period)
    token_id = ""
    try:
        token_id = await find_token(services, bytes(body.hmac), end_s)
        command = RenewDelegationToken(
            token_id=token_id,
            renewer=str(request.principal),
            period_ms=min(asked_ms, renewal_ms) if asked_ms > 0 else renewal_ms,
        )
        outcome = await carry_out(services, command, end_s)
    except TopicError as error:
        record_rejection(services, error.error_code, Operation.ALTER, token_id)
        return expiry_answer(error.error_code, UNSET_TIME)
    assert isinstance(outcome, TokenExpirySet)
    assert outcome.expiry_ms is not None, "a renewal removes nothing"
    return expiry_answer(ErrorCode.none, outcome.expiry_ms, token_id)
