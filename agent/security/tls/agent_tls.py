"""TLS of all listeners of an agent and of its HTTP port: certificates, their reload, and the handshakes.

Connections of a listener that encrypts begin through `accept`, which puts TLS between the socket and their protocol.
"""

import logging
import ssl
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from agent.config.listener_security import HTTPS_LISTENER
from agent.config.settings import Settings
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.runtime.notices import Notice, NoticeKind
from agent.runtime.periodic_job import PeriodicJob
from agent.runtime.threads import run_in_thread
from agent.security.connections.fair_places import FairPlaces
from agent.security.tls.certificate_principals import certificate_principal
from agent.security.tls.tls_files import ListenerTls
from agent.security.tls.tls_handshakes import TlsHandshakes
from agent.security.tls.tls_transport import App, TlsTransport
from protocol.auth.principals import Principal
from protocol.auth.tls_session import TlsSession
from protocol.limits import TLS_EXPIRY_WARNING_SECONDS, TLS_RELOAD_SECONDS, UNAUTHENTICATED_CONNECTIONS_MAX

DAY_SECONDS = 86_400

log = logging.getLogger(__name__)


class AgentTls:
    """The listeners that encrypt, by name, and what their connections share."""

    def __init__(self, settings: Settings, clock: Clock, metrics: Metrics) -> None:
        """Read all certificates. Raises `InvalidSettings`."""
        self._clock = clock
        self._metrics = metrics
        self.strangers = FairPlaces(UNAUTHENTICATED_CONNECTIONS_MAX)
        """The places of connections whose TLS handshake or SASL login is not done, with TLS or without."""
        self.handshakes = TlsHandshakes(metrics, self.strangers)
        tls_settings = {name: security.tls for name, security in settings.listener_security.items()}
        tls_settings[HTTPS_LISTENER] = settings.http_tls
        self._listeners = {
            name: ListenerTls(tls, self._now_s()) for name, tls in tls_settings.items() if tls is not None
        }
        for name, listener in self._listeners.items():
            metrics.tls_certificate_expiry_seconds.labels(name).set_function(
                lambda tls=listener: tls.expires_s - self._now_s()  # type: ignore[misc]
            )
        self._logged: AbstractSet[tuple[str, NoticeKind]] = frozenset()
        """The notices that hold and are in the log, by listener."""
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

    def client_context(self, listener: str) -> ssl.SSLContext | None:
        """TLS of this agent as a client of other agents' listener of that name; None where it does not encrypt."""
        tls = self._listeners.get(listener)
        return None if tls is None else tls.client_context

    async def reload(self) -> None:
        """Use the certificates as their files are now, and log what an operator must do about them."""
        for tls in self._listeners.values():
            if not await run_in_thread(tls.reload, self._now_s()):
                self._metrics.tls_reload_failures.inc()
        self._log_notices()

    def notices(self) -> Sequence[Notice]:
        """A notice for each listener whose certificate expires soon, or whose revocation lists have ended."""
        return [notice for _, notice in self._listener_notices()]

    def _listener_notices(self) -> Iterator[tuple[str, Notice]]:
        """The notices with the names of their listeners."""
        now_s = self._now_s()
        for name, tls in self._listeners.items():
            if tls.expires_s - now_s < TLS_EXPIRY_WARNING_SECONDS:
                yield name, _expiry_notice(name, tls.expires_s - now_s)
            if tls.lists_end_s < now_s:
                yield name, _ended_lists_notice(name, tls)

    def _log_notices(self) -> None:
        """Log each notice when it appears, and not again while it lasts."""
        notices = {(name, notice.kind): notice for name, notice in self._listener_notices()}
        for (name, kind), notice in notices.items():
            if (name, kind) not in self._logged:
                log.warning(kind.value, extra={"listener": name, "reason": notice.detail})
        self._logged = notices.keys()

    def _now_s(self) -> float:
        return self._clock.now_ms() / 1000


def _expiry_notice(listener: str, seconds: float) -> Notice:
    """The notice of a certificate that expires in so many seconds."""
    is_expired = seconds <= 0
    text = "expired: clients cannot connect" if is_expired else f"expires in {seconds / DAY_SECONDS:.1f} days"
    return Notice(
        kind=NoticeKind.CERTIFICATE_EXPIRED if is_expired else NoticeKind.CERTIFICATE_EXPIRES,
        detail=f"the certificate of listener {listener} {text}; write a new one into its files, which the agent reads "
        "again",
    )


def _ended_lists_notice(listener: str, tls: ListenerTls) -> Notice:
    return Notice(
        kind=NoticeKind.REVOCATION_LIST_ENDED,
        detail=f"a revocation list of listener {listener} has ended: clients with certificates cannot connect; write "
        f"the authority's newer list into {tls.settings.revocation_lists}, which the agent reads again",
    )
