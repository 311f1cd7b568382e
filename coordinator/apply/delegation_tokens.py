"""Delegation tokens as the ledger's entries make them. Called by `coordinator.apply.apply`.

Rule: a token's times come from the entry's checked clock; without one no token begins, is renewed or ends later
(safety rule S2). It may always be removed. A command beyond a limit changes nothing: changing a value of
`protocol.limits` here is a change of the rules (S3).
Source: org.apache.kafka.controller.DelegationTokenControlManager (Kafka 4.3), and the order of its checks. Differs from
Kafka: there are limits; a token whose owner or requester loses the last SCRAM credential is removed.
"""

from collections.abc import Collection
from dataclasses import replace
from itertools import islice
from typing import assert_never

from coordinator.commands.commands import Outcome, Rejected
from coordinator.commands.delegation_tokens import (
    CreateDelegationToken,
    ExpireDelegationToken,
    RemoveExpiredTokens,
    RenewDelegationToken,
    TokenCommand,
    TokenCreated,
    TokenExpirySet,
    TokensRemoved,
    read_user,
)
from coordinator.security.delegation_tokens import DelegationToken
from coordinator.state.state import NO_TIME, ClusterState
from protocol.auth.principals import USER, Principal
from protocol.errors import ErrorCode
from protocol.limits import (
    DELEGATION_TOKEN_RENEWERS_MAX,
    DELEGATION_TOKEN_TIME_MS_MAX,
    DELEGATION_TOKENS_MAX,
    DELEGATION_TOKENS_PER_REQUESTER_MAX,
)
from protocol.types import Milliseconds


def apply_token_command(state: ClusterState, command: TokenCommand) -> Outcome:
    """The part of `coordinator.apply.apply` that is about delegation tokens."""
    match command:
        case CreateDelegationToken():
            return create_token(state, command)
        case RenewDelegationToken():
            return renew_token(state, command)
        case ExpireDelegationToken():
            return expire_token(state, command)
        case RemoveExpiredTokens():
            return remove_expired_tokens(state, command)
        case _:
            assert_never(command)


def create_token(state: ClusterState, command: CreateDelegationToken) -> TokenCreated | Rejected:
    """Adds a token. Nothing changes without a time, beyond a limit, or where the id is there already."""
    now_ms = state.known_time_ms
    if now_ms == NO_TIME:
        return _no_time()
    rejected = _check_limits(state, command)
    if rejected is not None:
        return rejected
    max_ms = _after(now_ms, command.lifetime_ms)
    token = DelegationToken(
        owner=read_user(command.owner),
        requester=read_user(command.requester),
        renewers=tuple(map(read_user, command.renewers)),
        issue_ms=now_ms,
        expiry_ms=min(max_ms, _after(now_ms, command.renewal_ms)),
        max_ms=max_ms,
    )
    state.tokens[command.token_id] = token
    _note_change(state)
    return TokenCreated(token=token)


def renew_token(state: ClusterState, command: RenewDelegationToken) -> TokenExpirySet | Rejected:
    """Sets the token's end to a period from now, and never beyond its longest life."""
    token, now_ms = state.tokens.get(command.token_id), state.known_time_ms
    if token is None:
        return _not_found(command.token_id)
    if now_ms == NO_TIME:
        return _no_time()
    if token.is_expired(now_ms):
        return _expired(command.token_id)
    if not token.is_owner_or_renewer(read_user(command.renewer)):
        return _foreign(command.token_id)
    return _set_expiry(state, command.token_id, token, _after(now_ms, command.period_ms))


def expire_token(state: ClusterState, command: ExpireDelegationToken) -> TokenExpirySet | Rejected:
    """Removes the token, or sets its end to a period from now, and never beyond its longest life."""
    token, now_ms = state.tokens.get(command.token_id), state.known_time_ms
    if token is None:
        return _not_found(command.token_id)
    if not token.is_owner_or_renewer(read_user(command.requester)):
        return _foreign(command.token_id)
    if command.period_ms is None:  # needs no time, and also removes a token that has ended
        del state.tokens[command.token_id]
        _note_change(state)
        return TokenExpirySet(expiry_ms=None)
    if now_ms == NO_TIME:
        return _no_time()
    if token.is_expired(now_ms):
        return _expired(command.token_id)
    return _set_expiry(state, command.token_id, token, _after(now_ms, command.period_ms))


