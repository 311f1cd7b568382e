"""The audit log counts equal events, keeps its bounds, and waits for a sink that fails."""

import asyncio
import logging

import pytest

from agent.config.audit_classes import AuditClass
from agent.runtime.metrics import Metrics
from agent.security.audit.audit_events import (
    AllowedEvent,
    AuditEvent,
    AuthenticationEvent,
    CredentialEvent,
)
from agent.security.audit.audit_log import AuditLog, NoSink
from protocol.limits import (
    AUDIT_LOG_BYTES_MAX,
    AUDIT_LOG_EVENTS_MAX,
    AUDIT_LOG_WINDOW_SECONDS,
    AUDIT_LOG_WRITE_RECORDS_MAX,
)
from tests.support.agent.audit_logs import ALICE, KeptAuditLog, denial, no_budget, topic_change
from tests.support.agent.ledger_parts import ManualClock


def allowed(name: str) -> AuditEvent:
    return AllowedEvent(source=ALICE, api=name)


def log_in(name: str) -> AuditEvent:
    return AuthenticationEvent(source=ALICE, api=name, is_success=False)


def keys(name: str) -> AuditEvent:
    return CredentialEvent(source=ALICE, api=name, scope="reads a table")


async def later(audit: KeptAuditLog, seconds: float = AUDIT_LOG_WINDOW_SECONDS) -> None:
    await audit.clock.sleep(seconds)
    await audit.write_due()


class TestCounting:
    async def test_equal_events_within_a_second_are_one_with_a_count(self) -> None:
        audit = KeptAuditLog()
        for _ in range(5):
            audit.record(denial())
            await audit.clock.sleep(0.1)
        audit.record(denial("others"))
        await later(audit)
        assert [(line["resource"], line["count"]) for line in audit.sink.lines] == [
            ("Topic:orders", 5),
            ("Topic:others", 1),
        ]

    async def test_an_equal_event_after_a_second_is_another_one(self) -> None:
        audit = KeptAuditLog()
        audit.record(denial())
        await audit.clock.sleep(AUDIT_LOG_WINDOW_SECONDS)
        audit.record(denial())
        await later(audit)
        assert [line["count"] for line in audit.sink.lines] == [1, 1]
        assert audit.sink.records[1].time_ms - audit.sink.records[0].time_ms == 1000

    async def test_an_event_is_not_counted_to_one_that_is_written(self) -> None:
        audit = KeptAuditLog()
        audit.record(denial())
        await audit.flush()
        audit.record(denial())
        await audit.flush()
        assert [line["count"] for line in audit.sink.lines] == [1, 1]

    async def test_an_event_waits_for_its_equals_until_its_second_is_over(self) -> None:
        audit = KeptAuditLog()
        audit.record(denial())
        await later(audit, AUDIT_LOG_WINDOW_SECONDS / 2)
        assert not audit.sink.records
        await later(audit, AUDIT_LOG_WINDOW_SECONDS / 2)
        assert len(audit.sink.records) == 1

    async def test_a_change_is_written_at_once(self) -> None:
        audit = KeptAuditLog()
        audit.record(denial())
        audit.record(topic_change())
        await audit.write_due()
        assert [line["decision"] for line in audit.sink.lines] == ["changed"]


class TestOrder:
    async def test_records_are_in_the_order_of_the_events(self) -> None:
        audit = KeptAuditLog()
        for number in range(AUDIT_LOG_WRITE_RECORDS_MAX + 10):
            audit.record(denial(f"t{number}") if number % 2 else topic_change(f"t{number}"))
        await audit.flush()
        names = [line["resource"] for line in audit.sink.lines]
        assert names == [f"Topic:t{number}" for number in range(AUDIT_LOG_WRITE_RECORDS_MAX + 10)]


class TestClasses:
    async def test_only_the_chosen_classes_are_recorded(self) -> None:
        metrics = Metrics()
        audit = AuditLog(
            sink=NoSink(),
            classes={AuditClass.CHANGE},
            cluster_id="c",
            agent="a",
            clock=ManualClock(),
            metrics=metrics,
        )
        audit.record(denial())
        assert audit.waiting_count == 0
        assert audit.takes(AuditClass.CHANGE)
        assert not audit.takes(AuditClass.DENIED)

    async def test_an_agent_without_an_audit_log_writes_nothing(self) -> None:
        audit = AuditLog(
            sink=NoSink(), classes=frozenset(), cluster_id="c", agent="a", clock=ManualClock(), metrics=Metrics()
        )
        audit.record(topic_change())
        await audit.flush()
        await audit.until_room()
        assert not audit.is_on


