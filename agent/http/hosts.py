"""The check of the `Host` header, which protects the HTTP port against DNS rebinding.

Rule: the check is the same for every path. With DNS rebinding, a web page resolves its own name to loopback: its
requests come from this machine, but name the page's host. So requests over loopback have to name this machine. An IP
address is accepted: a browser that shows an address connects to that address, and the sidecar of a service mesh passes
the pod's address on over loopback. Requests from another machine may use any name, as proxies and DNS do. A valid
token replaces the check: such a page has none. Health checks return nothing worth protecting and accept any name.
/iceberg and /schema-registry check the same names themselves (`agent.config.http_auth`), with errors in their own
format.
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
    """Whether a request from this machine names another machine.

    Args:
        peer: the address at the other end of the connection.
        headers: with names in lower case. Every browser sends `host`, so a request without one is accepted.
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
    """Rejects requests with a foreign name before anything else reads them. A client that disconnects is no error."""

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
                    "message": "a request over loopback names another machine",
                    "remedy": "use an address, localhost, its own name or the host of --http, or send a token",
                }
                await JSONResponse({"error": error}, status_code=403)(scope, receive, send)
                return
        with suppress(
            ClientDisconnect
        ):  # the client closed its connection during its request: nothing to answer, and no bug
            await self._app(scope, receive, send)

    @staticmethod
    def _is_open(path: str) -> bool:
        return path in HEALTH_PATHS or path.startswith(GUARDED_THEMSELVES)

    def _has_token(self, peer: str | None, headers: Mapping[str, str]) -> bool:
        return bool(self._tokens.digests) and self._tokens.rejection(peer, headers) is None
