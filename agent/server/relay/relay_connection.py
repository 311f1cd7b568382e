"""One relay connection to a group's coordinator: the socket around `protocol.relay.RelayExchange`."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

from agent.runtime.sockets import limit_unacknowledged
from protocol.connection import RequestFrame
from protocol.errors import MalformedRequest
from protocol.limits import RELAY_UNACKNOWLEDGED_SECONDS_MAX
from protocol.relay import Introduction, RelayExchange, encode_introduction
from storage.object_store import Buffer

log = logging.getLogger(__name__)

PendingAnswer = asyncio.Future[Sequence[Buffer] | None]
"""The coordinator's answer; None where the connection is lost before it came."""


class RelayConnection(asyncio.BufferedProtocol):
    """A connection to one coordinator for one client connection. Begin with `connection_made`."""

    def __init__(self, introduction: Introduction, on_lost: Callable[["RelayConnection"], None]) -> None:
        """`on_lost` is called once the connection is closed, by either side."""
        self._introduction = introduction
        self._on_lost = on_lost
        self._exchange = RelayExchange()
        self._transport: asyncio.Transport | None = None
        self._answers: deque[PendingAnswer] = deque()
        self._long: set[PendingAnswer] = set()
        """The pending answers that may take minutes."""
        self._writable: asyncio.Future[None] | None = None
        self.reply: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        """The coordinator's reply to the introduction; None where the connection is lost before it came."""
        self.is_lost = False

    @property
    def is_idle(self) -> bool:
        """Whether no request awaits its answer."""
        return not self._answers

    @property
    def is_waiting_long(self) -> bool:
        """Whether the answer that is due next may take minutes."""
        return bool(self._answers) and self._answers[0] in self._long

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have these methods without deriving from asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)
        connection = transport.get_extra_info("socket")
        if connection is not None:  # a request must not arrive when its client has long sent others (safety rule S23)
            limit_unacknowledged(connection, RELAY_UNACKNOWLEDGED_SECONDS_MAX)
        self._transport.write(encode_introduction(self._introduction))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if not self.reply.done():
            self.reply.set_result(None)
        answers, self._answers = self._answers, deque()
        self._long.clear()
        for answer in answers:
            if not answer.done():
                answer.set_result(None)
        self.resume_writing()
        self._on_lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._exchange.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            reply, frames = self._exchange.buffer_updated(nbytes)
        except MalformedRequest as error:
            log.warning("closed a relay connection: the other end is no agent", extra={"reason": str(error)})
            self.abort()
            return
        if reply is not None and not self.reply.done():
            self.reply.set_result(reply)
        for frame in frames:
            answer = self._answers.popleft()
            self._long.discard(answer)
            if not answer.done():  # its client may be gone
                answer.set_result([frame])

    def eof_received(self) -> bool:
        """False closes the transport: a coordinator that closes answers nothing more."""
        return False

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    async def send(self, frame: RequestFrame, *, is_long: bool = False) -> PendingAnswer:
        """Send a request, and return the future of its answer, once the coordinator takes its bytes.

        They are memory of the client's connection until then. `is_long`: whether the answer may take minutes.
        """
        answer: PendingAnswer = asyncio.get_running_loop().create_future()
        if self.is_lost or self._transport is None or self._transport.is_closing():
            answer.set_result(None)
            return answer
        self._answers.append(answer)
        if is_long:
            self._long.add(answer)
        self._transport.writelines(self._exchange.send(frame))
        while self._writable is not None:
            await asyncio.shield(self._writable)
        return answer

    def abort(self) -> None:
        """Close at once: its client is gone, or its coordinator's session has ended."""
        if self._transport is not None:
            self._transport.abort()
