"""The first protocol of each accepted socket: it asks the limits, and hands the socket to the connection's protocol.

A socket beyond a limit is held unread, for as long as the limit says, and closed.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.runtime.supervisor import begin_in, contain
from agent.security.connections.connection_limits import ConnectionLimits, LimitRejection
from protocol.auth.host_addresses import host_text

log = logging.getLogger(__name__)


class ConnectionGate(asyncio.Protocol):
    """One accepted socket, until it is admitted or rejected."""

    def __init__(
        self,
        limits: ConnectionLimits,
        listener: str,
        accept: Callable[[str], asyncio.BaseProtocol],
        *,
        tasks: asyncio.TaskGroup,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """Begin with `connection_made`. `accept` makes the connection's own protocol."""
        self._limits = limits
        self._listener = listener
        self._accept = accept
        self._tasks = tasks
        self._clock = clock
        self._metrics = metrics

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have these methods without deriving from asyncio's classes.
        tcp = cast("asyncio.Transport", transport)
        address = host_text((transport.get_extra_info("peername") or ("?", 0))[0])
        rejection = self._limits.admit(tcp, self._listener, address)
        if rejection is None:
            protocol = self._accept(self._listener)
            tcp.set_protocol(protocol)
            protocol.connection_made(tcp)
            return
        self._metrics.connections_closed.labels("limited").inc()
        extra = {"listener": self._listener, "peer": address, "reason": rejection.reason}
        log.info("rejected a connection beyond a limit", extra=extra)
        self._reject(tcp, rejection)

    def _reject(self, tcp: asyncio.Transport, rejection: LimitRejection) -> None:
        if not rejection.hold_s:
            tcp.abort()
            return
        tcp.pause_reading()

        async def hold() -> None:
            await self._clock.sleep(rejection.hold_s)
            tcp.abort()

        if begin_in(self._tasks, contain(hold, tcp.abort)) is None:
            tcp.abort()
