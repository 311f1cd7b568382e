"""The steps of a SASL exchange as values: what a mechanism makes of one token of the client.

A mechanism does no I/O. Where it needs a password or a token to be checked, it returns a check, and its caller passes
on what came of it. Texts for clients never say whether a user exists. Source: RFC 4422, section 3.
"""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslIdentity:
    """Who a client has proved to be."""

    name: str
    """The name of the principal `User:NAME`."""
    groups: tuple[str, ...] = ()
    """The names of its groups."""
    expires_ms: int | None = None
    """The wall clock's time at which the proof runs out, in milliseconds since 1970; None where it does not."""
    token_id: str | None = None
    """The id of the delegation token that is the proof; None where it is another one."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """The exchange goes on: send the token, and receive another one."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Accepted:
    """The client has proved its identity. The token is sent with the success."""

    identity: SaslIdentity
    token: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslRejection:
    """The client has failed."""

    reason: str
    """For logs and the audit: it may say more than the client may know. It contains nothing that the client sent."""
    user: str = ""
    """The name that the client gave; "" where it gave none that can be read."""
    message: str | None = None
    """For the client; None for the general one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordCheck:
    """Whether the password is the user's is to be found out."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerCheck:
    """Whom the token was issued to is to be found out."""

    token: str = field(repr=False)


Check = PasswordCheck | BearerCheck
Step = Challenge | Accepted | SaslRejection | Check


class SaslExchange(Protocol):
    """The server's side of one mechanism, for one exchange. It is not called again once it has ended."""

    def receive(self, token: bytes) -> Step:
        """The step that answers a token of the client."""
        ...

    def checked(self, identity: SaslIdentity | None, reason: str = "") -> Step:
        """The step after a `Check`, which found the identity, or None where it failed, for a reason if that is known.

        The reason is for logs and the audit: it contains nothing that the client sent.
        """
        ...
