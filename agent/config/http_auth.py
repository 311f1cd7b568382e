"""Access to the HTTP port: the bearer tokens of --http-token-file with their principals, and the rules of `Host`. Pure.

`agent.security.http_identity` applies them to every path but /live, /ready, and /metrics with `--metrics-open`.
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
from protocol.auth.host_addresses import address_of
from protocol.auth.principals import ANONYMOUS, USER, Principal
from protocol.limits import HTTP_TOKEN_CHARS_MAX, HTTP_TOKEN_CHARS_MIN

_TOKEN = re.compile(rf"[A-Za-z0-9\-._~+/]{{{HTTP_TOKEN_CHARS_MIN},{HTTP_TOKEN_CHARS_MAX}}}=*")
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")
"""The headers in which proxies name their clients: a request with one of them comes from another machine."""
CHALLENGE = 'Bearer, Basic realm="penstock", charset="UTF-8"'
TOKEN_PRINCIPAL = Principal(USER, "token")
"""The principal of a token that stands alone on its line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRejection:
    """The HTTP error for a request: 401 where a token would help, 403 where only another configuration does."""

    status: int
    code: str
    """The code of /api's error."""
    message: str
    remedy: str

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response: a 401 says how to log in (RFC 9110, WWW-Authenticate)."""
        return {"WWW-Authenticate": CHALLENGE} if self.status == 401 else {}

    @property
    def text(self) -> str:
        """Message and remedy, for APIs whose errors have one text."""
        return f"{self.message}: {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTokens:
    """The valid tokens, as digests, with the principal of each."""

    principals: tuple[tuple[bytes, Principal], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, *tokens: str, principal: Principal = TOKEN_PRINCIPAL) -> "HttpTokens":
        return cls(principals=tuple((_digest(token), principal) for token in tokens))

    def __bool__(self) -> bool:
        return bool(self.principals)

    def __add__(self, others: "HttpTokens") -> "HttpTokens":
        return HttpTokens(principals=self.principals + others.principals)

    def principal_of(self, token: str) -> Principal | None:
        """The principal of a token; None for one that is not valid."""
        sent, principal = _digest(token), None
        for digest, owner in self.principals:  # compare with all: the time must not show which one matches
            if hmac.compare_digest(sent, digest):
                principal = owner
        return principal


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
    """The tokens of a file, one a line: `TOKEN`, whose principal is `User:token`, or `User:NAME TOKEN`.

    Empty lines and lines that begin with # are skipped. Raises `InvalidSettings`, whose message shows no token.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InvalidSettings(f"--http-token-file {path} cannot be read: {error.strerror}") from error
    tokens = HttpTokens()
    for number, line in enumerate(text.splitlines(), 1):
        name, _, token = line.strip().rpartition(" ")
        if not token or line.lstrip().startswith("#"):
            continue
        if not _TOKEN.fullmatch(token):
            raise InvalidSettings(
                f"--http-token-file {path}: line {number} is no token: write {HTTP_TOKEN_CHARS_MIN} to "
                f"{HTTP_TOKEN_CHARS_MAX} letters, digits or -._~+/ (`openssl rand -hex 32` makes one)"
            )
        if tokens.principal_of(token) is not None:
            raise InvalidSettings(
                f"--http-token-file {path}: line {number} has the token of a line before: make another"
            )
        tokens += HttpTokens.of(token, principal=_token_principal(name.strip(), f"{path}: line {number}"))
    if not tokens:
        raise InvalidSettings(f"--http-token-file {path} has no token: write one a line")
    return tokens


def _token_principal(text: str, where: str) -> Principal:
    if not text:
        return TOKEN_PRINCIPAL
    kind, _, name = text.partition(":")
    if kind != USER or not name or name == ANONYMOUS.name or any(char.isspace() for char in name):
        raise InvalidSettings(f"--http-token-file {where} is neither TOKEN nor User:NAME TOKEN")
    return Principal(USER, name)


def is_this_machine(address: str | None) -> bool:
    """Whether the address of a peer is loopback, also as an IPv4 address within IPv6."""
    ip = address_of(address or "")
    return ip is not None and ip.is_loopback


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


def rejection_from_elsewhere(
    peer: str | None, headers: Mapping[str, str], own_names: Collection[str]
) -> AccessRejection | None:
    """The error for a request that shows nothing, where only this machine is answered; None where it may be.

    Args: as those of `is_foreign_name`.
    """
    if not is_this_machine(peer) or any(name in headers for name in _FORWARDED):
        return AccessRejection(
            status=403,
            code="not_allowed",
            message="without a login only this machine may use the agent's HTTP port",
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
