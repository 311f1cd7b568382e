"""Which names of this machine the HTTP port answers to.

Rule: one decision for every path. A page in somebody's browser whose name leads to loopback (DNS rebinding) asks as if
it came from this machine, but by its own name; so what comes by loopback has to name this machine. An address is never
such a name: a browser that shows it connects to it, and a mesh's sidecar passes on the pod's address by loopback. What
comes from another machine may name the port as it likes, as networks do. A good token, which no such page has, makes up
for it. Health checks say nothing that is worth a page, and are answered by any name. /iceberg and /schema-registry
answer loopback alone without tokens, by the same names (`agent.config.http_auth`), and say so in their own words.
"""

import ipaddress
from collections.abc import Collection, Mapping
from contextlib import suppress

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from agent.config.http_auth import HttpTokens, host_name, is_this_machine, names_this_machine

GUARDED_THEMSELVES = ("/iceberg/", "/schema-registry/")
HEALTH_PATHS = frozenset({"/live", "/ready"})


def is_foreign_name(peer: str | None, headers: Mapping[str, str], own_names: Collection[str]) -> bool:
    """Whether a request from this machine names another one.

    Args:
        peer: the address at the other end of the connection.
        headers: with names in lower case. Without `host`, which every browser sends, there is no foreign name.
        own_names: names of this machine, in lower case.
    """
    host = headers.get("host")
    if host is None or not is_this_machine(peer) or names_this_machine(host):
        return False
    name = host_name(host).removesuffix(".")  # an absolute name ends with a dot (RFC 1034)
    return name != "localhost" and name not in own_names and not _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class HostGuard:
    """Refuses what `is_foreign_name` says, before anything else is looked at. A client that leaves writes no error."""

    def __init__(self, app: ASGIApp, *, tokens: HttpTokens, own_names: Collection[str]) -> None:
        self._app = app
        self._tokens = tokens
        self._own_names = own_names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_open(scope["path"]):
            request = Request(scope)
            peer = request.client.host if request.client else None
            if is_foreign_name(peer, request.headers, self._own_names) and not self._has_token(peer, request.headers):
                error = {
                    "code": "foreign_host",
                    "message": "ask this machine by an address, localhost, its own name or the host of --http",
                    "remedy": "use such an address, or show a token of --http-token-file",
                }
                await JSONResponse({"error": error}, status_code=403)(scope, receive, send)
                return
        with suppress(ClientDisconnect):  # it left in the middle of its request: nobody is told, and it is no bug
            await self._app(scope, receive, send)

    @staticmethod
    def _is_open(path: str) -> bool:
        return path in HEALTH_PATHS or path.startswith(GUARDED_THEMSELVES)

    def _has_token(self, peer: str | None, headers: Mapping[str, str]) -> bool:
        return bool(self._tokens.digests) and self._tokens.refusal(peer, headers) is None
