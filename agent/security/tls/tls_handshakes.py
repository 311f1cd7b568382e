"""TLS handshakes of all listeners, in one thread, so that the event loop goes on serving.

A handshake costs about 2 ms of CPU, nearly all of it without the interpreter's lock. TLS_HANDSHAKES_UNDER_WAY_MAX steps
are with the thread and TLS_HANDSHAKES_WAITING_MAX wait for it; a connection beyond that is closed. A client that sends
nothing, or only a part, occupies no step: it is closed after TLS_HANDSHAKE_SECONDS_MAX.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from agent.runtime.metrics import Metrics
from protocol.auth.tls_session import TlsFailed, TlsSession
from protocol.limits import (
    TLS_HANDSHAKES_OPEN_MAX,
    TLS_HANDSHAKES_UNDER_WAY_MAX,
    TLS_HANDSHAKES_WAITING_MAX,
    TLS_RECEIVE_BUFFER_BYTES,
)


class ShakingConnection(Hashable, Protocol):
    """A connection whose handshake is not done."""

    def abort(self) -> None:
        """Close at once."""
        ...


Stepped = Callable[[bool | TlsFailed], None]
"""Takes the outcome of a step: whether the handshake is done, or why it failed."""


class TlsHandshakes:
    """The thread, its queue, and the connections whose handshakes are not done. Not thread-safe: one event loop's."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.receive_buffer = memoryview(bytearray(TLS_RECEIVE_BUFFER_BYTES))
        """Any connection's bytes arrive here, and are copied into its BIO before the loop reads another connection."""
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tls")
        self._waiting: deque[tuple[TlsSession, Stepped]] = deque()
        self._under_way_count = 0
        self._open: set[ShakingConnection] = set()
        self._is_over = False

    def begin(self, connection: ShakingConnection) -> bool:
        """Count a connection in; False where TLS_HANDSHAKES_OPEN_MAX have not finished: it is closed."""
        if len(self._open) >= TLS_HANDSHAKES_OPEN_MAX:
            return False
        self._open.add(connection)
        return True

    def end(self, connection: ShakingConnection) -> None:
        """The connection's handshake is done, or the connection is closed."""
        self._open.discard(connection)

    def submit(self, session: TlsSession, stepped: Stepped) -> bool:
        """Make the next step of a handshake in the thread, then call `stepped` on the loop.

        False where too many wait. Nothing else may use the session until then.
        """
        if self._is_over:
            return False
        if self._under_way_count < TLS_HANDSHAKES_UNDER_WAY_MAX:
            self._start(session, stepped)
        elif len(self._waiting) < TLS_HANDSHAKES_WAITING_MAX:
            self._waiting.append((session, stepped))
        else:
            return False
        return True

    def abort(self) -> None:
        """Close every connection whose handshake is not done: the agent stops."""
        self._is_over = True
        self._waiting.clear()
        for connection in list(self._open):
            connection.abort()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, session: TlsSession, stepped: Stepped) -> None:
        self._under_way_count += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, _step, session)
        future.add_done_callback(lambda done: self._finish(done, stepped))

    def _finish(self, future: "asyncio.Future[bool | TlsFailed]", stepped: Stepped) -> None:
        self._under_way_count -= 1
        if self._waiting:
            self._start(*self._waiting.popleft())
        if not future.cancelled():
            stepped(future.result())


def _step(session: TlsSession) -> bool | TlsFailed:
    try:
        return session.shake_hands()
    except TlsFailed as failure:
        return failure
