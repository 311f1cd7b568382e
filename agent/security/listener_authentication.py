"""The authentication of one listener: its mechanisms, and the users behind them."""

from collections.abc import Awaitable, Callable
from functools import partial

from agent.config.oauth_settings import OAUTHBEARER
from agent.config.sasl_settings import PLAIN, SaslSettings
from agent.runtime.clock import Clock
from agent.runtime.ids import Ids, uuid_text
from agent.runtime.metrics import Metrics
from agent.security.authenticated_connections import AuthenticatedConnections
from agent.security.connections.failure_delays import FailureDelays
from agent.security.oauth.bearer_tokens import BearerTokens
from agent.security.password_checks import PasswordChecks
from agent.security.scram_accounts import ScramAccounts
from protocol.auth.sasl_bearer import BearerExchange
from protocol.auth.sasl_exchange import SaslExchange, SaslIdentity
from protocol.auth.sasl_plain import PlainExchange
from protocol.auth.sasl_session import SaslRules
from protocol.auth.scram import ScramExchange
from protocol.auth.scram_credentials import ScramMechanism


class ListenerAuthentication:
    """The authentication of one listener. All listeners of an agent share what is behind it."""

    def __init__(
        self,
        *,
        listener: str,
        settings: SaslSettings,
        accounts: ScramAccounts,
        passwords: PasswordChecks,
        failures: FailureDelays,
        connections: AuthenticatedConnections,
        before_login: Callable[[], Awaitable[None]],
        clock: Clock,
        ids: Ids,
        metrics: Metrics,
        bearer_tokens: BearerTokens | None = None,
    ) -> None:
        """
        Args:
            before_login: returns behind a barrier (safety rule S16), or at once where it is known that none passes.
            bearer_tokens: those of OAUTHBEARER; None where it is not enabled.
        """
        self.listener = listener
        self.settings = settings
        self.passwords = passwords
        self.connections = connections
        self.before_login = before_login
        self.clock = clock
        self.metrics = metrics
        self._accounts = accounts
        self._failures = failures
        self._ids = ids
        self._bearer_tokens = bearer_tokens
        self.rules = SaslRules(
            mechanisms=settings.mechanisms, begin_exchange=self._begin_exchange, lifetime_ms=self._lifetime_ms
        )

    def failure_delay_s(self, address: str) -> float:
        """Counts a failure of an address, and returns for how many seconds its answer waits."""
        return self._failures.delay_s(address, self.settings.failure_delay_ms / 1000, self.clock.monotonic_s())

    async def token_identity(self, token: str) -> SaslIdentity:
        """Whom a bearer token was issued to. Raises `InvalidToken`."""
        assert self._bearer_tokens is not None, "without it OAUTHBEARER is not enabled"
        return await self._bearer_tokens.identity(token)

    def _begin_exchange(self, mechanism: str) -> SaslExchange:
        if mechanism == OAUTHBEARER:
            return BearerExchange()
        if mechanism == PLAIN:
            return PlainExchange()
        scram = ScramMechanism[mechanism.replace("-", "_")]
        return ScramExchange(
            scram,
            find_account=partial(self._accounts.scram_account, scram),
            server_nonce=uuid_text(self._ids.new_uuid()),
        )

    def _lifetime_ms(self, mechanism: str, identity: SaslIdentity) -> int:
        """The smaller of the listener's limit and of what the proof has left, as in Kafka."""
        limit_ms = self.settings.reauth_ms.get(mechanism, 0)
        if identity.expires_ms is None:
            return limit_ms
        # 0 would mean that the session has no end.
        left_ms = max(1, identity.expires_ms - self.clock.now_ms())
        return min(left_ms, limit_ms) if limit_ms else left_ms
