"""How a session's name and lease are waited for and kept: told once, and tried again in time (S12)."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence

import pytest

from agent.ledger.bootstrap import load_state
from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.runtime.start_waits import StartWaits
from coordinator.commands.commands import Done, ReportTime
from coordinator.ledger.memory import MemoryLedger
from coordinator.ledger.port import LedgerRecord, LedgerUnavailable, OutcomeUnknown
from protocol.limits import LEDGER_RENEWAL_RETRY_SECONDS, LEDGER_SESSION_SECONDS
from protocol.types import Position, SessionId
from storage.memory_store import MemoryStore
from tests.support.agent.ledger_parts import ManualClock, running_parts
from tests.support.commands.commands import start

SECONDS_MAX = 10.0


class ForgetfulLedger(MemoryLedger):
    """Does not answer the first renewals; after some more the test may go on."""

    answers_lost = 2
    renewals = 0

    def __init__(self) -> None:
        super().__init__()
        self.is_done = asyncio.Event()

    async def keep_session(self, session: SessionId) -> None:
        self.renewals += 1
        if self.renewals > 4:
            self.is_done.set()
            await asyncio.Event().wait()
        if self.renewals <= self.answers_lost:
            raise LedgerUnavailable("etcd has fallen silent")
        await super().keep_session(session)


async def test_a_lease_that_was_not_renewed_is_tried_again_at_once_and_not_after_another_third() -> None:
    ledger = ForgetfulLedger()
    async with running_parts(ledger) as parts, asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
        parts.clock.slept.clear()
        keeping = group.create_task(parts.ledger.writer.keep_session())
        await ledger.is_done.wait()
        keeping.cancel()
    third = LEDGER_SESSION_SECONDS / 3
    assert parts.clock.slept[:5] == [third, LEDGER_RENEWAL_RETRY_SECONDS, LEDGER_RENEWAL_RETRY_SECONDS, third, third]
    # A try may take a third, so may the pause before it: two that fail and one that succeeds fit into the lease.
    assert third + LEDGER_RENEWAL_RETRY_SECONDS < 2 * third


class LaggingLedger(MemoryLedger):
    """Answers everything, and tells nothing of what is appended while `is_told` is not set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_told = asyncio.Event()
        self.is_told.set()

    async def tail(self, after: Position) -> AsyncGenerator[Sequence[LedgerRecord], None]:
        async for records in super().tail(after):
            await self.is_told.wait()
            yield records


async def test_s4_a_session_is_confirmed_as_of_when_what_was_there_is_applied() -> None:
    """An agent that is not told of new entries would call its end the end, although its lease is renewed."""
    ledger = LaggingLedger()
    async with running_parts(ledger) as parts, asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
        keeping = group.create_task(parts.ledger.writer.keep_session())
        while parts.clock.seconds < 2 * LEDGER_SESSION_SECONDS:
            await parts.clock.sleep(0)
        trusted = [parts.ledger.is_confirmed]
        ledger.is_told.clear()
        told = parts.ledger.propose(ReportTime())
        silent_from_s = parts.clock.seconds
        while parts.clock.seconds < silent_from_s + 2 * LEDGER_SESSION_SECONDS:
            await parts.clock.sleep(0)
        assert parts.ledger.confirmed_s <= silent_from_s + LEDGER_SESSION_SECONDS / 3
        trusted.append(parts.ledger.is_confirmed)
        ledger.is_told.set()
        assert await told == Done()
        trusted.append(parts.ledger.is_confirmed)
        keeping.cancel()
    assert trusted == [True, False, True]


class HeldLedger(MemoryLedger):
    """Counts how often a session was asked for while another held the name, and then lets it go."""

    asked = 0
    held = SessionId(-1)

    async def open_session(self, name: str) -> SessionId:
        self.asked += 1
        if self.asked == 6:
            self.core.expire(self.held)
        return await super().open_session(name)


