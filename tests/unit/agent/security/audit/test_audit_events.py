"""The written form of the audit log's events."""

import json

from agent.security.audit.audit_events import (
    AllowedEvent,
    AuditEvent,
    AuditSource,
    AuthenticationEvent,
    ChangeEvent,
    CredentialEvent,
    written,
)
from protocol.auth.operations import Operation
from protocol.auth.principals import Principal
from protocol.limits import AUDIT_LOG_DETAIL_CHARS_MAX, AUDIT_LOG_TEXT_CHARS_MAX
from protocol.types import Milliseconds
from tests.support.agent.audit_logs import ALICE, denial, topic_change

MOMENT = Milliseconds(1_795_000_000_123)


def line(event: AuditEvent, count: int = 1) -> dict[str, object]:
    record = written(event, time_ms=MOMENT, count=count, cluster_id="cluster", agent="a")
    assert b"\n" not in record.line
    fields: dict[str, object] = json.loads(record.line)
    return fields


def test_a_denial_names_who_asked_for_what_from_where() -> None:
    assert line(denial("orders"), count=3) == {
        "time": "2026-11-18T11:06:40.123Z",
        "cluster": "cluster",
        "agent": "a",
        "principal": "User:alice",
        "groups": [],
        "mechanism": "",
        "host": "10.0.0.7",
        "listener": "SASL_SSL",
        "client_id": "shop",
        "api": "Fetch",
        "operation": "READ",
        "resource": "Topic:orders",
        "pattern": "LITERAL",
        "decision": "denied",
        "rule": "no ACL allows it",
        "detail": "",
        "count": 3,
    }


def test_every_class_has_a_decision_of_its_own() -> None:
    events = (
        AuthenticationEvent(source=ALICE, api="SaslAuthenticate", is_success=True),
        AuthenticationEvent(source=ALICE, api="SaslAuthenticate", is_success=False, reason="wrong password"),
        denial(),
        topic_change(),
        ChangeEvent(source=ALICE, api="DeleteTopics", change="deleted", is_certain=False),
        CredentialEvent(source=ALICE, api="GET /iceberg", scope="reads lake/orders-1 for 3600 s"),
        AllowedEvent(source=ALICE, api="Fetch", operation=Operation.READ, decided_by="super user"),
    )
    assert [event.decision for event in events] == [
        "authenticated", "rejected", "denied", "changed", "unknown", "issued", "allowed",
    ]  # fmt: skip
    assert [line(event)["rule"] for event in events] == [
        "", "wrong password", "no ACL allows it", "", "", "", "super user",
    ]  # fmt: skip
    assert [line(event)["detail"] for event in events] == [
        "", "", "", "created", "deleted", "reads lake/orders-1 for 3600 s", "",
    ]  # fmt: skip


def test_a_line_break_of_a_client_forges_no_line() -> None:
    event = denial(source=AuditSource(client_id='x"}\n{"decision":"allowed"'))
    assert line(event)["client_id"] == 'x"}\n{"decision":"allowed"'


def test_long_texts_of_clients_are_cut() -> None:
    long = "x" * 5_000
    source = AuditSource(principal=Principal("User", long), client_id=long)
    events = (
        denial(long, source),
        topic_change(long, change=long),
        AuthenticationEvent(source=source, api=long, is_success=False, reason=long),
        CredentialEvent(source=source, api="GET", scope=long),
    )
    for event in events:
        texts = [text for text in line(event.with_short_texts()).values() if isinstance(text, str)]
        assert max(map(len, texts)) < AUDIT_LOG_DETAIL_CHARS_MAX + 50
        shortened = event.with_short_texts()
        assert shortened.text_chars < 4 * (AUDIT_LOG_TEXT_CHARS_MAX + 50) + AUDIT_LOG_DETAIL_CHARS_MAX
        assert shortened.source.client_id.endswith("(5000 characters)") or source is not event.source
