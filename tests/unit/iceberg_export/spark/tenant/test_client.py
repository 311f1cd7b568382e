"""The client of an agent: what it sends, what it sends again, and what each rejection says to do."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from iceberg_export.spark.tenant.access import AgentAccess
from iceberg_export.spark.tenant.client import AgentClient
from protocol.limits import SPARK_THROTTLED_SECONDS_MAX
from storage.decorators.retrying import RetryPolicy, RetryPorts
from storage.object_store import (
    ObjectDamaged,
    ObjectMissing,
    StoreDenied,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)
from tests.support.certificates import TestAuthority
from tests.support.services.canned_agent import CannedAgent, CannedAnswer, CannedRequest, canned_agent

SECRET = "0123456789abcdef-secret"
OK = CannedAnswer(200, b"{}")


class Pauses:
    """A clock that the pauses of the client move."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds

    @property
    def ports(self) -> RetryPorts:
        return RetryPorts(monotonic_s=lambda: self.now_s, sleep=self.sleep, chance=lambda: 0.5)


@asynccontextmanager
async def client_of(agent: CannedAgent, pauses: Pauses | None = None, **access: str) -> AsyncIterator[AgentClient]:
    given = AgentAccess(url=agent.url, **{"token": SECRET, **access})
    client = AgentClient(given, (pauses or Pauses()).ports, RetryPolicy(deadline_s=1.0))
    try:
        yield client
    finally:
        await asyncio.to_thread(client.close)


@contextmanager
def answering(*answers: CannedAnswer) -> Iterator[CannedAgent]:
    """An agent that gives these answers, the last one again and again."""
    left = list(answers)

    def answer(_: CannedRequest) -> CannedAnswer:
        return left.pop(0) if len(left) > 1 else left[0]

    with canned_agent(answer) as agent:
        yield agent


def error_body(code: str, message: str = "that is so", remedy: str = "do this") -> bytes:
    return json.dumps({"error": {"code": code, "message": message, "remedy": remedy}}).encode()


async def test_requests_carry_the_login_and_share_a_connection() -> None:
    with answering(OK) as agent:
        async with client_of(agent) as client:
            await client.get("/api/x", {"key": "a b/c", "first": 1})
            await client.post("/api/tail", b'{"topics": []}')
        get, post = agent.requests
        assert (get.method, get.target) == ("GET", "/api/x?key=a+b%2Fc&first=1")
        assert (post.body, post.headers["content-type"]) == (b'{"topics": []}', "application/json")
        assert {request.headers["authorization"] for request in agent.requests} == {f"Bearer {SECRET}"}
        assert get.connection == post.connection


async def test_a_file_with_a_token_is_read_for_each_request(tmp_path: Path) -> None:
    token = tmp_path / "token"
    with answering(OK) as agent:
        async with client_of(agent, token="", token_file=str(token)) as client:
            with pytest.raises(StoreMisconfigured, match=r"penstock\.token\.file=\S+ cannot be read"):
                await client.get("/")
            token.write_text("# comment\n")
            with pytest.raises(StoreMisconfigured, match="has no token"):
                await client.get("/")
            for value in ("first-token-0123", "User:alice second-token-0123"):
                token.write_text(f"{value}\n")
                await client.get("/")
        logins = [request.headers["authorization"] for request in agent.requests]
        assert logins == ["Bearer first-token-0123", "Bearer second-token-0123"]


async def test_a_user_logs_in_with_a_password_also_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("open: sesame\n")
    with answering(OK) as agent:
        async with client_of(agent, token="", user="alice", password_file=str(tmp_path / "password")) as client:
            await client.get("/")
        async with client_of(agent, token="", user="alice", password="ö") as client:
            await client.get("/")
        logins = [request.headers["authorization"] for request in agent.requests]
        assert logins == ["Basic YWxpY2U6b3Blbjogc2VzYW1l", "Basic YWxpY2U6w7Y="]


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (CannedAnswer(401, error_body("x")), StoreDenied, r"does not accept the login: that is so.*penstock\.token"),
        (CannedAnswer(403, error_body("x")), StoreDenied, "denies the request: that is so; do this"),
        (CannedAnswer(404, error_body("unknown_topic")), ObjectMissing, "that is so"),
        (CannedAnswer(404, error_body("unknown_object")), ObjectMissing, "that is so"),
        (
            CannedAnswer(404, b'{"error": {"message": "no table", "type": "NoSuchTableException", "code": 404}}'),
            ObjectMissing,
            "no table",
        ),
        (CannedAnswer(404, b"<html>"), StoreMisconfigured, r"answers 404: b'<html>'; is penstock\.server an agent's"),
        (CannedAnswer(405, error_body("http")), StoreMisconfigured, "is the agent as new as this program"),
        (CannedAnswer(302, b"", {"Location": "http://127.0.0.1:1/"}), StoreMisconfigured, "answers 302"),
        (CannedAnswer(413, error_body("too_large")), StoreMisconfigured, "answers 413"),
        (CannedAnswer(422, error_body("object_damaged")), ObjectDamaged, "that is so; do this"),
        (CannedAnswer(429, error_body("too_many_logins")), StoreUnavailable, "answers 429"),
        (CannedAnswer(503, error_body("unavailable")), StoreUnavailable, "answers 503"),
    ],
)
async def test_a_rejection_says_what_to_do(answer: CannedAnswer, kind: type[StoreError], text: str) -> None:
    with answering(answer) as agent:
        async with client_of(agent) as client:
            with pytest.raises(kind, match=text) as caught:
                await client.get("/api/x")
            assert type(caught.value) is kind
            assert SECRET not in str(caught.value)


