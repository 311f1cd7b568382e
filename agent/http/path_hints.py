"""Hints for clients that were configured with this port, but without the path of the catalog or the registry.

Rule: these requests match no route, and nothing is done for them. The 404 names the right address, in the error format
of the client's API.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from agent.http.iceberg.errors import CATALOG_PREFIX, CatalogError, error_response
from agent.http.registry.registry import NOT_FOUND
from agent.http.registry.rest_api import PREFIX, failed

_CATALOG_PATHS: Final = frozenset({"config", "namespaces", "oauth", "tables", "transactions", "views"})
"""Path segments after `/v1` in paths of Iceberg's REST specification."""
_REGISTRY_PATHS: Final = frozenset({"compatibility", "config", "contexts", "mode", "schemas", "subjects"})
"""First path segments of Confluent's API."""


def answer_to_misplaced(request: Request) -> Response | None:
    """The 404 for a request that is meant for the catalog or the registry; None for any other request."""
    parts = [part for part in request.scope["path"].split("/") if part]
    if _has_pair(parts, lambda before, part: before == "v1" and part in _CATALOG_PATHS):
        message = (
            f"there is no catalog at this path: configure the client with the URI http://HOST:PORT{CATALOG_PREFIX}"
        )
        return error_response(CatalogError(404, "NotFoundException", f"{_request_line(request)}: {message}"))
    if parts and (parts[0] in _REGISTRY_PATHS or _has_pair(parts[:2], lambda _, part: part in _REGISTRY_PATHS)):
        message = (
            f"there is no schema registry at this path: configure the client with the URL http://HOST:PORT{PREFIX}"
        )
        return failed(NOT_FOUND, f"HTTP 404 Not Found: {_request_line(request)}: {message}")
    return None


def _has_pair(parts: list[str], is_match: Callable[[str, str], bool]) -> bool:
    """Whether two neighbouring path segments match."""
    return any(is_match(before, part) for before, part in pairwise(parts))


def _request_line(request: Request) -> str:
    return f"{request.method} {request.scope['path']}"