def remove_expired_tokens(state: ClusterState, command: RemoveExpiredTokens) -> TokensRemoved:
    """Removes tokens that have ended, the oldest first. Without a time none has ended (S2)."""
    now_ms = Milliseconds(min(command.now_ms, state.known_time_ms))
    expired = (token_id for token_id, token in state.tokens.items() if token.is_expired(now_ms))
    removed = tuple(islice(expired, command.tokens_max))
    _remove(state, removed)
    return TokensRemoved(token_ids=removed)


def remove_tokens_of_users(state: ClusterState, names: Collection[str]) -> None:
    """Removes the tokens that users own, and those that they asked for: they know the secrets of these."""
    users = {Principal(USER, name) for name in names}
    if users and state.tokens:
        _remove(state, [token_id for token_id, token in state.tokens.items() if {token.owner, token.requester} & users])


def _check_limits(state: ClusterState, command: CreateDelegationToken) -> Rejected | None:
    if command.token_id in state.tokens:
        return Rejected(error_code=ErrorCode.duplicate_resource, reason=f"A token {command.token_id} is there already.")
    if len(command.renewers) > DELEGATION_TOKEN_RENEWERS_MAX:
        reason = f"The token has {len(command.renewers)} renewers, {DELEGATION_TOKEN_RENEWERS_MAX} is the most."
        return Rejected(error_code=ErrorCode.policy_violation, reason=reason)
    if len(state.tokens) >= DELEGATION_TOKENS_MAX:
        reason = f"There are {len(state.tokens)} delegation tokens, {DELEGATION_TOKENS_MAX} is the most."
        return Rejected(error_code=ErrorCode.policy_violation, reason=reason)
    requester = read_user(command.requester)
    count = sum(token.requester == requester for token in state.tokens.values())
    if count >= DELEGATION_TOKENS_PER_REQUESTER_MAX:
        reason = f"{requester} has {count} delegation tokens, {DELEGATION_TOKENS_PER_REQUESTER_MAX} is the most."
        return Rejected(error_code=ErrorCode.policy_violation, reason=reason)
    return None


def _set_expiry(state: ClusterState, token_id: str, token: DelegationToken, expiry_ms: Milliseconds) -> TokenExpirySet:
    renewed = replace(token, expiry_ms=min(token.max_ms, expiry_ms))
    state.tokens[token_id] = renewed
    _note_change(state)
    return TokenExpirySet(expiry_ms=renewed.expiry_ms)


def _remove(state: ClusterState, token_ids: Collection[str]) -> None:
    for token_id in token_ids:
        del state.tokens[token_id]
    if token_ids:
        _note_change(state)


def _after(now_ms: Milliseconds, period_ms: int) -> Milliseconds:
    return Milliseconds(min(now_ms + period_ms, DELEGATION_TOKEN_TIME_MS_MAX))


def _note_change(state: ClusterState) -> None:
    state.tokens_version = max(state.tokens_version + 1, state.position)


def _no_time() -> Rejected:
    """The client may try again: an agent without a checked clock proposed this, and others may have one."""
    reason = "No agent with a checked clock proposed this (safety rule S2); try again."
    return Rejected(error_code=ErrorCode.request_timed_out, reason=reason)


def _not_found(token_id: str) -> Rejected:
    return Rejected(error_code=ErrorCode.delegation_token_not_found, reason=f"There is no delegation token {token_id}.")


def _expired(token_id: str) -> Rejected:
    reason = f"The delegation token {token_id} has expired: ask for another one."
    return Rejected(error_code=ErrorCode.delegation_token_expired, reason=reason)


def _foreign(token_id: str) -> Rejected:
    reason = f"Only its owner and its renewers may change the delegation token {token_id}."
    return Rejected(error_code=ErrorCode.delegation_token_owner_mismatch, reason=reason)
