"""Counts and times the requests of the HTTP port, by route and status.

Rule: the labels are bounded. A route is the API's name, without the names of topics and tables in it; all paths of the
catalog are one route, and so are those of the schema registry.
"""

from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.http.iceberg.errors import CATALOG_PREFIX
from agent.http.registry.rest_api import PREFIX
from agent.runtime.metrics import Metrics
from agent.security.required_http_rights import HTTP_RIGHTS

OTHER: Final = "other"
NO_ANSWER: Final = "none"
"""The status of a request whose client was gone before an answer began."""


def _name(path: str) -> str:
    """`/metrics`, or the first two segments of a path of several."""
    return "/".join(path.split("/")[:3])


ROUTES: Final = frozenset(_name(row.partition(" ")[2]) for row in HTTP_RIGHTS) - {_name(f"{CATALOG_PREFIX}/v1")}


def route_of(path: str) -> str:
    """The label of a path."""
    for prefix in (CATALOG_PREFIX, PREFIX):
        if path == prefix or path.startswith(f"{prefix}/"):
            return prefix
    name = _name(path)
    return name if name in ROUTES else OTHER


class RequestTimer:
    """An ASGI application around the one that answers."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, monotonic_s: Callable[[], float]) -> None:
        self._app = app
        self._metrics = metrics
        self._monotonic_s = monotonic_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = NO_ANSWER

        async def send_observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        began_s = self._monotonic_s()
        try:
            await self._app(scope, receive, send_observed)
        finally:
            seconds = self._monotonic_s() - began_s
            self._metrics.http_request_duration_seconds.labels(route_of(scope["path"]), status).observe(seconds)
