"""Who is answered below /api: everybody, but for what holds schemas or changes files."""

import pytest

from agent.catalog_parts import CatalogParts
from agent.http_api import build_app
from agent.http_tokens import HttpTokens
from tests.unit.agent.asgi_client import AsgiClient
from tests.unit.agent.made_state import SmallAgent

REWRITES = "/api/lake/orders/rewrites"
TOKEN = "0123456789abcdef"


def client(*, tokens: HttpTokens, peer: str = "127.0.0.1") -> AsgiClient:
    parts = CatalogParts(root_uri="file:///bucket", tokens=tokens)
    return AsgiClient(app=build_app(SmallAgent(), parts), peer=peer)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_rewrites_are_for_whom_the_catalog_answers(method: str) -> None:
    """A plan holds the registry's schemas, and a file that is taken stands for records."""
    with_tokens = client(tokens=HttpTokens.of(TOKEN))
    assert (await with_tokens(method, REWRITES, b"{}")).status == 401
    assert (await client(tokens=HttpTokens(), peer="10.1.2.3")(method, REWRITES, b"{}")).status == 403
    answer = await with_tokens("GET", REWRITES, headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status == 400, "it is let in, and told that it names no purpose"
