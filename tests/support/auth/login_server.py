"""A Kafka server whose listener authenticates, and raw clients of it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

from agent.config.sasl_settings import SaslSettings
from agent.config.token_settings import TokenSettings
from agent.ledger.ledger_client import LedgerClient
from agent.runtime.ids import SystemIds
from agent.runtime.metrics import Metrics
from agent.security.authenticated_connections import AuthenticatedConnections
from agent.security.connections.failure_delays import FailureDelays
from agent.security.denial_barrier import DenialBarrier
from agent.security.listener_authentication import ListenerAuthentication
from agent.security.oauth.bearer_tokens import BearerTokens
from agent.security.oauth.issuer_keys import IssuerKeys
from agent.security.password_checks import PasswordChecks
from agent.security.plain_users import PlainUsers
from agent.security.scram_accounts import CredentialKey, CredentialSource, ScramAccounts
from agent.security.tokens.delegation_tokens import DelegationTokens
from agent.server.connection_table import ConnectionTable
from agent.server.kafka_server import KafkaServer
from agent.server.login_connection import LoginConnection
from protocol.auth.scram_credentials import ScramCredential, ScramMechanism
from protocol.auth.scram_keys import credential_of, salt_password
from protocol.wire import INT32
from tests.support.agent.audit_logs import KeptAuditLog
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.agent.ledger_parts import ManualClock
from tests.support.auth.drawn_scram_client import DrawnScramClient
from tests.support.auth.sasl_frames import (
    AuthenticateAnswer,
    api_versions,
    authenticate,
    handshake,
    read_authenticate_answer,
    read_handshake_answer,
)

LISTENER = "SASL_PLAINTEXT"
PASSWORD = "wonderland"
ALICE = ("alice", ScramMechanism.SCRAM_SHA_256)
BOTH_MECHANISMS = SaslSettings(mechanisms=("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"))


def credential(password: str = PASSWORD, mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256) -> ScramCredential:
    """A credential with few iterations, so that tests are fast."""
    salted = salt_password(password, salt=b"salt", iterations=8, mechanism=mechanism)
    return credential_of(salted, salt=b"salt", iterations=8, mechanism=mechanism)


class ExpiringClock(ManualClock):
    """A clock whose time-outs end when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self._timeouts: list[asyncio.Timeout] = []

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        del seconds
        timeout = asyncio.timeout(None)
        self._timeouts.append(timeout)
        return timeout

    @property
    def delays(self) -> list[float]:
        """The sleeps that take time; those of no time let other tasks go on."""
        return [seconds for seconds in self.slept if seconds]

    def expire(self) -> None:
        """Ends all time-outs that run."""
        timeouts, self._timeouts = self._timeouts, []
        for timeout in timeouts:
            with suppress(RuntimeError):  # it has ended by itself
                timeout.reschedule(asyncio.get_running_loop().time())


@dataclass(slots=True)
class UserCredentials:
    """The credentials of a cluster's state."""

    by_key: dict[CredentialKey, ScramCredential] = field(default_factory=lambda: {ALICE: credential()})
    version: int = 0

    def set(self, key: CredentialKey, value: ScramCredential | None) -> None:
        if value is None:
            del self.by_key[key]
        else:
            self.by_key[key] = value
        self.version += 1

    @property
    def source(self) -> CredentialSource:
        return CredentialSource(credentials=lambda: self.by_key, version=lambda: self.version)


