"""100,000 events at once cost bounded memory, and leave the loop to others."""

import asyncio
import tracemalloc
from pathlib import Path

from agent.config.audit_classes import AuditClass
from agent.runtime.metrics import Metrics
from agent.security.audit.audit_events import AuditSource
from agent.security.audit.audit_files import FileSink
from agent.security.audit.audit_log import AuditLog
from protocol.auth.principals import Principal
from protocol.limits import (
    AUDIT_LOG_BYTES_MAX,
    AUDIT_LOG_EVENTS_MAX,
    AUDIT_LOG_WINDOW_SECONDS,
    AUDIT_LOG_WRITE_RECORDS_MAX,
)
from tests.support.agent.audit_logs import KeptAuditLog, denial, no_budget, topic_change
from tests.support.agent.ledger_parts import ManualClock

EVENTS = 100_000
CHANGES = 50
MEASURED_EVENTS = 2_000


def client(number: int) -> AuditSource:
    return AuditSource(principal=Principal("User", "eve"), client_id=f"client-{number}")


def test_the_memory_of_waiting_events_is_what_is_estimated() -> None:
    audit = KeptAuditLog(budget=no_budget())
    tracemalloc.start()
    try:
        for number in range(MEASURED_EVENTS):
            audit.record(denial(source=client(number)))
        current_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert current_bytes < 1.2 * audit.waiting_bytes


async def test_a_flood_of_denials(tmp_path: Path) -> None:
    metrics, clock = Metrics(), ManualClock()
    path = tmp_path / "audit.log"
    audit = AuditLog(
        sink=FileSink(path),
        classes=set(AuditClass),
        cluster_id="c",
        agent="a",
        clock=clock,
        metrics=metrics,
        budget=no_budget(),
    )
    for number in range(EVENTS):
        audit.record(denial(source=client(number)))
        if number % (EVENTS // CHANGES) == 0:
            audit.record(topic_change(f"t{number}"))
    assert audit.waiting_count == AUDIT_LOG_EVENTS_MAX
    assert audit.waiting_bytes <= AUDIT_LOG_BYTES_MAX
    dropped = metrics.registry.get_sample_value("penstock_audit_dropped_total", {"event": "denied"})
    assert dropped == EVENTS + CHANGES - AUDIT_LOG_EVENTS_MAX
    await audit.until_room()
    await clock.sleep(AUDIT_LOG_WINDOW_SECONDS)
    turns_count = 0
    writing = asyncio.ensure_future(audit.write_due())
    while not writing.done():
        turns_count += 1
        await asyncio.sleep(0)
    # Each write of AUDIT_LOG_WRITE_RECORDS_MAX records is made on the loop, and written in a thread meanwhile.
    assert turns_count >= AUDIT_LOG_EVENTS_MAX / AUDIT_LOG_WRITE_RECORDS_MAX
    lines = path.read_text().splitlines()
    assert len(lines) == AUDIT_LOG_EVENTS_MAX
    assert sum('"decision":"changed"' in line for line in lines) == CHANGES
