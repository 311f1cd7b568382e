"""The events of the audit log: who did, or could not do, what to which resource, and by which rule.

Rule: an event holds no record, password, key or token. Equal events are equal values, so that the log can count them.
Source of what is recorded: Kafka's `kafka.authorizer.logger` (org.apache.kafka.metadata.authorizer.
StandardAuthorizerData.logAuditMessage, Kafka 4.3), which knows denied and allowed operations only.
"""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import ClassVar, Final, TypeVar

from agent.config.audit_classes import AuditClass
from protocol.auth.operations import Operation, PatternType, ResourceType
from protocol.auth.principals import ANONYMOUS, Principal
from protocol.limits import AUDIT_LOG_DETAIL_CHARS_MAX, AUDIT_LOG_TEXT_CHARS_MAX
from protocol.types import Milliseconds

Event = TypeVar("Event", bound="AuditEvent")
NAMES_LEFT_OUT: Final = "several, without their names: there were too many in a minute"
"""The detail of an event that stands for several different ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSource:
    """Who acts, and from where."""

    principal: Principal = ANONYMOUS
    groups: tuple[str, ...] = ()
    """The names of the groups that a token gives its principal."""
    mechanism: str = ""
    """The SASL mechanism or HTTP scheme of the log-in; empty without one."""
    host: str = ""
    """The client's address, without port."""
    listener: str = ""
    client_id: str = ""

    def with_short_texts(self) -> "AuditSource":
        """The same, with each text of at most AUDIT_LOG_TEXT_CHARS_MAX characters."""
        principal = Principal(self.principal.kind, _short(self.principal.name))
        return replace(self, principal=principal, client_id=_short(self.client_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedResource:
    """A resource as ACLs name it."""

    kind: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return f"{self.kind.name.title().replace('_', '')}:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """One event: its source, API and resource. The subclasses say what happened."""

    audit_class: ClassVar[AuditClass]
    source: AuditSource
    api: str
    """The API's name, or method and path of an HTTP request without its query; the path's pattern without a login."""
    resource: AuditedResource | None = None
    operation: Operation | None = None

    @property
    def decision(self) -> str:
        """The outcome in one word: `denied` is for missing rights alone."""
        raise NotImplementedError

    @property
    def rule(self) -> str:
        """The rule that decided; empty where none did."""
        return ""

    @property
    def detail(self) -> str:
        """The change, or the keys' scope; empty where the other fields say all."""
        return ""

    def with_short_texts(self) -> "AuditEvent":
        """The same event, with bounded texts: clients choose some of them."""
        return _with_short_names(self)

    def without_names(self, source: AuditSource) -> "AuditEvent":
        """The event that stands for several of a source that differ in what a client chooses."""
        raise NotImplementedError

    @property
    def text_chars(self) -> int:
        """The characters of all texts, of which the memory of a waiting event is estimated."""
        source = self.source
        name_chars = 0 if self.resource is None else len(self.resource.name)
        groups_chars = sum(map(len, source.groups))
        source_chars = len(source.principal.name) + len(source.client_id) + len(source.host) + groups_chars
        return name_chars + source_chars + len(self.api) + len(self.rule) + len(self.detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationEvent(AuditEvent):
    """A log-in. The principal of a failed one is who the client said that it is, if it got so far."""

    audit_class = AuditClass.AUTHENTICATION
    is_success: bool
    reason: str = ""
    """Why it failed, without anything that the client keeps secret."""
    note: str = ""

    @property
    def decision(self) -> str:
        return "authenticated" if self.is_success else "rejected"

    @property
    def rule(self) -> str:
        return self.reason

    @property
    def detail(self) -> str:
        return self.note

    def with_short_texts(self) -> "AuthenticationEvent":
        event = replace(self, reason=_short(self.reason))
        return _with_short_names(event)

    def without_names(self, source: AuditSource) -> "AuthenticationEvent":
        return AuthenticationEvent(source=source, api="", is_success=self.is_success, note=NAMES_LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class DenialEvent(AuditEvent):
    """An operation that the client named and may not perform. What a list leaves out is no event."""

    audit_class = AuditClass.DENIED
    decided_by: str = ""
    """The rule: an ACL, or that none fits."""
    note: str = ""

    @property
    def decision(self) -> str:
        return "denied"

    @property
    def rule(self) -> str:
        return self.decided_by

    @property
    def detail(self) -> str:
        return self.note

    def with_short_texts(self) -> "DenialEvent":
        return _with_short_names(replace(self, decided_by=_short(self.decided_by, AUDIT_LOG_DETAIL_CHARS_MAX)))

    def without_names(self, source: AuditSource) -> "DenialEvent":
        resource = None if self.resource is None else AuditedResource(kind=self.resource.kind, name="")
        return DenialEvent(source=source, api="", resource=resource, operation=self.operation, note=NAMES_LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedEvent(AuditEvent):
    """An operation that the client may perform."""

    audit_class = AuditClass.ALLOWED
    decided_by: str = ""

    @property
    def decision(self) -> str:
        return "allowed"

    @property
    def rule(self) -> str:
        return self.decided_by

    def with_short_texts(self) -> "AllowedEvent":
        return _with_short_names(replace(self, decided_by=_short(self.decided_by, AUDIT_LOG_DETAIL_CHARS_MAX)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEvent(AuditEvent):
    """A change that was made, or whose outcome the agent does not know because the ledger did not answer in time."""

    audit_class = AuditClass.CHANGE
    change: str
    """The names and values that changed, without those of sensitive configs."""
    is_certain: bool = True
    """False where the change may have been made or not."""

    @property
    def decision(self) -> str:
        return "changed" if self.is_certain else "unknown"

    @property
    def detail(self) -> str:
        return self.change

    def with_short_texts(self) -> "ChangeEvent":
        event = replace(self, change=_short(self.change, AUDIT_LOG_DETAIL_CHARS_MAX))
        return _with_short_names(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialEvent(AuditEvent):
    """Keys or a signed URL for one resource, which an agent gave to a client."""

    audit_class = AuditClass.CREDENTIAL
    scope: str
    """The objects that the keys open, and for how long: never the keys themselves."""

    @property
    def decision(self) -> str:
        return "issued"

    @property
    def detail(self) -> str:
        return self.scope

    def with_short_texts(self) -> "CredentialEvent":
        event = replace(self, scope=_short(self.scope, AUDIT_LOG_DETAIL_CHARS_MAX))
        return _with_short_names(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """An event in its written form: `line` is a JSON object without a line break."""

    time_ms: Milliseconds
    line: bytes
    is_change: bool = False


def written(event: AuditEvent, *, time_ms: Milliseconds, count: int, cluster_id: str, agent: str) -> AuditRecord:
    """The record of `count` equal events, of which the first happened at `time_ms`."""
    source = event.source
    fields = {
        "time": _time_text(time_ms),
        "cluster": cluster_id,
        "agent": agent,
        "principal": str(source.principal),
        "groups": list(source.groups),
        "mechanism": source.mechanism,
        "host": source.host,
        "listener": source.listener,
        "client_id": source.client_id,
        "api": event.api,
        "operation": "" if event.operation is None else event.operation.name,
        "resource": "" if event.resource is None else str(event.resource),
        "pattern": "" if event.resource is None else event.resource.pattern.name,
        "decision": event.decision,
        "rule": event.rule,
        "detail": event.detail,
        "count": count,
    }
    return AuditRecord(
        time_ms=time_ms,
        line=json.dumps(fields, separators=(",", ":")).encode(),
        is_change=event.audit_class is AuditClass.CHANGE,
    )


def _time_text(time_ms: Milliseconds) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _with_short_names(event: Event) -> Event:
    resource = event.resource
    if resource is not None:
        resource = replace(resource, name=_short(resource.name))
    return replace(event, source=event.source.with_short_texts(), resource=resource, api=_short(event.api))


def _short(text: str, chars_max: int = AUDIT_LOG_TEXT_CHARS_MAX) -> str:
    return text if len(text) <= chars_max else f"{text[:chars_max]}... ({len(text)} characters)"
