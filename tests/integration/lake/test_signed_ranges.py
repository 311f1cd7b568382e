"""The check of signed ranges: MinIO holds to them, and stores that do not are found."""

from collections.abc import Callable
from itertools import count
from urllib.parse import parse_qs, urlsplit

import pytest

from agent.bucket.signed_range_check import BYTE_COUNT, BYTE_FIRST, CONTENT, signed_range_faults
from agent.config.settings import CliCommand, load_settings
from agent.http.tail_urls import TailUrls, tail_urls
from agent.runtime.clock import SystemClock
from storage.memory_store import MemoryStore
from storage.object_store import StoreUnavailable
from storage.s3.range_signer import RangeSigner
from storage.s3.settings import S3Settings
from storage.s3.store import S3Store
from tests.support.services.canned_agent import CannedAgent, CannedAnswer, CannedRequest, canned_agent
from tests.support.services.local_services import Minio

OWN = f"bytes={BYTE_FIRST}-{BYTE_FIRST + BYTE_COUNT - 1}"
PART = CannedAnswer(206, CONTENT[BYTE_FIRST : BYTE_FIRST + BYTE_COUNT])
WHOLE = CannedAnswer(200, CONTENT)
DENIED = CannedAnswer(403, b"<Error><Code>AccessDenied</Code></Error>")
numbers = count()


async def test_minio_holds_to_them(minio: Minio) -> None:
    url = f"s3://{minio.make_bucket('signed-ranges')}/a/prefix"
    settings = S3Settings.from_environment(url, minio.settings)
    store = S3Store(settings)
    clock = SystemClock()
    assert await signed_range_faults(RangeSigner(settings), store, now_ms=clock.now_ms(), agent_name="a1") == []
    urls = TailUrls(RangeSigner(settings), clock)
    await urls.check(store, "a1")
    assert urls.is_usable
    assert [meta.key async for meta in store.list("checks/")] == []


def strict(request: CannedRequest) -> CannedAnswer:
    return PART if request.headers.get("range") == OWN and not is_late(request) else DENIED


def is_late(request: CannedRequest) -> bool:
    """Whether the request is the second URL's, which is signed for the past."""
    return parse_qs(urlsplit(request.target).query)["X-Amz-Date"] == ["20231114T215320Z"]


def ignores_headers(request: CannedRequest) -> CannedAnswer:
    return DENIED if is_late(request) else PART if request.headers.get("range") == OWN else WHOLE


def ignores_time(request: CannedRequest) -> CannedAnswer:
    return PART if request.headers.get("range") == OWN else DENIED


def without_ranges(request: CannedRequest) -> CannedAnswer:
    return strict(request)._replace(status=200, body=CONTENT) if strict(request) is PART else DENIED


@pytest.mark.parametrize(
    ("answer", "faults"),
    [
        (strict, []),
        (
            ignores_headers,
            [
                f"{name} can be read: status 200"
                for name in ("another range", "two ranges", "two ranges the other way round", "no range")
            ],
        ),
        (ignores_time, ["the signed range after its time can be read: status 206"]),
        (without_ranges, ["the signed range cannot be read: status 200"]),
        (lambda _: DENIED, ["the signed range cannot be read: status 403"]),
    ],
)
async def test_a_store_that_does_not_is_found(
    answer: Callable[[CannedRequest], CannedAnswer], faults: list[str]
) -> None:
    with canned_agent(answer) as server:
        assert await faults_of(server) == faults


async def faults_of(server: CannedAgent) -> list[str]:
    settings = S3Settings(
        bucket="b", endpoint=server.url, access_key_id="k", secret_access_key="s", is_http_allowed=True
    )
    return await signed_range_faults(
        RangeSigner(settings), MemoryStore(), now_ms=1_700_000_000_000, agent_name=f"a{next(numbers)}"
    )


async def test_a_store_that_does_not_answer_proves_nothing() -> None:
    with canned_agent(lambda _: CannedAnswer(503)) as server, pytest.raises(StoreUnavailable, match="answers 503"):
        await faults_of(server)
    with pytest.raises(StoreUnavailable, match="the check of signed ranges"):
        await faults_of(server)


@pytest.mark.parametrize(
    ("options", "is_tried"),
    [
        ({"store": "s3://bucket/p"}, True),
        ({"store": "s3://bucket/p", "catalog-s3-endpoint": "https://for-readers:9000"}, True),
        ({"store": "memory:"}, False),
    ],
)
async def test_urls_are_those_of_readers(options: dict[str, str], *, is_tried: bool) -> None:
    environment = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "eu-1"}
    authorizer = ["authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:a"]
    settings = load_settings(
        CliCommand.AGENT, {"ledger": "memory:", **options, "set": authorizer}, environment=environment
    )
    urls = tail_urls(settings, SystemClock(), environment)
    assert (urls is not None) == is_tried
    if urls is not None:
        host = "for-readers:9000" if "catalog-s3-endpoint" in options else "s3.eu-1.amazonaws.com"
        assert urlsplit(await urls.sign("intake/1/2", 0, 1)).netloc == host
    without = load_settings(CliCommand.AGENT, {"ledger": "memory:", **options}, environment=environment)
    assert tail_urls(without, SystemClock(), environment) is None
