"""uvicorn's HTTP protocol with limits for slow and silent clients.

Rule: uvicorn only limits the time between two requests of a connection. This protocol also limits the time until a
request is complete, from the moment of connecting; the time in which a client reads no answer; and the number of
connections. So a client that sends or reads too slowly cannot keep health checks out for long. Where there are as many
connections as are served, a new one takes the place of one whose failed login is answered late, else of the one that
has waited longest for a request, or for the rest of one, its body included. So those connections take no place from
others.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from agent.config.listener_security import HTTPS_LISTENER
from agent.http.client_certificates import with_certificate
from agent.http.login_delays import is_login_delayed
from agent.security.tls.agent_tls import AgentTls
from protocol.limits import (
    HTTP_CONNECTIONS_MAX,
    HTTP_CONNECTIONS_OPEN_MAX,
    HTTP_READ_BYTES_MIN,
    HTTP_REQUEST_SECONDS_MAX,
    WRITE_SECONDS_MAX,
)


class BoundedProtocol(H11Protocol):
    """One connection. The limits are attributes, so that tests can shorten them."""

    connections_max = HTTP_CONNECTIONS_OPEN_MAX
    connections_served_max = HTTP_CONNECTIONS_MAX
    request_seconds_max = HTTP_REQUEST_SECONDS_MAX
    write_seconds_max = WRITE_SECONDS_MAX

    _arriving: asyncio.TimerHandle | None = None
    """Runs while a request is incomplete."""
    _unread: asyncio.TimerHandle | None = None
    """Runs while the client does not read answers, or does not close its side of the connection."""
    _unread_bytes = 0
    """The unread bytes of answers when `_unread` started."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) >= self.connections_served_max:
            self._close_longest_waiting()
        if len(self.connections) > self.connections_max:
            transport.abort()
            return
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_arriving()
        self._end_unread()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_timers()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_timers()

    def send_400_response(self, msg: str) -> None:
        """Reject bytes that are not HTTP. An answer in progress is cut off: h11 would raise if more of it was sent."""
        # Before the first request uvicorn has no cycle, despite its annotation.
        if self.cycle is not None and not self.cycle.response_complete:  # type: ignore[redundant-expr]
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def shutdown(self) -> None:
        """Begin to end: at once where a request has not arrived whole, or its failed login would be answered late."""
        if self.waits_until_s is None:
            super().shutdown()
        else:
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        self._end_unread()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._await_reader()

    def _close_longest_waiting(self) -> None:
        """Close the connection that has waited longest for a request, or for the rest of one: 20 us for 200."""
        waiting = (
            (ends_s, number, each)
            for number, each in enumerate(self.connections)
            if isinstance(each, BoundedProtocol) and (ends_s := each.waits_until_s) is not None
        )
        _, _, longest = min(waiting, default=(0.0, 0, None))
        if longest is not None:
            self.connections.discard(longest)  # it leaves by itself in the loop's next round: others may come before
            longest.transport.abort()

    @property
    def waits_until_s(self) -> float | None:
        """Until when the connection waits for a request or the rest of one, by the loop's time; None while one that
        has arrived whole is answered; 0 while the answer is that of a failed login, and waits."""
        # Before the first request uvicorn has no cycle, despite its annotation.
        if self.cycle is not None and not self.cycle.response_complete:  # type: ignore[redundant-expr]
            if is_login_delayed(self.cycle.scope):
                return 0.0
            return None if self._arriving is None else self._arriving.when()
        timer = self._arriving or self.timeout_keep_alive_task
        return None if timer is None else timer.when()

    def _update_timers(self) -> None:
        """Start or stop the timer of the request that is arriving."""
        if self.transport.is_closing():
            self._end_arriving()
            self._await_reader()
        elif self.conn.their_state in (h11.DONE, h11.MUST_CLOSE):
            self._end_arriving()
        elif (
            self.conn.their_state is h11.SEND_BODY or self.conn.trailing_data[0] or self.timeout_keep_alive_task is None
        ):
            self._await_request()
        else:
            self._end_arriving()

    def _await_request(self) -> None:
        if self._arriving is None:
            self._arriving = self.loop.call_later(self.request_seconds_max, self.transport.abort)

    def _await_reader(self) -> None:
        if self._unread is None:
            self._unread_bytes = self.transport.get_write_buffer_size()
            self._unread = self.loop.call_later(self.write_seconds_max, self._abort_unless_read)

    def _abort_unless_read(self) -> None:
        self._unread = None
        if self._unread_bytes - self.transport.get_write_buffer_size() >= HTTP_READ_BYTES_MIN:
            self._await_reader()
        else:
            self.transport.abort()

    def _end_arriving(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _end_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


def encrypted_protocol(tls: AgentTls) -> type[asyncio.Protocol]:
    """The protocols of connections, for uvicorn: `BoundedProtocol` behind TLS."""

    def accept(**parts: Any) -> asyncio.BaseProtocol:  # noqa: ANN401 - uvicorn passes what a protocol is made with
        def new_protocol(ssl_object: ssl.SSLObject) -> asyncio.Protocol:
            protocol = BoundedProtocol(**parts)
            protocol.app = cast("Any", with_certificate(protocol.app, tls.principal_of(HTTPS_LISTENER, ssl_object)))
            return protocol

        return tls.accept(HTTPS_LISTENER, new_protocol)

    # uvicorn wants a class and only calls it.
    return cast("type[asyncio.Protocol]", cast("Callable[..., asyncio.BaseProtocol]", accept))
