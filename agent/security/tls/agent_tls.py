"""TLS of all listeners of an agent and of its HTTP port: certificates, their reload, and the handshakes.

Connections of a listener that encrypts begin through `accept`, which puts TLS between the socket and their protocol.
"""

import ssl
from collections.abc import Callable, Sequence

from agent.config.listener_security import HTTPS_LISTENER
from agent.config.settings import Settings
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.runtime.periodic_job import PeriodicJob
from agent.runtime.threads import run_in_thread
from agent.security.tls.certificate_principals import certificate_principal
from agent.security.tls.tls_files import ListenerTls
from agent.security.tls.tls_handshakes import TlsHandshakes
from agent.security.tls.tls_transport import App, TlsTransport
from protocol.auth.principals import Principal
from protocol.auth.tls_session import TlsSession
from protocol.limits import TLS_EXPIRY_WARNING_SECONDS, TLS_RELOAD_SECONDS

DAY_SECONDS = 86_400


class AgentTls:
    """The listeners that encrypt, by name, and what their connections share."""

    def __init__(self, settings: Settings, clock: Clock, metrics: Metrics) -> None:
        """Read all certificates. Raises `InvalidSettings`."""
        self._clock = clock
        self._metrics = metrics
        self.handshakes = TlsHandshakes(metrics)
        tls_settings = {name: security.tls for name, security in settings.listener_security.items()}
        tls_settings[HTTPS_LISTENER] = settings.http_tls
        self._listeners = {
            name: ListenerTls(tls, self._now_s()) for name, tls in tls_settings.items() if tls is not None
        }
        for name, listener in self._listeners.items():
            metrics.tls_certificate_expiry_seconds.labels(name).set_function(
                lambda tls=listener: tls.expires_s - self._now_s()  # type: ignore[misc]
            )
        self.job = PeriodicJob(name="certificates", interval_s=TLS_RELOAD_SECONDS, run_once=self.reload)

    @property
    def has_listeners(self) -> bool:
        return bool(self._listeners)

    def accept(self, listener: str, new_app: Callable[[ssl.SSLObject], App]) -> TlsTransport:
        """The protocol of a new connection's socket; `new_app` makes the connection's own after the handshake."""
        tls = self._listeners[listener]
        return TlsTransport(new_app, lambda: TlsSession(tls.context), self.handshakes, listener=listener)

    def is_encrypted(self, listener: str) -> bool:
        return listener in self._listeners

    def principal_of(self, listener: str, ssl_object: ssl.SSLObject) -> Principal:
        """The principal of a client by its certificate. Raises `UnnamedPrincipal`: close the connection."""
        tls = self._listeners[listener]
        return certificate_principal(ssl_object, tls.settings.principal_source, tls.rules)

    async def reload(self) -> None:
        """Use the certificates as their files are now."""
        for tls in self._listeners.values():
            if not await run_in_thread(tls.reload, self._now_s()):
                self._metrics.tls_reload_failures.inc()

    def notices(self) -> Sequence[str]:
        """A line for each listener whose certificate expires soon."""
        return [
            expiry_notice(name, tls.expires_s - self._now_s())
            for name, tls in self._listeners.items()
            if tls.expires_s - self._now_s() < TLS_EXPIRY_WARNING_SECONDS
        ]

    def _now_s(self) -> float:
        return self._clock.now_ms() / 1000


def expiry_notice(listener: str, seconds: float) -> str:
    """The sentence about a certificate that expires in so many seconds."""
    is_expired = seconds <= 0
    text = "expired: clients cannot connect" if is_expired else f"expires in {seconds / DAY_SECONDS:.1f} days"
    return f"the certificate of listener {listener} {text}; write a new one into its files, which the agent reads again"
