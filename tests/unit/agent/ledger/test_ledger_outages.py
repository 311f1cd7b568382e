"""What an outage of the ledger leaves in the log. That the ledger stays the same: tests/support/ledger/backends.py."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from agent.ledger.ledger_outages import OutageLoggingLedger
from coordinator.ledger.memory import AppendFate, MemoryLedger
from coordinator.ledger.port import Fenced, LedgerEntry, LedgerUnavailable
from protocol.limits import OUTAGE_REMINDER_SECONDS
from protocol.types import Position, SessionId
from tests.support.agent.ledger_parts import ManualClock


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.errors_count = 0
        self.is_full = False
        self.memory = MemoryLedger(fate_of_append=self.fate)
        self.ledger = OutageLoggingLedger(self.memory, monotonic_s=self.clock.monotonic_s, count_error=self.count_error)

    def count_error(self) -> None:
        self.errors_count += 1

    async def fate(self, _session: SessionId, _entries: Sequence[LedgerEntry]) -> AppendFate:
        return AppendFate.LOST if self.is_full else AppendFate.APPLIED

    async def append(self, session: SessionId, number: int) -> None:
        await self.ledger.append(session, [LedgerEntry(number=number, payload=b"x")])

    async def fail(self, session: SessionId) -> None:
        """What an agent meets in a second in which the ledger is away: its lease, its tail, an append, a barrier."""
        self.clock.seconds += 1
        with pytest.raises(LedgerUnavailable):
            await self.ledger.keep_session(session)
        with pytest.raises(LedgerUnavailable):
            await anext(self.ledger.tail(Position(0)))
        with pytest.raises(LedgerUnavailable):
            await self.append(session, 0)
        with pytest.raises(LedgerUnavailable):
            await self.ledger.head()


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> World:
    caplog.set_level(logging.INFO, "agent.runtime.outages")
    return World()


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, float]]:
    rows = [vars(record) for record in caplog.records]
    return [(row["levelname"], row["operation"], row["seconds"]) for row in rows]


async def test_it_is_told_once_then_every_minute_and_when_everything_is_answered_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    session = await world.ledger.open_session("a")
    world.memory.is_reachable = False
    for _ in range(150):
        await world.fail(session)
    assert world.ledger.outage_seconds == 149
    world.memory.is_reachable = True
    world.clock.seconds += 1
    await world.ledger.keep_session(session)
    assert world.ledger.outage_seconds == 150, "appends have not been answered yet"
    await world.append(session, 0)
    assert lines(caplog) == [
        ("WARNING", "read", 0),
        ("WARNING", "read", OUTAGE_REMINDER_SECONDS),
        ("WARNING", "read", 2 * OUTAGE_REMINDER_SECONDS),
        ("INFO", "append", 150),
    ]
    assert world.ledger.outage_seconds == 0
    assert world.errors_count == 4 * 150
    first = vars(caplog.records[0])
    assert "docs/operations/etcd.md" in first["message"]
    assert first["reason"] == "the ledger cannot be reached"


async def test_a_full_ledger_that_goes_on_answering_reads_is_one_outage(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    session = await world.ledger.open_session("a")
    world.is_full = True
    for _ in range(50):
        world.clock.seconds += 1
        with pytest.raises(LedgerUnavailable):
            await world.append(session, 0)
        await world.ledger.keep_session(session)
    world.is_full = False
    await world.append(session, 0)
    assert lines(caplog) == [("WARNING", "append", 0), ("INFO", "append", 49)]


async def test_what_nobody_tries_again_holds_up_the_end_for_a_minute_at_most(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    session = await world.ledger.open_session("a")
    world.is_full = True
    with pytest.raises(LedgerUnavailable):
        await world.append(session, 0)
    world.clock.seconds += OUTAGE_REMINDER_SECONDS - 1
    await world.ledger.head()
    assert len(caplog.records) == 1
    world.clock.seconds += 1
    await world.ledger.head()
    assert lines(caplog)[1:] == [("INFO", "read", OUTAGE_REMINDER_SECONDS)]


async def test_a_ledger_that_comes_and_goes_does_not_fill_the_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    session = await world.ledger.open_session("a")
    for number in range(int(OUTAGE_REMINDER_SECONDS)):
        world.memory.is_reachable = False
        await world.fail(session)
        world.memory.is_reachable = True
        await world.ledger.head()
        await world.append(session, number)
    assert [line[0] for line in lines(caplog)] == ["WARNING", "INFO"]


async def test_an_answer_that_says_no_is_none_and_so_is_a_call_that_is_given_up(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Fenced):
        await world.append(SessionId(99), 0)
    waiting = asyncio.ensure_future(anext(world.ledger.tail(Position(0))))
    watching = asyncio.ensure_future(anext(world.ledger.released_names()))
    await asyncio.wait([waiting, watching], timeout=0)
    for task in (waiting, watching):
        task.cancel()
    await asyncio.wait([waiting, watching])
    assert (caplog.records, world.errors_count) == ([], 0)
