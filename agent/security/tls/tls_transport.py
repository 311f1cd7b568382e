"""TLS between a TCP transport of the event loop and a connection's protocol, which sees a transport like any other.

In: the loop's transport, whose protocol this is. Out: the same methods for the connection: its bytes are decrypted, and
what it writes is encrypted. The connection begins once the handshake is done, so a stranger occupies nothing else.

- Unread answers: `get_write_buffer_size` counts the encrypted bytes that the kernel has not taken, and the plaintext
  behind them. An answer is encrypted in slices of TLS_SLICE_BYTES as the peer reads, so a slow peer keeps no copy.
- Parts below TLS_JOIN_BYTES are joined, so that they leave in one record instead of three.
- While the connection does not read, at most one receive buffer of encrypted bytes waits here.
ADR 38 has the measurements beside uvloop's own TLS.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, cast

from agent.security.tls.certificate_principals import UnnamedPrincipal
from agent.security.tls.tls_handshakes import TlsHandshakes
from protocol.auth.host_addresses import host_text
from protocol.auth.tls_session import TlsFailed, TlsSession
from protocol.limits import TLS_HANDSHAKE_SECONDS_MAX, TLS_JOIN_BYTES, TLS_SLICE_BYTES
from protocol.wire import Buffer

log = logging.getLogger(__name__)

App = asyncio.BufferedProtocol | asyncio.Protocol


class TlsTransport(asyncio.BufferedProtocol):
    """One connection: towards the loop a protocol, towards its own protocol a transport."""

    handshake_seconds_max = TLS_HANDSHAKE_SECONDS_MAX

    def __init__(
        self,
        new_app: Callable[[ssl.SSLObject], App],
        new_session: Callable[[], TlsSession],
        handshakes: TlsHandshakes,
        *,
        listener: str,
    ) -> None:
        """Begin with `connection_made`.

        Args:
            new_app: makes the connection's protocol once the handshake is done; `UnnamedPrincipal` closes it.
            new_session: makes the session, with the certificate of now, once the client has sent something.
            handshakes: those of all connections.
            listener: its name, for the log.
        """
        self._new_app = new_app
        self._app = cast("App", None)
        self._buffered: asyncio.BufferedProtocol | None = None
        self._new_session = new_session
        self._session = cast("TlsSession", None)
        """Made when the client sends something: one that does not takes no memory of OpenSSL's."""
        self._handshakes = handshakes
        self._listener = listener
        self._tcp = cast("asyncio.Transport", None)
        self.address = ""
        """The client's, once the connection is made."""
        self._deadline: asyncio.TimerHandle | None = None
        self._is_stepping = False
        self._has_begun = False
        """Whether there is a session."""
        self._has_stepped = False
        """Whether a step of the handshake was made, or waits."""
        self._is_established = False
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False
        self._is_tcp_full = False
        self._is_app_paused = False
        self._backlog: deque[memoryview] = deque()
        """Plaintext that waits until the kernel takes more."""
        self._backlog_bytes = 0

    # Towards the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._tcp = cast("asyncio.Transport", transport)
        self.address = host_text((transport.get_extra_info("peername") or ("?",))[0])
        if not self._handshakes.begin(self):
            self._fail("too many clients have not authenticated")
            return
        self._deadline = asyncio.get_running_loop().call_later(
            self.handshake_seconds_max, self._fail, "it was not done in time"
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = self._is_lost = True
        self._end_handshake()
        self._backlog.clear()
        self._backlog_bytes = 0
        if self._is_established:
            self._app.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._handshakes.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self._has_begun:
            if not self._handshakes.begin_session(self):
                self._fail("too many handshakes have begun and are not done")
                return
            self._session, self._has_begun = self._new_session(), True
        self._session.receive_data(self._handshakes.receive_buffer[:nbytes])
        if self._is_established:
            self._pump()
        else:
            self._shake_hands()

    def eof_received(self) -> bool:
        """False: the transport closes. What was received before is delivered first."""
        if self._is_established:
            self._session.receive_eof()
            self._pump()
        return False

    def pause_writing(self) -> None:
        self._is_tcp_full = True
        if self._is_established and not self._is_app_paused:
            self._is_app_paused = True
            self._app.pause_writing()

    def resume_writing(self) -> None:
        self._is_tcp_full = False
        self._send_backlog()
        if self._is_app_paused and not self._is_tcp_full:
            self._is_app_paused = False
            self._app.resume_writing()

    # Towards the connection.

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as asyncio declares it
        match name:
            case "ssl_object":
                return self._session.ssl_object
            case "sslcontext":
                return self._session.ssl_object.context
            case _:
                return self._tcp.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand decrypted bytes to this protocol from now on."""
        self._app = cast("App", protocol)
        self._buffered = protocol if isinstance(protocol, asyncio.BufferedProtocol) else None

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._app

    def is_closing(self) -> bool:
        return self._is_closing or self._tcp.is_closing()

    def get_write_buffer_size(self) -> int:
        """The bytes that the kernel has not taken: encrypted ones, and plaintext behind them."""
        return self._tcp.get_write_buffer_size() + self._backlog_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._tcp.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        self._is_reading = False
        self._tcp.pause_reading()

    def resume_reading(self) -> None:
        if self._is_reading or self.is_closing():
            return
        self._is_reading = True
        self._tcp.resume_reading()
        if self._session.has_unread:
            # Not at once: the connection may be within its own `buffer_updated`.
            asyncio.get_running_loop().call_soon(self._pump)

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        if self.is_closing():
            return
        small: list[Buffer] = []
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            if len(view) < TLS_JOIN_BYTES:
                small.append(view)
                continue
            self._queue_joined(small)
            small = []
            self._queue(view)
        self._queue_joined(small)
        if not self._is_tcp_full:
            self._send_backlog()

    def close(self) -> None:
        """Close once everything that was written is sent."""
        if self.is_closing():
            return
        self._is_closing = True
        self._tcp.pause_reading()
        if not self._backlog:
            self._finish_close()

    def abort(self) -> None:
        """Close at once; unsent bytes are dropped."""
        self._is_closing = True
        self._backlog.clear()
        self._backlog_bytes = 0
        if not self._is_lost:  # asyncio's transports cannot be closed again
            self._tcp.abort()

    # The handshake.

    def give_way(self) -> None:
        """Close: another address needs the place among the handshakes that are not done."""
        self._fail("it was not done, and other addresses need its place")

    def _shake_hands(self) -> None:
        # The session is the thread's until the step is done: nothing is read meanwhile.
        self._tcp.pause_reading()
        self._is_stepping = True
        is_first, self._has_stepped = not self._has_stepped, True
        if not self._handshakes.submit(self, self._session, self._stepped, is_first=is_first):
            self._is_stepping = False
            self._fail("too many handshakes wait")

    def _stepped(self, outcome: bool | TlsFailed) -> None:  # noqa: FBT001 - the outcome of a step
        self._is_stepping = False
        if self.is_closing():
            return
        to_send = self._session.data_to_send()
        if to_send:
            self._tcp.write(to_send)
        if isinstance(outcome, TlsFailed):
            self._fail(str(outcome))
            return
        if outcome:
            self._begin_app()
        else:
            self._tcp.resume_reading()

    def _begin_app(self) -> None:
        try:
            app = self._new_app(self._session.ssl_object)
        except UnnamedPrincipal as error:
            self._fail(str(error))
            return
        self.set_protocol(app)
        self._is_established = True
        self._end_handshake()
        self._tcp.resume_reading()
        app.connection_made(cast("asyncio.Transport", self))
        if self._session.has_unread:
            self._pump()

    def _fail(self, reason: str) -> None:
        """Close a connection whose handshake failed; the alert that says why is sent."""
        log.info(
            "closed a connection: its TLS handshake failed",
            extra={
                "listener": self._listener,
                "peer": self.address,
                "reason": reason,
            },
        )
        self._handshakes.failed(self._listener, self.address, reason)
        self._is_closing = True
        self._end_handshake()
        if self._is_stepping or self._tcp.get_write_buffer_size() == 0:
            self._tcp.abort()
        else:
            self._tcp.close()

    def _end_handshake(self) -> None:
        self._handshakes.end(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # Reading.

    def _pump(self) -> None:
        """Hand over what can be decrypted, as long as the connection reads."""
        session = self._session
        try:
            while self._is_reading and not self.is_closing():
                buffer = self._receive_buffer()
                count = session.read_into(buffer)
                if count:
                    self._deliver(buffer, count)
                if count < len(buffer):
                    break
        except TlsFailed as failure:
            log.info(
                "closed a connection: TLS failed",
                extra={"listener": self._listener, "reason": str(failure)},
            )
            self._handshakes.metrics.connections_closed.labels("tls").inc()
            self.abort()
            return
        if self.is_closing():
            return
        to_send = session.data_to_send()  # the answer to a key update
        if to_send:
            self._tcp.write(to_send)
        if session.is_ended and not self._app.eof_received():
            self.close()

    def _receive_buffer(self) -> memoryview:
        if self._buffered is None:
            return self._handshakes.receive_buffer
        buffer = self._buffered.get_buffer(-1)
        return buffer if isinstance(buffer, memoryview) else memoryview(buffer)

    def _deliver(self, buffer: memoryview, count: int) -> None:
        if self._buffered is None:
            cast("asyncio.Protocol", self._app).data_received(bytes(buffer[:count]))
        else:
            self._buffered.buffer_updated(count)

    # Writing.

    def _queue_joined(self, small: list[Buffer]) -> None:
        if small:
            self._queue(memoryview(b"".join(small)))

    def _queue(self, view: memoryview) -> None:
        if view:
            self._backlog.append(view)
            self._backlog_bytes += len(view)

    def _send_backlog(self) -> None:
        """Encrypt and send until the kernel takes no more."""
        backlog = self._backlog
        try:
            while backlog and not self._is_tcp_full:
                part = backlog.popleft()
                if len(part) > TLS_SLICE_BYTES:
                    backlog.appendleft(part[TLS_SLICE_BYTES:])
                    part = part[:TLS_SLICE_BYTES]
                self._backlog_bytes -= len(part)
                self._session.write(part)
                self._tcp.write(self._session.data_to_send())
        except TlsFailed:
            self.abort()  # the session failed while reading, which was logged
            return
        if self._is_closing and not backlog and not self._tcp.is_closing():
            self._finish_close()

    def _finish_close(self) -> None:
        if self._is_stepping:
            self._tcp.abort()
            return
        self._session.close()
        to_send = self._session.data_to_send()
        if to_send:
            self._tcp.write(to_send)
        self._tcp.close()
