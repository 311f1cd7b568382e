"""The proxy of the torture run does to links what it says."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import BaseError
from obstore.store import S3Store

from tests.support.services.local_services import Minio
from tests.torture.link import DIRECTIONS, Link, LinkFault
from tests.torture.proxy_control import ProxyControl
from tests.torture.store_link import StoreFault

SECONDS_MAX = 20.0
MANY_BYTES = bytes(range(256)) * 4_000


@dataclass(slots=True)
class Ends:
    """Both ends of one connection through a link."""

    link: Link
    client_reader: asyncio.StreamReader
    client: asyncio.StreamWriter
    server_reader: asyncio.StreamReader
    server: asyncio.StreamWriter

    def say(self, direction: str, data: bytes) -> None:
        (self.client if direction == "to" else self.server).write(data)

    async def hear(self, direction: str, count: int) -> bytes:
        async with asyncio.timeout(SECONDS_MAX):
            return await (self.server_reader if direction == "to" else self.client_reader).readexactly(count)

    async def hear_all(self, direction: str) -> bytes:
        async with asyncio.timeout(SECONDS_MAX):
            return await (self.server_reader if direction == "to" else self.client_reader).read()


@asynccontextmanager
async def connected(fault: LinkFault | None = None) -> AsyncIterator[Ends]:
    accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await accepted.put((reader, writer))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as upstream:
        link = Link(upstream.sockets[0].getsockname()[1], random.Random(1), fault)
        client_reader, client = await asyncio.open_connection("127.0.0.1", await link.open())
        async with asyncio.timeout(SECONDS_MAX):
            server_reader, server = await accepted.get()
        yield Ends(link, client_reader, client, server_reader, server)
        client.close()
        server.close()
        await link.close()


@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_a_link_without_fault_passes_everything(direction: str) -> None:
    async with connected() as ends:
        ends.say(direction, MANY_BYTES)
        assert await ends.hear(direction, len(MANY_BYTES)) == MANY_BYTES


@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_an_end_is_passed_on_and_the_other_direction_stays(direction: str) -> None:
    other = "from" if direction == "to" else "to"
    async with connected() as ends:
        (ends.client if direction == "to" else ends.server).write_eof()
        assert await ends.hear_all(direction) == b""
        ends.say(other, b"still here")
        assert await ends.hear(other, 10) == b"still here"


async def test_latency_delays() -> None:
    async with connected(LinkFault(kind="latency", ms=200, jitter_ms=50)) as ends:
        began_s = time.monotonic()
        ends.say("to", b"late")
        assert await ends.hear("to", 4) == b"late"
        assert time.monotonic() - began_s >= 0.2


@pytest.mark.parametrize(("direction", "other"), [("to", "from"), ("from", "to")])
async def test_a_black_hole_holds_one_direction_until_it_ends(direction: str, other: str) -> None:
    async with connected() as ends:
        ends.link.set(LinkFault(kind="hole", directions=(direction,)))
        ends.say(direction, b"held")
        ends.say(other, b"passes")
        assert await ends.hear(other, 6) == b"passes"
        ends.link.set(LinkFault(kind="hole", directions=(direction,)))  # a fault in place of another changes nothing
        ends.say(other, b"passes")
        assert await ends.hear(other, 6) == b"passes"
        receiver = ends.server_reader if direction == "to" else ends.client_reader
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await receiver.read(1)
        ends.link.set(None)
        assert await ends.hear(direction, 4) == b"held"


async def test_a_reset_ends_what_is_there_and_what_comes() -> None:
    async with connected() as ends:
        ends.link.set(LinkFault(kind="reset", bytes_max=10))
        with pytest.raises(ConnectionResetError):
            await ends.hear_all("from")
    async with connected(LinkFault(kind="reset", bytes_max=10)) as ends:
        ends.say("to", b"x" * 1_000)
        with pytest.raises(ConnectionResetError):
            await ends.hear_all("from")


async def test_a_cut_ends_an_answer_in_its_middle() -> None:
    async with connected(LinkFault(kind="cut", bytes_max=900)) as ends:
        ends.say("to", b"q" * 2_000)
        assert await ends.hear("to", 2_000) == b"q" * 2_000
        ends.say("from", b"a" * 1_000)
        heard = await ends.hear_all("from")
        assert len(heard) <= 900
        assert heard == b"a" * len(heard)


async def test_a_half_closed_link_still_brings_answers() -> None:
    async with connected() as ends:
        ends.link.set(LinkFault(kind="half_close"))
        ends.say("to", b"unheard")
        assert await ends.hear_all("to") == b""
        ends.say("from", b"answer")
        assert await ends.hear("from", 6) == b"answer"


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[ProxyControl]:
    with ProxyControl(tmp_path, seed=1) as control:
        yield control


@dataclass(slots=True)
class LinkedBucket:
    """One bucket, straight and through a link whose requests are read."""

    proxy: ProxyControl
    straight: S3Store
    linked: S3Store

    def strike(self, *faults: StoreFault) -> None:
        self.proxy.set_store("s", dict.fromkeys(faults, 1.0))


@pytest.fixture
def bucket(proxy: ProxyControl, minio: Minio, tmp_path: Path) -> LinkedBucket:
    name = minio.make_bucket(tmp_path.name.replace("_", "-").lower())
    port = proxy.open("s", int(minio.endpoint.rpartition(":")[2]), is_store=True)

    def store(endpoint: str) -> S3Store:
        return S3Store(
            name,
            endpoint=endpoint,
            access_key_id=minio.access_key,
            secret_access_key=minio.secret_key,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )

    return LinkedBucket(proxy, store(minio.endpoint), store(f"http://127.0.0.1:{port}"))


def keys(store: S3Store) -> list[str]:
    return [found["path"] for page in obstore.list(store) for found in page]


def test_a_store_link_without_fault_passes_everything(bucket: LinkedBucket) -> None:
    obstore.put(bucket.linked, "large", MANY_BYTES, use_multipart=False)
    assert obstore.get(bucket.linked, "large").bytes() == MANY_BYTES
    assert obstore.get_range(bucket.linked, "large", start=1, length=3) == MANY_BYTES[1:4]
    assert obstore.head(bucket.linked, "large")["size"] == len(MANY_BYTES)
    assert keys(bucket.linked) == ["large"]
    obstore.delete(bucket.linked, ["large"])
    assert keys(bucket.linked) == []


@pytest.mark.parametrize("fault", [StoreFault.SLOW_DOWN, StoreFault.REFUSED_500])
def test_a_refused_put_is_not_there(bucket: LinkedBucket, fault: StoreFault) -> None:
    bucket.strike(fault)
    with pytest.raises(BaseError, match="503" if fault is StoreFault.SLOW_DOWN else "500"):
        obstore.put(bucket.linked, "k", b"v", use_multipart=False)
    assert keys(bucket.straight) == []
    assert bucket.proxy.counts() == {"s": {fault.value: 1}}


@pytest.mark.parametrize("fault", [StoreFault.APPLIED_500, StoreFault.APPLIED_RESET])
def test_a_put_that_failed_may_be_there(bucket: LinkedBucket, fault: StoreFault) -> None:
    bucket.strike(fault)
    with pytest.raises(BaseError):
        obstore.put(bucket.linked, "k", b"v", use_multipart=False)
    assert keys(bucket.straight) == ["k"]


def test_a_get_is_truncated(bucket: LinkedBucket) -> None:
    obstore.put(bucket.straight, "k", MANY_BYTES)
    bucket.strike(StoreFault.TRUNCATED_GET)
    with pytest.raises(BaseError):
        obstore.get(bucket.linked, "k").bytes()


def test_a_slow_body_comes_whole(bucket: LinkedBucket) -> None:
    obstore.put(bucket.straight, "k", MANY_BYTES)
    bucket.strike(StoreFault.SLOW_BODY)
    assert obstore.get(bucket.linked, "k").bytes() == MANY_BYTES


def test_a_key_is_missing_at_first(bucket: LinkedBucket) -> None:
    obstore.put(bucket.straight, "k", b"v")
    bucket.strike(StoreFault.MISSING_FIRST)
    with pytest.raises(FileNotFoundError):
        obstore.get(bucket.linked, "k")
    assert obstore.get(bucket.linked, "k").bytes() == b"v"


def test_a_list_is_stale(bucket: LinkedBucket) -> None:
    obstore.put(bucket.straight, "first", b"")
    assert keys(bucket.linked) == ["first"]
    obstore.put(bucket.straight, "second", b"")
    bucket.strike(StoreFault.STALE_LIST)
    assert keys(bucket.linked) == ["first"]
    bucket.strike()
    assert keys(bucket.linked) == ["first", "second"]


def test_the_proxy_ends_with_its_control_connection(tmp_path: Path) -> None:
    with ProxyControl(tmp_path, seed=1) as control:
        assert control.process.is_running
        control.hang_up()
        assert control.process.wait_ended() == 0
