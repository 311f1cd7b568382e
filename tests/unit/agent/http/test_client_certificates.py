"""The principal of a client's certificate in the scope of its requests."""

from starlette.types import Receive, Scope, Send

from agent.http.client_certificates import certificate_principal, with_certificate
from protocol.auth.principals import ANONYMOUS, Principal

ALICE = Principal("User", "alice")


async def test_requests_of_a_connection_have_its_clients_principal() -> None:
    principals: list[Principal] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        principals.append(certificate_principal(scope))

    async def receive() -> dict[str, object]:
        return {}

    async def send(_: object) -> None:
        return None

    for scope in ({"type": "http"}, {"type": "http", "extensions": {"x": {}}}, {"type": "http", "extensions": None}):
        await with_certificate(app, ALICE)(scope, receive, send)
    assert principals == [ALICE] * 3
    assert certificate_principal({"type": "http"}) == ANONYMOUS
