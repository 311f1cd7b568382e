"""Errors of the catalog in the format of Iceberg's clients.

Rule: every error below /iceberg has this envelope; only OAuth's path has its own. The type is the exception that
Iceberg's Java client raises.
Source: Iceberg's REST specification, `IcebergErrorResponse`.
"""

from collections.abc import Mapping

from starlette.responses import JSONResponse, Response

from agent.config.http_auth import AccessRejection

CATALOG_PREFIX = "/iceberg"
"""The path of the catalog on the HTTP port."""
NO_STORE: Mapping[str, str] = {"Cache-Control": "no-store"}
"""Answers change with every commit, and may hold credentials."""


class CatalogError(Exception):
    """An answer with a status of 400 or above."""

    def __init__(self, status: int, kind: str, message: str, headers: Mapping[str, str] = NO_STORE) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.headers = headers


def error_response(error: CatalogError) -> Response:
    """The envelope."""
    content = {"error": {"message": error.message, "type": error.kind, "code": error.status}}
    return JSONResponse(content, status_code=error.status, headers=dict(error.headers))


_REJECTIONS = {401: "NotAuthorizedException", 503: "ServiceUnavailableException"}


def rejected(rejection: AccessRejection) -> Response:
    """The answer to a request that lacks a login or a right, or comes before the agent serves."""
    kind = _REJECTIONS.get(rejection.status, "ForbiddenException")
    headers = {**NO_STORE, **rejection.headers}
    return error_response(CatalogError(rejection.status, kind, rejection.text, headers))


def no_such_table(namespace: str, name: str) -> CatalogError:
    return CatalogError(
        404,
        "NoSuchTableException",
        f"there is no table {namespace}.{name}: every topic is a table in namespace lake, and there are no others",
    )


def no_such_namespace(shown: str) -> CatalogError:
    return CatalogError(
        404, "NoSuchNamespaceException", f"there is no namespace {shown}: every topic is a table in namespace lake"
    )
