"""Vended keys are renewed in time, used while the agent is away, and never used once a renewal is denied."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from iceberg_export.spark.tenant.client import AgentClient, AgentResponse
from iceberg_export.spark.tenant.vended_folders import VendedFolders
from protocol.limits import SPARK_KEYS_SECONDS_UNKNOWN, SPARK_NO_KEYS_SECONDS
from storage.memory_store import MemoryStore
from storage.object_store import ObjectStore, StoreDenied, StoreError, StoreMisconfigured, StoreUnavailable

FOLDER = "lake/orders-00000000000000000000000000000001/"
DATE_MS = 1_700_000_000_000


def keys(number: int, seconds: int | None = 3_600, others: Mapping[str, str] | None = None) -> dict[str, object]:
    config = {
        "s3.access-key-id": f"key-{number}",
        "s3.secret-access-key": "s",
        "s3.session-token": "t",
        **(others or {}),
    }
    if seconds is not None:
        config["s3.session-token-expires-at-ms"] = str(DATE_MS + seconds * 1000)
    return {"prefix": f"s3://bucket/pre/fix/{FOLDER}", "config": {**config, "client.region": "eu-1"}}


@dataclass(slots=True)
class VendingAgent:
    """Answers requests for keys in turn; the clock stands where `now_s` is."""

    answers: list[object]
    now_s: float = 1_000.0
    paths: list[str] = field(default_factory=list[str])
    opened: list[tuple[str, Mapping[str, str]]] = field(default_factory=list[tuple[str, Mapping[str, str]]])
    date_ms: int | None = DATE_MS

    async def get(self, path: str) -> AgentResponse:
        self.paths.append(path)
        answer = self.answers.pop(0)
        if isinstance(answer, StoreError):
            raise answer
        return AgentResponse(body=json.dumps({"storage-credentials": answer}).encode(), date_ms=self.date_ms)

    @property
    def url(self) -> str:
        return "https://agent:9644"

    def open(self, url: str, variables: Mapping[str, str]) -> ObjectStore:
        self.opened.append((url, variables))
        return MemoryStore()

    def folders(self, store_ca_file: str = "") -> VendedFolders:
        client: AgentClient = self  # type: ignore[assignment]  # it has what is used of it
        return VendedFolders(client, self.open, lambda: self.now_s, store_ca_file)


async def test_a_folder_is_opened_with_its_keys_and_the_stores_address() -> None:
    config = {"s3.endpoint": "http://minio:9000", "s3.force-virtual-addressing": "true", "io-impl": "x"}
    agent = VendingAgent([[keys(1, others=config)]])
    folder = await agent.folders("/ca.pem").folder("a b")
    assert folder is not None
    assert folder.folder == FOLDER
    assert agent.paths == ["/iceberg/v1/namespaces/lake/tables/a%20b/credentials"]
    assert agent.opened == [
        (
            "s3://bucket/pre/fix",
            {
                "AWS_ACCESS_KEY_ID": "key-1",
                "AWS_SECRET_ACCESS_KEY": "s",
                "AWS_SESSION_TOKEN": "t",
                "AWS_REGION": "eu-1",
                "AWS_ENDPOINT_URL": "http://minio:9000",
                "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
                "AWS_ALLOW_HTTP": "true",
                "AWS_CA_BUNDLE": "/ca.pem",
            },
        )
    ]
    assert "key-1" not in repr(folder)


async def test_keys_are_renewed_in_the_last_quarter_of_their_time() -> None:
    agent = VendingAgent([[keys(1)], [keys(2, 100)], [keys(3)]])
    folders = agent.folders()
    first = await folders.folder("orders")
    agent.now_s += 2_699
    assert await folders.folder("orders") is first
    agent.now_s += 1
    second = await folders.folder("orders")
    assert second is not first
    agent.now_s += 76
    assert await folders.folder("orders") is not second
    assert [variables["AWS_ACCESS_KEY_ID"] for _, variables in agent.opened] == ["key-1", "key-2", "key-3"]


async def test_while_the_agent_is_away_keys_are_used_until_they_expire() -> None:
    agent = VendingAgent([[keys(1)], StoreUnavailable("away"), StoreUnavailable("away")])
    folders = agent.folders()
    first = await folders.folder("orders")
    agent.now_s += 3_599
    assert await folders.folder("orders") is first
    agent.now_s += 1
    with pytest.raises(StoreUnavailable):
        await folders.folder("orders")


async def test_a_denied_renewal_is_an_error_at_once() -> None:
    agent = VendingAgent([[keys(1)], StoreDenied("revoked")])
    folders = agent.folders()
    await folders.folder("orders")
    agent.now_s += 2_700
    with pytest.raises(StoreDenied, match="revoked"):
        await folders.folder("orders")


async def test_keys_that_the_store_rejected_are_not_used_again() -> None:
    agent = VendingAgent([[keys(1)], [keys(2)]])
    folders = agent.folders()
    first = await folders.folder("orders")
    assert first is not None
    folders.forget("orders", first)
    second = await folders.folder("orders")
    assert second is not first
    folders.forget("orders", first)
    assert await folders.folder("orders") is second


async def test_an_agent_that_vends_no_keys_is_asked_again_later() -> None:
    agent = VendingAgent([[], [keys(1)]])
    folders = agent.folders()
    assert await folders.folder("orders") is None
    agent.now_s += SPARK_NO_KEYS_SECONDS - 1
    assert await folders.folder("orders") is None
    agent.now_s += 1
    assert await folders.folder("orders") is not None


@pytest.mark.parametrize("is_dated", [True, False])
async def test_keys_of_unknown_time_are_renewed_soon(*, is_dated: bool) -> None:
    agent = VendingAgent([[keys(1, None if is_dated else 3_600)], [keys(2)]], date_ms=DATE_MS if is_dated else None)
    folders = agent.folders()
    first = await folders.folder("orders")
    agent.now_s += SPARK_KEYS_SECONDS_UNKNOWN
    assert await folders.folder("orders") is not first


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [{"prefix": "gs://bucket/lake/a/", "config": {}}],
        [{"prefix": "s3://bucket/elsewhere/", "config": {}}],
        [{"config": {}}],
    ],
)
async def test_an_answer_of_another_form_says_what_to_compare(answer: object) -> None:
    with pytest.raises(StoreMisconfigured):
        await VendingAgent([answer]).folders().folder("orders")
