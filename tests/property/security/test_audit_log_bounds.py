"""The audit log keeps its bounds, and accounts for every event, whatever comes and however long its sink fails."""

import asyncio
from collections import Counter
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from agent.config.audit_classes import AuditClass
from agent.security.audit import audit_budget, audit_log
from agent.security.audit.audit_budget import AuditBudget
from agent.security.audit.audit_events import (
    NAMES_LEFT_OUT,
    AllowedEvent,
    AuditEvent,
    AuditRecord,
    AuthenticationEvent,
    CredentialEvent,
)
from tests.support.agent.audit_logs import ALICE, KeptAuditLog, denial, topic_change

EVENTS_MAX, BYTES_MAX, NAMES = 6, 6_000, 5
_DECISIONS = {
    AuditClass.ALLOWED: "allowed",
    AuditClass.DENIED: "denied",
    AuditClass.AUTHENTICATION: "rejected",
    AuditClass.CREDENTIAL: "issued",
    AuditClass.CHANGE: "changed",
}


def event_of(audit_class: AuditClass, name: str) -> AuditEvent:
    match audit_class:
        case AuditClass.ALLOWED:
            return AllowedEvent(source=ALICE, api=name)
        case AuditClass.DENIED:
            return denial(name)
        case AuditClass.AUTHENTICATION:
            return AuthenticationEvent(source=ALICE, api=name, is_success=False)
        case AuditClass.CREDENTIAL:
            return CredentialEvent(source=ALICE, api=name, scope="reads a table")
        case AuditClass.CHANGE:
            return topic_change(name)


names = st.one_of(st.integers(0, NAMES).map(str), st.integers(0, NAMES).map(lambda number: "x" * 200 + str(number)))
records = st.tuples(st.sampled_from(AuditClass), names)
pauses = st.sampled_from([0.2, 1.0])
steps = st.lists(st.one_of(records, pauses, st.sampled_from(["write", "fail", "work"])), max_size=80)


@given(steps=steps, source_events_max=st.sampled_from([1, 3, 100]))
def test_bounds_and_accounts(steps: list[tuple[AuditClass, str] | float | str], source_events_max: int) -> None:
    with (
        mock.patch.object(audit_log, "AUDIT_LOG_EVENTS_MAX", EVENTS_MAX),
        mock.patch.object(audit_log, "AUDIT_LOG_BYTES_MAX", BYTES_MAX),
        mock.patch.object(audit_log, "AUDIT_LOG_WRITE_RECORDS_MAX", 2),
        mock.patch.object(audit_budget, "AUDIT_LOG_COUNTS_MAX", 1),
        mock.patch.object(audit_budget, "AUDIT_LOG_BUDGET_SECONDS", 3.0),
    ):
        asyncio.run(play(steps, AuditBudget(source_events_max=source_events_max)))


async def play(steps: list[tuple[AuditClass, str] | float | str], budget: AuditBudget) -> None:
    audit, recorded = KeptAuditLog(budget=budget), Counter[AuditClass]()
    for step in steps:
        match step:
            case float():
                await audit.clock.sleep(step)
            case "write":
                await audit.write_due()
            case "fail":
                audit.sink.problem = "no space left"
            case "work":
                audit.sink.problem = ""
            case (AuditClass() as audit_class, name):
                # A request that changes something waits first; here it does not come.
                if audit_class is AuditClass.CHANGE and not has_room(audit):
                    continue
                recorded[audit_class] += 1
                audit.record(event_of(audit_class, str(name)))
        assert audit.waiting_count <= EVENTS_MAX
        assert audit.waiting_bytes <= BYTES_MAX + 1_500, "one change may stand beyond the bound"
    audit.sink.problem = ""
    await audit.flush()
    assert (audit.waiting_count, audit.waiting_bytes) == (0, 0)
    assert has_room(audit)
    assert audit.dropped(AuditClass.CHANGE) == 0
    for audit_class in AuditClass:
        counts = [line["count"] for line in audit.sink.lines if line["decision"] == _DECISIONS[audit_class]]
        assert sum(counts) + audit.dropped(audit_class) == recorded[audit_class] == audit.recorded(audit_class)
    assert times(audit.sink.records) == sorted(times(audit.sink.records)) or is_mixed(audit)


def has_room(audit: KeptAuditLog) -> bool:
    waiting = audit.until_room()
    try:
        waiting.send(None)
    except StopIteration:
        return True
    waiting.close()
    return False


def times(found: list[AuditRecord]) -> list[int]:
    return [record.time_ms for record in found]


def is_mixed(audit: KeptAuditLog) -> bool:
    """Whether there is a change, which is written before what began earlier, or an event that waited for more."""
    return any(line["decision"] == "changed" or line["detail"] == NAMES_LEFT_OUT for line in audit.sink.lines)
