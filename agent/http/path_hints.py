"""Requests of clients that were given this port without the path of the catalog or of the registry.

Rule: only what nothing else answers comes here, and nothing is done for it: it is told the right address, in the form
in which its client shows errors.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from agent.http.iceberg.errors import CatalogError, error_response
from agent.http.registry.registry import NOT_FOUND
from agent.http.registry.rest_api import PREFIX, failed

CATALOG_PREFIX: Final = "/iceberg"
_CATALOG_PATHS: Final = frozenset({"config", "namespaces", "oauth", "tables", "transactions", "views"})
"""Path segments after `/v1` in paths of Iceberg's REST specification."""
_REGISTRY_PATHS: Final = frozenset({"compatibility", "config", "contexts", "mode", "schemas", "subjects"})
"""First path segments of Confluent's API."""


def answer_to_misplaced(request: Request) -> Response | None:
    """The 404 of a request that is meant for the catalog or for the registry; None where it is meant for neither."""
    parts = [part for part in request.url.path.split("/") if part]
    if _follows(parts, lambda before, part: before == "v1" and part in _CATALOG_PATHS):
        message = f"there is no catalog at this path: give the client the URI http://HOST:PORT{CATALOG_PREFIX}"
        return error_response(CatalogError(404, "NotFoundException", f"{_named(request)}: {message}"))
    if parts and (parts[0] in _REGISTRY_PATHS or _follows(parts[:2], lambda _, part: part in _REGISTRY_PATHS)):
        message = f"there is no schema registry at this path: give the client the URL http://HOST:PORT{PREFIX}"
        return failed(NOT_FOUND, f"HTTP 404 Not Found: {_named(request)}: {message}")
    return None


def _follows(parts: list[str], is_wanted: Callable[[str, str], bool]) -> bool:
    return any(is_wanted(before, part) for before, part in pairwise(parts))


def _named(request: Request) -> str:
    return f"{request.method} {request.url.path}"
