"""An audit log over a sink in memory, which can be made to fail, and events for it."""

import json
from collections.abc import Sequence
from typing import Any

from agent.config.audit_classes import AuditClass
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.security.audit.audit_budget import AuditBudget
from agent.security.audit.audit_events import (
    AuditedResource,
    AuditRecord,
    AuditSource,
    ChangeEvent,
    DenialEvent,
)
from agent.security.audit.audit_log import AuditLog, AuditSinkFailed
from protocol.auth.operations import Operation, ResourceType
from protocol.auth.principals import Principal
from protocol.limits import AUDIT_LOG_EVENTS_MAX
from tests.support.agent.ledger_parts import ManualClock

ALICE = AuditSource(principal=Principal("User", "alice"), host="10.0.0.7", listener="SASL_SSL", client_id="shop")


def no_budget() -> AuditBudget:
    """One beyond what the log itself lets wait."""
    return AuditBudget(source_events_max=100 * AUDIT_LOG_EVENTS_MAX)


class RequestOfAlice:
    """A request that a task serves."""

    audit_source = ALICE
    audit_api = "Produce"


class KeptSink:
    """Keeps what is written; raises instead while `problem` is set."""

    def __init__(self) -> None:
        self.records: list[AuditRecord] = []
        self.problem = ""

    async def write(self, records: Sequence[AuditRecord]) -> None:
        if self.problem:
            raise AuditSinkFailed(self.problem)
        self.records.extend(records)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(record.line) for record in self.records]


class KeptAuditLog(AuditLog):
    """An audit log of all classes, with its sink, clock and metrics at hand."""

    def __init__(self, clock: Clock | None = None, *, budget: AuditBudget | None = None) -> None:
        self.sink = KeptSink()
        self.clock = clock or ManualClock()
        self.metrics = Metrics()
        super().__init__(
            sink=self.sink,
            classes=frozenset(AuditClass),
            cluster_id="cluster",
            agent="a",
            clock=self.clock,
            metrics=self.metrics,
            budget=budget,
        )

    def dropped(self, audit_class: AuditClass) -> int:
        """The events of the class that were dropped, by the metric."""
        return self._value("penstock_audit_dropped_total", audit_class)

    def recorded(self, audit_class: AuditClass) -> int:
        """The events of the class that were recorded, by the metric."""
        return self._value("penstock_audit_events_total", audit_class)

    def _value(self, name: str, audit_class: AuditClass) -> int:
        return int(self.metrics.registry.get_sample_value(name, {"event": audit_class.value}) or 0)


def denial(name: str = "orders", source: AuditSource = ALICE) -> DenialEvent:
    """A topic that the client may not read."""
    resource = AuditedResource(kind=ResourceType.TOPIC, name=name)
    return DenialEvent(
        source=source, api="Fetch", resource=resource, operation=Operation.READ, decided_by="no ACL allows it"
    )


def topic_change(name: str = "orders", change: str = "created") -> ChangeEvent:
    """A change of a topic."""
    return ChangeEvent(
        source=ALICE, api="CreateTopics", resource=AuditedResource(kind=ResourceType.TOPIC, name=name), change=change
    )
