"""A connection of another agent until it has introduced a client, whose requests of groups it relays here.

Rule: the other agent says who the client is, so it is believed only on the listener RELAY, by a certificate whose
principal may perform CLUSTER_ACTION. Without TLS it may introduce clients that have no identity, and no others.
The client's agent authenticates; this one authorises.
"""

import asyncio
import logging
from typing import Final, cast

from agent.config.listener_security import RELAY_LISTENER
from agent.request.connection_epochs import IntroducedEpoch
from agent.request.services import Services
from agent.runtime.supervisor import begin_in, contain
from agent.security.authentication import ConnectionAuthenticator
from agent.security.required_rights import ACT_ON_CLUSTER
from agent.server.connection import ClientConnection
from agent.server.connection_table import ConnectionTable
from agent.server.dispatch import HANDLERS, RawHandler
from agent.server.request_router import RelayedClient
from protocol.api_versions import name_of
from protocol.auth.host_addresses import host_text
from protocol.auth.principals import Principal
from protocol.errors import MalformedRequest
from protocol.framing import FrameReceiver
from protocol.limits import (
    RELAY_INTRODUCTION_BYTES_MAX,
    RELAY_INTRODUCTION_SECONDS_MAX,
    UNAUTHENTICATED_BUFFER_BYTES,
)
from protocol.relay import RELAYED, Introduction, decode_introduction, encode_reply

log = logging.getLogger(__name__)


class RelayedRequests:
    """The router of a relay connection: requests of groups go to the agent's own handlers, and no others come."""

    def handler(self, api_key: int) -> RawHandler:
        """The agent's own handler: what was relayed once is not relayed again. Raises `MalformedRequest`."""
        if api_key not in RELAYED:
            raise MalformedRequest(f"{name_of(api_key)} is never relayed")
        return HANDLERS[api_key]

    def close(self) -> None:
        """Nothing of this connection is elsewhere."""


RELAYED_REQUESTS: Final = RelayedRequests()


class RelayIntroduction(asyncio.BufferedProtocol):
    """One connection of the listener RELAY, until its client is introduced. Its task lives as long."""

    listener = RELAY_LISTENER

    def __init__(
        self, table: ConnectionTable, services: Services, tasks: asyncio.TaskGroup, agent: Principal | None
    ) -> None:
        """Begin with `connection_made`. `agent`: by the other agent's certificate; None without TLS."""
        self._table = table
        self._services = services
        self._tasks = tasks
        self._agent = agent
        self._receiver = FrameReceiver(
            frame_bytes_max=RELAY_INTRODUCTION_BYTES_MAX,
            buffer_bytes=UNAUTHENTICATED_BUFFER_BYTES,
            buffer_bytes_first=UNAUTHENTICATED_BUFFER_BYTES,
        )
        self._frame: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self.address = ""
        """The other agent's, without port."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have these methods without deriving from asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)
        self.address = host_text((transport.get_extra_info("peername") or ("?", 0))[0])
        if self._table.register_unauthenticated(self):
            self._task = begin_in(self._tasks, contain(self._serve, self.abort))
        if self._task is None:  # the agent is ending, or too many connections are open
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
            self._close(str(error))
            return
        if not frames:
            return
        # An agent waits for the reply before it sends requests.
        if len(frames) > 1 or self._receiver.partial_bytes or self._frame.done():
            self._close("it sent more than an introduction")
            return
        assert self._transport is not None
        self._transport.pause_reading()
        self._frame.set_result(frames[0])

    def eof_received(self) -> bool:
        """False closes the transport."""
        return False

    def memory_granted(self) -> None:
        """An introduction is small: memory for it is not asked for."""

    def give_way(self) -> None:
        """Close: another address needs the place among the connections that are not introduced."""
        self._close("it introduced no client, and other addresses need its place")
        self._table.unregister_unauthenticated(self)

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    async def _serve(self) -> None:
        try:
            async with self._services.clock.timeout(RELAY_INTRODUCTION_SECONDS_MAX):
                introduction = decode_introduction(await self._frame)
                rejection = await self._rejection(introduction)
        except TimeoutError:
            self._close(f"it introduced no client within {RELAY_INTRODUCTION_SECONDS_MAX:.0f} s")
            return
        except MalformedRequest as error:
            self._close(str(error))
            return
        assert self._transport is not None
        if self._transport.is_closing():
            return
        if rejection:
            self._transport.write(encode_reply(rejection))
            self._close(rejection)
            return
        self._hand_over(introduction)

    async def _rejection(self, introduction: Introduction) -> str:
        """Why the introduction is not believed; "" where it is."""
        if self._agent is None:
            return "" if introduction.is_anonymous else "without TLS no identity of a client is believed"
        rights = self._services.authorizer.rights(self._agent, (), self.address)
        if await rights.may_on_cluster(ACT_ON_CLUSTER.operation):
            return ""
        return f"{self._agent} needs CLUSTER_ACTION on the cluster: name it in super.users, or add an ACL"

    def _hand_over(self, introduction: Introduction) -> None:
        transport = self._transport
        assert transport is not None
        self._table.unregister_unauthenticated(self)
        authenticator = ConnectionAuthenticator.introduced(
            introduction.principal,
            introduction.groups,
            introduction.mechanism,
            is_by_token=introduction.is_by_token,
        )
        relayed = RelayedClient(
            listener=introduction.listener, peer=introduction.peer, epoch=IntroducedEpoch(introduction.epoch)
        )
        connection = ClientConnection(
            self._table,
            self._services,
            self._tasks,
            RELAY_LISTENER,
            authenticator,
            router=RELAYED_REQUESTS,
            relayed=relayed,
        )
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if not transport.is_closing():
            transport.write(encode_reply(""))
            transport.resume_reading()
            connection.regulate_reading()

    def _close(self, reason: str) -> None:
        """Close once what was written is sent."""
        self._services.metrics.connections_closed.labels("relay_rejected").inc()
        log.warning(
            "closed a relay connection that introduced no client",
            extra={"peer": self.address, "agent": str(self._agent or ""), "reason": reason},
        )
        if self._transport is not None:
            self._transport.close()
