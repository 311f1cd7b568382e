"""A reader of one topic gets its part of the tail manifest, and the bytes of that topic alone."""

import json
from dataclasses import replace
from urllib.parse import urlencode

import pytest

from agent.config.http_auth import HttpAccess, HttpTokens
from agent.http.tail import ObjectRange, TailReads, Throttled
from agent.http.tail_urls import TailUrls
from agent.runtime.metrics import Metrics
from agent.security.quotas.quotas import Quotas
from coordinator.state.state import TableState
from iceberg_export.tail.manifest import decode_manifest
from protocol.auth.operations import Operation
from protocol.auth.principals import read_principal
from protocol.limits import HTTP_TAIL_FOOTERS_MAX, HTTP_TAIL_RANGE_BYTES_MAX
from protocol.types import ObjectNumber, PartitionIndex, SessionId, TopicId
from storage.chunk_format import TAIL_BYTES_HINT, ChunkParts, encode_object
from storage.s3.range_signer import RangeSigner
from storage.s3.settings import S3Settings
from tests.support.agent.asgi_client import Answer, AsgiClient
from tests.support.agent.http_app import http_app, on_topic, rights_by
from tests.support.agent.ledger_parts import ManualClock
from tests.support.agent.small_agent import TOPIC_ID, SmallAgent

TOKEN = "0123456789abcdef"
ALICE = read_principal("User:alice")
OTHER_ID = TopicId(bytes(15) + b"\x09")
KEY = "intake/0000000000000001/0000000000000002"
FOLDER = f"lake/orders-{TOPIC_ID.hex()}/"
PAYLOADS = [(TOPIC_ID, b"first of orders"), (TOPIC_ID, b"more"), (OTHER_ID, b"of another"), (TOPIC_ID, b"last")]
"""The chunks of the object, one after the other, behind a header."""


def chunk_parts(payloads: list[tuple[TopicId, bytes]]) -> list[ChunkParts]:
    return [
        ChunkParts(topic_id=topic_id, partition=PartitionIndex(number), parts=[payload])
        for number, (topic_id, payload) in enumerate(payloads)
    ]


SETTINGS = S3Settings(bucket="b", endpoint="http://store", access_key_id="k", secret_access_key="the secret")


class Reader:
    """Asks as alice, with a right on the topic."""

    def __init__(self, *operations: Operation) -> None:
        self.agent = SmallAgent()
        self.agent.state.topics[TOPIC_ID].table = TableState(
            metadata_key=f"{FOLDER}metadata/1.metadata.json", version=1, objects=set()
        )
        access = HttpAccess(tokens=HttpTokens.of(TOKEN, principal=ALICE))
        rights = rights_by({ALICE: on_topic("orders", *operations)})
        self.urls = TailUrls(RangeSigner(SETTINGS), ManualClock())
        self.agent.services = replace(self.agent.services, tail_urls=self.urls)
        self.client = AsgiClient(app=http_app(self.agent, access=access, rights=rights))
        encoded = encode_object(SessionId(1), ObjectNumber(2), chunk_parts(PAYLOADS))
        self.object = b"".join(bytes(part) for part in encoded.parts)
        self.firsts = encoded.byte_firsts

    async def __call__(self, path: str = "", **query: str | int) -> Answer:
        url = f"/api/tail/orders{path}" + (f"?{urlencode(query)}" if query else "")
        return await self.client("GET", url, headers={"authorization": f"Bearer {TOKEN}"})

    async def bytes_of(self, key: str, first: int, count: int) -> tuple[int, bytes]:
        answer = await self("/bytes", key=key, first=first, count=count)
        return answer.status, answer.body if answer.status == 200 else b""


@pytest.fixture
async def reader() -> Reader:
    reader = Reader(Operation.READ)
    await reader.agent.store.put(KEY, [reader.object])
    for key in (f"{FOLDER}data/1-1.parquet", f"lake/orders-{OTHER_ID.hex()}/data/1-1.parquet", "ledger/tail/current"):
        await reader.agent.store.put(key, [key.encode()])
    return reader


async def test_the_manifest_has_the_topic_alone(reader: Reader) -> None:
    manifest = decode_manifest((await reader()).body)
    assert [topic.name for topic in manifest.topics] == ["orders"]
    assert (manifest.cluster_id, manifest.position) == ("cluster", 12)
    chunks = manifest.topics[0].partitions[0].chunks
    assert [(chunk.offset_first, chunk.offset_end, chunk.object_key) for chunk in chunks] == [(10, 15, "intake/1/0")]


async def test_chunks_of_the_topic_are_read_one_by_one_or_together(reader: Reader) -> None:
    first, second, _, last = reader.firsts
    assert await reader.bytes_of(KEY, first, 15) == (200, b"first of orders")
    assert await reader.bytes_of(KEY, first + 6, 2) == (200, b"of")
    assert await reader.bytes_of(KEY, first, 19) == (200, b"first of ordersmore")
    assert await reader.bytes_of(KEY, second + 1, 3) == (200, b"ore")
    assert await reader.bytes_of(KEY, last, 4) == (200, b"last")


