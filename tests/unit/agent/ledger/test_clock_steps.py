"""What a step of the clock may not destroy, over the loops of an agent in virtual time (safety rule S21)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent.ledger.bootstrap import load_state
from agent.ledger.clock_check import ClockCheck
from agent.ledger.clock_trust import ClockTrust
from agent.maintenance.retention import Retention
from coordinator.commands.commands import DeleteTopic, ReportTime, StartSession
from coordinator.follower import Follower
from coordinator.ledger.memory import MemoryLedger
from coordinator.ledger.port import Ledger
from protocol.types import Milliseconds, ObjectNumber, TopicId
from storage.memory_store import MemoryStore
from storage.object_store import ObjectMissing, ObjectStore
from storage.refs import intake_key
from tests.support.agent.garbage_collection import garbage_collector
from tests.support.agent.ledger_parts import BEGAN_MS, DAY_MS, ManualClock, Parts
from tests.support.commands.commands import TOPIC, Batch, Chunk, commit, create, start

HOUR_S, DAY_S = 3_600.0, 86_400.0
OTHER = TopicId(bytes([1] * 16))


class SteppingClock(ManualClock):
    """Its wall clock can be set; `seconds` is what really passes."""

    ahead_ms = 0

    def now_ms(self) -> Milliseconds:
        return Milliseconds(super().now_ms() + self.ahead_ms)


class CheckedParts(Parts):
    """Parts whose clock is checked as an agent's on an embedded store."""

    def __init__(
        self, ledger: Ledger, store: ObjectStore, follower: Follower, begin: StartSession, *, is_accepted: bool
    ) -> None:
        super().__init__(ledger, store, follower, begin)
        trust = ClockTrust(ledger_ms=lambda: self.ledger.state.time_ms, is_accepted=is_accepted)
        self.stepping = SteppingClock()
        self.clock = self.stepping
        self.check = ClockCheck(store=store, clock=self.stepping, trust=trust)
        self.check.publish(self.metrics)

    def proposed_time(self) -> Milliseconds | None:
        return self.check.proposed_time()

    async def run(self, seconds: float) -> None:
        """Check the clock, have records dropped and garbage deleted, for so long."""
        retention = Retention(self.context())
        until_s = self.clock.seconds + seconds
        while self.clock.seconds < until_s:
            self.clock.seconds += 60
            if self.proposed_time() is None or self.clock.seconds % 600 == 0:
                await self.check.check_or_report()
            await retention.retain()
            await garbage_collector(self, self.store).collect()

    @property
    def log_start(self) -> int:
        return self.ledger.state.topics[TOPIC].partitions[0].log_start

    def metric(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"penstock_{name}")


@asynccontextmanager
async def lives(
    ledger: MemoryLedger, store: MemoryStore, *, at_s: float, is_accepted: bool = False
) -> AsyncIterator[CheckedParts]:
    """One life of a broker, from `at_s` on; on the way out it is killed."""
    follower = (await load_state(ledger, store)).follower
    parts = CheckedParts(ledger, store, follower, start(), is_accepted=is_accepted)
    parts.clock.seconds = at_s
    await parts.check.check_or_report()
    parts.ledger.writer._clock = parts.maintenance_leader._clock = parts.ledger.apply_loop._clock = parts.clock
    async with asyncio.TaskGroup() as tasks:
        loops = [
            tasks.create_task(parts.ledger.apply_loop.run()),
            tasks.create_task(parts.ledger.apply_loop.run_barriers()),
        ]
        await parts.ledger.open(parts.begin)
        loops.append(tasks.create_task(parts.ledger.writer.run()))
        assert await parts.maintenance_leader.claim()
        yield parts
        for loop in loops:
            loop.cancel()
    session = parts.ledger.session
    ledger.core.expire(session)


async def begun(ledger: MemoryLedger, store: MemoryStore) -> None:
    """A first life: a topic that keeps records for a day has one, and an object was just released."""
    async with lives(ledger, store, at_s=0) as parts:
        await parts.ledger.propose(create(retention_ms=str(DAY_MS)))
        await parts.ledger.propose(create("gone", topic_id=OTHER))
        for number, topic_id in enumerate((TOPIC, OTHER)):
            await store.put(intake_key(parts.ledger.session, ObjectNumber(number)), [b"x" * 100])
            chunk = Chunk(topic_id=topic_id, batches=[Batch(timestamp=BEGAN_MS)])
            await parts.ledger.propose(commit(number, chunk, session=parts.ledger.session))
        await parts.ledger.propose(DeleteTopic(topic_id=OTHER))
        await parts.ledger.propose(ReportTime())
        assert parts.log_start == 0