class TestBounds:
    async def test_the_least_important_events_are_dropped_and_counted(self) -> None:
        audit = KeptAuditLog(budget=no_budget())
        for number in range(AUDIT_LOG_EVENTS_MAX):
            audit.record(allowed(f"a{number}"))
        for make, audit_class in (
            (denial, AuditClass.ALLOWED),
            (log_in, AuditClass.ALLOWED),
            (keys, AuditClass.ALLOWED),
            (topic_change, AuditClass.ALLOWED),
        ):
            before = audit.dropped(audit_class)
            audit.record(make("one"))
            assert audit.dropped(audit_class) == before + 1
            assert audit.waiting_count == AUDIT_LOG_EVENTS_MAX
        audit.record(allowed("late"))
        assert audit.dropped(AuditClass.ALLOWED) == 5

    async def test_a_burst_keeps_its_first_events(self) -> None:
        audit = KeptAuditLog(budget=no_budget())
        for number in range(AUDIT_LOG_EVENTS_MAX + 10):
            audit.record(denial(f"t{number}"))
        audit.record(topic_change())
        assert audit.dropped(AuditClass.DENIED) == 11
        await audit.flush()
        names = {line["resource"] for line in audit.sink.lines}
        assert {f"Topic:t{number}" for number in range(AUDIT_LOG_EVENTS_MAX - 1)} <= names

    async def test_an_event_that_is_dropped_counts_with_its_equals(self) -> None:
        audit = KeptAuditLog(budget=no_budget())
        for number in range(AUDIT_LOG_EVENTS_MAX):
            audit.record(denial(f"t{number}"))
        audit.record(denial(f"t{AUDIT_LOG_EVENTS_MAX - 1}"))
        audit.record(topic_change())
        assert audit.dropped(AuditClass.DENIED) == 2

    async def test_bytes_are_bounded_as_events_are(self) -> None:
        audit = KeptAuditLog(budget=no_budget())
        for number in range(AUDIT_LOG_EVENTS_MAX):
            audit.record(denial("x" * 249 + str(number)))
        assert 0 < audit.dropped(AuditClass.DENIED) < AUDIT_LOG_EVENTS_MAX / 2
        assert AUDIT_LOG_BYTES_MAX - 2_000 < audit.waiting_bytes <= AUDIT_LOG_BYTES_MAX

    async def test_a_change_is_never_dropped_and_its_request_waits(self) -> None:
        audit = KeptAuditLog(budget=no_budget())
        audit.sink.problem = "disk full"
        for number in range(AUDIT_LOG_EVENTS_MAX):
            audit.record(topic_change(f"t{number}"))
        waiting = asyncio.ensure_future(audit.until_room())
        await asyncio.sleep(0)
        audit.record(topic_change("under way"))
        audit.record(denial())
        assert audit.dropped(AuditClass.CHANGE) == 0
        assert audit.dropped(AuditClass.DENIED) == 1
        await audit.write_due()
        assert not waiting.done()
        audit.sink.problem = ""
        await audit.write_due()
        await waiting
        assert len(audit.sink.records) == AUDIT_LOG_EVENTS_MAX + 1

    async def test_denials_that_wait_hold_up_no_change(self) -> None:
        audit = KeptAuditLog(budget=no_budget())
        for number in range(AUDIT_LOG_EVENTS_MAX):
            audit.record(denial(f"t{number}"))
        await audit.until_room()


class TestOutage:
    async def test_records_wait_until_the_sink_takes_them(self, caplog: pytest.LogCaptureFixture) -> None:
        audit = KeptAuditLog()
        audit.sink.problem = "no space left"
        audit.record(topic_change("first"))
        with caplog.at_level(logging.INFO):
            await audit.write_due()
            await audit.clock.sleep(2)
            audit.record(topic_change("second"))
            await audit.write_due()
            assert audit.metrics.registry.get_sample_value("penstock_audit_outage_seconds") == 2
            audit.sink.problem = ""
            await audit.write_due()
        assert [line["resource"] for line in audit.sink.lines] == ["Topic:first", "Topic:second"]
        assert audit.waiting_count == 0
        assert audit.metrics.registry.get_sample_value("penstock_audit_outage_seconds") == 0
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
        assert audit.recorded(AuditClass.CHANGE) == 2
