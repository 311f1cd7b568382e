"""One client's connection: the socket around `protocol.connection.ServerConnection`, which does no I/O.

In: bytes of requests. Out: answers in the order of the requests. One task takes up the requests one after the other.
A request counts towards the memory of all connections until it is taken up (`protocol.request_memory`), an answer until
the peer has read it (`protocol.answer_memory`). `agent.server.slow_clients` says which peers are ended for that.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final, cast

from agent.fetch.wait import FetchWait
from agent.request.connection_epochs import RequestEpoch
from agent.request.services import Answer, Request, Services
from agent.runtime.supervisor import begin_in, contain
from agent.security.audit.audit_subject import SUBJECT
from agent.security.authentication import ConnectionAuthenticator
from agent.security.quotas.throttling import Mute, usage_of
from agent.server.connection_table import ConnectionTable
from agent.server.dispatch import HANDLERS
from agent.server.held_requests import HeldRequests
from agent.server.login_audit import record_certificate
from agent.server.reauthentication import SessionOver, reauthenticate
from agent.server.request_arrival import RequestArrival
from agent.server.request_router import RelayedClient, RequestRouter
from agent.server.unanswered import UNANSWERED, report_unanswered
from agent.telemetry.client_info import ConnectedClient
from protocol.api_versions import ApiKey, name_of
from protocol.auth.host_addresses import host_text
from protocol.connection import RequestFrame, ServerConnection
from protocol.errors import MalformedRequest
from protocol.limits import (
    CONNECTIONS_MAX,
    RECEIVE_BUFFER_BYTES,
)
from protocol.throttle_time import with_throttle_time
from storage.object_store import Buffer

log = logging.getLogger(__name__)

ENDS_FETCH_WAIT: Final = frozenset(
    {ApiKey.FIND_COORDINATOR, ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH}
)
"""Requests for which a client stands still: a fetch that only waits for records does not hold them up.

