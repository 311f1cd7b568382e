"""CreateDelegationToken: makes a token that speaks for its owner (KIP-48), or for another user (KIP-373).

- Versions: 1-3.
- Behaviour: the id is new, the HMAC follows from it and the key that all agents share. Times are those of the ledger's
  entry. For another owner the requester needs CREATE_TOKENS on the owner.
- Differs from Kafka: an owner that is no user is INVALID_PRINCIPAL_TYPE (Kafka lets a client with such a token log in
  as the user of that name), as are empty names. There are limits: 10,000 tokens, 1,000 of one requester, 32 renewers,
  names of 1,024 characters; what is beyond is POLICY_VIOLATION. While no agent has a checked clock it is
  REQUEST_TIMED_OUT (safety rule S2).
- Source: org.apache.kafka.server.KafkaApis.handleCreateTokenRequest, org.apache.kafka.controller.
  DelegationTokenControlManager.createDelegationToken (Kafka 4.3).
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
    may_request_tokens,
    milliseconds,
    record_rejection,
    timestamp,
)
from agent.runtime.ids import uuid_text
from agent.security.required_rights import CREATE_TOKENS_USER
from coordinator.commands.delegation_tokens import CreateDelegationToken, TokenCreated
from protocol.auth.operations import Operation
from protocol.auth.principals import USER, Principal
from protocol.errors import ErrorCode
from protocol.limits import SECURITY_NAME_CHARS_MAX

API_KEY = 38


async def handle(services: Services, request: Request, body: Any) -> Values:
    requester = request.principal
    owner = _owner(requester, body)
    renewers = [Principal(each.principal_type, each.principal_name) for each in body.renewers]
    if not may_request_tokens(request):
        record_rejection(services, ErrorCode.delegation_token_request_not_allowed, Operation.CREATE_TOKENS)
        return _error(ErrorCode.delegation_token_request_not_allowed, owner, requester)
    if owner != requester and not await request.rights.may_behind_barrier(*CREATE_TOKENS_USER, str(owner)):
        return _error(ErrorCode.delegation_token_authorization_failed, owner, requester)
    if not all(each.kind == USER and each.name for each in (owner, *renewers)):
        return _error(ErrorCode.invalid_principal_type, owner, requester)
    error_code = disabled_error(services)
    if error_code is None and max(len(each.name) for each in (owner, requester, *renewers)) > SECURITY_NAME_CHARS_MAX:
        error_code = ErrorCode.policy_violation
    if error_code is not None:
        return _error(error_code, owner, requester, UNSET_TIME)
    return await _create(services, body, owner, requester, renewers)


async def _create(
    services: Services, body: Any, owner: Principal, requester: Principal, renewers: list[Principal]
) -> Values:
    tokens = services.delegation_tokens
    assert tokens.secrets is not None, "without a key it is an error"
    asked_ms, lifetime_ms = milliseconds(body.max_lifetime), tokens.settings.lifetime_ms
    token_id = uuid_text(services.ids.new_uuid())
    command = CreateDelegationToken(
        token_id=token_id,
        owner=str(owner),
        requester=str(requester),
        renewers=tuple(map(str, renewers)),
        lifetime_ms=min(asked_ms, lifetime_ms) if asked_ms > 0 else lifetime_ms,
        renewal_ms=tokens.settings.renewal_ms,
    )
    try:
        outcome = await carry_out(services, command, deadline_s(services.clock))
    except TopicError as error:
        return _error(error.error_code, owner, requester, UNSET_TIME)
    assert isinstance(outcome, TokenCreated)
    token = outcome.token
    return {
        **_principals(owner, requester),
        "error_code": ErrorCode.none,
        "issue_timestamp": timestamp(token.issue_ms),
        "expiry_timestamp": timestamp(token.expiry_ms),
        "max_timestamp": timestamp(token.max_ms),
        "token_id": token_id,
        "hmac": tokens.secrets.hmac(token_id),
    }


def _owner(requester: Principal, body: Any) -> Principal:
    """The owner that the request names (from version 3 on), else its requester."""
    name = getattr(body, "owner_principal_name", None)
    return Principal(body.owner_principal_type or "", name) if name else requester


def _error(error_code: ErrorCode, owner: Principal, requester: Principal, time_ms: int = NO_TIME) -> Values:
    time = timestamp(time_ms)
    return {
        **_principals(owner, requester),
        "error_code": error_code,
        "issue_timestamp": time,
        "expiry_timestamp": time,
        "max_timestamp": time,
        "token_id": "",
        "hmac": b"",
    }


def _principals(owner: Principal, requester: Principal) -> Values:
    return {
        "principal_type": owner.kind,
        "principal_name": owner.name,
        "token_requester_principal_type": requester.kind,
        "token_requester_principal_name": requester.name,
    }
