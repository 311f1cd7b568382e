"""One client's connection through the proxy: requests to the server, answers back, each as the rules say.

Rule: order within a direction is kept. What the client sent before it hung up still reaches the server, as it would
through a network that is slow, and the server's connection is closed only when all of it is answered.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from protocol.framing import SIZE_BYTES, FrameReceiver
from protocol.wire import INT32
from tests.jepsen.proxy.frames import ProxiedRequest, correlation_id_of
from tests.jepsen.proxy.rules import Act, Rule, Side

READ_BYTES = 64 * 1024


@dataclass(eq=False, slots=True)
class Strike:
    """A rule that struck a request or its answer. `answer`: what the server said to what was late or came twice."""

    rule: Rule
    request: ProxiedRequest
    released: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    answer: bytes | None = None

    async def wait_released(self) -> None:
        """Until somebody releases it, or its time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.rule.seconds):
                await self.released.wait()

    def told(self, answer: bytes | None) -> None:
        """The server answered, or hung up."""
        self.answer = answer
        self.answered.set()


@dataclass(slots=True)
class Expected:
    """An answer that is to come, and what struck its request; `is_swallowed`: the client is not told."""

    request: ProxiedRequest
    strike: Strike | None = None
    is_swallowed: bool = False


Judge = Callable[[Side, ProxiedRequest], Strike | None]
"""Tells which rule strikes a message."""


class ProxyConnection:
    """`judge` is asked for each message."""

    def __init__(self, client: tuple[asyncio.StreamReader, asyncio.StreamWriter], upstream: int, judge: Judge) -> None:
        self._client_reader, self._client = client
        self._upstream, self._judge = upstream, judge
        self._expected: deque[Expected] = deque()
        self._is_server_gone = asyncio.Event()
        self._all_answered = asyncio.Event()
        self._extra: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until both sides are done with it."""
        try:
            self._server_reader, self._server = await asyncio.open_connection("127.0.0.1", self._upstream)
        except OSError:
            self._client.close()
            return
        try:
            async with asyncio.TaskGroup() as self._group:
                answers = self._group.create_task(self._pass_answers())
                await self._pass_requests()
                await self._wait_answered()
                for task in self._extra:
                    await task
                self._server.close()
                await answers
        finally:
            self._server.close()
            self._client.close()

    async def _pass_requests(self) -> None:
        receiver = FrameReceiver()
        with contextlib.suppress(OSError):
            while data := await self._client_reader.read(READ_BYTES):
                for frame in receiver.receive_data(data):
                    await self._pass_request(ProxiedRequest.read(bytes(frame)))
                    if self._client.is_closing():
                        return
        receiver.drop_partial()

    async def _pass_request(self, request: ProxiedRequest) -> None:
        strike = self._judge(Side.REQUEST, request)
        match None if strike is None else strike.rule.act:
            case Act.DROP:
                self._client.close()
            case Act.HOLD:
                assert strike is not None
                await strike.wait_released()
                self._send(Expected(request, strike))
            case Act.DUPLICATE:
                assert strike is not None
                self._send(Expected(request))
                task = self._group.create_task(self._repeat(strike))
                self._extra.add(task)
            case None:
                self._send(Expected(request))

    async def _repeat(self, strike: Strike) -> None:
        """Bring a request for the second time."""
        if strike.rule.is_held:
            await strike.wait_released()
        if not strike.rule.is_elsewhere:
            self._send(Expected(strike.request, strike, is_swallowed=True))
            return
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        except OSError:
            strike.told(None)
            return
        writer.write(_framed(strike.request.frame))
        answer = None
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            (size,) = INT32.unpack(await reader.readexactly(SIZE_BYTES))
            answer = await reader.readexactly(size)
        writer.close()
        strike.told(answer)

    def _send(self, expected: Expected) -> None:
        if self._is_server_gone.is_set():
            if expected.strike is not None:
                expected.strike.told(None)
            return
        self._expected.append(expected)
        self._all_answered.clear()
        self._server.write(_framed(expected.request.frame))

    async def _pass_answers(self) -> None:
        receiver = FrameReceiver()
        with contextlib.suppress(OSError):
            while data := await self._server_reader.read(READ_BYTES):
                for frame in receiver.receive_data(data):
                    await self._pass_answer(bytes(frame))
        receiver.drop_partial()
        self._is_server_gone.set()
        self._all_answered.set()
        for expected in self._expected:
            if expected.strike is not None:
                expected.strike.told(None)
        self._client.close()

    async def _pass_answer(self, answer: bytes) -> None:
        expected = self._expected.popleft()
        while expected.request.correlation_id != correlation_id_of(answer):
            expected = self._expected.popleft()  # a Produce that wants none (acks=0)
        if expected.strike is not None:
            expected.strike.told(answer)
        strike = None if expected.is_swallowed else self._judge(Side.ANSWER, expected.request)
        if strike is not None:
            strike.told(answer)
            if strike.rule.act is Act.HOLD:
                await strike.wait_released()
            else:
                self._client.close()
        if not expected.is_swallowed and not self._client.is_closing():
            self._client.write(_framed(answer))
        if not self._expected:
            self._all_answered.set()

    async def _wait_answered(self) -> None:
        """Until the server has said all that it will say."""
        if self._expected and not self._is_server_gone.is_set():
            await self._all_answered.wait()


def _framed(frame: bytes) -> bytes:
    return INT32.pack(len(frame)) + frame
