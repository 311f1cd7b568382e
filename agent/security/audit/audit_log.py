"""The audit log within its bounds: counts equal events, keeps what waits to be written, and drops the least important.

In: events, recorded synchronously from anywhere on the loop. Out: records to one `AuditSink`, in the order of the
events. Rule: events that wait have bounds in number and bytes. Beyond these, events of `DROPPED_FIRST` are dropped and
counted, in that order; a change never is. Denials and failed log-ins have a budget for each source, beyond which one
event counts several (`audit_budget`). While changes alone fill the log, requests for changes wait in `until_room`.
No I/O happens here.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from agent.config.audit_classes import AuditClass
from agent.runtime.clock import Clock, SystemClock
from agent.runtime.metrics import Metrics
from agent.runtime.outages import Outage, OutageWords
from agent.runtime.periodic_job import PeriodicJob
from agent.security.audit.audit_budget import AuditBudget, BudgetDecision, Counted
from agent.security.audit.audit_events import AuditEvent, AuditRecord, written
from protocol.limits import (
    AUDIT_LOG_BYTES_MAX,
    AUDIT_LOG_EVENT_BYTES,
    AUDIT_LOG_EVENTS_MAX,
    AUDIT_LOG_TEXT_CHARS_MAX,
    AUDIT_LOG_WINDOW_SECONDS,
    AUDIT_LOG_WRITE_INTERVAL_S,
    AUDIT_LOG_WRITE_RECORDS_MAX,
)
from protocol.types import Milliseconds

log = logging.getLogger(__name__)

DROPPED_FIRST = (AuditClass.ALLOWED, AuditClass.DENIED, AuditClass.AUTHENTICATION, AuditClass.CREDENTIAL)
"""The classes whose events may be dropped, the least important first. A change is none of them."""

OUTAGE_WORDS = OutageWords(
    fails="the audit log cannot be written; its events wait, and once too many do, requests for changes wait as well",
    answers="the audit log is written again",
)


class AuditSinkFailed(Exception):
    """The records were not written, or only in part: write them again later. The message says why."""


class AuditSink(Protocol):
    """Where the records of the audit log go."""

    async def write(self, records: Sequence[AuditRecord]) -> None:
        """Write all of them, or raise `AuditSinkFailed`: the same records are then given again."""
        ...


class NoSink:
    """The sink of an agent without an audit log."""

    async def write(self, records: Sequence[AuditRecord]) -> None:
        raise AssertionError("an agent without an audit log records no event")


class _Waiting:
    """Equal events that wait to be written as one record."""

    __slots__ = ("byte_count", "count", "event", "first_ms", "first_s", "sequence")

    def __init__(
        self, event: AuditEvent, sequence: int, first_ms: Milliseconds, first_s: float, count: int = 1
    ) -> None:
        self.event = event
        self.sequence = sequence
        self.first_ms = first_ms
        self.first_s = first_s
        self.count = count
        self.byte_count = AUDIT_LOG_EVENT_BYTES + event.text_chars


class AuditLog:
    """The audit log of one agent. Without classes it records nothing."""

    def __init__(
        self,
        *,
        sink: AuditSink,
        classes: AbstractSet[AuditClass],
        cluster_id: str,
        agent: str,
        clock: Clock,
        metrics: Metrics,
        budget: AuditBudget | None = None,
    ) -> None:
        self._sink = sink
        self._budget = budget or AuditBudget()
        self._classes = frozenset(classes)
        self.takes_decisions = not self._classes.isdisjoint((AuditClass.DENIED, AuditClass.ALLOWED))
        """Whether denied or allowed operations are recorded: read for each request."""
        self._cluster_id = cluster_id
        self._agent = agent
        self._clock = clock
        self._metrics = metrics
        self._waiting: dict[AuditClass, deque[_Waiting]] = {each: deque() for each in AuditClass}
        self._newest: dict[AuditEvent, _Waiting] = {}
        """The waiting events to which an equal one is counted."""
        self._being_written: list[_Waiting] = []
        self._sequence = 0
        self._events_count = 0
        self._byte_count = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._writing = asyncio.Lock()
        self._outage = Outage(OUTAGE_WORDS, monotonic_s=clock.monotonic_s)
        metrics.audit_outage_seconds.set_function(lambda: self._outage.seconds)
        metrics.audit_waiting_events.set_function(lambda: self._events_count + self._budget.counted_count)
        self.job = PeriodicJob(name="audit log", interval_s=AUDIT_LOG_WRITE_INTERVAL_S, run_once=self.write_due)

    @property
    def is_on(self) -> bool:
        return bool(self._classes)

    def takes(self, audit_class: AuditClass) -> bool:
        """Whether events of the class are recorded: a caller may spare making one."""
        return audit_class in self._classes

    @property
    def waiting_count(self) -> int:
        """Records that wait to be written."""
        return self._events_count

    @property
    def waiting_bytes(self) -> int:
        """The estimated memory of the records that wait."""
        return self._byte_count

    def record(self, event: AuditEvent) -> None:
        """Take one event. It never waits and never fails; see `until_room` for changes."""
        if event.audit_class not in self._classes:
            return
        self._metrics.audit_events.labels(event.audit_class.value).inc()
        if event.text_chars > AUDIT_LOG_TEXT_CHARS_MAX:
            event = event.with_short_texts()
        now_s = self._clock.monotonic_s()
        alike = self._newest.get(event)
        if alike is not None and now_s - alike.first_s < AUDIT_LOG_WINDOW_SECONDS:
            alike.count += 1
            return
        now_ms = self._clock.now_ms()
        self._add_counted(self._budget.ended(now_s), now_s)
        verdict = self._budget.judge(event, now_s=now_s, now_ms=now_ms)
        if verdict is BudgetDecision.ALONE:
            self._add(event, now_ms, now_s, 1)
        elif verdict is BudgetDecision.DROPPED:
            self._metrics.audit_dropped.labels(event.audit_class.value).inc()

    def _add_counted(self, counted_events: Mapping[AuditEvent, Counted], now_s: float) -> None:
        for event, counted in counted_events.items():
            self._add(event, counted.first_ms, now_s, counted.count)

    def _add(self, event: AuditEvent, first_ms: Milliseconds, now_s: float, count: int) -> None:
        """Let an event wait to be written, or drop it."""
        self._sequence += 1
        added = _Waiting(event, self._sequence, first_ms, now_s, count)
        if not self._make_room(added):
            self._metrics.audit_dropped.labels(event.audit_class.value).inc(count)
            return
        self._waiting[event.audit_class].append(added)
        self._newest[event] = added
        self._count(1, added.byte_count)

    async def until_room(self) -> None:
        """Return once another change can be recorded within the bounds. A handler of changes calls it first."""
        while not self._has_room.is_set():
            await self._has_room.wait()

    async def write_due(self) -> None:
        """Write the records of events that no equal one can join any more."""
        now_s = self._clock.monotonic_s()
        self._add_counted(self._budget.ended(now_s), now_s)
        await self._write(now_s - AUDIT_LOG_WINDOW_SECONDS)

    async def flush(self) -> None:
        """Write all records. Returns without those that the sink rejects."""
        now_s = self._clock.monotonic_s()
        self._add_counted(self._budget.end(), now_s)
        await self._write(now_s)

    async def _write(self, first_s_max: float) -> None:
        async with self._writing:
            while self._being_written or self._take(first_s_max):
                records = [self._written(each) for each in self._being_written]
                try:
                    await self._sink.write(records)
                except AuditSinkFailed as error:
                    self._outage.failed("write", str(error))
                    return
                self._outage.answered("write")
                written_bytes = sum(each.byte_count for each in self._being_written)
                written_count = len(self._being_written)
                self._being_written = []
                self._count(-written_count, -written_bytes)

    def _take(self, first_s_max: float) -> bool:
        """Move the oldest records that are due to those that are written; False where none is due.

        A change is due at once: its record is not to be lost with the agent.
        """
        queues = [queue for queue in self._waiting.values() if queue]
        taken = self._being_written
        while queues and len(taken) < AUDIT_LOG_WRITE_RECORDS_MAX:
            queue = min(queues, key=lambda queue: queue[0].sequence)
            oldest = queue[0]
            if oldest.first_s > first_s_max and oldest.event.audit_class is not AuditClass.CHANGE:
                queues.remove(queue)
                continue
            taken.append(queue.popleft())
            self._forget(oldest)
            if not queue:
                queues.remove(queue)
        return bool(taken)

    def _written(self, waiting: _Waiting) -> AuditRecord:
        return written(
            waiting.event,
            time_ms=waiting.first_ms,
            count=waiting.count,
            cluster_id=self._cluster_id,
            agent=self._agent,
        )

    def _make_room(self, added: _Waiting) -> bool:
        """Drop waiting events for one that matters more; False where `added` itself has to be dropped."""
        is_change = added.event.audit_class is AuditClass.CHANGE
        while not self._fits(added.byte_count):
            victims = self._least_important(added.event.audit_class)
            if victims is None:
                return is_change
            # The newest one goes: the first events of a burst show how it began.
            victim = victims.pop()
            self._forget(victim)
            self._metrics.audit_dropped.labels(victim.event.audit_class.value).inc(victim.count)
            self._count(-1, -victim.byte_count)
        return True

    def _fits(self, byte_count: int) -> bool:
        return self._events_count < AUDIT_LOG_EVENTS_MAX and self._byte_count + byte_count <= AUDIT_LOG_BYTES_MAX

    def _least_important(self, audit_class: AuditClass) -> deque[_Waiting] | None:
        """The waiting events of the least important class that matters less than the given one."""
        for candidate in DROPPED_FIRST:
            if candidate is audit_class:
                return None
            if self._waiting[candidate]:
                return self._waiting[candidate]
        return None

    def _forget(self, waiting: _Waiting) -> None:
        """Let no equal event be counted to this one any more."""
        if self._newest.get(waiting.event) is waiting:
            del self._newest[waiting.event]

    def _count(self, events: int, byte_count: int) -> None:
        self._events_count += events
        self._byte_count += byte_count
        droppable = any(self._waiting[each] for each in DROPPED_FIRST)
        if droppable or (self._events_count < AUDIT_LOG_EVENTS_MAX and self._byte_count < AUDIT_LOG_BYTES_MAX):
            self._has_room.set()
        else:
            self._has_room.clear()


def no_audit_log() -> AuditLog:
    """An audit log that records nothing."""
    return AuditLog(sink=NoSink(), classes=frozenset(), cluster_id="", agent="", clock=SystemClock(), metrics=Metrics())
