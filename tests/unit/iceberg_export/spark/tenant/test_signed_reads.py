"""Reads by signed URLs: how many are asked for at once, and what each answer of the store means."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from iceberg_export.spark.tenant.client import AgentClient, AgentResponse
from iceberg_export.spark.tenant.signed_reads import NotSigned, SignedRange, SignedReads
from protocol.limits import HTTP_TAIL_URLS_MAX, SPARK_NO_KEYS_SECONDS
from storage.decorators.retrying import RetryPorts
from storage.object_store import (
    ObjectDamaged,
    ObjectMissing,
    StoreDenied,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)
from tests.support.services.canned_agent import CannedAnswer, CannedRequest, canned_agent

CONTENT = bytes(range(256)) * 8
SIGNATURE = "0f0f-signature"


@dataclass(slots=True)
class SigningAgent:
    """Signs URLs of `store`; `answers` come first, then what they name."""

    store: str
    now_s: float = 0.0
    answers: list[object] = field(default_factory=list[object])
    asked: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    gate: asyncio.Event | None = None

    @property
    def url(self) -> str:
        return "https://agent:9644"

    async def post(self, path: str, body: bytes) -> AgentResponse:
        ranges = json.loads(body)["ranges"]
        self.asked.append((path, len(ranges)))
        if self.gate is not None:
            await self.gate.wait()
        answer = self.answers.pop(0) if self.answers else self.signed(ranges)
        if isinstance(answer, StoreError):
            raise answer
        return AgentResponse(body=json.dumps({"urls": answer}).encode(), date_ms=None)

    def signed(self, ranges: list[list[object]]) -> list[str]:
        return [f"{self.store}/{key}?X-Amz-Signature={SIGNATURE}" for key, _, _ in ranges]

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@asynccontextmanager
async def reads_of(agent: SigningAgent) -> AsyncIterator[SignedReads]:
    client: AgentClient = agent  # type: ignore[assignment]  # it has what is used of it
    ports = RetryPorts(monotonic_s=lambda: agent.now_s, sleep=agent.sleep, chance=lambda: 0.99)
    reads = SignedReads(client, ports, "")
    try:
        yield reads
    finally:
        await asyncio.to_thread(reads.close)


def store(request: CannedRequest) -> CannedAnswer:
    first, _, last = request.headers["range"].removeprefix("bytes=").partition("-")
    return CannedAnswer(206, CONTENT[int(first) : int(last) + 1])


async def test_ranges_that_wait_share_the_next_request_for_urls() -> None:
    with canned_agent(store) as server:
        agent = SigningAgent(server.url, gate=asyncio.Event())
        async with reads_of(agent) as reads:
            count = HTTP_TAIL_URLS_MAX + 20
            tasks = [
                asyncio.ensure_future(reads.read("a b", SignedRange("intake/1/2", number, 3)))
                for number in range(count)
            ]
            await asyncio.wait(tasks, timeout=0.01)
            assert agent.gate is not None
            agent.gate.set()
            assert await asyncio.gather(*tasks) == [CONTENT[number : number + 3] for number in range(count)]
            assert await reads.read("other", SignedRange("intake/1/2", 0, 1)) == CONTENT[:1]
        assert agent.asked[-1] == ("/api/tail/other/urls", 1)
        path, counts = agent.asked[0][0], [each for _, each in agent.asked[:-1]]
        assert path == "/api/tail/a%20b/urls"
        assert sum(counts) == count
        assert max(counts) == HTTP_TAIL_URLS_MAX
        assert len(counts) <= 3


async def test_a_cancelled_read_leaves_the_others_going_on() -> None:
    with canned_agent(store) as server:
        agent = SigningAgent(server.url, gate=asyncio.Event())
        async with reads_of(agent) as reads:
            first, second = [
                asyncio.ensure_future(reads.read("t", SignedRange("intake/1/2", number, 1))) for number in range(2)
            ]
            await asyncio.wait([first, second], timeout=0.01)
            first.cancel()
            assert agent.gate is not None
            agent.gate.set()
            assert await second == CONTENT[1:2]


async def test_an_agent_that_signs_none_is_not_asked_again_for_a_while() -> None:
    agent = SigningAgent("http://unused", answers=[None])
    wanted = SignedRange("intake/1/2", 0, 1)
    async with reads_of(agent) as reads:
        for _ in range(2):
            with pytest.raises(NotSigned):
                await reads.read("t", wanted)
        assert len(agent.asked) == 1
        agent.now_s += SPARK_NO_KEYS_SECONDS
        agent.answers = [None]
        with pytest.raises(NotSigned):
            await reads.read("t", wanted)
        assert len(agent.asked) == 2


@pytest.mark.parametrize(
    ("answer", "kind"),
    [([None], ObjectMissing), ([], StoreMisconfigured), ("x", StoreMisconfigured), (StoreDenied("no"), StoreDenied)],
)
async def test_an_agent_that_rejects_ends_the_read(answer: object, kind: type[StoreError]) -> None:
    agent = SigningAgent("http://unused", answers=[answer, answer])
    async with reads_of(agent) as reads:
        with pytest.raises(kind):
            await reads.read("t", SignedRange("intake/1/2", 0, 1))


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (CannedAnswer(206, b"xy"), ObjectDamaged, "was cut"),
        (CannedAnswer(416, b"<Error><Code>InvalidRange</Code></Error>"), ObjectDamaged, "was cut"),
        (CannedAnswer(404, b"<Error><Code>NoSuchKey</Code></Error>"), ObjectMissing, "does not exist"),
        (CannedAnswer(404, b"<html>"), StoreDenied, "rejects a URL that the agent signed: 404"),
        (CannedAnswer(403, b"<Error><Code>AccessDenied</Code></Error>"), StoreDenied, r"403 AccessDenied; .*\(NTP\)"),
        (CannedAnswer(200, CONTENT), StoreDenied, "200"),
        (CannedAnswer(503, b"<Error><Code>SlowDown</Code></Error>"), StoreUnavailable, "503 SlowDown"),
        (CannedAnswer(0), StoreUnavailable, "--catalog-s3-endpoint"),
    ],
)
async def test_a_rejection_of_the_store_says_what_to_do(
    answer: CannedAnswer, kind: type[StoreError], text: str
) -> None:
    with canned_agent(lambda _: answer) as server:
        async with reads_of(SigningAgent(server.url)) as reads:
            with pytest.raises(kind, match=text) as caught:
                await reads.read("t", SignedRange("intake/1/2", 0, 1))
            assert SIGNATURE not in str(caught.value)


async def test_a_url_that_waited_too_long_is_signed_again() -> None:
    answers = [CannedAnswer(403, b"<Error><Code>AccessDenied</Code></Error>"), CannedAnswer(206, b"x")]
    with canned_agent(lambda _: answers.pop(0)) as server:
        agent = SigningAgent(server.url)
        async with reads_of(agent) as reads:
            assert await reads.read("t", SignedRange("intake/1/2", 0, 1)) == b"x"
        assert len(agent.asked) == 2
