"""Who is answered below /api: everybody, but for what holds schemas or changes files."""

import pytest

from agent.config.http_auth import HttpTokens
from agent.http.api import build_app
from agent.http.iceberg.catalog_config import CatalogParts
from tests.support.agent.asgi_client import AsgiClient
from tests.support.agent.small_agent import SmallAgent

REWRITES = "/api/lake/orders/rewrites"
TOKEN = "0123456789abcdef"


def client(*, tokens: HttpTokens, peer: str = "127.0.0.1") -> AsgiClient:
    parts = CatalogParts(root_uri="file:///bucket", tokens=tokens)
    return AsgiClient(app=build_app(SmallAgent().services, parts), peer=peer)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_rewrites_are_for_whom_the_catalog_answers(method: str) -> None:
    """A plan holds the registry's schemas, and a file that is taken stands for records."""
    with_tokens = client(tokens=HttpTokens.of(TOKEN))
    assert (await with_tokens(method, REWRITES, b"{}")).status == 401
    assert (await client(tokens=HttpTokens(), peer="10.1.2.3")(method, REWRITES, b"{}")).status == 403
    answer = await with_tokens("GET", REWRITES, headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status == 400, "it is let in, and told that it names no purpose"


OTHER_MACHINE = "10.1.2.3"


@pytest.mark.parametrize(
    ("peer", "host", "own_name", "status"),
    [
        ("127.0.0.1", "evil.example", "127.0.0.1", 403),
        ("::ffff:127.0.0.1", "evil.example", "", 403),
        ("127.0.0.1", "broker.lan:9644", "broker.lan", 200),
        ("127.0.0.1", "BROKER.lan", "broker.lan", 200),
        ("127.0.0.1", "evil.example:9644", "broker.lan", 403),
        (OTHER_MACHINE, "penstock.svc:9644", "0.0.0.0", 200),
        (OTHER_MACHINE, "10.0.0.5:9644", "0.0.0.0", 200),
        ("127.0.0.6", "10.0.0.5:9644", "0.0.0.0", 200),
    ],
)
async def test_by_loopback_the_port_is_asked_by_names_of_this_machine(
    peer: str, host: str, own_name: str, status: int
) -> None:
    app = build_app(SmallAgent().services, own_names={own_name})
    assert (await AsgiClient(app=app, peer=peer, host=host)("GET", "/metrics")).status == status


async def test_a_token_makes_up_for_the_name() -> None:
    """A proxy on this machine may pass on the name that it was asked by."""
    named = client(tokens=HttpTokens.of(TOKEN))
    named.host = "lake.example"
    assert (await named("GET", "/metrics")).status == 403
    assert (await named("GET", "/metrics", headers={"authorization": f"Bearer {TOKEN}"})).status == 200
