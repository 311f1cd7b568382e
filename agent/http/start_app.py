"""The application of the HTTP port while the agent does not serve: at its start, and at its end.

Rule: `/live` answers 200 and `/ready` 503 with one line, to everybody. `/metrics` answers those who may read it
whatever users and ACLs the cluster has, which the agent does not know yet. Everything else gets 503.
"""

from collections.abc import Collection
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from agent.config.http_auth import AccessRejection, HttpAccess, is_foreign_name, rejection_from_elsewhere
from agent.http.access_guard import METRICS_PATH, rejection_response
from agent.http.request_metrics import RequestTimer
from agent.http.services import StartServices
from agent.runtime.metrics import EXPOSITION_TYPE

REMEDY: Final = "send the request again later, or to another agent"


def build_start_app(services: StartServices, *, access: HttpAccess, own_names: Collection[str]) -> ASGIApp:
    """The application.

    Args:
        services: the parts that exist already.
        access: who is answered at the port.
        own_names: names of this machine, in lower case, that requests over loopback may use.
    """
    app = _StartApp(services, access, own_names)
    return RequestTimer(app, metrics=services.metrics, monotonic_s=services.clock.monotonic_s)


class _StartApp:
    def __init__(self, services: StartServices, access: HttpAccess, own_names: Collection[str]) -> None:
        self._services = services
        self._access = access
        self._own_names = own_names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._response(Request(scope))(scope, receive, send)

    def _response(self, request: Request) -> Response:
        path: str = request.scope["path"]
        is_read = request.method in ("GET", "HEAD")
        line = self._services.waits.line
        if is_read and path == "/live":
            return PlainTextResponse("live\n")
        if is_read and path == "/ready":
            return PlainTextResponse(f"{line}\n", status_code=503)
        if is_read and path == METRICS_PATH and self._may_read_metrics(request):
            self._services.metrics.is_ready.set(False)
            return Response(self._services.metrics.exposition(), media_type=EXPOSITION_TYPE)
        return rejection_response(path, AccessRejection(status=503, code="not_ready", message=line, remedy=REMEDY))

    def _may_read_metrics(self, request: Request) -> bool:
        """Whether the metrics are open, or the request shows a token that suffices, or needs no login."""
        peer, headers = request.client.host if request.client else None, request.headers
        if self._access.is_metrics_open:
            return not is_foreign_name(peer, headers, self._own_names)
        authorizer, tokens = self._services.authorizer, self._access.tokens
        shown = headers.get("authorization")
        if shown is not None:
            scheme, _, token = shown.partition(" ")
            principal = tokens.principal_of(token.strip()) if scheme.lower() == "bearer" else None
            # Only the rights of super users are known before the ACLs.
            return principal is not None and (not authorizer.is_enabled or principal in authorizer.super_users)
        is_login_required = authorizer.is_enabled or bool(tokens) or self._services.accepts_issuer_tokens
        return not is_login_required and rejection_from_elsewhere(peer, headers, self._own_names) is None