@dataclass(slots=True)
class RawPeer:
    """A client that sends frames as they are."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, *frames: bytes | memoryview) -> None:
        self.writer.write(b"".join(INT32.pack(len(frame)) + bytes(frame) for frame in frames))

    async def receive(self) -> bytes | None:
        """The next answer; None where the connection is closed instead."""
        async with asyncio.timeout(10):
            try:
                (answer_bytes,) = INT32.unpack(await self.reader.readexactly(4))
                return await self.reader.readexactly(answer_bytes)
            except (asyncio.IncompleteReadError, ConnectionError):
                return None

    async def ask(self, frame: bytes | memoryview) -> bytes:
        """The answer to a frame."""
        self.send(frame)
        answer = await self.receive()
        assert answer is not None, "the connection was closed"
        return answer

    async def is_closed(self) -> bool:
        """Whether the connection ends without a further answer."""
        return await self.receive() is None

    async def log_in(self, client: DrawnScramClient | None = None, *, version: int = 2) -> AuthenticateAnswer:
        """The last answer of SCRAM."""
        client = client or DrawnScramClient()
        answer = await self.ask(handshake(client.mechanism.sasl_name))
        assert read_handshake_answer(answer).error_code == 0
        first = read_authenticate_answer(await self.ask(authenticate(client.first(), version)), version)
        if first.error_code:
            return first
        return read_authenticate_answer(await self.ask(authenticate(client.final(first.token), version)), version)

    async def serves(self) -> bool:
        """Whether the client may send requests: ApiVersions is answered whenever it asks."""
        return await self.ask(api_versions()) is not None


@dataclass(slots=True)
class LoginServer:
    """A server, and what it authenticates by."""

    port: int
    table: ConnectionTable
    server: KafkaServer
    clock: ExpiringClock
    metrics: Metrics
    credentials: UserCredentials
    connections: AuthenticatedConnections
    audit_log: KeptAuditLog
    barrier: DenialBarrier
    tokens: DelegationTokens
    ledger: LedgerClient
    peers: list[RawPeer] = field(default_factory=list)

    async def connect(self, address: str = "127.0.0.1") -> RawPeer:
        """A connection from an address of this machine."""
        peer = RawPeer(*await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0)))
        self.peers.append(peer)
        return peer

    def count(self, name: str, labels: Mapping[str, str]) -> float:
        """A metric's value; 0 where it was not counted."""
        return self.metrics.registry.get_sample_value(name, dict(labels)) or 0.0


@asynccontextmanager
async def login_server(
    settings: SaslSettings = BOTH_MECHANISMS,
    *,
    plain_users: PlainUsers | None = None,
    issuer_keys: IssuerKeys | None = None,
) -> AsyncIterator[LoginServer]:
    """A server on a free port, over a ledger and a store in memory. `issuer_keys` are those of OAUTHBEARER."""
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        clock, credentials, metrics = ExpiringClock(), UserCredentials(), paths.parts.metrics
        table = ConnectionTable(metrics=metrics)
        server = KafkaServer(table=table, clock=clock)
        source = credentials.source
        # By the server's clock: that of the ledger's parts does not move.
        tokens = DelegationTokens(paths.parts.ledger, settings=TokenSettings(key=b"key"), checked_time=clock.now_ms)
        accounts = ScramAccounts(source, decoy_secret=b"secret", find_token=tokens.account)
        connections = AuthenticatedConnections(
            source, plain_users=plain_users, is_token_valid=tokens.is_valid, clock=clock, metrics=metrics
        )
        barrier = DenialBarrier(ledger=paths.parts.ledger, clock=clock)
        authentication = ListenerAuthentication(
            listener=LISTENER,
            settings=settings,
            accounts=accounts,
            passwords=PasswordChecks(accounts, plain_users),
            failures=FailureDelays(),
            connections=connections,
            before_login=lambda: barrier.before_login(),
            clock=clock,
            ids=SystemIds(),
            metrics=metrics,
            bearer_tokens=_bearer_tokens(settings, issuer_keys, clock),
        )
        audit_log = KeptAuditLog(clock)
        services = replace(services_of(paths, clock, tasks), audit_log=audit_log, delegation_tokens=tokens)
        port = await server.listen(LISTENER, "127.0.0.1", 0)
        await server.start_serving(lambda _: LoginConnection(table, services, tasks, authentication))
        login = LoginServer(
            port,
            table,
            server,
            clock,
            metrics,
            credentials,
            connections,
            audit_log,
            barrier,
            tokens,
            paths.parts.ledger,
        )
        yield login
        for peer in login.peers:
            peer.writer.transport.abort()
        await server.drain(0)


def _bearer_tokens(settings: SaslSettings, keys: IssuerKeys | None, clock: ExpiringClock) -> BearerTokens | None:
    if settings.oauth is None or keys is None:
        return None
    return BearerTokens(settings.oauth, keys, clock)
