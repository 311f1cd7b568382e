"""Who one connection speaks for: its principal, its groups, and the SASL mechanism that proved them.

On a listener with SASL the client proves it by `protocol.auth.sasl_session`, once before anything else, and again while
its session has an end (KIP-368). Source, in Kafka 4.3: org.apache.kafka.common.network.Authenticator and KafkaChannel.
"""

from collections.abc import Sequence
from typing import Final

from agent.security.authenticated_connections import AbortableConnection, ProvedBy
from agent.security.listener_authentication import ListenerAuthentication
from protocol.api_versions import ApiKey
from protocol.auth.principals import ANONYMOUS, GROUP, USER, Principal
from protocol.auth.sasl_exchange import BearerCheck, PasswordCheck, SaslIdentity
from protocol.auth.sasl_session import Failure, ListVersions, Output, Reply, SaslSession, Success
from protocol.auth.scram_credentials import ScramMechanism
from protocol.connection import RequestFrame
from protocol.limits import REAUTHENTICATION_SECONDS_MIN

Settled = Reply | ListVersions | Success | Failure
_SCRAM_BY_NAME: Final = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}


class ConnectionAuthenticator:
    """The identity of one connection. On a listener without SASL it is known from the start.

    `groups` are principals of the type `Group`; `mechanism` is the SASL mechanism's name, "" where SASL was not used.
    """

    __slots__ = (
        "_began_again_s",
        "_connection",
        "_listener",
        "_proved_by",
        "_session",
        "ends_s",
        "groups",
        "is_done",
        "mechanism",
        "principal",
    )

    def __init__(self, principal: Principal = ANONYMOUS, *, listener: ListenerAuthentication | None = None) -> None:
        """Begin.

        Args:
            principal: the client's, where its certificate names it.
            listener: authenticates the client by SASL; None where the listener does not.
        """
        self.principal = principal
        """ANONYMOUS while the client has not authenticated."""
        self.groups: Sequence[Principal] = ()
        self.mechanism = ""
        self.is_done = listener is None
        """Whether the client may send any request."""
        self.ends_s: float | None = None
        """The monotonic time at which the session ends; None where it has no end."""
        self._listener = listener
        self._session = None if listener is None else SaslSession(listener.rules)
        self._proved_by: ProvedBy | None = None
        self._connection: AbortableConnection | None = None
        self._began_again_s: float | None = None

    @property
    def is_reauthenticating(self) -> bool:
        """Whether the client has begun to authenticate again, and has not ended it."""
        return self.is_done and self._session is not None

    async def receive(self, frame: memoryview) -> Settled:
        """The answer to a frame of a client that has not authenticated. Not called after Success or Failure."""
        assert self._session is not None
        return await self._settle(self._session.receive(frame))

    def may_begin_again(self, request: RequestFrame, now_s: float) -> bool:
        """Whether the request begins a re-authentication: at most one a second, where the session has an end."""
        return (
            request.api_key == ApiKey.SASL_HANDSHAKE
            and self.ends_s is not None
            and (self._began_again_s is None or now_s - self._began_again_s >= REAUTHENTICATION_SECONDS_MIN)
        )

    async def receive_again(self, request: RequestFrame, now_s: float) -> Settled:
        """The answer to a request of a re-authentication, the first or a further one."""
        assert self._listener is not None
        if self._session is None:
            self._began_again_s = now_s
            self._session = SaslSession(self._listener.rules, previous=(self.mechanism, self.principal.name))
        return await self._settle(self._session.receive_request(request))

    def failure_delay_s(self, address: str) -> float:
        """Counts a failure of the client's address, and returns for how many seconds its answer waits."""
        assert self._listener is not None
        return self._listener.failure_delay_s(address)

    def attach(self, connection: AbortableConnection) -> None:
        """End the connection once the credential that proved its client is deleted."""
        self._connection = connection
        if self._listener is not None and self._proved_by is not None:
            self._listener.connections.add(self._proved_by, connection)

    def detach(self) -> None:
        """The connection is closed."""
        if self._listener is not None and self._proved_by is not None and self._connection is not None:
            self._listener.connections.remove(self._proved_by, self._connection)

    async def _settle(self, output: Output) -> Settled:
        assert self._session is not None
        proved_by: ProvedBy | None = None
        while isinstance(output, PasswordCheck | BearerCheck):
            identity, proved_by = await self._check(output)
            output = self._session.checked(identity)
        if isinstance(output, Success):
            scram = _SCRAM_BY_NAME.get(output.mechanism)
            proved_by = (output.identity.name, scram) if scram is not None else proved_by
            return self._succeed(output, proved_by)
        return output

    async def _check(self, check: PasswordCheck | BearerCheck) -> tuple[SaslIdentity | None, ProvedBy | None]:
        assert self._listener is not None
        assert isinstance(check, PasswordCheck), "no listener enables OAUTHBEARER yet"
        checked = await self._listener.passwords.identity(check)
        if checked is None:
            return None, None
        identity, key = checked
        return identity, identity.name if key is None else key

    def _succeed(self, success: Success, proved_by: ProvedBy | None) -> Success | Failure:
        listener, name = self._listener, success.identity.name
        assert listener is not None
        if proved_by is not None and not listener.connections.is_there(proved_by):
            # Deleted between the first message and the last one.
            return Failure(reason="the credential was deleted", mechanism=success.mechanism, user=name)
        self.detach()
        self.principal = Principal(USER, name)
        self.groups = tuple(Principal(GROUP, group) for group in success.identity.groups)
        self.mechanism = success.mechanism
        self.ends_s = listener.clock.monotonic_s() + success.lifetime_ms / 1000 if success.lifetime_ms else None
        self.is_done = True
        self._proved_by = proved_by
        self._session = None
        if self._connection is not None:
            self.attach(self._connection)
        return success