async def test_no_byte_of_another_topic_is(reader: Reader) -> None:
    first, second, other, last = reader.firsts
    end = len(reader.object)
    for byte_first, count in (
        (other, 10), (other, 1), (second, 5), (other - 1, 2), (last - 1, 2), (first, last + 4 - first),
        (last, 5), (last + 4, 1), (0, 1), (0, end), (first - 1, 2), (end - 1, 1), (end, 1), (first, 1 << 20),
        (0, 0), (first, 0), (end, 0),
    ):  # fmt: skip
        assert await reader.bytes_of(KEY, byte_first, count) == (404, b""), (byte_first, count)
    assert (await reader("/bytes", key=KEY)).status == 404, "the whole object"


async def test_archived_files_of_the_topics_table_are_read_whole_or_in_parts(reader: Reader) -> None:
    key = f"{FOLDER}data/1-1.parquet"
    assert (await reader("/bytes", key=key)).body == key.encode()
    assert await reader.bytes_of(key, 5, 6) == (200, b"orders")


@pytest.mark.parametrize(
    "key",
    [
        f"lake/orders-{OTHER_ID.hex()}/data/1-1.parquet",
        "ledger/tail/current",
        f"{FOLDER}../orders-{OTHER_ID.hex()}/data/1-1.parquet",
        f"{FOLDER}none.parquet",
        "intake/none",
        "cluster.json",
        "/etc/passwd",
        "intake/../ledger/tail/current",
    ],
)
async def test_nothing_else_of_the_bucket_is(reader: Reader, key: str) -> None:
    """Whether or not there is such an object."""
    answer = await reader("/bytes", key=key)
    assert answer.status == 404
    assert answer.body == (await reader("/bytes", key=f"{FOLDER}nothing")).body
    assert await reader.bytes_of(key, 0, 3) == (404, b"")


async def test_it_needs_to_be_read_and_not_only_known() -> None:
    assert (await Reader(Operation.DESCRIBE)()).status == 403
    assert (await Reader(Operation.DESCRIBE)("/bytes", key=KEY, first=8, count=1)).status == 403


async def test_large_ranges_are_read_in_parts(reader: Reader) -> None:
    key = f"{FOLDER}data/large.parquet"
    await reader.agent.store.put(key, [bytes(HTTP_TAIL_RANGE_BYTES_MAX + 1)])
    assert (await reader("/bytes", key=key)).status == 413
    assert (await reader.bytes_of(key, 0, HTTP_TAIL_RANGE_BYTES_MAX + 1))[0] == 413
    assert len((await reader.bytes_of(key, 1, HTTP_TAIL_RANGE_BYTES_MAX))[1]) == HTTP_TAIL_RANGE_BYTES_MAX


async def test_an_object_that_is_damaged_is_told_as_such(reader: Reader) -> None:
    await reader.agent.store.put(KEY, [bytes(100)])
    assert (await reader("/bytes", key=KEY, first=8, count=1)).status == 422


async def test_footers_are_kept_up_to_a_limit_and_long_ones_are_read_whole(reader: Reader) -> None:
    many = [(TOPIC_ID, b"x")] * (TAIL_BYTES_HINT // 16)
    encoded = encode_object(SessionId(1), ObjectNumber(3), chunk_parts(many))
    await reader.agent.store.put("intake/1/3", [b"".join(bytes(part) for part in encoded.parts)])
    assert await reader.bytes_of("intake/1/3", encoded.byte_firsts[-1], 1) == (200, b"x")
    reads = TailReads(reader.agent.services)
    topic = reader.agent.state.topics[TOPIC_ID]
    for number in range(HTTP_TAIL_FOOTERS_MAX + 1):
        await reader.agent.store.put(f"intake/2/{number}", [reader.object])
        wanted = ObjectRange(key=f"intake/2/{number}", byte_first=reader.firsts[0], byte_count=5)
        assert await reads.read("alice", topic, wanted) == b"first"
    await reader.agent.store.delete(["intake/2/1", "intake/2/0"])


async def test_bytes_are_counted_against_the_fetch_quota(reader: Reader) -> None:
    agent, clock = reader.agent, ManualClock()
    quotas = Quotas(state=lambda: agent.state, broker_configs={}, clock=clock, metrics=Metrics())
    reads = TailReads(replace(agent.services, quotas=quotas, clock=clock))
    topic = agent.state.topics[TOPIC_ID]
    wanted = ObjectRange(key=KEY, byte_first=reader.firsts[0], byte_count=15)
    agent.state.client_quotas = {(("user", "alice"),): {"consumer_byte_rate": 1.0}}
    assert await reads.read("alice", topic, wanted) == b"first of orders"
    with pytest.raises(Throttled, match="fetch quota is used up for"):
        await reads.read("alice", topic, wanted)
    assert await reads.read("bob", topic, wanted) == b"first of orders"
    clock.seconds += 60
    assert await reads.read("alice", topic, wanted) == b"first of orders"


async def test_a_topic_that_is_deleted_meanwhile_is_left_out(reader: Reader) -> None:
    reads = TailReads(reader.agent.services)
    del reader.agent.state.topics[TOPIC_ID]
    assert decode_manifest(await reads.manifest((TOPIC_ID,))).topics == ()


class TestSeveralTopics:
    async def asked(self, reader: Reader, body: object, token: str = TOKEN) -> Answer:
        headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}
        return await reader.client("POST", "/api/tail", json.dumps(body).encode(), headers=headers)

    async def test_those_that_may_not_be_described_are_left_out_as_those_that_do_not_exist(
        self, reader: Reader
    ) -> None:
        names = ["orders", "none", "of-another", "orders"]
        manifest = decode_manifest((await self.asked(reader, {"topics": names})).body)
        assert [topic.name for topic in manifest.topics] == ["orders"]
        assert (manifest.cluster_id, manifest.position) == ("cluster", 12)
        assert decode_manifest((await self.asked(reader, {"topics": []})).body).topics == ()

    async def test_one_that_may_be_described_alone_is_an_error(self) -> None:
        answer = await self.asked(Reader(Operation.DESCRIBE), {"topics": ["none", "orders"]})
        assert answer.status == 403
        assert b"READ on topic orders" in answer.body

    async def test_a_request_without_a_login_asks_for_one(self, reader: Reader) -> None:
        assert (await self.asked(reader, {"topics": ["orders"]}, token="")).status == 401

    @pytest.mark.parametrize("body", [{}, {"topics": "orders"}, {"topics": [1]}, []])
    async def test_a_body_of_another_form_is_rejected(self, reader: Reader, body: object) -> None:
        assert (await self.asked(reader, body)).status == 400


