"""The HTTP port: health, metrics and administration, served by uvicorn inside the agent's own loop.

Rule: the port is open before the agent serves. `agent.http.start_app` answers until `HttpServer.open`, then
`agent.http.api`, and after `HttpServer.withdraw` the former again. uvicorn is imported when the server starts, and
touches neither signals nor logging.
"""

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent.config.addresses import HostPort
from agent.config.http_auth import HttpAccess
from agent.config.listener_security import HTTPS_LISTENER
from agent.http.iceberg.catalog_config import CatalogParts
from agent.http.services import AdminServices, StartServices
from agent.runtime.sockets import bound_socket
from agent.security.http_identity import HttpIdentities
from agent.security.tls.agent_tls import AgentTls
from protocol.limits import (
    HTTP_HEAD_BYTES_MAX,
    HTTP_IDLE_SECONDS_MAX,
    HTTP_REQUESTS_MAX,
    HTTP_STOP_SECONDS_MAX,
)

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp, Receive, Scope, Send

BACKLOG = 128


class HttpServer:
    """The HTTP server. Call `bind`, then `run` as a task. `serving` returns once it answers; `stop` ends `run`.

    It says that the agent starts until `open`, and that it stops after `withdraw`.
    """

    def __init__(
        self,
        *,
        address: HostPort,
        catalog: CatalogParts | None = None,
        access: HttpAccess | None = None,
        tls: AgentTls | None = None,
    ) -> None:
        """Without a `catalog` there are no routes below /iceberg; without `access` only this machine is answered.

        Connections are encrypted where `tls` has the listener HTTPS.
        """
        self._tls = tls if tls is not None and tls.is_encrypted(HTTPS_LISTENER) else None
        self._access = HttpAccess() if access is None else access
        self._catalog = catalog
        self._address = address
        self._start_app: ASGIApp | None = None
        self._app: ASGIApp | None = None
        """The application that answers now: connections outlive the change of it."""
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._serving = asyncio.Event()

    def bind(self) -> HostPort:
        """Bind the port and return the address with the real port. Raises `OSError`."""
        self._socket = bound_socket(self._address.host, self._address.port)
        self._socket.listen(BACKLOG)
        return self.address

    @property
    def address(self) -> HostPort:
        """The address, with the real port once it is bound."""
        if self._socket is None:
            return self._address
        return HostPort(host=self._address.host, port=self._socket.getsockname()[1])

    async def run(self, services: StartServices) -> None:
        """Serve until `stop` or a cancellation."""
        assert self._socket is not None, "bind first"
        from agent.http.start_app import build_start_app

        own_names = _own_names(self._address.host)
        self._app = self._start_app = build_start_app(services, access=self._access, own_names=own_names)
        self._server = _quiet_server(self._answer, self._serving, self._tls)
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            # A cancellation leaves them open. After `stop`, uvicorn has closed them.
            for server in getattr(self._server, "servers", ()):
                server.close()
            for connection in list(self._server.server_state.connections):
                connection.shutdown()
            self._socket.close()

    async def _answer(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        assert self._app is not None, "it is set before the server answers"
        await self._app(scope, receive, send)

    def open(self, services: AdminServices) -> None:
        """Answer all paths from now on: the agent has its services."""
        from agent.http.api import build_app

        own_names = _own_names(self._address.host)
        identities = HttpIdentities(
            access=self._access,
            rights=services.http_rights,
            passwords=services.passwords,
            token_owner=services.token_owner,
            clock=services.clock,
            digest_key=services.digest_key,
            bearer_tokens=services.bearer_tokens,
            own_names=own_names,
            record=services.record,
            until_room=services.until_audit_room,
        )
        is_metrics_open = self._access.is_metrics_open
        self._app = build_app(services, self._catalog, identities=identities, is_metrics_open=is_metrics_open)

    def withdraw(self) -> None:
        """Answer health and metrics alone from now on: the services of the agent end."""
        self._app = self._start_app

    async def serving(self) -> None:
        await self._serving.wait()

    async def stop(self) -> None:
        """Let requests in progress end within two seconds. `run` returns soon after."""
        if self._server is not None:
            self._server.should_exit = True


def _own_names(host: str) -> frozenset[str]:
    """The host of --http and this machine's own name, which /etc/hosts of Debian and others resolves to loopback."""
    machine = socket.gethostname().lower()
    return frozenset({host.lower(), machine, machine.partition(".")[0]} - {""})


def _quiet_server(app: "ASGIApp", serving: asyncio.Event, tls: AgentTls | None) -> "uvicorn.Server":
    import uvicorn

    from agent.http.uvicorn_protocol import BoundedProtocol, encrypted_protocol

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Generator[None, None, None]:
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            serving.set()

    config = uvicorn.Config(
        app,
        interface="asgi3",  # uvicorn takes a bound method for an application of ASGI 2
        lifespan="off",
        log_config=None,
        access_log=False,
        loop="none",
        http=BoundedProtocol if tls is None else encrypted_protocol(tls),
        h11_max_incomplete_event_size=HTTP_HEAD_BYTES_MAX,
        ws="none",
        server_header=False,
        date_header=False,
        proxy_headers=False,  # access control goes by the connection's peer: any client can send X-Forwarded-For
        limit_concurrency=HTTP_REQUESTS_MAX,
        timeout_keep_alive=HTTP_IDLE_SECONDS_MAX,
        timeout_graceful_shutdown=HTTP_STOP_SECONDS_MAX,
    )
    return Server(config)
