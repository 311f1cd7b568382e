"""Ledger commands about delegation tokens, and the outcomes of applying them.

Rule: an entry has periods, never points in time. Apply takes the time from the checked clock that proposed the entry
(safety rule S2), so all agents agree on when a token ends. No entry and no snapshot has a token's HMAC.
Source: org.apache.kafka.controller.DelegationTokenControlManager (Kafka 4.3).
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from coordinator.commands.field_types import NaturalMilliseconds, Positive
from coordinator.commands.forms import WireStruct
from coordinator.commands.rules import RULES_DELEGATION_TOKENS
from coordinator.security.delegation_tokens import DelegationToken
from protocol.auth.principals import USER, InvalidPrincipal, Principal, read_principal
from protocol.limits import DELEGATION_TOKEN_ID_CHARS_MAX
from protocol.types import Milliseconds

TokenId = Annotated[str, Meta(min_length=1, max_length=DELEGATION_TOKEN_ID_CHARS_MAX)]
UserPrincipal = Annotated[str, Meta(min_length=1)]
"""A principal of the type User, as text: a client with a token is always a user."""


class TokenRow(WireStruct, frozen=True):
    """A token in a snapshot. Raises `ValueError` for a principal that is no user."""

    SINCE: ClassVar[int] = RULES_DELEGATION_TOKENS

    token_id: TokenId
    owner: UserPrincipal
    requester: UserPrincipal
    renewers: tuple[UserPrincipal, ...]
    issue_ms: NaturalMilliseconds
    expiry_ms: NaturalMilliseconds
    max_ms: NaturalMilliseconds

    @classmethod
    def of(cls, token_id: str, token: DelegationToken) -> "TokenRow":
        """The row of a token."""
        return cls(
            token_id,
            str(token.owner),
            str(token.requester),
            tuple(map(str, token.renewers)),
            token.issue_ms,
            token.expiry_ms,
            token.max_ms,
        )

    def token(self) -> DelegationToken:
        """The token without its id. Raises `ValueError` for a principal that is no user."""
        return DelegationToken(
            owner=read_user(self.owner),
            requester=read_user(self.requester),
            renewers=tuple(map(read_user, self.renewers)),
            issue_ms=self.issue_ms,
            expiry_ms=self.expiry_ms,
            max_ms=self.max_ms,
        )


class CreateDelegationToken(WireStruct, frozen=True, kw_only=True, tag=74):
    """Create a token that begins at the entry's time. Raises `ValueError` for a principal that is no user."""

    SINCE: ClassVar[int] = RULES_DELEGATION_TOKENS

    token_id: TokenId
    owner: UserPrincipal
    requester: UserPrincipal
    renewers: tuple[UserPrincipal, ...]
    lifetime_ms: Positive
    """How long the token may be renewed."""
    renewal_ms: Positive
    """How long it lasts before it has to be renewed; `lifetime_ms` where that is less."""

    def __post_init__(self) -> None:
        for text in (self.owner, self.requester, *self.renewers):
            read_user(text)


class RenewDelegationToken(WireStruct, frozen=True, kw_only=True, tag=75):
    """Let a token last for a period from the entry's time on. Raises `ValueError` for a renewer that is no user."""

    SINCE: ClassVar[int] = RULES_DELEGATION_TOKENS

    token_id: TokenId
    renewer: UserPrincipal
    period_ms: Positive

    def __post_init__(self) -> None:
        read_user(self.renewer)


class ExpireDelegationToken(WireStruct, frozen=True, kw_only=True, tag=76):
    """Let a token end after a period, or at once. Raises `ValueError` for a requester that is no user."""

    SINCE: ClassVar[int] = RULES_DELEGATION_TOKENS

    token_id: TokenId
    requester: UserPrincipal
    period_ms: NaturalMilliseconds | None
    """None: the token is removed at once."""

    def __post_init__(self) -> None:
        read_user(self.requester)


class RemoveExpiredTokens(WireStruct, frozen=True, kw_only=True, tag=77):
    """Remove tokens that have ended, by the entry's time or `now_ms`, whichever is less (safety rule S2)."""

    SINCE: ClassVar[int] = RULES_DELEGATION_TOKENS

    now_ms: NaturalMilliseconds
    tokens_max: Positive


TokenCommand = CreateDelegationToken | RenewDelegationToken | ExpireDelegationToken | RemoveExpiredTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCreated:
    """The token as it was created."""

    token: DelegationToken


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenExpirySet:
    """The end that a token has now; None where it was removed."""

    expiry_ms: Milliseconds | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensRemoved:
    """The ids of the tokens that an entry removed, in the order in which they were created."""

    token_ids: tuple[str, ...]


TokenOutcome = TokenCreated | TokenExpirySet | TokensRemoved


def read_user(text: str) -> Principal:
    """The principal `User:NAME`. Raises `ValueError` for another type, and for an empty name."""
    principal = read_principal(text)
    if principal.kind != USER or not principal.name:
        raise InvalidPrincipal(f"{text!r} is no user: write User:NAME")
    return principal
