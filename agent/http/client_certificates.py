"""The principal of a client's certificate, from the connection to the requests that come over it.

The connection's protocol puts it into the scope of each request, under the ASGI extension EXTENSION.
"""

from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from protocol.auth.principals import ANONYMOUS, Principal

EXTENSION: Final = "penstock.certificate_principal"


def certificate_principal(scope: Scope) -> Principal:
    """The principal of the client's certificate; ANONYMOUS without one, and without TLS."""
    extensions: dict[str, Principal] = scope.get("extensions") or {}
    return extensions.get(EXTENSION, ANONYMOUS)


def with_certificate(app: Any, principal: Principal) -> ASGIApp:  # noqa: ANN401 - uvicorn has ASGI types of its own
    """The application for one connection, whose client has this principal."""

    async def with_principal(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "extensions": {**(scope.get("extensions") or {}), EXTENSION: principal}}, receive, send)

    return with_principal
