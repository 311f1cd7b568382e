"""The request that a task serves, for the audit log: code below the handlers can record a denial of it.

The rights of a principal are shared by its connections, and do not know which request asks. The code that takes up a
request sets `SUBJECT` in its task, if the audit log has denials; tasks that the request begins inherit it.
"""

from collections.abc import Callable, Collection
from contextvars import ContextVar
from typing import Final, Protocol

from agent.config.audit_classes import AuditClass
from agent.security.audit.audit_events import AllowedEvent, AuditedResource, AuditSource, DenialEvent
from agent.security.audit.audit_log import AuditLog
from protocol.auth.operations import Operation, ResourceType


class AuditSubject(Protocol):
    """A request of any kind."""

    @property
    def audit_source(self) -> AuditSource:
        """Who asks, and from where."""
        ...

    @property
    def audit_api(self) -> str:
        """The API's name, or method and path of an HTTP request without its query."""
        ...


AGENTS_ALONE: Final = "agents alone create and write this topic"
NO_ACL_ALLOWS: Final = "no ACL allows it"
NO_ACL_IS_THERE: Final = "no ACL names it, and allow.everyone.if.no.acl.found is on"
ACLS_NOT_CONFIRMED: Final = "the ACLs are not confirmed since the recovery"
ACLS_STALE: Final = "the ACLs are older than authorizer.stale.max.ms"
SUPER_USER: Final = "super user"
AUTHORIZER_OFF: Final = "the authorizer is off"
RuleOf = Callable[[Operation, ResourceType, str], str]
"""The rule that decided an operation on a resource."""
SUBJECT: ContextVar[AuditSubject | None] = ContextVar("SUBJECT", default=None)


def record_denials(
    log: AuditLog, operation: Operation, resource_type: ResourceType, names: Collection[str], *, rule: str | RuleOf
) -> None:
    """Record that the current request was denied an operation on these names. `rule` says by what.

    Nothing without a current request: HTTP requests record their denials themselves.
    """
    if log.takes(AuditClass.DENIED):
        _record(DenialEvent, log, operation, resource_type, names, rule)


def record_allowed(
    log: AuditLog, operation: Operation, resource_type: ResourceType, names: Collection[str], *, rule: str | RuleOf
) -> None:
    """Record that the current request may perform an operation on these names. `rule` says by what."""
    if log.takes(AuditClass.ALLOWED):
        _record(AllowedEvent, log, operation, resource_type, names, rule)


def _record(
    event_type: type[DenialEvent | AllowedEvent],
    log: AuditLog,
    operation: Operation,
    resource_type: ResourceType,
    names: Collection[str],
    rule: str | RuleOf,
) -> None:
    subject = SUBJECT.get()
    if subject is None:
        return
    source, api = subject.audit_source, subject.audit_api
    for name in names:
        resource = AuditedResource(kind=resource_type, name=name)
        decided_by = rule if isinstance(rule, str) else rule(operation, resource_type, name)
        log.record(event_type(source=source, api=api, resource=resource, operation=operation, decided_by=decided_by))
