"""A proxy that understands Kafka's frames: between the clients and one agent, it holds, drops and repeats messages.

Rule: everything passes unless a rule strikes it (`tests.jepsen.proxy.rules`). One proxy stands before one agent, which
tells clients the proxy's address as its own. It runs in a thread of its own; its methods block and may be called from
any other thread.
"""

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.jepsen.proxy.connection import ProxyConnection, Strike
from tests.jepsen.proxy.frames import ProxiedRequest
from tests.jepsen.proxy.rules import Rule, Rulebook, Side

WAIT_SECONDS_MAX = 60.0

T = TypeVar("T")


class KafkaProxy:
    """Use it in a `with` block. It listens on `port` at once; `upstream` is the agent's own loopback port."""

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._rules = Rulebook()
        self._strikes: list[Strike] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._struck = asyncio.Event()
        self.port = 0

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def add(self, rule: Rule) -> None:
        """From now on it strikes."""
        self._loop.call_soon_threadsafe(self._rules.add, rule)

    def remove(self, rule: Rule) -> None:
        """It strikes no more; what it holds is released."""

        def remove() -> None:
            self._rules.remove(rule)
            for strike in self._strikes:
                if strike.rule is rule:
                    strike.released.set()

        self._loop.call_soon_threadsafe(remove)

    def wait_struck(self, rule: Rule, *, seconds_max: float = WAIT_SECONDS_MAX) -> Strike:
        """The first message that the rule struck. Raises TimeoutError."""
        return self._call(self._wait_struck(rule), seconds_max)

    def release(self, strike: Strike) -> None:
        """Let go on what is held."""
        self._loop.call_soon_threadsafe(strike.released.set)

    def wait_answered(self, strike: Strike, *, seconds_max: float = WAIT_SECONDS_MAX) -> bytes | None:
        """What the server said to it; None where it hung up. Raises TimeoutError."""
        self._call(strike.answered.wait(), seconds_max)
        return strike.answer

    def strikes(self) -> list[Strike]:
        """All so far."""
        return list(self._strikes)

    def _call(self, work: Coroutine[Any, Any, T], seconds_max: float = WAIT_SECONDS_MAX) -> T:
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, seconds_max), self._loop)
        return future.result()

    async def _wait_struck(self, rule: Rule) -> Strike:
        while True:
            for strike in self._strikes:
                if strike.rule is rule:
                    return strike
            await self._struck.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await ProxyConnection((reader, writer), self._upstream, self._judge).run()
        except asyncio.CancelledError:
            writer.close()  # the proxy is closed
        finally:
            self._connections.discard(task)

    def _judge(self, side: Side, request: ProxiedRequest) -> Strike | None:
        rule = self._rules.strike(side, request)
        if rule is None:
            return None
        strike = Strike(rule, request)
        self._strikes.append(strike)
        self._struck.set()
        self._struck = asyncio.Event()
        return strike

    async def _close(self) -> None:
        """End everything; what is held is not delivered."""
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
