"""The budget of the audit log: how many different denials and failed log-ins of one source are events of their own.

In: events that no waiting one equals. Out: whether each is written by itself. Beyond the budget an event is counted to
one of its source, operation and resource type, without the names that the client chose; that event is given out once
the window is over. Rule: nothing is lost in silence: what no count has room for is the caller's to count as dropped.
A source is the principal, or, for clients without a login and for log-ins that failed, the address: of IPv6 its first
64 bits, which one customer has at will. Changes, log-ins that succeeded and allowed operations have no budget.
"""

import ipaddress
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from agent.security.audit.audit_events import AuditEvent, AuditSource, AuthenticationEvent, DenialEvent
from protocol.auth.host_addresses import address_of
from protocol.auth.principals import ANONYMOUS
from protocol.limits import (
    AUDIT_LOG_BUDGET_SECONDS,
    AUDIT_LOG_COUNTS_MAX,
    AUDIT_LOG_SOURCE_EVENTS_MAX,
    AUDIT_LOG_SOURCES_MAX,
    AUDIT_LOG_STRANGERS_EVENTS_MAX,
)
from protocol.types import Milliseconds

_IPV6_PREFIX_BITS = 64
_STRANGERS = "all without a login"
_OTHERS = "sources beyond the number that is counted"


class BudgetDecision(Enum):
    """How an event is recorded."""

    ALONE = "an event of its own"
    COUNTED = "counted to the event of its source, operation and resource type"
    DROPPED = "no count has room for it"


@dataclass(slots=True)
class Counted:
    """The event that stands for several, and the time of the first."""

    first_ms: Milliseconds
    count: int = 1


class AuditBudget:
    """The events of each source in the current window."""

    def __init__(self, *, source_events_max: int = AUDIT_LOG_SOURCE_EVENTS_MAX) -> None:
        self._source_events_max = source_events_max
        self._ends_s = 0.0
        self._events: Counter[tuple[type[AuditEvent], str]] = Counter()
        """Events of their own, by their kind and source."""
        self._counted: dict[AuditEvent, Counted] = {}

    @property
    def counted_count(self) -> int:
        """The events that stand for several and wait for the end of the window."""
        return len(self._counted)

    def judge(self, event: AuditEvent, *, now_s: float, now_ms: Milliseconds) -> BudgetDecision:
        """How the event is recorded. Ask `ended` first: this begins a window where none is."""
        if not _has_budget(event):
            return BudgetDecision.ALONE
        host = _stranger(event)
        if not self._events:
            self._ends_s = now_s + AUDIT_LOG_BUDGET_SECONDS
        if self._has_room(event, host):
            return BudgetDecision.ALONE
        merged = event.without_names(AuditSource(host=host) if host is not None else _principal_alone(event.source))
        counted = self._counted.get(merged)
        if counted is not None:
            counted.count += 1
        elif len(self._counted) < AUDIT_LOG_COUNTS_MAX:
            self._counted[merged] = Counted(now_ms)
        else:
            return BudgetDecision.DROPPED
        return BudgetDecision.COUNTED

    def ended(self, now_s: float) -> Mapping[AuditEvent, Counted]:
        """The events that stand for several, once the window is over; none before."""
        return self.end() if self._events and now_s >= self._ends_s else {}

    def end(self) -> Mapping[AuditEvent, Counted]:
        """The events that stand for several. The window is over now, and budgets are whole again."""
        counted = self._counted
        self._events, self._counted = Counter(), {}
        return counted

    def _has_room(self, event: AuditEvent, host: str | None) -> bool:
        """Take a place of the budget, of a stranger's two; False where one has none."""
        kind = type(event)
        strangers, source = (kind, _STRANGERS), (kind, str(event.source.principal) if host is None else host)
        if source not in self._events and len(self._events) >= AUDIT_LOG_SOURCES_MAX:
            source = (kind, _OTHERS)
        if self._events[source] >= self._source_events_max:
            return False
        if host is not None:
            if self._events[strangers] >= AUDIT_LOG_STRANGERS_EVENTS_MAX:
                return False
            self._events[strangers] += 1
        self._events[source] += 1
        return True


def _has_budget(event: AuditEvent) -> bool:
    return isinstance(event, DenialEvent) or (isinstance(event, AuthenticationEvent) and not event.is_success)


def _stranger(event: AuditEvent) -> str | None:
    """The network of a client that is known by its address alone; None of one that has logged in.

    Who a log-in that failed says that it is, is the client's choice.
    """
    if isinstance(event, DenialEvent) and event.source.principal != ANONYMOUS:
        return None
    address = address_of(event.source.host)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address.packed, _IPV6_PREFIX_BITS), strict=False))
    return event.source.host


def _principal_alone(source: AuditSource) -> AuditSource:
    return AuditSource(principal=source.principal, mechanism=source.mechanism)
