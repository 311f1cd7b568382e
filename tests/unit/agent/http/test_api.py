"""Who is answered at the paths that are neither the catalog's nor the registry's."""

import pytest
from starlette.datastructures import URL
from starlette.requests import HTTPConnection
from starlette.routing import Route

from agent.config.http_auth import HttpAccess, HttpTokens
from agent.http.iceberg.catalog_config import CatalogParts
from coordinator.commands.rules import RULES_CHECKED_ENTRIES, RULES_SECURITY
from tests.support.agent.asgi_client import Answer, AsgiClient
from tests.support.agent.http_app import http_app
from tests.support.agent.small_agent import SmallAgent

TOKEN = "0123456789abcdef"
OTHER_MACHINE = "10.1.2.3"
APP = http_app(SmallAgent())
ROUTES = [
    (method, route.path.format(name="orders"))
    for route in APP.routes
    if isinstance(route, Route)
    for method in sorted((route.methods or set()) - {"HEAD"})
]
HEALTH = ("/live", "/ready")
GUARDED = [(method, path) for method, path in ROUTES if path not in HEALTH]


def client(
    *, peer: str = "127.0.0.1", host: str = "127.0.0.1:9644", tokens: bool = False, metrics_open: bool = False
) -> AsgiClient:
    access = HttpAccess(tokens=HttpTokens.of(TOKEN) if tokens else HttpTokens(), is_metrics_open=metrics_open)
    app = http_app(SmallAgent(), CatalogParts(root_uri="file:///bucket"), access=access)
    return AsgiClient(app=app, peer=peer, host=host)


def code_of(answer: Answer) -> tuple[int, object]:
    error = answer.json()["error"]
    assert isinstance(error, dict)
    assert error["message"]
    assert error["remedy"]
    return answer.status, error["code"]


@pytest.mark.parametrize(("method", "path"), GUARDED)
async def test_without_tokens_nobody_from_another_machine_is_answered(method: str, path: str) -> None:
    assert code_of(await client(peer=OTHER_MACHINE)(method, path, b"{}")) == (403, "not_allowed")
    by_proxy = await client()(method, path, b"{}", headers={"x-forwarded-for": OTHER_MACHINE})
    assert code_of(by_proxy) == (403, "not_allowed")


@pytest.mark.parametrize(("method", "path"), GUARDED)
async def test_with_tokens_nobody_without_one_is_answered(method: str, path: str) -> None:
    answer = await client(tokens=True)(method, path, b"{}")
    assert code_of(answer) == (401, "not_authenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer, Basic ")
    wrong = await client(tokens=True)(method, path, b"{}", headers={"authorization": f"Bearer {TOKEN}x"})
    assert code_of(wrong) == (401, "not_authenticated")


@pytest.mark.parametrize(("method", "path"), GUARDED)
async def test_a_path_in_the_host_header_opens_nothing(monkeypatch: pytest.MonkeyPatch, method: str, path: str) -> None:
    """Starlette 1.0 puts the header in front of the path, as it came."""
    url = property(lambda request: URL(f"http://{request.headers['host']}{request.scope['path']}"))
    monkeypatch.setattr(HTTPConnection, "url", url)
    for host in ("127.0.0.1/live?", "127.0.0.1/ready#", "127.0.0.1/metrics?"):
        answer = await client(tokens=True, metrics_open=True, host=host)(method, path, b"{}")
        expected = (403, "foreign_host") if path == "/metrics" else (401, "not_authenticated")
        assert code_of(answer) == expected


@pytest.mark.parametrize("path", ["/none", "/", "/live/", "//metrics", "/api", "/metrics/"])
async def test_unknown_paths_are_guarded_too(path: str) -> None:
    assert (await client(peer=OTHER_MACHINE)("GET", path)).status == 403
    assert (await client(tokens=True)("GET", path)).status == 401


@pytest.mark.parametrize("path", HEALTH)
async def test_health_is_told_to_everybody(path: str) -> None:
    assert (await client(tokens=True, peer=OTHER_MACHINE, host="penstock.svc")("GET", path)).status == 200


@pytest.mark.parametrize("tokens", [False, True])
async def test_metrics_may_be_open(tokens: bool) -> None:
    opened = client(tokens=tokens, metrics_open=True, peer=OTHER_MACHINE, host="penstock.svc")
    assert (await opened("GET", "/metrics")).status == 200
    assert (await opened("GET", "/api/status")).status == (401 if tokens else 403)


async def test_open_metrics_are_not_for_a_page_whose_name_leads_here() -> None:
    assert code_of(await client(metrics_open=True, host="evil.example")("GET", "/metrics")) == (403, "foreign_host")


async def test_a_token_opens_every_path_from_anywhere() -> None:
    """A proxy on this machine may pass on the name that it was asked by."""
    for peer in ("127.0.0.1", OTHER_MACHINE):
        named = client(tokens=True, peer=peer, host="lake.example")
        shown = {"authorization": f"Bearer {TOKEN}", "x-forwarded-for": "10.9.9.9"}
        assert (await named("GET", "/metrics", headers=shown)).status == 200
        assert (await named("GET", "/api/topics", headers=shown)).status == 200


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
async def test_by_loopback_open_metrics_are_asked_by_names_of_this_machine(
    peer: str, host: str, own_name: str, status: int
) -> None:
    app = http_app(SmallAgent(), access=HttpAccess(is_metrics_open=True), own_names={own_name})
    assert (await AsgiClient(app=app, peer=peer, host=host)("GET", "/metrics")).status == status


@pytest.mark.parametrize("is_finished", [False, True])
async def test_an_agent_that_is_not_ready_says_one_reason(*, is_finished: bool) -> None:
    agent = SmallAgent()
    agent.is_ready = False
    if is_finished:
        agent.waits.finish()
    answer = await AsgiClient(app=http_app(agent))("GET", "/ready")
    reason = "is stopping" if is_finished else "starts"
    assert (answer.status, answer.body) == (503, f"not ready: the agent {reason}\n".encode())


@pytest.mark.parametrize(("rules", "status"), [(RULES_SECURITY, 200), (RULES_CHECKED_ENTRIES, 503)])
async def test_acls_of_a_recovery_are_confirmed_where_the_rules_have_them(rules: int, status: int) -> None:
    agent = SmallAgent()
    agent.state.rules_version = rules
    agent.state.is_acls_confirmed = False
    answer = await AsgiClient(app=http_app(agent))("POST", "/api/acls/confirm", b"{}")
    assert answer.status == status
    assert agent.state.is_acls_confirmed == (status == 200)
    if status == 200:
        assert answer.json() == {"acls": 0, "scram_credentials": 0}
