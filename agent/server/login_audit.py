"""The audit events of authentications, new and repeated ones."""

from agent.config.audit_classes import AuditClass
from agent.request.services import Services
from agent.security.audit.audit_events import AuditSource, AuthenticationEvent
from agent.security.authentication import ConnectionAuthenticator
from agent.security.tls.tls_handshakes import API as HANDSHAKE
from agent.security.tls.tls_handshakes import MECHANISM
from protocol.auth.principals import ANONYMOUS, USER, Principal
from protocol.auth.sasl_session import Failure

API = "SaslAuthenticate"


def record_success(services: Services, authenticator: ConnectionAuthenticator, listener: str, peer: str) -> None:
    """Record that a client has authenticated."""
    if not services.audit_log.takes(AuditClass.AUTHENTICATION):
        return
    source = AuditSource(
        principal=authenticator.principal,
        groups=tuple(group.name for group in authenticator.groups),
        mechanism=authenticator.mechanism,
        host=peer.rpartition(":")[0],
        listener=listener,
    )
    services.audit_log.record(AuthenticationEvent(source=source, api=API, is_success=True))


def record_certificate(services: Services, authenticator: ConnectionAuthenticator, listener: str, host: str) -> None:
    """Record that a client is known by its certificate alone; nothing where it is not."""
    if authenticator.mechanism or authenticator.principal == ANONYMOUS:
        return
    source = AuditSource(principal=authenticator.principal, mechanism=MECHANISM, host=host, listener=listener)
    services.audit_log.record(AuthenticationEvent(source=source, api=HANDSHAKE, is_success=True))


def record_failure(services: Services, failure: Failure, listener: str, peer: str) -> None:
    """Record that a client has failed. Its principal is the one that it named, if it got so far."""
    source = AuditSource(
        principal=Principal(USER, failure.user) if failure.user else ANONYMOUS,
        mechanism=failure.mechanism,
        host=peer.rpartition(":")[0],
        listener=listener,
    )
    event = AuthenticationEvent(source=source, api=API, is_success=False, reason=failure.reason)
    services.audit_log.record(event)
