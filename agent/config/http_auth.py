"""Who may ask the catalog: who shows a token, or, while none is configured, who sits at this machine.

Rule: pure decisions. An address that is not known is a stranger's; what came through a proxy is the proxy's client's.
Without tokens the `Host` must be this machine's too, or a page in somebody's browser whose name leads to loopback could
read what the catalog hands out.
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
"""The headers in which proxies name their clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """`status` is 401 where a token would help, 403 where only another configuration does."""

    status: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTokens:
    """The tokens that are good, as digests; none: only this machine may ask."""

    digests: tuple[bytes, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, *tokens: str) -> "HttpTokens":
        return cls(digests=tuple(_digest(token) for token in tokens))

    def refusal(self, peer: str | None, headers: Mapping[str, str]) -> Refusal | None:
        """Why a request is not answered; None where it is. `peer` is the address at the other end of the connection,
        `headers` have names in lower case."""
        if not self.digests:
            return _refusal_of_stranger(peer, headers)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return Refusal(
                status=401,
                message="a token is wanted here: give the client one of --http-token-file, as a bearer token",
            )
        given, is_known = _digest(token.strip()), False
        for digest in self.digests:  # all of them, so that the time tells nothing
            is_known |= hmac.compare_digest(given, digest)
        return None if is_known else Refusal(status=401, message="the token that was sent is not in --http-token-file")


def read_tokens(path: Path) -> HttpTokens:
    """The tokens of a file, one a line; empty lines and lines that begin with # count for nothing.

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
                f"{HTTP_TOKEN_CHARS_MAX} letters, digits or -._~+/ (openssl rand -hex 32 makes one)"
            )
        tokens.append(token)
    if not tokens:
        raise InvalidSettings(f"--http-token-file {path} holds no token: write one a line")
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


def _refusal_of_stranger(peer: str | None, headers: Mapping[str, str]) -> Refusal | None:
    if not is_this_machine(peer) or any(name in headers for name in _FORWARDED):
        return Refusal(
            status=403,
            message="without tokens this machine alone is answered: start the agent with --http-token-file, "
            "and give the client one of its tokens",
        )
    if not names_this_machine(headers.get("host", "")):
        return Refusal(
            status=403,
            message="without tokens the catalog is asked by 127.0.0.1 or localhost, and by no other name",
        )
    return None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
