"""A source that is denied too much gets one event for each operation and resource type, which counts the rest."""

import pytest

from agent.config.audit_classes import AuditClass
from agent.security.audit import audit_budget
from agent.security.audit.audit_budget import AuditBudget
from agent.security.audit.audit_events import NAMES_LEFT_OUT, AuditEvent, AuditSource, AuthenticationEvent
from protocol.auth.principals import ANONYMOUS, Principal
from protocol.limits import (
    AUDIT_LOG_BUDGET_SECONDS,
    AUDIT_LOG_SOURCE_EVENTS_MAX,
    AUDIT_LOG_WINDOW_SECONDS,
)
from tests.support.agent.audit_logs import ALICE, KeptAuditLog, denial, topic_change

BEYOND = 400


def failed_log_in(name: str, host: str) -> AuditEvent:
    source = AuditSource(principal=Principal("User", name), mechanism="PLAIN", host=host)
    return AuthenticationEvent(source=source, api="SaslAuthenticate", is_success=False, reason="wrong password")


def stranger_denial(name: str, host: str) -> AuditEvent:
    return denial(name, AuditSource(principal=ANONYMOUS, host=host))


async def pass_by(audit: KeptAuditLog, seconds: float) -> None:
    await audit.clock.sleep(seconds)
    await audit.write_due()


async def test_denials_beyond_the_budget_are_one_event_that_counts_them() -> None:
    audit = KeptAuditLog()
    for number in range(AUDIT_LOG_SOURCE_EVENTS_MAX + BEYOND):
        audit.record(denial(f"t{number}"))
    await pass_by(audit, AUDIT_LOG_WINDOW_SECONDS)
    assert len(audit.sink.lines) == AUDIT_LOG_SOURCE_EVENTS_MAX
    await pass_by(audit, AUDIT_LOG_BUDGET_SECONDS)
    await pass_by(audit, AUDIT_LOG_WINDOW_SECONDS)
    (merged,) = audit.sink.lines[AUDIT_LOG_SOURCE_EVENTS_MAX:]
    assert (merged["count"], merged["decision"], merged["detail"]) == (BEYOND, "denied", NAMES_LEFT_OUT)
    assert (merged["principal"], merged["operation"], merged["resource"]) == ("User:alice", "READ", "Topic:")
    assert (merged["client_id"], merged["host"], merged["api"]) == ("", "", "")
    assert audit.dropped(AuditClass.DENIED) == 0


async def test_a_minute_later_denials_have_their_names_again() -> None:
    audit = KeptAuditLog()
    for number in range(AUDIT_LOG_SOURCE_EVENTS_MAX + 1):
        audit.record(denial(f"t{number}"))
    await pass_by(audit, AUDIT_LOG_BUDGET_SECONDS)
    audit.record(denial("late"))
    await audit.flush()
    assert [line["resource"] for line in audit.sink.lines[-2:]] == ["Topic:", "Topic:late"]


async def test_equal_denials_take_one_place_of_the_budget() -> None:
    audit = KeptAuditLog()
    for _ in range(AUDIT_LOG_SOURCE_EVENTS_MAX * 2):
        audit.record(denial())
    await audit.flush()
    assert [(line["resource"], line["count"]) for line in audit.sink.lines] == [
        ("Topic:orders", AUDIT_LOG_SOURCE_EVENTS_MAX * 2)
    ]


async def test_another_principal_has_its_own_budget() -> None:
    audit = KeptAuditLog()
    for number in range(AUDIT_LOG_SOURCE_EVENTS_MAX + 1):
        audit.record(denial(f"t{number}"))
    audit.record(denial("private", AuditSource(principal=Principal("User", "bob"), host=ALICE.host)))
    await audit.flush()
    assert [line["principal"] for line in audit.sink.lines if line["resource"] == "Topic:private"] == ["User:bob"]


async def test_failed_log_ins_are_counted_by_address_whoever_they_say_they_are() -> None:
    audit = KeptAuditLog()
    for number in range(AUDIT_LOG_SOURCE_EVENTS_MAX + BEYOND):
        audit.record(failed_log_in(f"user{number}", "192.0.2.7"))
    audit.record(failed_log_in("alice", "192.0.2.8"))
    await audit.flush()
    (merged,) = [line for line in audit.sink.lines if line["detail"]]
    assert (merged["count"], merged["host"], merged["principal"]) == (BEYOND, "192.0.2.7", "User:ANONYMOUS")
    assert merged["decision"] == "rejected"
    assert [line["host"] for line in audit.sink.lines if line["principal"] == "User:alice"] == ["192.0.2.8"]


async def test_addresses_of_one_network_of_ipv6_share_a_budget() -> None:
    audit = KeptAuditLog()
    for number in range(AUDIT_LOG_SOURCE_EVENTS_MAX + BEYOND):
        audit.record(stranger_denial("orders", f"2001:db8:0:0:0:0:0:{number:x}"))
    await audit.flush()
    (merged,) = [line for line in audit.sink.lines if line["detail"]]
    assert (merged["host"], merged["count"]) == ("2001:db8::/64", BEYOND)


async def test_clients_without_a_login_have_a_budget_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_budget, "AUDIT_LOG_STRANGERS_EVENTS_MAX", 5)
    audit = KeptAuditLog()
    for number in range(8):
        audit.record(stranger_denial("orders", f"192.0.2.{number}"))
    audit.record(denial())
    await audit.flush()
    assert sorted(line["host"] for line in audit.sink.lines if line["detail"]) == [f"192.0.2.{n}" for n in (5, 6, 7)]
    assert [line["principal"] for line in audit.sink.lines].count("User:alice") == 1


async def test_sources_beyond_their_number_share_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_budget, "AUDIT_LOG_SOURCES_MAX", 1)
    audit = KeptAuditLog(budget=AuditBudget(source_events_max=2))
    for number in range(4):
        audit.record(denial("orders", AuditSource(principal=Principal("User", f"u{number}"))))
    await audit.flush()
    assert [line["principal"] for line in audit.sink.lines if line["detail"]] == ["User:u3"]


async def test_what_no_count_has_room_for_is_counted_as_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_budget, "AUDIT_LOG_COUNTS_MAX", 1)
    audit = KeptAuditLog(budget=AuditBudget(source_events_max=1))
    for user in ("alice", "bob"):
        for number in range(4):
            audit.record(denial(f"t{number}", AuditSource(principal=Principal("User", user))))
    await audit.flush()
    assert audit.dropped(AuditClass.DENIED) == 3
    assert sum(line["count"] for line in audit.sink.lines) == 5
    assert audit.recorded(AuditClass.DENIED) == 8


async def test_changes_and_log_ins_that_succeed_have_no_budget() -> None:
    audit = KeptAuditLog(budget=AuditBudget(source_events_max=1))
    for number in range(3):
        audit.record(topic_change(f"t{number}"))
        audit.record(AuthenticationEvent(source=ALICE, api=f"a{number}", is_success=True))
    await audit.flush()
    assert [line["detail"] for line in audit.sink.lines] == ["created", ""] * 3


async def test_events_that_stand_for_several_count_as_waiting() -> None:
    audit = KeptAuditLog(budget=AuditBudget(source_events_max=1))
    audit.record(denial("a"))
    await pass_by(audit, AUDIT_LOG_WINDOW_SECONDS)
    audit.record(denial("b"))
    waiting = audit.metrics.registry.get_sample_value("penstock_audit_waiting_events")
    assert waiting == 1
