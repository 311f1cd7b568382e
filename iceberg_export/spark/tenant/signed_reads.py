"""Reads of a topic's chunks from the store itself, by URLs that an agent has signed for one range of bytes each.

Rule: ranges that wait while a request for URLs is in flight share the next one. A URL is used at once, and neither kept
nor shown: for some minutes it reads the bytes. Where the agent signs none, the caller reads through the agent.
Source: `agent.http.tail_routes`; Amazon S3 API Reference, "GetObject", "Error responses".
"""

import asyncio
import json
import math
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.client import HTTPException
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

from iceberg_export.spark.tenant.client import AgentClient
from iceberg_export.spark.tenant.connections import HttpConnections, retried, trusted
from protocol.limits import HTTP_TAIL_URLS_MAX, SPARK_AGENT_REQUESTS_MAX, SPARK_NO_KEYS_SECONDS
from storage.decorators.retrying import RetryPolicy, RetryPorts
from storage.object_store import (
    ObjectMissing,
    StoreDenied,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    cut_short,
)
from storage.s3.signed_ranges import range_header

_CODE: Final = re.compile(rb"<Code>(\w+)</Code>")


class SignedRange(NamedTuple):
    """Bytes of an intake object."""

    key: str
    byte_first: int
    byte_count: int


@dataclass(slots=True, kw_only=True)
class _WaitingTopic:
    """The ranges of a topic that wait for URLs."""

    name: str
    asking: asyncio.Lock
    waiting: "list[tuple[SignedRange, asyncio.Future[str | None]]]"


class NotSigned(Exception):
    """The agent signs no URLs: read through it."""


class SignedReads:
    """The reads of one tenant. For one event loop."""

    def __init__(self, client: AgentClient, ports: RetryPorts, store_ca_file: str) -> None:
        self._client = client
        self._ports = ports
        self._policy = RetryPolicy()
        self._store_ca_file = store_ca_file
        self._topics: dict[str, _WaitingTopic] = {}
        self._unsigned_until_s = -math.inf
        """Until then the agent is not asked: it signed none lately."""
        self._threads = ThreadPoolExecutor(SPARK_AGENT_REQUESTS_MAX, thread_name_prefix="penstock-store")
        self._stores: dict[str, HttpConnections] = {}

    async def read(self, topic: str, part: SignedRange) -> bytes:
        """The bytes. Raises `StoreError`, and `NotSigned` where the agent signs no URLs."""
        if self._ports.monotonic_s() < self._unsigned_until_s:
            raise NotSigned
        return await retried(partial(self._read, topic, part), self._policy, self._ports)

    def close(self) -> None:
        """Close the connections. Requests in flight end first."""
        self._threads.shutdown()
        for connections in self._stores.values():
            connections.close()

    async def _read(self, topic: str, part: SignedRange) -> bytes:
        try:
            return await self._from_store(await self._url(topic, part), part)
        except StoreDenied:
            pass  # it waited too long for its turn: a new URL shows whether it is that
        return await self._from_store(await self._url(topic, part), part)

    async def _url(self, topic: str, part: SignedRange) -> str:
        pending = self._topics.setdefault(topic, _WaitingTopic(name=topic, asking=asyncio.Lock(), waiting=[]))
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        pending.waiting.append((part, answer))
        async with pending.asking:
            if not answer.done():
                await self._ask(pending)
        url = await answer
        if url is None:
            raise ObjectMissing(f"there are no bytes {part.byte_first}+{part.byte_count} of {part.key} of {topic}")
        return url

    async def _ask(self, topic: _WaitingTopic) -> None:
        """Ask for the URLs of all ranges that wait, some at a time."""
        while topic.waiting:
            asked = topic.waiting[:HTTP_TAIL_URLS_MAX]
            del topic.waiting[:HTTP_TAIL_URLS_MAX]
            try:
                urls = await self._urls(topic.name, [part for part, _ in asked])
            except (StoreError, NotSigned) as error:
                for _, answer in asked:
                    if not answer.done():
                        answer.set_exception(error)
            except asyncio.CancelledError:
                topic.waiting[:0] = asked  # another of them asks again
                raise
            else:
                for (_, answer), url in zip(asked, urls, strict=True):
                    if not answer.done():
                        answer.set_result(url)

    async def _urls(self, topic: str, ranges: list[SignedRange]) -> list[str | None]:
        body = json.dumps({"ranges": ranges}).encode()
        match (await self._client.post(f"/api/tail/{quote(topic, safe='')}/urls", body)).json().get("urls"):
            case None:
                self._unsigned_until_s = self._ports.monotonic_s() + SPARK_NO_KEYS_SECONDS
                raise NotSigned
            case list(urls) if len(urls) == len(ranges):
                return [url if isinstance(url, str) else None for url in urls]
            case _:
                raise StoreMisconfigured(f"{self._client.url} signs no URLs that this program knows")

    async def _from_store(self, url: str, part: SignedRange) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(self._get, url, part))

    def _get(self, url: str, part: SignedRange) -> bytes:
        """The bytes from the store, in a thread. No message has the URL."""
        address = urlsplit(url)
        origin = f"{address.scheme}://{address.netloc}"
        try:
            response = self._connections(origin).ask(
                "GET",
                f"{address.path}?{address.query}",
                None,
                {"Range": range_header(part.byte_first, part.byte_count)},
            )
        except (OSError, HTTPException) as error:
            raise StoreUnavailable(
                f"the store at {origin} does not answer this machine: {error}; the agents name the address for readers "
                "with --catalog-s3-endpoint, and AWS_CA_BUNDLE names the authority of its certificate"
            ) from error
        match_of_code = _CODE.search(response.body)
        code = match_of_code[1].decode() if match_of_code else ""
        match response.status:
            case HTTPStatus.PARTIAL_CONTENT:
                if len(response.body) != part.byte_count:
                    raise cut_short(part.key, len(response.body), part.byte_first, part.byte_count)
                return response.body
            case HTTPStatus.NOT_FOUND if code == "NoSuchKey":
                raise ObjectMissing(f"{part.key} does not exist")
            case HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise cut_short(part.key, 0, part.byte_first, part.byte_count)
            case status if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise StoreUnavailable(f"the store at {origin} answers {status} {code}")
            case status:
                raise StoreDenied(
                    f"the store at {origin} rejects a URL that the agent signed: {status} {code}; is the agents' clock "
                    "right (NTP), and is no proxy between that changes requests?"
                )

    def _connections(self, origin: str) -> HttpConnections:
        if origin not in self._stores:
            tls = trusted(self._store_ca_file, "AWS_CA_BUNDLE") if origin.startswith("https:") else None
            self._stores[origin] = HttpConnections(origin, tls)
        return self._stores[origin]
