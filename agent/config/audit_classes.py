"""The classes of the audit log's events.

Source: Kafka's authorizer logs denied operations at INFO and allowed ones at DEBUG (org.apache.kafka.metadata.
authorizer.StandardAuthorizerData, Kafka 4.3); the other classes are Penstock's own.
"""

from enum import Enum


class AuditClass(Enum):
    """The classes of events. The value is the name in `--audit-log-classes`."""

    AUTHENTICATION = "authentication"
    """A log-in that succeeded or failed."""
    DENIED = "denied"
    """An operation that the client may not perform."""
    CHANGE = "change"
    """A change of configs, topics, groups, quotas, ACLs, users or tokens."""
    CREDENTIAL = "credential"
    """Keys of the object store, or signed URLs, that an agent gave to a client."""
    ALLOWED = "allowed"
    """An operation that the client may perform."""


def read_audit_class(text: str) -> AuditClass:
    """Reads the name of a class. Raises `ValueError` with the names that there are."""
    try:
        return AuditClass(text)
    except ValueError as error:
        names = ", ".join(each.value for each in AuditClass)
        raise ValueError(f"{text!r} is no class of audit events; the classes are {names}") from error