async def test_an_agent_that_is_away_is_asked_again_until_the_deadline() -> None:
    pauses = Pauses()
    with answering(CannedAnswer(503), CannedAnswer(503), OK) as agent:
        async with client_of(agent, pauses) as client:
            assert (await client.get("/")).body == b"{}"
    assert len(pauses.slept) == 2
    async with client_of(agent, pauses) as client:
        with pytest.raises(StoreUnavailable, match=r"no agent answers at http://127\S+ .*penstock\.server is"):
            await client.get("/")


async def test_a_connection_that_the_agent_closed_meanwhile_is_replaced_at_once() -> None:
    pauses = Pauses()
    with answering(OK, CannedAnswer(0), OK) as agent:
        async with client_of(agent, pauses) as client:
            await client.get("/")
            await client.get("/")
    assert pauses.slept == []
    assert len({request.connection for request in agent.requests}) == 2


async def test_a_throttled_client_waits_as_long_as_it_is_told() -> None:
    pauses = Pauses()
    throttled = CannedAnswer(429, error_body("throttled"), {"Retry-After": "30"})
    with answering(throttled, throttled, OK) as agent:
        async with client_of(agent, pauses) as client:
            await client.get("/")
        assert pauses.slept == [30, 30]
    with answering(throttled) as agent:
        async with client_of(agent, pauses) as client:
            with pytest.raises(StoreUnavailable, match="that is so"):
                await client.get("/")
    assert sum(pauses.slept[2:]) == SPARK_THROTTLED_SECONDS_MAX


async def test_the_time_of_the_agent_comes_with_its_answer() -> None:
    dated = CannedAnswer(200, b"x", {"Date": "Thu, 01 Jan 1970 00:00:05 GMT"})
    with answering(dated, CannedAnswer(200, b"{}", {"Date": "today"}), OK) as agent:
        async with client_of(agent) as client:
            response = await client.get("/")
            assert response.date_ms == 5_000
            with pytest.raises(StoreMisconfigured, match="no JSON object"):
                response.json()
            assert [(await client.get("/")).date_ms for _ in range(2)] == [None, None]


async def test_a_certificate_of_an_authority_that_is_not_named_is_rejected(tmp_path: Path) -> None:
    authority = TestAuthority(folder=tmp_path)
    with canned_agent(lambda _: OK, authority.issue("agent")) as agent:
        async with client_of(agent, ca_file=str(authority.ca_path)) as client:
            assert (await client.get("/")).body == b"{}"
        async with client_of(agent) as client:
            with pytest.raises(StoreMisconfigured, match=r"is not trusted: .* as penstock\.ca"):
                await client.get("/")
        assert len(agent.requests) == 1
    with answering(OK) as agent:
        agent.url = agent.url.replace("http:", "https:")
        async with client_of(agent) as client:
            with pytest.raises(StoreMisconfigured, match="no TLS connection"):
                await client.get("/")
    for path in (tmp_path / "none.pem", authority.folder / "agent.key"):
        with pytest.raises(StoreMisconfigured, match=r"penstock\.ca=\S+ has no certificates"):
            AgentClient(AgentAccess(url="https://127.0.0.1:1", ca_file=str(path)), Pauses().ports)


def test_no_secret_is_shown() -> None:
    access = AgentAccess(url="https://agent:9644", token=SECRET, user="alice", password=SECRET)
    assert SECRET not in repr(access) + str(access)
