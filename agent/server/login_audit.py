"""The audit events of authentications, new and repeated ones."""

from agent.request.services import Services
from agent.security.audit.audit_events import AuditSource, AuthenticationEvent
from agent.security.authentication import ConnectionAuthenticator
from protocol.auth.principals import ANONYMOUS, USER, Principal
from protocol.auth.sasl_session import Failure

API = "SaslAuthenticate"


def record_success(services: Services, authenticator: ConnectionAuthenticator, listener: str, peer: str) -> None:
    """Record that a client has authenticated."""
    source = AuditSource(
        principal=authenticator.principal,
        groups=tuple(group.name for group in authenticator.groups),
        mechanism=authenticator.mechanism,
        host=peer.rpartition(":")[0],
        listener=listener,
    )
    services.audit_log.record(AuthenticationEvent(source=source, api=API, is_success=True))


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
