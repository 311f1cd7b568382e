"""The parts that the four APIs of delegation tokens share: who may send them, times, and proposals to the ledger.

Source: org.apache.kafka.server.KafkaApis.allowTokenRequests, Kafka 4.3, and the answers of the controller, which have
the time 0 where those of the broker have -1.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from agent.admin.topics import TopicError, before, catch_up, deadline_s
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.security.audit.audit_subject import record_denials
from coordinator.commands.commands import Outcome, Rejected
from coordinator.commands.delegation_tokens import (
    ExpireDelegationToken,
    RenewDelegationToken,
    TokenCommand,
    TokenExpirySet,
)
from coordinator.commands.rules import RULES_DELEGATION_TOKENS
from coordinator.ledger.port import LedgerUnavailable, OutcomeUnknown
from protocol.auth.operations import Operation, ResourceType
from protocol.auth.principals import ANONYMOUS
from protocol.errors import ErrorCode
from protocol.limits import DELEGATION_TOKEN_TIME_MS_MAX

EPOCH: Final = datetime.fromtimestamp(0, tz=UTC)
NO_TIME: Final = -1
"""The time in answers of errors that Kafka's broker finds."""
UNSET_TIME: Final = 0
"""The time in answers of errors that Kafka's controller finds."""
_MILLISECOND: Final = timedelta(milliseconds=1)
_REJECTIONS: Final = {
    ErrorCode.delegation_token_request_not_allowed: "only a client that has logged in, and not by a token, may ask",
    ErrorCode.delegation_token_not_found: "no token has the HMAC that the request names",
    ErrorCode.delegation_token_owner_mismatch: "neither the token's owner nor one of its renewers",
}
"""The errors that deny something, as the audit log has them. No ACL decides these."""


def may_request_tokens(request: Request) -> bool:
    """Whether a client may send requests about tokens: it has logged in, or shown a certificate, and not by a token."""
    is_known = bool(request.mechanism) or request.principal != ANONYMOUS
    return is_known and not request.is_by_token


def disabled_error(services: Services) -> ErrorCode | None:
    """The error of every request where this agent has no key, or an older agent is alive; None where tokens work."""
    if services.delegation_tokens.secrets is None:
        return ErrorCode.delegation_token_auth_disabled
    if services.state.rules_version < RULES_DELEGATION_TOKENS:
        return ErrorCode.unsupported_version
    return None


def timestamp(time_ms: int) -> datetime:
    """A time in milliseconds since 1970, as responses have it: no year beyond 9999."""
    return EPOCH + timedelta(milliseconds=min(time_ms, DELEGATION_TOKEN_TIME_MS_MAX))


def milliseconds(period: timedelta) -> int:
    """A period of a request in milliseconds."""
    return period // _MILLISECOND


def expiry_answer(error_code: ErrorCode, expiry_ms: int, token_id: str = "") -> Values:
    """The answer to RenewDelegationToken and ExpireDelegationToken. The id is for the audit log, not for the client."""
    return {"error_code": error_code, "expiry_timestamp": timestamp(expiry_ms), "token_id": token_id}


def record_rejection(services: Services, error_code: ErrorCode, operation: Operation, token_id: str = "") -> None:
    """Record in the audit log that the current request was refused, where the error denies something."""
    rule = _REJECTIONS.get(error_code)
    if rule is not None:
        record_denials(services.audit_log, operation, ResourceType.DELEGATION_TOKEN, (token_id,), rule=rule)


async def find_token(services: Services, token_hmac: bytes, end_s: float) -> str:
    """The id of the token that has an HMAC. Raises `TopicError` behind a barrier where there is none (S4)."""
    token_id = services.delegation_tokens.id_of(token_hmac)
    if token_id is None:
        unseen = await catch_up(services.ledger, services.clock, end_s)
        if unseen is not None:
            raise unseen
        token_id = services.delegation_tokens.id_of(token_hmac)
    if token_id is None:
        raise TopicError(ErrorCode.delegation_token_not_found)
    return token_id


async def carry_out(services: Services, command: TokenCommand, end_s: float) -> Outcome:
    """The outcome of a command's entry. Raises `TopicError` where it was rejected or timed out."""
    try:
        outcome = await before(end_s, services.clock, services.ledger.propose(command))
    except (LedgerUnavailable, OutcomeUnknown) as error:
        raise TopicError(ErrorCode.request_timed_out, str(error)) from error
    if isinstance(outcome, Rejected):
        raise TopicError(outcome.error_code, outcome.reason)
    return outcome


async def changed_expiry(
    services: Services,
    request: Request,
    token_hmac: bytes,
    command: Callable[[str], RenewDelegationToken | ExpireDelegationToken],
) -> Values:
    """The answer to a request that changes the end of the token with an HMAC. `command` makes the entry for its id."""
    if not may_request_tokens(request):
        record_rejection(services, ErrorCode.delegation_token_request_not_allowed, Operation.ALTER)
        return expiry_answer(ErrorCode.delegation_token_request_not_allowed, NO_TIME)
    error_code = disabled_error(services)
    if error_code is not None:
        return expiry_answer(error_code, UNSET_TIME)
    end_s, token_id = deadline_s(services.clock), ""
    try:
        token_id = await find_token(services, token_hmac, end_s)
        outcome = await carry_out(services, command(token_id), end_s)
    except TopicError as error:
        record_rejection(services, error.error_code, Operation.ALTER, token_id)
        return expiry_answer(error.error_code, UNSET_TIME)
    assert isinstance(outcome, TokenExpirySet)
    removed_ms = services.delegation_tokens.now_ms
    return expiry_answer(ErrorCode.none, removed_ms if outcome.expiry_ms is None else outcome.expiry_ms, token_id)
