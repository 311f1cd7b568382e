"""Who one connection speaks for: its principal, its groups, and the SASL mechanism that proved them.

On a listener with SASL the client proves it by `protocol.auth.sasl_session`, once before anything else, and again while
its session has an end (KIP-368). Source, in Kafka 4.3: org.apache.kafka.common.network.Authenticator and KafkaChannel.
"""

from collections.abc import Sequence
from typing import Final

from agent.config.sasl_settings import PLAIN
from agent.security.authenticated_connections import AbortableConnection, ProvedBy, TokenProof
from agent.security.listener_authentication import ListenerAuthentication
from agent.security.oauth.web_tokens import InvalidToken
from protocol.api_versions import ApiKey
from protocol.auth.principals import ANONYMOUS, GROUP, USER, Principal
from protocol.auth.sasl_exchange import BearerCheck, PasswordCheck, SaslIdentity
from protocol.auth.sasl_session import Failure, ListVersions, Output, Reply, SaslSession, Success
from protocol.auth.scram_credentials import ScramMechanism
from protocol.connection import RequestFrame
from protocol.limits import REAUTHENTICATION_SECONDS_MIN

Settled = Reply | ListVersions | Success | Failure
MECHANISMS_OF_STATE: Final = frozenset({PLAIN, *(mechanism.sasl_name for mechanism in ScramMechanism)})
"""The mechanisms whose users are in the ledger."""
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
        "is_by_token",
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
        self.is_by_token = False
        """Whether a delegation token proved the principal: such a client may not ask for others (KIP-48)."""
        self.is_done = listener is None
        """Whether the client may send any request."""
        self.ends_s: float | None = None
        """The monotonic time at which the session ends; None where it has no end."""
        self._listener = listener
        self._session = None if listener is None else SaslSession(listener.rules)
        self._proved_by: ProvedBy | None = None
        self._connection: AbortableConnection | None = None
        self._began_again_s: float | None = None

    @classmethod
    def introduced(
        cls, principal: Principal, groups: Sequence[Principal], mechanism: str, *, is_by_token: bool
    ) -> "ConnectionAuthenticator":
        """The identity of a client that another agent has authenticated."""
        authenticator = cls(principal)
        authenticator.groups, authenticator.mechanism, authenticator.is_by_token = groups, mechanism, is_by_token
        return authenticator

    @property
    def is_reauthenticating(self) -> bool:
        """Whether the client has begun to authenticate again, and has not ended it."""
        return self.is_done and self._session is not None

    async def receive(self, frame: memoryview) -> Settled:
        """The answer to a frame of a client that has not authenticated. Not called after Success or Failure."""
        assert self._session is not None
        await self._catch_up(self._session)
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
        await self._catch_up(self._session)
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

    async def _catch_up(self, session: SaslSession) -> None:
        """Takes the barrier of S16 before a user of the cluster's state is named."""
        assert self._listener is not None
        if session.beginning_mechanism in MECHANISMS_OF_STATE:
            await self._listener.before_login()

    async def _settle(self, output: Output) -> Settled:
        assert self._session is not None
        proved_by: ProvedBy | None = None
        if isinstance(output, PasswordCheck):
            identity, proved_by = await self._check_password(output)
            output = self._session.checked(identity)
        elif isinstance(output, BearerCheck):
            output = await self._check_token(output)
        assert not isinstance(output, PasswordCheck | BearerCheck), "one check decides"
        if isinstance(output, Success):
            return self._succeed(output, _scram_proof(output) or proved_by)
        return output

    async def _check_token(self, check: BearerCheck) -> Output:
        assert self._listener is not None
        assert self._session is not None
        try:
            return self._session.checked(await self._listener.token_identity(check.token))
        except InvalidToken as error:
            return self._session.checked(None, str(error))

    async def _check_password(self, check: PasswordCheck) -> tuple[SaslIdentity | None, ProvedBy | None]:
        assert self._listener is not None
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
            return Failure(
                reason="the credential was deleted, or the token has ended", mechanism=success.mechanism, user=name
            )
        self.detach()
        self.principal = Principal(USER, name)
        self.groups = tuple(Principal(GROUP, group) for group in success.identity.groups)
        self.mechanism = success.mechanism
        self.is_by_token = isinstance(proved_by, TokenProof)
        self.ends_s = listener.clock.monotonic_s() + success.lifetime_ms / 1000 if success.lifetime_ms else None
        self.is_done = True
        self._proved_by = proved_by
        self._session = None
        if self._connection is not None:
            self.attach(self._connection)
        return success


def _scram_proof(success: Success) -> ProvedBy | None:
    """The token or credential that SCRAM proved; None for another mechanism."""
    scram = _SCRAM_BY_NAME.get(success.mechanism)
    if scram is None:
        return None
    token_id = success.identity.token_id
    return (success.identity.name, scram) if token_id is None else TokenProof(token_id)
