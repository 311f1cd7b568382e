"""The request that a task serves, for the audit log: code below the handlers can record a denial of it.

The rights of a principal are shared by its connections, and do not know which request asks. The code that takes up a
request sets `SUBJECT` in its task, if the audit log has denials; tasks that the request begins inherit it.
"""

from collections.abc import Collection
from contextvars import ContextVar
from typing import Final, Protocol

from agent.config.audit_classes import AuditClass
from agent.security.audit_events import AuditedResource, AuditSource, DenialEvent
from agent.security.audit_log import AuditLog
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


NO_ACL_ALLOWS: Final = "no ACL allows it, or one denies it"
ACLS_NOT_CONFIRMED: Final = "the ACLs are not confirmed since the recovery"
SUBJECT: ContextVar[AuditSubject | None] = ContextVar("SUBJECT", default=None)


def record_denials(
    log: AuditLog, operation: Operation, resource_type: ResourceType, names: Collection[str], *, rule: str
) -> None:
    """Record that the current request was denied an operation on these names. `rule` says by what.

    Nothing without a current request: HTTP requests record their denials themselves.
    """
    subject = SUBJECT.get()
    if subject is None or not log.takes(AuditClass.DENIED):
        return
    source, api = subject.audit_source, subject.audit_api
    for name in names:
        resource = AuditedResource(kind=resource_type, name=name)
        log.record(DenialEvent(source=source, api=api, resource=resource, operation=operation, decided_by=rule))
