"""A link to an S3 server that reads the requests, and answers some of them as a bad S3 does.

Rule: what is not chosen for a fault passes unchanged. What an answer says is what an S3 could say; what was applied is
up to the fault.
"""

import asyncio
import random
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from agent.runtime.clock import SystemClock
from tests.torture.link import RESET_AT_CLOSE

BODY_PIECES = 8
REASONS = {404: "Not Found", 500: "Internal Server Error", 503: "Service Unavailable"}


class StoreFault(Enum):
    """What goes wrong with a request; the value is its name on the control connection."""

    SLOW_DOWN = "slow_down"
    """503 SlowDown; nothing was done."""
    REFUSED_500 = "refused_500"
    """500 InternalError; nothing was done."""
    APPLIED_500 = "applied_500"
    """A write was carried out, and answered with 500."""
    APPLIED_RESET = "applied_reset"
    """A write was carried out, and the connection reset in place of an answer."""
    TRUNCATED_GET = "truncated_get"
    """Half of an object, then the connection's end."""
    SLOW_BODY = "slow_body"
    """An object comes in pieces, with pauses."""
    MISSING_FIRST = "missing_first"
    """404 for the first read of a key, the object from then on."""
    STALE_LIST = "stale_list"
    """A list as it was when it was last asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A request or a response. `first` is its first line; `head` all up to the empty line; `body` as it came."""

    first: str
    head: bytes
    body: bytes

    @property
    def method(self) -> str:
        return self.first.split(" ")[0]

    @property
    def target(self) -> str:
        return self.first.split(" ")[1]

    @property
    def is_list(self) -> bool:
        return self.method == "GET" and "list-type=" in self.target

    @property
    def is_read(self) -> bool:
        return self.method in {"GET", "HEAD"} and "?" not in self.target and self.target.count("/") >= 2

    @property
    def is_write(self) -> bool:
        return self.method in {"PUT", "POST", "DELETE"}


@dataclass(slots=True)
class StoreLink:
    """Listens on a port of its own. `faults`: the probability of each."""

    upstream: int
    chance: random.Random
    faults: Mapping[StoreFault, float] = field(default_factory=dict[StoreFault, float])
    struck: dict[str, int] = field(default_factory=dict[str, int])
    """How often each fault struck."""
    _lists: dict[str, Message] = field(default_factory=dict[str, Message])
    _read: set[str] = field(default_factory=set[str])
    _clock: SystemClock = field(default_factory=SystemClock)

    async def open(self) -> int:
        """Begin to listen; returns the port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def set(self, faults: Mapping[StoreFault, float]) -> None:
        self.faults = faults
        self._read.clear()

    async def _serve(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        server: asyncio.StreamWriter | None = None
        try:
            server_reader, server = await asyncio.open_connection("127.0.0.1", self.upstream)
            while True:
                request = await read_message(client_reader, is_bodyless=False)
                if request is None:
                    break
                if not await self._exchange(request, client, server_reader, server):
                    break
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # either side is gone: the other one is told by the end of its connection
        finally:
            for writer in (client, server):
                if writer is not None:
                    writer.close()

    async def _exchange(
        self,
        request: Message,
        client: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        server: asyncio.StreamWriter,
    ) -> bool:
        """One request and its answer; whether the connection goes on."""
        fault = self._choose(request)
        if fault is not None:
            self.struck[fault.value] = self.struck.get(fault.value, 0) + 1
        rejection = self._rejection(request, fault)
        if rejection is not None:
            client.write(rejection)
            await client.drain()
            return True
        server.write(request.head + request.body)
        await server.drain()
        answer = await read_message(server_reader, is_bodyless=request.method == "HEAD")
        if answer is None:
            return False
        if request.is_list and "200" in answer.first:
            stale = self._lists.setdefault(request.target, answer)
            if fault is StoreFault.STALE_LIST:
                answer = stale
            else:
                self._lists[request.target] = answer
        return await self._answer(answer, fault, client)

    def _choose(self, request: Message) -> StoreFault | None:
        for fault, probability in self.faults.items():
            match fault:
                case StoreFault.APPLIED_500 | StoreFault.APPLIED_RESET:
                    is_fit = request.is_write
                case StoreFault.TRUNCATED_GET | StoreFault.SLOW_BODY:
                    is_fit = request.is_read and request.method == "GET"
                case StoreFault.MISSING_FIRST:
                    is_fit = request.is_read and request.target not in self._read
                    self._read.add(request.target)
                case StoreFault.STALE_LIST:
                    is_fit = request.is_list
                case StoreFault.SLOW_DOWN | StoreFault.REFUSED_500:
                    is_fit = True
            if is_fit and self.chance.random() < probability:
                return fault
        return None

    def _rejection(self, request: Message, fault: StoreFault | None) -> bytes | None:
        """An answer without asking the server."""
        match fault:
            case StoreFault.SLOW_DOWN:
                return _error(503, "SlowDown", request)
            case StoreFault.REFUSED_500:
                return _error(500, "InternalError", request)
            case StoreFault.MISSING_FIRST:
                return _error(404, "NoSuchKey", request)
            case _:
                return None

    async def _answer(self, answer: Message, fault: StoreFault | None, client: asyncio.StreamWriter) -> bool:
        match fault:
            case StoreFault.APPLIED_500:
                client.write(_error(500, "InternalError", None))
            case StoreFault.APPLIED_RESET:
                sock: socket.socket = client.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
                client.transport.abort()
                return False
            case StoreFault.TRUNCATED_GET:
                client.write(answer.head + answer.body[: len(answer.body) // 2])
                await client.drain()
                return False
            case StoreFault.SLOW_BODY:
                client.write(answer.head)
                step = max(1, len(answer.body) // BODY_PIECES)
                for first in range(0, len(answer.body), step):
                    await self._clock.sleep(0.1)
                    client.write(answer.body[first : first + step])
            case _:
                client.write(answer.head + answer.body)
        await client.drain()
        return True


async def read_message(reader: asyncio.StreamReader, *, is_bodyless: bool) -> Message | None:
    """The next request or response; None at the connection's end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    first = head.partition(b"\r\n")[0].decode("latin-1")
    if first.startswith("HTTP/") and first.split(" ")[1] == "100":
        return await read_message(reader, is_bodyless=is_bodyless)
    length = re.search(rb"(?im)^content-length:\s*(\d+)", head)
    if is_bodyless or re.match(r"HTTP/\S+ (204|304)", first):
        body = b""
    elif re.search(rb"(?im)^transfer-encoding:\s*chunked", head):
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(length.group(1))) if length else b""
    return Message(first=first, head=head, body=body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    """A chunked body with its frame, as it came."""
    body = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        body += line + await reader.readexactly(size + 2)
        if size == 0:
            return body


def _error(status: int, code: str, request: Message | None) -> bytes:
    """An S3 error; the answer to a HEAD has no body."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>torture</Message></Error>".encode()
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + (b"" if request is not None and request.method == "HEAD" else body)