`Differs from Kafka:` there they wait until the fetch is answered, for half a second by default. librdkafka (2.16) then
repeats a commit before it knows the group's new coordinator, takes the failure for one of the coordinator, and asks
again: for up to a minute, in which its member sends no heartbeat.
"""


class ClientConnection(asyncio.BufferedProtocol):
    """One client's connection. Its task lives as long as the socket."""

    def __init__(
        self,
        table: ConnectionTable,
        services: Services,
        tasks: asyncio.TaskGroup,
        listener: str,
        authenticator: ConnectionAuthenticator | None = None,
        client: ConnectedClient | None = None,
        router: RequestRouter | None = None,
        relayed: RelayedClient | None = None,
    ) -> None:
        """Begin with `connection_made`.

        Args:
            table: all connections of the agent, and the memory that they share.
            services: what requests are handled with, and the clock and metrics.
            tasks: the group that the connection's task belongs to.
            listener: the name of the listener that accepted the connection.
            authenticator: who the client is; None for a listener without authentication.
            client: what the client has said of itself already, before it authenticated.
            router: chooses the handlers of requests; None for the agent's own.
            relayed: the client of a relay connection; None where the connection is the client's own.
        """
        self._table = table
        self._memory = table.memory
        self._services = services
        self._tasks = tasks
        self.listener = listener
        self._authenticator = authenticator or ConnectionAuthenticator()
        self._wire = ServerConnection(is_roomy=False)
        self._arrival = RequestArrival()
        self._held = HeldRequests(self, table)
        self._has_frames: asyncio.Future[None] | None = None
        """Ends the wait of the task for the next request."""
        self._writable: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_reading = True
        self._is_sending = False
        self._outgoing: list[Buffer] = []
        self._is_taking_up = False
        self._taken_up_count = 0
        self._fetch_wait: FetchWait | None = None
        """The wait of the fetch that is being served."""
        self._mute = Mute(self.regulate_reading)
        self._hurried_since_s = 0.0
        self._unread_since_s = 0.0
        self._closing_since_s: float | None = None
        self._client = client or ConnectedClient()
        self._router = router
        self._relayed = relayed
        self._client_listener = listener if relayed is None else relayed.listener
        self._connection_epoch: RequestEpoch | None = None
        self._host = ""
        self.peer = ""
        self.used_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have these methods without deriving from asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)
        host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
        relayed = self._relayed
        self._host = host_text(host) if relayed is None else relayed.host
        self.peer = f"{self._host}:{port}" if relayed is None else relayed.peer
        self.used_s = self._services.clock.monotonic_s()
        # One with a mechanism comes from a `LoginConnection`, a relayed one from `RelayIntroduction`: both counted it.
        if not self._table.register(self, is_new=not self._authenticator.mechanism and relayed is None):
            if not self._table.is_draining:
                extra = {"peer": self.peer, "limit": CONNECTIONS_MAX}
                log.warning("rejected a connection: too many are open; close some, or start another agent", extra=extra)
            self._transport.abort()
            return
        self._authenticator.attach(self)
        if relayed is None:
            record_certificate(self._services, self._authenticator, self.listener, self._host)
            self._connection_epoch = self._services.connection_epochs.accepted()
        else:
            self._connection_epoch = relayed.epoch
        self._task = begin_in(self._tasks, contain(self._serve, self._close_on_bug))
        if self._task is None:  # the agent's task group is ending and starts no task
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        cut_bytes = self._wire.receive_eof()
        if cut_bytes and not self._table.is_draining:
            log.info("a client closed in the middle of a request", extra={"peer": self.peer, "bytes": cut_bytes})
        self._mute.cancel()
        self._held.give_up()
        self._wire.drop_partial()
        self._table.take_back_buffer(self)
        self._table.unregister(self)
        self._authenticator.detach()
        if self._router is not None:
            self._router.close()
        if self._client.instance_id is not None:
            self._services.telemetry.disconnected(self._client)
        if self._task is not None:
            self._task.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._wire.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self._wire.buffer_updated(nbytes)
        except MalformedRequest as error:
            self._close_malformed(error)
            return
        if self._wire.is_cramped and self._table.lend_buffer(self):
            self._wire.grow()
        if not frames:
            # The size of a large frame is known before its body arrives: it claims all its memory now, so that a
            # request that holds memory never waits for more, and two half-received ones cannot block each other.
            if self._wire.large_frame_bytes and not self._held.claimed_bytes:
                self.regulate_reading()
            return
        self.used_s = self._services.clock.monotonic_s()
        self._held.add(frames, self.used_s)
        if self._fetch_wait is not None:
            self._mark_behind_fetch()
            if any(frame.api_key in ENDS_FETCH_WAIT for frame in frames):
                self.hurry()
        if self._has_frames is not None and not self._has_frames.done():
            self._has_frames.set_result(None)
        self.regulate_reading()

    def regulate_reading(self) -> None:
        """Read the socket, or pause it so that TCP slows the client down, by the memory that is free."""
        if self._transport is None or self._transport.is_closing():
            return
        should_read = self._may_read()
        if should_read is self._is_reading:
            return
        self._is_reading = should_read
        if should_read:
            self._table.paused.discard(self)
            self._transport.resume_reading()
        else:
            self._table.paused.add(self)
            self._transport.pause_reading()

    def _may_read(self) -> bool:
        if self._table.is_draining:
            return False
        held = self._held
        if held.claimed_bytes:  # a request whose memory is granted is read to its end
            return True
        # REQUESTS_PIPELINED_MAX requests await their answers, or the reserve is to become free before more arrives.
        if self._wire.is_reading_paused or self._memory.reserve_holder is self or self._mute.is_on:
            return False
        if not held.may_grow:
            return False
        frame_bytes = self._wire.large_frame_bytes
        return not frame_bytes or self._claim(frame_bytes)

    def _claim(self, frame_bytes: int) -> bool:
        # The reserve is for a request that nothing stands before: it is taken up as soon as it has arrived.
        is_next = not self._held.frames and not self._is_taking_up and self._writable is None
        was_waiting = self._memory.is_waiting(self)
        is_granted = self._held.claim(frame_bytes, is_next=is_next)
        if is_granted or not was_waiting:
            self.used_s = self._services.clock.monotonic_s()
        return is_granted

    def _mark_behind_fetch(self) -> None:
        """Requests stand behind the fetch that is being served: its wait may keep memory that others need."""
        self._table.behind_fetch.add(self)
        if self._memory.is_contended:
            self._table.hurry_fetches()

    def hurry(self) -> None:
        """End the wait of the fetch that is being served: a question stands behind it, or memory is scarce."""
        if self._fetch_wait is not None and not self._fetch_wait.is_over:
            self._hurried_since_s = self._services.clock.monotonic_s()
            self._fetch_wait.end()

    def mute(self, seconds: float) -> None:
        """Read nothing and take up no request for so long: the client is above a quota. What is ready still leaves."""
        self._mute.extend(seconds, self._services.clock.monotonic_s())
        self.regulate_reading()

    def eof_received(self) -> bool:
        """False closes the transport: a half-closed peer gets no more answers, as Kafka's clients never half-close."""
        return False

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()
        self._unread_since_s = self._services.clock.monotonic_s()
        self._table.keep_unread(self)

    def resume_writing(self) -> None:
        self._table.answers.forget(self)
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def close(self) -> None:
        """Close once the written answers are sent; the sweep bounds how long that takes. Nothing more is received."""
        self._send_now()
        if self._transport is not None:
            self._transport.close()
        if self._closing_since_s is None:
            self._closing_since_s = self._services.clock.monotonic_s()
            self._held.give_up()
            self._wire.drop_partial()
            self._table.take_back_buffer(self)

    def abort(self) -> None:
        """Close at once and drop unsent bytes: a peer that does not read would keep them for an unbounded time."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def unread_bytes(self) -> int:
        """The bytes of answers that the kernel has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def is_idle(self) -> bool:
        return not self._held.frames and self._wire.requests_waiting == 0 and not self._outgoing

    def stalled_s(self, now_s: float) -> float:
        """Seconds for which the request that is arriving has made no progress while the socket is read."""
        if not self._is_reading:  # the agent paused the socket: the client is not to blame
            self._arrival.forget()
            return 0.0
        arrived_bytes = self._wire.receive_eof()
        seconds = self._arrival.stalled_s(self._wire.requests_received, arrived_bytes, now_s)
        if arrived_bytes and not seconds:
            self.used_s = now_s
        return seconds

    def leave_buffer(self) -> bool:
        """Return a lent receive buffer, unless a request is arriving in it; True where it was returned."""
        self._wire.shrink()
        return not self._wire.is_roomy

    @property
    def arrived_bytes(self) -> int:
        """The bytes of the request that is arriving."""
        return self._wire.receive_eof()

    @property
    def progress_bytes_min(self) -> int:
        """By how much that has to grow between two sweeps, while other connections wait for memory."""
        return self._memory.bytes_due(self, self._held.claimed_bytes)

    @property
    def is_owed_answer(self) -> bool:
        """Whether a request other than a fetch is being served, or its answer is unsent.

        A fetch that is dropped loses nothing: its client sends it again, to the next leader.
        """
        return bool(self._outgoing) or self._taken_up_count > (0 if self._fetch_wait is None else 1)

    @property
    def unread_s(self) -> float:
        """Seconds since the peer stopped reading its answers, or since the connection began to close."""
        since_s = self._closing_since_s
        if self._writable is not None:
            since_s = self._unread_since_s if since_s is None else min(since_s, self._unread_since_s)
        return 0.0 if since_s is None else self._services.clock.monotonic_s() - since_s

    @property
    def blocking_s(self) -> float:
        """Seconds for which queued requests have kept memory that other connections need.

        They wait for the peer to read its answers, for a fetch that was hurried, or for the end of a mute.
        """
        if not self._held.counted_bytes:
            return 0.0
        now_s = self._services.clock.monotonic_s()
        is_hurried = self._fetch_wait is not None and self._fetch_wait.is_over
        hurried_s = now_s - self._hurried_since_s if is_hurried else 0.0
        return max(self.unread_s, hurried_s, now_s - self._mute.since_s if self._mute.is_on else 0.0)

    def stop_reading(self) -> None:
        """Drop the queued requests, and read none any more: nothing of them was accepted, and clients repeat them."""
        self._held.drop_queued()
        self.regulate_reading()
        if self._router is not None:
            self._router.drain()

    def _close_on_bug(self) -> None:
        self._services.metrics.connections_closed.labels("bug").inc()
        self.close()

    def _close_malformed(self, error: MalformedRequest) -> None:
        log.warning(
            "closed a connection that does not speak Kafka's protocol", extra={"peer": self.peer, "reason": str(error)}
        )
        self._services.metrics.connections_closed.labels("malformed").inc()
        if self._transport is not None:
            self._transport.abort()

    async def _serve(self) -> None:
        """Take up requests one after the other: Kafka promises a client that its requests are processed in order."""
        try:
            while True:
                while self._held.frames:
                    # Before the request is taken up: a peer that does not read would let answers pile up in memory.
                    if self._writable is not None:
                        await self._writable
                    if self._mute.is_on:
                        await self._mute.wait()
                        continue  # a drain may have dropped them, and the peer may not read
                    if self._table.is_draining or self._transport is None or self._transport.is_closing():
                        return
                    await self._take_up_next()
                    if not self._is_sending:  # else that follows when the answer is sent
                        self.regulate_reading()
                self._has_frames = asyncio.get_running_loop().create_future()
                await self._has_frames
        except MalformedRequest as error:
            self._close_malformed(error)

    async def _take_up_next(self) -> None:
        """Serve the oldest request until its answer is ready, or is left to a future.

        A function of its own: the locals of `_serve` would keep the last request's memory while it waits.
        """
        frame, arrived_s = self._held.take_next()
        frame_bytes = len(frame.body)
        self._taken_up_count += 1
        self._is_taking_up = True
        if frame.api_key == ApiKey.FETCH:
            # A fetch may wait for minutes (FETCH_WAIT_MS_MAX), and no connection is to wait for memory that long:
            # a small fetch is no longer counted, a large one, and requests behind it, end its wait (`hurry`).
            self._fetch_wait = FetchWait()
            if frame_bytes <= RECEIVE_BUFFER_BYTES:
                self._held.count(-frame_bytes)
                frame_bytes = 0
            if self._held.counted_bytes:
                self._mark_behind_fetch()
            if any(behind.api_key in ENDS_FETCH_WAIT for behind in self._held.frames):
                self.hurry()
        try:
            await self._take_up(frame, arrived_s)
        finally:
            self._is_taking_up = False
            if self._fetch_wait is not None:
                self._fetch_wait = None
                self._table.behind_fetch.discard(self)
            if frame_bytes:
                self._held.count(-frame_bytes)

    async def _take_up(self, frame: RequestFrame, arrived_s: float) -> None:
        services, usage = self._services, None
        if services.state.client_quotas:
            usage = usage_of(services.quotas, self._authenticator.principal.name, frame)
        request = Request(
            frame=frame,
            listener=self._client_listener,
            peer=self.peer,
            principal=self._authenticator.principal,
            rights=services.authorizer.rights(self._authenticator.principal, self._authenticator.groups, self._host),
            groups=self._authenticator.groups,
            mechanism=self._authenticator.mechanism,
            is_by_token=self._authenticator.is_by_token,
            client=self._client,
            connection_epoch=self._connection_epoch,
            arrived_s=arrived_s,
            taken_up_s=services.clock.monotonic_s(),
            usage=usage,
            fetch_wait=self._fetch_wait,
            answer_capacity_bytes=self._table.answers.capacity_bytes,
        )
        if services.audit_log.takes_decisions:
            SUBJECT.set(request)
        try:
            answer: Answer = None
            if self._authenticator.ends_s is not None:
                answer = await reauthenticate(self._authenticator, request, services)
            if answer is None:
                handle = HANDLERS[frame.api_key] if self._router is None else self._router.handler(frame.api_key)
                handling = handle(services, request)
                answer = await (handling if usage is None else usage.measure(handling))
        except UNANSWERED as error:
            report_unanswered(error, metrics=services.metrics, peer=self.peer, api_key=frame.api_key)
            if isinstance(error, SessionOver) and error.answer is not None:
                self._send(self._wire.respond(frame.number, [error.answer]))
            self.close()
            return
        if isinstance(answer, asyncio.Future):
            # A Produce is taken up once the intake has its records: pipelined requests share one flush.
            answer.add_done_callback(partial(self._finish, request))
        else:
            self._respond(request, answer)

    def _finish(self, request: Request, future: "asyncio.Future[Sequence[Buffer]]") -> None:
        if not future.cancelled():
            self._respond(request, future.result())

    def _respond(self, request: Request, answer: Sequence[Buffer] | None) -> None:
        frame, usage, services = request.frame, request.usage, self._services
        if usage is not None and (throttle_ms := usage.end(is_answered=answer is not None)):
            if answer is not None:
                answer = with_throttle_time(frame.api_key, frame.api_version, answer, throttle_ms)
            self.mute(throttle_ms / 1000)
        if answer is None:  # Produce with acks=0 has no response; its turn in the order of answers is passed over
            self._send(self._wire.skip(frame.number))
        else:
            self._send(self._wire.respond(frame.number, answer))
        metrics = services.metrics.request(name_of(frame.api_key), frame.api_version)
        metrics.answered(services.clock.monotonic_s() - request.taken_up_s)

    def _send(self, buffers: list[Buffer]) -> None:
        """Send at once where no other answer is owed, as to a client that sends one request at a time.

        Else in the loop's next turn: answers that become ready in the same turn leave in one system call.
        """
        self._taken_up_count -= 1
        self._outgoing.extend(buffers)
        if not self._wire.requests_waiting:
            self._write_outgoing()
            if not self._is_taking_up:  # else that follows when the request is served
                self.regulate_reading()
        elif not self._is_sending:
            self._is_sending = True
            asyncio.get_running_loop().call_soon(self._send_now)

    def _send_now(self) -> None:
        self._is_sending = False
        self._write_outgoing()
        self.regulate_reading()

    def _write_outgoing(self) -> None:
        buffers, self._outgoing = self._outgoing, []
        transport = self._transport
        if buffers and transport is not None and not transport.is_closing():
            transport.writelines(buffers)
            if self._writable is not None:
                self._table.keep_unread(self)
