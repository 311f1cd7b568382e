"""The guard of the HTTP port: finds out who sends each request, and rejects those that may not be answered.

Rule: it comes before everything that reads a request, and answers in the error format of the API below whose prefix the
path is. The path is the one by which routes are chosen. /live and /ready answer everybody, as does /metrics with
`--metrics-open`. Who asks is `agent.security.http_identity`, what they may do `agent.http.authorization`. A client that
disconnects is no error.
"""

from contextlib import suppress
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from agent.config.http_auth import AccessRejection
from agent.http.authorization import STATE_KEY, AccessDenied
from agent.http.client_certificates import certificate_principal
from agent.http.iceberg.errors import CATALOG_PREFIX
from agent.http.iceberg.errors import rejected as rejected_by_catalog
from agent.http.login_delays import LoginDelay
from agent.http.registry.rest_api import PREFIX
from agent.http.registry.rest_api import rejected as rejected_by_registry
from agent.runtime.clock import Clock
from agent.security.http_identity import HttpIdentities, HttpIdentity, HttpRequestHead

HEALTH_PATHS: Final = frozenset({"/live", "/ready"})
METRICS_PATH: Final = "/metrics"


class AccessGuard:
    """Passes requests on with the identity of their client, and rejects those that may not be answered."""

    def __init__(self, app: ASGIApp, *, identities: HttpIdentities, clock: Clock, is_metrics_open: bool) -> None:
        self._app = app
        self._clock = clock
        self._identities = identities
        self._is_metrics_open = is_metrics_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        delay = LoginDelay(scope.setdefault("state", {}), receive, self._clock)
        identity = await self._identity(Request(scope), delay)
        if isinstance(identity, AccessRejection):
            await rejection_response(scope["path"], identity)(scope, receive, send)
            return
        scope["state"][STATE_KEY] = identity
        with suppress(ClientDisconnect):  # the client closed its connection: nothing to answer, and no bug
            await self._app(scope, receive, send)

    async def _identity(self, request: Request, delay: LoginDelay) -> HttpIdentity | AccessRejection:
        path: str = request.scope["path"]  # `url` is made with the Host header, and older Starlettes believe its path
        if path in HEALTH_PATHS:
            return HttpIdentity()
        head = HttpRequestHead(
            peer=request.client.host if request.client else None,
            certificate=certificate_principal(request.scope),
            headers=request.headers,
            api=f"{request.method} {path}",
            delay=delay.wait,
        )
        if path == METRICS_PATH and self._is_metrics_open:
            return self._identities.open_rejection(head) or HttpIdentity()
        return await self._identities.identify(head)


def rejection_response(path: str, rejection: AccessRejection) -> Response:
    """The answer to a rejected request of that path."""
    if _is_below(path, CATALOG_PREFIX):
        return rejected_by_catalog(rejection)
    if _is_below(path, PREFIX):
        return rejected_by_registry(rejection)
    error = {"code": rejection.code, "message": rejection.message, "remedy": rejection.remedy}
    return JSONResponse({"error": error}, status_code=rejection.status, headers=rejection.headers)


def on_access_denied(request: Request, error: Exception) -> Response:
    """The answer to a request without a right, or without a login: an exception handler of Starlette."""
    assert isinstance(error, AccessDenied)
    return rejection_response(request.scope["path"], error.rejection)


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")
