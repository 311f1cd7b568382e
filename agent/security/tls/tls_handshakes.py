"""TLS handshakes of all listeners, in one thread, so that the event loop goes on serving.

A handshake costs about 2 ms of CPU, nearly all of it without the interpreter's lock. TLS_HANDSHAKES_UNDER_WAY_MAX steps
are with the thread and TLS_HANDSHAKES_WAITING_MAX wait for it; a connection beyond that is closed. A client that sends
nothing, or only a part, occupies no step: it is closed after TLS_HANDSHAKE_SECONDS_MAX.

Handshakes that have begun come before new ones, and those of closed connections are left out. Otherwise a machine that
is too slow for all clients at once makes the first steps of all, until their time is over, and finishes none.

Rule: a connection whose handshake is not done has a place among the strangers, who share places by their addresses
(`agent.security.connections.fair_places`). OpenSSL's memory, some 46 KiB, is for TLS_HANDSHAKES_BEGUN_MAX of them,
which have sent something; they share it in the same way.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from agent.runtime.metrics import Metrics
from agent.security.audit.audit_events import AuditEvent, AuditSource, AuthenticationEvent
from agent.security.connections.fair_places import FairPlaces, Stranger
from protocol.auth.tls_session import TlsFailed, TlsSession
from protocol.limits import (
    TLS_HANDSHAKES_BEGUN_MAX,
    TLS_HANDSHAKES_UNDER_WAY_MAX,
    TLS_HANDSHAKES_WAITING_MAX,
    TLS_RECEIVE_BUFFER_BYTES,
)

MECHANISM: Final = "TLS"
API: Final = "TLS handshake"
"""The API of the audit log's events about handshakes."""


class ShakingConnection(Stranger, Protocol):
    """A connection whose handshake is not done."""

    def abort(self) -> None:
        """Close at once."""
        ...


Stepped = Callable[[bool | TlsFailed], None]
"""Takes the outcome of a step: whether the handshake is done, or why it failed."""

_WaitingStep = tuple[ShakingConnection, TlsSession, Stepped]


class TlsHandshakes:
    """The thread, its queue, and the connections whose handshakes are not done. Not thread-safe: one event loop's."""

    def __init__(self, metrics: Metrics, strangers: FairPlaces) -> None:
        """`strangers`: the places of all connections whose clients are not known yet."""
        self.metrics = metrics
        self.strangers = strangers
        self.receive_buffer = memoryview(bytearray(TLS_RECEIVE_BUFFER_BYTES))
        """Any connection's bytes arrive here, and are copied into its BIO before the loop reads another connection."""
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tls")
        self._beginning: deque[_WaitingStep] = deque()
        self._continuing: deque[_WaitingStep] = deque()
        self._under_way_count = 0
        self._open: set[ShakingConnection] = set()
        self._begun = FairPlaces(TLS_HANDSHAKES_BEGUN_MAX)
        self._is_over = False
        self.record: Callable[[AuditEvent], None] = lambda _: None
        """Takes the events of handshakes that failed."""
        metrics.tls_handshakes_unfinished.set_function(lambda: len(self._open))

    @property
    def open_count(self) -> int:
        """The connections whose handshakes are not done."""
        return len(self._open)

    def begin(self, connection: ShakingConnection) -> bool:
        """Count a connection in; False where too many strangers are open: it is closed."""
        if not self.strangers.take(connection):
            return False
        self._open.add(connection)
        return True

    def begin_session(self, connection: ShakingConnection) -> bool:
        """The connection's client has sent something: its session may be made, unless too many others have one."""
        return self._begun.take(connection)

    def end(self, connection: ShakingConnection) -> None:
        """The connection's handshake is done, or the connection is closed."""
        if connection in self._open:
            self._open.remove(connection)
            self.strangers.leave(connection)
            self._begun.leave(connection)

    def failed(self, listener: str, address: str, reason: str) -> None:
        """Count and record that a handshake failed."""
        self.metrics.connections_closed.labels("handshake").inc()
        source = AuditSource(mechanism=MECHANISM, host=address, listener=listener)
        self.record(AuthenticationEvent(source=source, api=API, is_success=False, reason=reason))

    def submit(self, connection: ShakingConnection, session: TlsSession, stepped: Stepped, *, is_first: bool) -> bool:
        """Make the next step of a handshake in the thread, then call `stepped` on the loop, unless it has ended.

        False where too many wait. Nothing else may use the session until then.
        """
        if self._is_over:
            return False
        if self._under_way_count < TLS_HANDSHAKES_UNDER_WAY_MAX:
            self._start(session, stepped)
        elif len(self._beginning) + len(self._continuing) < TLS_HANDSHAKES_WAITING_MAX:
            (self._beginning if is_first else self._continuing).append((connection, session, stepped))
        else:
            return False
        return True

    def abort(self) -> None:
        """Close every connection whose handshake is not done: the agent stops."""
        self._is_over = True
        self._beginning.clear()
        self._continuing.clear()
        for connection in list(self._open):
            connection.abort()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, session: TlsSession, stepped: Stepped) -> None:
        self._under_way_count += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, _step, session)
        future.add_done_callback(lambda done: self._finish(done, stepped))

    def _finish(self, future: "asyncio.Future[bool | TlsFailed]", stepped: Stepped) -> None:
        self._under_way_count -= 1
        self._start_next()
        if not future.cancelled():
            stepped(future.result())

    def _start_next(self) -> None:
        while self._continuing or self._beginning:
            connection, session, stepped = (self._continuing or self._beginning).popleft()
            if connection in self._open:
                self._start(session, stepped)
                return


def _step(session: TlsSession) -> bool | TlsFailed:
    try:
        return session.shake_hands()
    except TlsFailed as failure:
        return failure
