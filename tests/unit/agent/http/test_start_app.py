"""The HTTP port before the agent serves: health for everybody, metrics for those who may read them, else 503."""

import json
from dataclasses import replace

import pytest

from agent.config.authorizer_settings import AuthorizerSettings
from agent.config.http_auth import HttpAccess, HttpTokens
from agent.http.services import StartServices
from agent.http.start_app import build_start_app
from agent.runtime.clock import SystemClock
from agent.runtime.metrics import Metrics
from agent.runtime.start_waits import StartNeed, StartWaits
from protocol.auth.principals import USER, Principal
from tests.support.agent.asgi_client import AsgiClient

TOKEN = "0123456789abcdef"
BEARER = {"authorization": f"Bearer {TOKEN}"}
ALICE = Principal(USER, "alice")
ELSEWHERE = "10.1.2.3"
WAITS = "not ready: the start waits for the ledger"
GUARDED = AuthorizerSettings(is_enabled=True, super_users=frozenset({ALICE}))


def services_of_a_start() -> StartServices:
    waits = StartWaits(SystemClock())
    waits.observe(StartNeed.LEDGER, lambda: 1.0)
    return StartServices(waits=waits, metrics=Metrics(), clock=SystemClock())


def client_of(services: StartServices, access: HttpAccess | None = None) -> AsgiClient:
    return AsgiClient(app=build_start_app(services, access=access or HttpAccess(), own_names=frozenset({"box"})))


@pytest.fixture
def services() -> StartServices:
    return services_of_a_start()


@pytest.mark.parametrize("peer", ["127.0.0.1", ELSEWHERE, None])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_health_is_answered_to_everybody(services: StartServices, method: str, peer: str | None) -> None:
    client = client_of(replace(services, authorizer=GUARDED))
    client.peer, client.host = peer, "penstock.default.svc:9644"
    live, ready = await client(method, "/live"), await client(method, "/ready")
    assert (live.status, live.body) == (200, b"live\n")
    assert (ready.status, ready.body) == (503, f"{WAITS}\n".encode())


async def test_metrics_show_the_wait_and_no_state(services: StartServices) -> None:
    metrics = services.metrics
    metrics.is_ready.set(1)
    answer = await client_of(services)("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"penstock_ready 0.0\n" in answer.body
    assert b"penstock_maintenance_leader" not in answer.body


@pytest.mark.parametrize(
    ("method", "path", "shown"),
    [
        ("GET", "/api/status", ("error", "not_ready", "message", WAITS)),
        ("GET", "/nothing", ("error", "not_ready", "message", WAITS)),
        ("POST", "/live", ("error", "not_ready", "message", WAITS)),
        ("POST", "/metrics", ("error", "not_ready", "message", WAITS)),
        ("GET", "/iceberg/v1/config", ("error", "ServiceUnavailableException", "type", "ServiceUnavailableException")),
    ],
)
async def test_everything_else_is_not_there_yet(
    services: StartServices, method: str, path: str, shown: tuple[str, str, str, str]
) -> None:
    answer = await client_of(services)(method, path)
    error = json.loads(answer.body)[shown[0]]
    assert answer.status == 503
    assert shown[1] in error.values()
    assert error[shown[2]] == shown[3]


async def test_a_client_of_the_registry_gets_an_error_of_the_registry(services: StartServices) -> None:
    answer = await client_of(services)("GET", "/schema-registry/subjects")
    assert (answer.status, json.loads(answer.body)["error_code"]) == (503, 50301)


class TestMetricsAccess:
    async def status(self, client: AsgiClient, **headers: str) -> int:
        return (await client("GET", "/metrics", headers=headers)).status

    async def test_without_tokens_this_machine_alone_reads_them(self, services: StartServices) -> None:
        client = client_of(services)
        assert await self.status(client) == 200
        client.host = "box:9644"
        assert await self.status(client) == 200
        client.host = "page.example"
        assert await self.status(client) == 503
        client.host, client.peer = "127.0.0.1", ELSEWHERE
        assert await self.status(client) == 503

    async def test_open_metrics_are_read_from_anywhere_but_by_a_page_of_another_name(
        self, services: StartServices
    ) -> None:
        client = client_of(replace(services, authorizer=GUARDED), HttpAccess(is_metrics_open=True))
        client.peer = ELSEWHERE
        assert await self.status(client) == 200
        client.peer, client.host = "127.0.0.1", "page.example"
        assert await self.status(client) == 503

    async def test_with_tokens_one_of_them_is_needed(self, services: StartServices) -> None:
        client = client_of(services, HttpAccess(tokens=HttpTokens.of(TOKEN)))
        assert await self.status(client) == 503
        client.peer = ELSEWHERE
        assert await self.status(client, **BEARER) == 200
        assert await self.status(client, authorization=f"Bearer {TOKEN}x") == 503
        assert await self.status(client, authorization="Basic YTpi") == 503

    @pytest.mark.parametrize(("name", "status"), [("alice", 200), ("bob", 503)])
    async def test_with_an_authorizer_only_super_users_are_known_yet(
        self, services: StartServices, name: str, status: int
    ) -> None:
        tokens = HttpTokens.of(TOKEN, principal=Principal(USER, name))
        client = client_of(replace(services, authorizer=GUARDED), HttpAccess(tokens=tokens))
        assert await self.status(client, **BEARER) == status

    async def test_where_users_log_in_nobody_else_is_let_in(self, services: StartServices) -> None:
        assert await self.status(client_of(replace(services, authorizer=GUARDED))) == 503
        assert await self.status(client_of(replace(services, accepts_issuer_tokens=True))) == 503
