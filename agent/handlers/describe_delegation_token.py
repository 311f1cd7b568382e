"""DescribeDelegationToken: lists tokens with their HMACs (KIP-48, KIP-373).

- Versions: 1-3.
- Behaviour: the request takes a barrier first (safety rule S4). A client sees the tokens that it owns, has asked
  for or may renew; others with DESCRIBE on the token or DESCRIBE_TOKENS on its owner. What it may not see is left out.
  No list of owners asks for all tokens; a listed owner stands for all that concerns it. An empty list asks for none, as
  in Kafka: kafka-delegation-tokens.sh sends one without --owner-principal, and prints no token of Kafka's either.
- Source: kafka.server.KafkaApis.handleDescribeTokensRequest, org.apache.kafka.security.DelegationTokenManager.
  filterToken, org.apache.kafka.common.security.token.delegation.TokenInformation.ownerOrRenewer (Kafka 4.3).
"""

from typing import Any

from agent.admin.topics import catch_up, deadline_s
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.request.token_requests import disabled_error, may_request_tokens, record_rejection
from agent.runtime.yielding import CooperativeYield
from agent.security.required_rights import DESCRIBE_TOKEN, DESCRIBE_TOKENS_USER
from coordinator.security.delegation_tokens import DelegationToken
from protocol.auth.operations import Operation
from protocol.auth.principals import Principal
from protocol.errors import ErrorCode

API_KEY = 41


async def handle(services: Services, request: Request, body: Any) -> Values:
    if not may_request_tokens(request):
        record_rejection(services, ErrorCode.delegation_token_request_not_allowed, Operation.DESCRIBE)
        return _answer(ErrorCode.delegation_token_request_not_allowed)
    error_code = disabled_error(services)
    if error_code is not None:
        return _answer(error_code)
    unseen = await catch_up(services.ledger, services.clock, deadline_s(services.clock))
    if unseen is not None:
        return _answer(unseen.error_code)
    # Behind the barrier, so that no right that was granted before is missing (S16).
    request.rights.refresh()
    owners = (
        None if body.owners is None else [Principal(each.principal_type, each.principal_name) for each in body.owners]
    )
    pacer = CooperativeYield(services.clock)
    rows: list[Values] = []
    for token_id, token in list(services.state.tokens.items()):  # a copy: other entries are applied meanwhile
        if _is_asked_for(token, owners) and _may_see(request, token_id, token):
            rows.append(_row(services, token_id, token))
        await pacer.step()
    return _answer(ErrorCode.none, rows)


def _is_asked_for(token: DelegationToken, owners: list[Principal] | None) -> bool:
    return owners is None or any(_concerns(token, owner) for owner in owners)


def _may_see(request: Request, token_id: str, token: DelegationToken) -> bool:
    return (
        _concerns(token, request.principal)
        or request.rights.may(*DESCRIBE_TOKEN, token_id)
        or request.rights.may(*DESCRIBE_TOKENS_USER, str(token.owner))
    )


def _concerns(token: DelegationToken, principal: Principal) -> bool:
    """Whether a principal sees the token without further rights. Its requester has the secret already."""
    return token.is_owner_or_renewer(principal) or principal == token.requester


def _answer(error_code: ErrorCode, rows: list[Values] | None = None) -> Values:
    return {"error_code": error_code, "tokens": rows or []}


def _row(services: Services, token_id: str, token: DelegationToken) -> Values:
    return {
        "principal_type": token.owner.kind,
        "principal_name": token.owner.name,
        "token_requester_principal_type": token.requester.kind,
        "token_requester_principal_name": token.requester.name,
        "issue_timestamp": token.issue_ms,
        "expiry_timestamp": token.expiry_ms,
        "max_timestamp": token.max_ms,
        "token_id": token_id,
        "hmac": services.delegation_tokens.hmac_of(token_id),
        "renewers": [{"principal_type": each.kind, "principal_name": each.name} for each in token.renewers],
    }
