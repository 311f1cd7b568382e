"""A connection whose client has to authenticate first: one small frame at a time, for a short time, and nothing else.

It holds a socket until `agent.security.authentication` says who the client is, and then gives it to a
`ClientConnection`. Its frames are bounded by `sasl.server.max.receive.size`, its time by SASL_SECONDS_MAX, and what all
strangers take together by `agent.server.stranger_connection`.
Source: org.apache.kafka.common.network.Selector and KafkaChannel.delayCloseOnAuthenticationFailure (Kafka 4.3).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from agent.request.services import Request, Services
from agent.security.authentication import ConnectionAuthenticator, Settled
from agent.security.listener_authentication import ListenerAuthentication
from agent.server.connection import ClientConnection
from agent.server.connection_table import ConnectionTable
from agent.server.dispatch import HANDLERS
from agent.server.login_audit import record_failure, record_success
from agent.server.request_router import RequestRouter
from agent.server.stranger_connection import StrangerConnection, with_size
from agent.telemetry.client_info import ConnectedClient
from protocol.api_versions import ApiKey
from protocol.auth.sasl_session import Failure, ListVersions, Reply, Success
from protocol.connection import RequestFrame
from protocol.errors import MalformedRequest
from protocol.limits import SASL_SECONDS_MAX
from storage.object_store import Buffer

log = logging.getLogger(__name__)


class LoginConnection(StrangerConnection):
    """One connection until its client has authenticated."""

    def __init__(
        self,
        table: ConnectionTable,
        services: Services,
        tasks: asyncio.TaskGroup,
        authentication: ListenerAuthentication,
        new_router: Callable[[], RequestRouter | None] = lambda: None,
    ) -> None:
        """Begin with `connection_made`; the arguments are those of `ClientConnection`, whose router is made for it."""
        super().__init__(
            table,
            services,
            tasks,
            authentication.listener,
            frame_bytes_max=authentication.settings.frame_bytes_max,
        )
        self._authentication = authentication
        self._new_router = new_router
        self._authenticator = ConnectionAuthenticator(listener=authentication)
        self._client = ConnectedClient()

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
                    self._write(with_size([output.answer]))
                case ListVersions():
                    try:
                        self._write(with_size(await self._list_versions(output.frame)))
                    except MalformedRequest as error:
                        return Failure(reason=str(error))

    async def _take_frame(self) -> Settled:
        """Handles the next frame. A function of its own, so that no variable keeps its memory."""
        frame = await self._next_frame()
        await self._table.login_turns.take()
        return await self._authenticator.receive(frame)

    async def _list_versions(self, frame: RequestFrame) -> Sequence[Buffer]:
        request = Request(frame=frame, listener=self.listener, peer=self.peer, client=self._client)
        answer = await HANDLERS[ApiKey.API_VERSIONS](self._services, request)
        assert answer is not None
        assert not isinstance(answer, asyncio.Future), "ApiVersions is answered at once"
        return answer

    def _hand_over(self, success: Success) -> None:
        """Give the socket to a connection that serves requests, then send the success: requests may follow it."""
        assert self._transport is not None
        if self._transport.is_closing():
            return
        self._services.metrics.authentications.labels(self.listener, success.mechanism).inc()
        record_success(self._services, self._authenticator, self.listener, self.peer)
        if log.isEnabledFor(logging.DEBUG):
            principal = str(self._authenticator.principal)
            extra = {"peer": self.peer, "mechanism": success.mechanism, "principal": principal}
            log.debug("a client has authenticated", extra=extra)
        connection = ClientConnection(
            self._table,
            self._services,
            self._tasks,
            self.listener,
            self._authenticator,
            self._client,
            router=self._new_router(),
        )
        self._replace_by(connection, with_size([success.answer]))

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
            self._write(with_size([failure.answer]))
        self._transport.close()
