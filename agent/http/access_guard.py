"""The guard of the HTTP port: every path but the health checks is for those that `agent.config.http_auth` lets in.

Rule: it rejects a request before anything else reads it, with the error format of the API below whose prefix the path
is. /live and /ready answer everybody, as does /metrics with `--metrics-open`; a request to that over loopback still has
to name this machine. A client that disconnects is no error.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from agent.config.http_auth import FOREIGN_HOST, AccessRejection, HttpAccess, is_foreign_name
from agent.http.iceberg.errors import NO_STORE, CatalogError, error_response
from agent.http.path_hints import CATALOG_PREFIX
from agent.http.registry.rest_api import FORBIDDEN, PREFIX, UNAUTHORIZED, failed

HEALTH_PATHS: Final = frozenset({"/live", "/ready"})
METRICS_PATH: Final = "/metrics"
CHALLENGE: Final[Mapping[str, str]] = {"WWW-Authenticate": "Bearer"}


class AccessGuard:
    """Passes requests on that may be answered, and rejects all others."""

    def __init__(self, app: ASGIApp, *, access: HttpAccess, own_names: Collection[str]) -> None:
        """`own_names`: names of this machine, in lower case, that requests over loopback may use."""
        self._app = app
        self._access = access
        self._own_names = own_names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        rejection = self._rejection(Request(scope))
        if rejection is not None:
            await rejection_response(scope["path"], rejection)(scope, receive, send)
            return
        with suppress(ClientDisconnect):  # the client closed its connection: nothing to answer, and no bug
            await self._app(scope, receive, send)

    def _rejection(self, request: Request) -> AccessRejection | None:
        path, peer = request.url.path, request.client.host if request.client else None
        if path in HEALTH_PATHS:
            return None
        if path == METRICS_PATH and self._access.is_metrics_open:
            return FOREIGN_HOST if is_foreign_name(peer, request.headers, self._own_names) else None
        return self._access.tokens.rejection(peer, request.headers, self._own_names)


def rejection_response(path: str, rejection: AccessRejection) -> Response:
    """The answer to a rejected request of that path."""
    headers = CHALLENGE if rejection.status == 401 else {}
    if _is_below(path, CATALOG_PREFIX):
        kind = "NotAuthorizedException" if rejection.status == 401 else "ForbiddenException"
        return error_response(CatalogError(rejection.status, kind, rejection.text, {**NO_STORE, **headers}))
    if _is_below(path, PREFIX):
        answer = failed(UNAUTHORIZED if rejection.status == 401 else FORBIDDEN, rejection.text)
        answer.headers.update(headers)
        return answer
    error = {"code": rejection.code, "message": rejection.message, "remedy": rejection.remedy}
    return JSONResponse({"error": error}, status_code=rejection.status, headers=dict(headers))


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")
