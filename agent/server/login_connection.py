"""A connection whose client has to authenticate first: one small frame at a time, for a short time, and nothing else.

It holds a socket until `agent.security.authentication` says who the client is, and then gives it to a
`ClientConnection`. What strangers can make an agent do is bounded here: frames by `sasl.server.max.receive.size`, the
frames of all of them together by UNAUTHENTICATED_BYTES_MAX, the time by SASL_SECONDS_MAX.
Source: org.apache.kafka.common.network.Selector and KafkaChannel.delayCloseOnAuthenticationFailure (Kafka 4.3).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

from agent.request.services import Request, Services
from agent.runtime.supervisor import begin_in, contain
from agent.security.authentication import ConnectionAuthenticator, Settled
from agent.security.listener_authentication import ListenerAuthentication
from agent.server.connection import ClientConnection
from agent.server.connection_table import ConnectionTable
from agent.server.dispatch import HANDLERS
from agent.server.login_audit import record_failure, record_success
from agent.server.request_router import RequestRouter
from agent.telemetry.client_info import ConnectedClient
from protocol.api_versions import ApiKey
from protocol.auth.host_addresses import host_text
from protocol.auth.sasl_session import Failure, ListVersions, Reply, Success
from protocol.connection import RequestFrame
from protocol.errors import MalformedRequest
from protocol.framing import FrameReceiver
from protocol.limits import (
    RECEIVE_BUFFER_FIRST_BYTES,
    SASL_SECONDS_MAX,
    UNAUTHENTICATED_BUFFER_BYTES,
    UNAUTHENTICATED_CONNECTIONS_MAX,
)
from protocol.wire import INT32
from storage.object_store import Buffer

log = logging.getLogger(__name__)


class LoginConnection(asyncio.BufferedProtocol):
    """One connection until its client has authenticated. Its task lives as long."""

    def __init__(
        self,
        table: ConnectionTable,
        services: Services,
        tasks: asyncio.TaskGroup,
        authentication: ListenerAuthentication,
        new_router: Callable[[], RequestRouter | None] = lambda: None,
    ) -> None:
        """Begin with `connection_made`; the arguments are those of `ClientConnection`, whose router is made for it."""
        self._table = table
        self._services = services
        self._tasks = tasks
        self._authentication = authentication
        self._new_router = new_router
        self.listener = authentication.listener
        self._authenticator = ConnectionAuthenticator(listener=authentication)
        self._client = ConnectedClient()
        self._receiver = FrameReceiver(
            frame_bytes_max=authentication.settings.frame_bytes_max,
            buffer_bytes=UNAUTHENTICATED_BUFFER_BYTES,
            buffer_bytes_first=UNAUTHENTICATED_BUFFER_BYTES,
        )
        self._frames: deque[memoryview] = deque()
        self._has_frames: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._has_claimed = False
        self.peer = ""
        self.address = ""
        """The client's, without port."""

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
        """Close: another address needs the place among the clients that have not authenticated."""
        self._close("unauthenticated", "its client has not authenticated, and other addresses need its place")
        self._table.unregister_unauthenticated(self)

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def _claim_large_frame(self) -> None:
        frame_bytes = self._receiver.large_frame_bytes
        if not frame_bytes or self._has_claimed:
            return
        self._has_claimed = self._table.unauthenticated_memory.claim(self, frame_bytes)
        if not self._has_claimed:
            assert self._transport is not None
            self._transport.pause_reading()

    async def _serve(self) -> None:
        try:
            async with self._services.clock.timeout(SASL_SECONDS_MAX):
                output = await self._authenticate()
        except TimeoutError:
            self._close("unauthenticated", f"its client has not authenticated within {SASL_SECONDS_MAX:.0f} s")
            return
        if isinstance(output, Success):
            self._hand_over(output)
        else:
            await self._fail(output)

    async def _authenticate(self) -> Success | Failure:
        while True:
            output = await self._take_frame()
            match output:
                case Success() | Failure():
                    return output
                case Reply():
                    self._write([output.answer])
                case ListVersions():
                    try:
                        self._write(await self._list_versions(output.frame))
                    except MalformedRequest as error:
                        return Failure(reason=str(error))

    async def _take_frame(self) -> Settled:
        """Handles the next frame. A function of its own, so that no variable keeps its memory."""
        if not self._frames:
            self._release_memory()
            self._claim_large_frame()
            assert self._transport is not None
            if self._has_claimed or not self._receiver.large_frame_bytes:
                self._transport.resume_reading()
            self._has_frames = asyncio.get_running_loop().create_future()
            await self._has_frames
        await self._table.login_turns.take()
        return await self._authenticator.receive(self._frames.popleft())

    def _release_memory(self) -> None:
        if self._has_claimed:
            self._has_claimed = False
            self._table.unauthenticated_memory.forget(self)

    async def _list_versions(self, frame: RequestFrame) -> Sequence[Buffer]:
        request = Request(frame=frame, listener=self.listener, peer=self.peer, client=self._client)
        answer = await HANDLERS[ApiKey.API_VERSIONS](self._services, request)
        assert answer is not None
        assert not isinstance(answer, asyncio.Future), "ApiVersions is answered at once"
        return answer

    def _write(self, buffers: Sequence[Buffer]) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            answer_bytes = sum(len(buffer) for buffer in buffers)
            self._transport.writelines([INT32.pack(answer_bytes), *buffers])

    def _hand_over(self, success: Success) -> None:
        """Give the socket to a connection that serves requests, then send the success: requests may follow it."""
        transport, table = self._transport, self._table
        assert transport is not None
        if transport.is_closing():
            return
        self._services.metrics.authentications.labels(self.listener, success.mechanism).inc()
        record_success(self._services, self._authenticator, self.listener, self.peer)
        if log.isEnabledFor(logging.DEBUG):
            principal = str(self._authenticator.principal)
            extra = {"peer": self.peer, "mechanism": success.mechanism, "principal": principal}
            log.debug("a client has authenticated", extra=extra)
        rest = b"".join(INT32.pack(len(frame)) + frame for frame in self._frames) + self._receiver.partial()
        assert len(rest) <= RECEIVE_BUFFER_FIRST_BYTES, "reading was paused behind the first frame"
        table.unregister_unauthenticated(self)
        connection = ClientConnection(
            table,
            self._services,
            self._tasks,
            self.listener,
            self._authenticator,
            self._client,
            router=self._new_router(),
        )
        transport.set_protocol(connection)
        connection.connection_made(transport)
        self._write([success.answer])
        if rest:
            connection.get_buffer(len(rest))[: len(rest)] = rest
            connection.buffer_updated(len(rest))
        if not transport.is_closing():
            transport.resume_reading()
            connection.regulate_reading()

    async def _fail(self, failure: Failure) -> None:
        self._services.metrics.authentication_failures.labels(self.listener, failure.mechanism).inc()
        record_failure(self._services, failure, self.listener, self.peer)
        log.info(
            "a client failed to authenticate",
            extra={
                "peer": self.peer,
                "listener": self.listener,
                "mechanism": failure.mechanism,
                "user": failure.user,
                "reason": failure.reason,
            },
        )
        self._release_memory()
        self._frames.clear()
        await self._services.clock.sleep(self._authentication.failure_delay_s(self.address))
        assert self._transport is not None
        if failure.answer is not None:
            self._write([failure.answer])
        self._transport.close()

    def _close(self, kind: str, reason: str) -> None:
        """Close at once. `kind` is the label of the metric."""
        self._services.metrics.connections_closed.labels(kind).inc()
        log.info("closed a connection before its client had authenticated", extra={"peer": self.peer, "reason": reason})
        self.abort()

    def _close_on_bug(self) -> None:
        self._services.metrics.connections_closed.labels("bug").inc()
        self.abort()
