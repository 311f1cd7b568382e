"""Access to the HTTP port: a bearer token, or, without configured tokens, only this machine. Pure.

The same rule holds for every path but /live and /ready, and /metrics with `--metrics-open`. `agent.http.access_guard`
applies it.
Source: RFC 6750, "Bearer Token Usage"; Iceberg's REST specification, "BearerAuth".
"""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.config.option_sources import InvalidSettings, Value
from protocol.limits import HTTP_TOKEN_CHARS_MAX, HTTP_TOKEN_CHARS_MIN

_TOKEN = re.compile(rf"[A-Za-z0-9\-._~+/]{{{HTTP_TOKEN_CHARS_MIN},{HTTP_TOKEN_CHARS_MAX}}}=*")
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")
"""The headers in which proxies name their clients: a request with one of them comes from another machine."""
_REMEDY_UNKNOWN = "configure the client with one of --http-token-file, as a bearer token"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRejection:
    """The HTTP error for a request: 401 where a token would help, 403 where only another configuration does."""

    status: int
    code: str
    """The code of /api's error."""
    message: str
    remedy: str

    @property
    def text(self) -> str:
        """Message and remedy, for APIs whose errors have one text."""
        return f"{self.message}: {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTokens:
    """The valid tokens, as digests. Without any, only requests from this machine are answered."""

    digests: tuple[bytes, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, *tokens: str) -> "HttpTokens":
        return cls(digests=tuple(_digest(token) for token in tokens))

    def rejection(
        self, peer: str | None, headers: Mapping[str, str], own_names: Collection[str] = ()
    ) -> AccessRejection | None:
        """The error for a request; None where it may be answered.

        Args:
            peer: the address of the other end of the connection.
            headers: with names in lower case.
            own_names: names of this machine, in lower case, that requests over loopback may use.
        """
        if not self.digests:
            return _rejection_without_tokens(peer, headers, own_names)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return AccessRejection(
                status=401, code="not_authenticated", message="a token is required", remedy=_REMEDY_UNKNOWN
            )
        sent, is_known = _digest(token.strip()), False
        for digest in self.digests:  # compare with all: the time must not show which one matches
            is_known |= hmac.compare_digest(sent, digest)
        if is_known:
            return None
        message = "the request's token is not in --http-token-file"
        return AccessRejection(status=401, code="not_authenticated", message=message, remedy=_REMEDY_UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAccess:
    """Who is answered at the HTTP port."""

    tokens: HttpTokens = field(default_factory=HttpTokens)
    token_file: Path | None = None
    """The file of the tokens."""
    is_metrics_open: bool = False
    """Whether /metrics answers everybody."""


def http_access(values: Mapping[str, Value]) -> HttpAccess:
    """The access that the options describe. Raises `InvalidSettings`."""
    text = values.get("http-token-file")
    assert text is None or isinstance(text, str)
    path = Path(text).expanduser().absolute() if text else None
    return HttpAccess(
        tokens=HttpTokens() if path is None else read_tokens(path),
        token_file=path,
        is_metrics_open=bool(values.get("metrics-open", False)),
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


def is_foreign_name(peer: str | None, headers: Mapping[str, str], own_names: Collection[str]) -> bool:
    """Whether a request from this machine names another machine, as a web page with DNS rebinding does.

    An IP address is no foreign name: a browser that shows an address connects to that address, and the sidecar of a
    service mesh passes the pod's address on over loopback.

    Args:
        peer: the address at the other end of the connection.
        headers: with names in lower case. Every browser sends `host`, so a request without one is accepted.
        own_names: names of this machine, in lower case.
    """
    host = headers.get("host")
    if host is None or not is_this_machine(peer) or names_this_machine(host):
        return False
    name = _plain_name(host)
    return name != "localhost" and name not in own_names and not _is_address(name)


FOREIGN_HOST = AccessRejection(
    status=403,
    code="foreign_host",
    message="a request over loopback names another machine",
    remedy="use a loopback address, localhost, the machine's own name or that of --http, or send a token",
)


def _rejection_without_tokens(
    peer: str | None, headers: Mapping[str, str], own_names: Collection[str]
) -> AccessRejection | None:
    if not is_this_machine(peer) or any(name in headers for name in _FORWARDED):
        return AccessRejection(
            status=403,
            code="not_allowed",
            message="without tokens only this machine may use the agent's HTTP port",
            remedy="start the agent with --http-token-file, and configure the client with one of its tokens",
        )
    # DNS rebinding: a page in a user's browser, of a name that resolves to loopback, could read vended credentials.
    host = headers.get("host", "")
    name = _plain_name(host)
    is_own = name == "localhost" or (name in own_names and not _is_address(name))
    return None if is_own or names_this_machine(host) else FOREIGN_HOST


def _plain_name(host: str) -> str:
    """The name in a `Host`. An absolute name ends with a dot (RFC 1034)."""
    return host_name(host).removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