async def test_s21_after_two_days_off_old_records_go_within_61_minutes_and_not_before() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    await begun(ledger, store)
    async with lives(ledger, store, at_s=2 * DAY_S) as parts:
        await parts.run(HOUR_S - 60)
        assert parts.log_start == 0
        assert parts.ledger.state.time_ms < BEGAN_MS + DAY_MS
        assert parts.metric("clock_step_seconds") == 2 * DAY_S
        assert parts.metric("clock_confirmation_seconds") == 60
        await parts.run(120)
        assert parts.log_start == 1
        assert parts.metric("clock_step_seconds") == 0
        assert parts.metric("clock_confirmation_seconds") == 0


async def test_s21_after_thirty_days_off_they_stay_until_a_person_confirms_the_clock(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    await begun(ledger, store)
    async with lives(ledger, store, at_s=30 * DAY_S) as parts:
        await parts.run(5 * HOUR_S)
        assert parts.log_start == 0
        assert parts.metric("clock_confirmation_seconds") == float("inf")
    lines = [record.message for record in caplog.records if "--accept-time" in record.message]
    assert len(lines) == 1
    assert "The clock is wrong, or was set" in lines[0]
    async with lives(ledger, store, at_s=30 * DAY_S + 6 * HOUR_S, is_accepted=True) as parts:
        await parts.run(120)
        assert parts.log_start == 1


@pytest.mark.parametrize("step_days", [2, 30])
async def test_s21_a_clock_that_is_set_ahead_while_the_broker_runs_destroys_nothing_and_may_come_back(
    step_days: int, caplog: pytest.LogCaptureFixture
) -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with lives(ledger, store, at_s=0) as parts:
        await parts.ledger.propose(create(retention_ms=str(DAY_MS)))
        await parts.ledger.propose(commit(0, Chunk(batches=[Batch(timestamp=BEGAN_MS)]), session=parts.ledger.session))
        await parts.run(600)
        parts.stepping.ahead_ms = step_days * DAY_MS
        await parts.run(3 * HOUR_S)
        assert parts.log_start == 0
        assert parts.ledger.state.time_ms < BEGAN_MS + DAY_MS
        parts.stepping.ahead_ms = 0
        await parts.run(HOUR_S)
        assert parts.log_start == 0
        await parts.ledger.propose(ReportTime())
        assert parts.ledger.state.time_ms > BEGAN_MS + 4 * HOUR_S * 1000, "time goes on"
        parts.clock.seconds += DAY_S
        await parts.run(HOUR_S)
        assert parts.log_start == 1
    assert [record.message for record in caplog.records if "believed again" in record.message]


async def test_s21_garbage_waits_as_records_do() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    await begun(ledger, store)
    async with lives(ledger, store, at_s=2 * DAY_S) as parts:
        (released,) = parts.ledger.state.released
        await parts.run(HOUR_S - 60)
        assert (await store.head(released)).size_bytes == 100
        await parts.run(120)
        assert parts.ledger.state.released == {}
        with pytest.raises(ObjectMissing):
            await store.head(released)


async def test_s21_a_clock_behind_the_ledger_drops_nothing() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    await begun(ledger, store)
    async with lives(ledger, store, at_s=-30 * DAY_S) as parts:
        await parts.run(2 * HOUR_S)
        assert parts.log_start == 0
        assert (parts.metric("clock_step_seconds") or 0) < -29 * DAY_S


async def test_s21_the_log_says_from_when_on_the_clock_will_be_believed(caplog: pytest.LogCaptureFixture) -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    await begun(ledger, store)
    async with lives(ledger, store, at_s=2 * DAY_S):
        pass
    (line,) = [record.message for record in caplog.records if "ahead of the ledger" in record.message]
    assert "2023-11-16 23:13:20 UTC" in line, "BEGAN_MS, two days and an hour"
