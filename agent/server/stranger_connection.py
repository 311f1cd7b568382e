"""A connection whose other end has not shown who it is: what it can make an agent do is bounded here.

It receives one frame at a time, and reads no further until that is handled. A frame that does not fit into a small
buffer waits for memory that all such connections share (UNAUTHENTICATED_BYTES_MAX). Where too many are open, one of the
busiest address gives way. Once its other end is known, the socket is handed to a `ClientConnection`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import cast

from agent.request.services import Services
from agent.runtime.supervisor import begin_in, contain
from agent.server.connection import ClientConnection
from agent.server.connection_table import ConnectionTable
from protocol.auth.host_addresses import host_text
from protocol.errors import MalformedRequest
from protocol.framing import FrameReceiver
from protocol.limits import (
    RECEIVE_BUFFER_FIRST_BYTES,
    UNAUTHENTICATED_BUFFER_BYTES,
    UNAUTHENTICATED_CONNECTIONS_MAX,
)
from protocol.wire import INT32
from storage.object_store import Buffer

log = logging.getLogger(__name__)


class StrangerConnection(asyncio.BufferedProtocol):
    """The socket's side of such a connection. Its task lives as long; subclasses say what it does."""

    def __init__(
        self,
        table: ConnectionTable,
        services: Services,
        tasks: asyncio.TaskGroup,
        listener: str,
        *,
        frame_bytes_max: int,
    ) -> None:
        """Begin with `connection_made`; the first arguments are those of `ClientConnection`."""
        self._table = table
        self._services = services
        self._tasks = tasks
        self.listener = listener
        self._receiver = FrameReceiver(
            frame_bytes_max=frame_bytes_max,
            buffer_bytes=UNAUTHENTICATED_BUFFER_BYTES,
            buffer_bytes_first=UNAUTHENTICATED_BUFFER_BYTES,
        )
        self._frames: deque[memoryview] = deque()
        self._has_frames: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._has_claimed = False
        self.peer = ""
        """The other end's address, `host:port`."""
        self.address = ""
        """The same, without port."""

    async def _serve(self) -> None:
        """Find out who the other end is, then hand the socket over, or close it."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have these methods without deriving from asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)
        host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
        self.address = host_text(host)
        self.peer = f"{self.address}:{port}"
        if not self._table.register_unauthenticated(self):
            if not self._table.is_draining:
                extra = {"peer": self.peer, "limit": UNAUTHENTICATED_CONNECTIONS_MAX}
                log.warning(
                    "rejected a connection: too many are open whose clients have not authenticated", extra=extra
                )
            self._transport.abort()
            return
        self._task = begin_in(self._tasks, contain(self._serve, self._close_on_bug))
        if self._task is None:  # the agent's task group is ending and starts no task
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.unregister_unauthenticated(self)
        if self._task is not None:
            self._task.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self._receiver.buffer_updated(nbytes)
        except MalformedRequest as error:
            self._close("malformed", str(error))
            return
        if not frames:
            self._claim_large_frame()
            return
        self._frames.extend(frames)
        # What stands behind these frames stays in the kernel until they are answered.
        assert self._transport is not None
        self._transport.pause_reading()
        if self._has_frames is not None and not self._has_frames.done():
            self._has_frames.set_result(None)

    def memory_granted(self) -> None:
        self._has_claimed = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        """False closes the transport: a half-closed peer gets no more answers."""
        return False

    def pause_writing(self) -> None:
        """A peer that does not read its answers, of which it is owed one at a time, is no client."""
        self._close("stalled", "it does not read its answers")

    def give_way(self) -> None:
        """Close: another address needs the place among the connections of strangers."""
        self._close("unauthenticated", "its client has not authenticated, and other addresses need its place")
        self._table.unregister_unauthenticated(self)

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    async def _next_frame(self) -> memoryview:
        """The next frame. A caller keeps no variable of it while it waits for another one."""
        if not self._frames:
            self._release_memory()
            self._claim_large_frame()
            assert self._transport is not None
            if self._has_claimed or not self._receiver.large_frame_bytes:
                self._transport.resume_reading()
            self._has_frames = asyncio.get_running_loop().create_future()
            await self._has_frames
        return self._frames.popleft()

    @property
    def _has_more(self) -> bool:
        """Whether anything has come behind the frames that were taken."""
        return bool(self._frames or self._receiver.partial_bytes)

    def _claim_large_frame(self) -> None:
        frame_bytes = self._receiver.large_frame_bytes
        if not frame_bytes or self._has_claimed:
            return
        self._has_claimed = self._table.unauthenticated_memory.claim(self, frame_bytes)
        if not self._has_claimed:
            assert self._transport is not None
            self._transport.pause_reading()

    def _release_memory(self) -> None:
        if self._has_claimed:
            self._has_claimed = False
            self._table.unauthenticated_memory.forget(self)

    def _write(self, frame: Sequence[Buffer]) -> None:
        """Send a frame with its size."""
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.writelines(frame)

    def _replace_by(self, connection: ClientConnection, frame: Sequence[Buffer]) -> None:
        """Give the socket to a connection that serves requests, then send the last answer: requests may follow it."""
        transport = self._transport
        assert transport is not None
        rest = b"".join(INT32.pack(len(frame)) + frame for frame in self._frames) + self._receiver.partial()
        assert len(rest) <= RECEIVE_BUFFER_FIRST_BYTES, "reading was paused behind the first frame"
        self._table.unregister_unauthenticated(self)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        self._write(frame)
        if rest:
            connection.get_buffer(len(rest))[: len(rest)] = rest
            connection.buffer_updated(len(rest))
        if not transport.is_closing():
            transport.resume_reading()
            connection.regulate_reading()

    def _close(self, kind: str, reason: str) -> None:
        """Close at once. `kind` is the label of the metric."""
        self._services.metrics.connections_closed.labels(kind).inc()
        log.info("closed a connection before its client had authenticated", extra={"peer": self.peer, "reason": reason})
        self.abort()

    def _close_on_bug(self) -> None:
        self._services.metrics.connections_closed.labels("bug").inc()
        self.abort()


def with_size(answer: Sequence[Buffer]) -> Sequence[Buffer]:
    """The frame of an answer."""
    return [INT32.pack(sum(len(buffer) for buffer in answer)), *answer]