class ObservedLedger(HeldLedger):
    """Reads the start's line at each request for a session, and does not answer the third one."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.waits = StartWaits(clock)
        self.lines: list[str] = []

    async def open_session(self, name: str) -> SessionId:
        self.lines.append(self.waits.line)
        if len(self.lines) == 3:
            raise LedgerUnavailable("etcd has fallen silent")
        return await super().open_session(name)


async def test_a_start_says_that_it_waits_for_its_name_or_for_the_ledger() -> None:
    clock = ManualClock()
    ledger = ObservedLedger(clock)
    ledger.held = ledger.core.open_session(start().name)
    store = MemoryStore()
    client = LedgerClient(
        backend=ledger,
        store=store,
        follower=(await load_state(ledger, store)).follower,
        clock=clock,
        proposed_time=clock.now_ms,
        metrics=Metrics(),
    )
    async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as tasks:
        following = tasks.create_task(client.apply_loop.run())
        await client.open(start(), waits=ledger.waits)
        following.cancel()
    starts, name_is_held = "not ready: the agent starts", "not ready: the start waits for the end of another session"
    expected = [starts, name_is_held, name_is_held, "not ready: the start waits for the ledger"]
    assert [line.removesuffix(" under this agent's name") for line in ledger.lines[:4]] == expected
    assert set(ledger.lines[4:]) == {ledger.lines[1]}
    assert ledger.waits.line == starts


async def test_a_name_that_is_held_is_waited_for_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    ledger = HeldLedger()
    ledger.held = ledger.core.open_session(start().name)
    with caplog.at_level(logging.WARNING):
        async with asyncio.timeout(SECONDS_MAX), running_parts(ledger) as parts:
            assert parts.ledger.session > ledger.held
    told = [record.getMessage() for record in caplog.records if "holds this agent's name" in record.getMessage()]
    assert len(told) == 1
    assert "--name" in told[0]


class RivalLedger(MemoryLedger):
    """Another process holds the name, and takes it again after the first session of this one."""

    def __init__(self, *, answers_lost: int = 0) -> None:
        super().__init__()
        self.answers_lost = answers_lost
        self.revoked: list[SessionId] = []
        self.held = self.core.open_session(start().name)
        self.is_let_go = False

    async def revoke_session(self, name: str, session: SessionId) -> None:
        self.revoked.append(session)
        if len(self.revoked) <= self.answers_lost:
            raise LedgerUnavailable("etcd has fallen silent")
        await super().revoke_session(name, session)

    async def open_session(self, name: str) -> SessionId:
        if self.is_let_go:
            self.core.expire(self.held)
        return await super().open_session(name)


@pytest.mark.parametrize("answers_lost", [0, 2])
async def test_s12_a_name_that_is_taken_over_is_not_waited_for(
    caplog: pytest.LogCaptureFixture, answers_lost: int
) -> None:
    ledger = RivalLedger(answers_lost=answers_lost)
    with caplog.at_level(logging.WARNING):
        async with asyncio.timeout(SECONDS_MAX), running_parts(ledger, is_taking_over_name=True) as parts:
            assert parts.ledger.session > ledger.held
            assert ledger.revoked == [ledger.held] * (answers_lost + 1)
            assert len(parts.clock.slept) == answers_lost
    said = [record.getMessage() for record in caplog.records]
    assert [text.startswith("another session held this agent's name, and was ended") for text in said][-1:] == [True]


async def test_s12_an_agent_takes_over_its_name_at_its_start_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Else two processes that claim one name would end each other's sessions for ever."""
    ledger = RivalLedger()
    async with asyncio.timeout(SECONDS_MAX), running_parts(ledger, is_taking_over_name=True) as parts:
        mine = parts.ledger.session
        ledger.core.revoke_session(start().name, mine)
        ledger.held = ledger.core.open_session(start().name)
        caplog.clear()
        lost = parts.ledger.propose(ReportTime())
        while not caplog.records or "waiting for it to end" not in caplog.records[-1].getMessage():
            await parts.clock.sleep(0)
        ledger.is_let_go = True
        with pytest.raises(OutcomeUnknown):
            await lost
        assert len(ledger.revoked) == 1
        assert await parts.ledger.propose(ReportTime()) == Done()
        assert parts.ledger.session > ledger.held


async def test_without_the_switch_nobody_is_ended() -> None:
    ledger = HeldLedger()
    ledger.held = ledger.core.open_session(start().name)
    async with asyncio.timeout(SECONDS_MAX), running_parts(ledger):
        assert ledger.asked == 6
