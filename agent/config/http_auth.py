"""Authentication of the catalog and the registry: a bearer token, or, without configured tokens, only loopback. Pure.

Source: RFC 6750, "Bearer Token Usage"; Iceberg's REST specification, "BearerAuth".
"""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.config.option_sources import InvalidSettings
from protocol.limits import HTTP_TOKEN_CHARS_MAX, HTTP_TOKEN_CHARS_MIN

_TOKEN = re.compile(rf"[A-Za-z0-9\-._~+/]{{{HTTP_TOKEN_CHARS_MIN},{HTTP_TOKEN_CHARS_MAX}}}=*")
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")
"""The headers in which proxies name their clients: a request with one of them comes from another machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRejection:
    """The HTTP error for a request: 401 where a token would help, 403 where only another configuration does."""

    status: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTokens:
    """The valid tokens, as digests. Without any, only requests from this machine are answered."""

    digests: tuple[bytes, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, *tokens: str) -> "HttpTokens":
        return cls(digests=tuple(_digest(token) for token in tokens))

    def rejection(self, peer: str | None, headers: Mapping[str, str]) -> AccessRejection | None:
        """The error for a request; None where it may be answered.

        `peer` is the address of the other end of the connection; names in `headers` are in lower case.
        """
        if not self.digests:
            return _rejection_without_tokens(peer, headers)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return AccessRejection(
                status=401,
                message="a token is required: configure the client with one of --http-token-file, as a bearer token",
            )
        sent, is_known = _digest(token.strip()), False
        for digest in self.digests:  # compare with all: the time must not show which one matches
            is_known |= hmac.compare_digest(sent, digest)
        return (
            None if is_known else AccessRejection(status=401, message="the request's token is not in --http-token-file")
        )


def read_tokens(path: Path) -> HttpTokens:
    """The tokens of a file, one a line; empty lines and lines that begin with # are skipped.

    Raises `InvalidSettings`.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InvalidSettings(f"--http-token-file {path} cannot be read: {error.strerror}") from error
    tokens: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        token = line.strip()
        if not token or token.startswith("#"):
            continue
        if not _TOKEN.fullmatch(token):
            raise InvalidSettings(
                f"--http-token-file {path}: line {number} is no token: write {HTTP_TOKEN_CHARS_MIN} to "
                f"{HTTP_TOKEN_CHARS_MAX} letters, digits or -._~+/ (`openssl rand -hex 32` makes one)"
            )
        tokens.append(token)
    if not tokens:
        raise InvalidSettings(f"--http-token-file {path} has no token: write one a line")
    return HttpTokens.of(*tokens)


def is_this_machine(address: str | None) -> bool:
    """Whether the address of a peer is loopback, also as an IPv4 address within IPv6."""
    try:
        ip = ipaddress.ip_address(address or "")
    except ValueError:
        return False
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback


def host_name(host: str) -> str:
    """The name or address in a `Host`, in lower case and without the port."""
    return (host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]).lower()


def names_this_machine(host: str) -> bool:
    """Whether a `Host`, with or without a port, is `localhost` or a loopback address."""
    name = host_name(host)
    return name == "localhost" or is_this_machine(name)


def _rejection_without_tokens(peer: str | None, headers: Mapping[str, str]) -> AccessRejection | None:
    if not is_this_machine(peer) or any(name in headers for name in _FORWARDED):
        return AccessRejection(
            status=403,
            message="without tokens only this machine may use the catalog: start the agent with --http-token-file, "
            "and configure the client with one of its tokens",
        )
    # DNS rebinding: a page in a user's browser, of a name that resolves to loopback, could read vended credentials.
    if not names_this_machine(headers.get("host", "")):
        return AccessRejection(
            status=403,
            message="without tokens the catalog answers at 127.0.0.1 and localhost, and at no other name",
        )
    return None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
