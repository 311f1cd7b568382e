"""Delegation tokens as the state keeps them (KIP-48): who they speak for, who may renew them, and when they end.

The secret of a token, its HMAC, is not here: agents compute it from the token's id and a key that the ledger never has.
Source: org.apache.kafka.common.security.token.delegation.TokenInformation (Kafka 4.3).
"""

from dataclasses import dataclass

from protocol.auth.principals import Principal
from protocol.types import Milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """One token, without its secret. Times are in milliseconds since 1970."""

    owner: Principal
    """The user that a client with this token is."""
    requester: Principal
    """The user that asked for it, which may be another one (KIP-373)."""
    renewers: tuple[Principal, ...]
    """The users that may renew and expire it besides the owner, in the order of the request."""
    issue_ms: Milliseconds
    expiry_ms: Milliseconds
    """The end of the token unless it is renewed before."""
    max_ms: Milliseconds
    """The time beyond which no renewal goes."""

    def is_owner_or_renewer(self, principal: Principal) -> bool:
        """Whether a principal may renew and expire the token."""
        return principal == self.owner or principal in self.renewers

    def is_expired(self, now_ms: Milliseconds) -> bool:
        """Whether the token has ended. Its last millisecond is still valid, as in Kafka."""
        return self.expiry_ms < now_ms or self.max_ms < now_ms
