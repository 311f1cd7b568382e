"""The authentication of one listener: its mechanisms, and the users behind them."""

from functools import partial

from agent.config.sasl_settings import PLAIN, SaslSettings
from agent.runtime.clock import Clock
from agent.runtime.ids import Ids, uuid_text
from agent.runtime.metrics import Metrics
from agent.security.authenticated_connections import AuthenticatedConnections
from agent.security.failure_delays import FailureDelays
from agent.security.password_checks import PasswordChecks
from agent.security.scram_accounts import ScramAccounts
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
        clock: Clock,
        ids: Ids,
        metrics: Metrics,
    ) -> None:
        self.listener = listener
        self.settings = settings
        self.passwords = passwords
        self.connections = connections
        self.clock = clock
        self.metrics = metrics
        self._accounts = accounts
        self._failures = failures
        self._ids = ids
        self.rules = SaslRules(
            mechanisms=settings.mechanisms, begin_exchange=self._begin_exchange, lifetime_ms=self._lifetime_ms
        )

    def failure_delay_s(self, address: str) -> float:
        """Counts a failure of an address, and returns for how many seconds its answer waits."""
        return self._failures.delay_s(address, self.settings.failure_delay_ms / 1000, self.clock.monotonic_s())

    def _begin_exchange(self, mechanism: str) -> SaslExchange:
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