class TestSignedUrls:
    async def asked(self, reader: Reader, ranges: object) -> Answer:
        headers = {"authorization": f"Bearer {TOKEN}"}
        return await reader.client("POST", "/api/tail/orders/urls", json.dumps({"ranges": ranges}).encode(), headers)

    async def urls(self, reader: Reader, *ranges: tuple[str, int, int]) -> list[str | None]:
        answer = await self.asked(reader, ranges)
        assert answer.status == 200, answer.body
        urls: list[str | None] = json.loads(answer.body)["urls"]
        return urls

    async def test_there_are_none_before_the_store_has_shown_that_it_holds_to_them(self, reader: Reader) -> None:
        answer = await self.asked(reader, [[KEY, reader.firsts[0], 5]])
        assert (answer.status, json.loads(answer.body)) == (200, {"urls": None})

    async def test_bytes_of_the_topic_have_a_url_and_no_others(self, reader: Reader) -> None:
        reader.urls.is_usable = True
        first, _, other, last = reader.firsts
        mine, both, others, past, missing, file, no_key = await self.urls(
            reader,
            (KEY, first, 15),
            (KEY, first, 19),
            (KEY, other, 10),
            (KEY, last, 5),
            ("intake/none", 8, 1),
            (f"{FOLDER}data/1-1.parquet", 0, 4),
            (f"intake/../{KEY}", first, 1),
        )
        assert mine is not None
        assert mine.startswith(f"http://store/b/{KEY}?X-Amz-Algorithm=AWS4-HMAC-SHA256&")
        assert "X-Amz-Expires=300&X-Amz-SignedHeaders=host%3Brange&" in mine
        assert both is not None
        assert mine.rpartition("=")[2] != both.rpartition("=")[2]
        assert (others, past, missing, file, no_key) == (None,) * 5

    async def test_it_needs_to_be_read_and_not_only_known(self) -> None:
        denied = Reader(Operation.DESCRIBE)
        denied.urls.is_usable = True
        assert (await self.asked(denied, [[KEY, 8, 1]])).status == 403

    @pytest.mark.parametrize(
        "ranges",
        [None, "x", [[KEY, 0]], [[KEY, -1, 1]], [[KEY, 0, 0]], [[KEY, 0, 1 << 60]], [[1, 0, 1]], [[KEY, 0, 1]] * 101],
    )
    async def test_ranges_of_another_form_are_rejected(self, reader: Reader, ranges: object) -> None:
        reader.urls.is_usable = True
        assert (await self.asked(reader, ranges)).status == 400

    async def test_signed_bytes_are_counted_against_the_fetch_quota(self, reader: Reader) -> None:
        agent, clock = reader.agent, ManualClock()
        quotas = Quotas(state=lambda: agent.state, broker_configs={}, clock=clock, metrics=Metrics())
        agent.state.client_quotas = {(("user", "alice"),): {"consumer_byte_rate": 1.0}}
        reads = TailReads(replace(agent.services, quotas=quotas, clock=clock))
        topic, part = agent.state.topics[TOPIC_ID], ObjectRange(key=KEY, byte_first=reader.firsts[0], byte_count=15)
        assert None not in await reads.signed("alice", topic, [part], reader.urls)
        with pytest.raises(Throttled):
            await reads.signed("alice", topic, [part], reader.urls)
        with pytest.raises(Throttled):
            await reads.read("alice", topic, part)
