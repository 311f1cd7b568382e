"""Appends without an answer, and sessions that end: repeated under the same numbers, or told as unknown (S1, S10)."""

import asyncio
from collections.abc import Sequence

import pytest

from coordinator.commands.commands import (
    AllocateProducerIds,
    ChunksCommitted,
    EndSession,
    ProducerIdsAllocated,
    ReportTime,
)
from coordinator.ledger.memory import AppendFate, MemoryLedger
from coordinator.ledger.port import LedgerEntry, OutcomeUnknown
from protocol.types import SessionId
from tests.support.agent.ledger_parts import Parts, running_parts
from tests.support.commands.commands import Batch, Chunk, commit, create, start

SECONDS_MAX = 10.0


class Fates:
    """The fates of the next appends, and what was appended."""

    def __init__(self) -> None:
        self.next: list[AppendFate] = []
        self.seen: list[tuple[SessionId, list[int]]] = []
        self.is_asked = asyncio.Event()

    async def __call__(self, session: SessionId, entries: Sequence[LedgerEntry]) -> AppendFate:
        self.seen.append((session, [entry.number for entry in entries]))
        self.is_asked.set()
        return self.next.pop(0) if self.next else AppendFate.APPLIED


async def first_id(parts: Parts) -> int:
    async with asyncio.timeout(SECONDS_MAX):
        outcome = await parts.ledger.propose(AllocateProducerIds(count=10))
    assert isinstance(outcome, ProducerIdsAllocated)
    return outcome.producer_id_first


@pytest.mark.parametrize("fate", [AppendFate.LOST, AppendFate.ANSWER_LOST, AppendFate.DELAYED])
async def test_an_append_without_an_answer_is_repeated_under_its_numbers_and_happens_once(fate: AppendFate) -> None:
    fates = Fates()
    ledger = MemoryLedger(fate_of_append=fates)
    async with running_parts(ledger) as parts:
        fates.seen.clear()
        fates.next = [fate, fate]
        assert await first_id(parts) == 0
        ledger.core.deliver_delayed()
        assert await first_id(parts) == 10
        session = parts.ledger.session
        assert fates.seen in (
            [(session, [1]), (session, [1]), (session, [1]), (session, [2])],
            [(session, [1]), (session, [1]), (session, [2])],
        )
        assert parts.ledger.state.producer_id_next == 20


async def test_what_is_submitted_together_is_one_append_in_order() -> None:
    fates = Fates()
    async with running_parts(MemoryLedger(fate_of_append=fates)) as parts:
        await parts.ledger.propose(create())
        fates.seen.clear()
        session = parts.ledger.session
        futures = [parts.ledger.propose(commit(n, Chunk(batches=[Batch()]), session=session)) for n in range(5)]
        outcomes = await asyncio.gather(*futures)
        assert len(fates.seen) == 1
        assert [list(o.base_offsets) for o in outcomes if isinstance(o, ChunksCommitted)] == [[n] for n in range(5)]


async def test_an_ended_session_is_replaced_and_what_it_left_is_told_as_unknown() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts:
        ended = parts.ledger.session
        ledger.core.expire(ended)
        futures = [parts.ledger.propose(AllocateProducerIds(count=10)) for _ in range(3)]
        for told in await asyncio.gather(*futures, return_exceptions=True):
            assert isinstance(told, OutcomeUnknown)
        assert parts.ledger.session > ended
        assert ended in parts.ledger.state.sessions_ended
        assert await first_id(parts) == 0  # nothing of the old session was appended under the new one


async def test_an_append_that_happened_before_its_session_ended_is_told_as_it_is() -> None:
    """The answer was lost, the session too: what the reader sees applied is the truth."""
    fates = Fates()
    ledger = MemoryLedger(fate_of_append=fates)
    async with running_parts(ledger) as parts:
        ended = parts.ledger.session
        fates.is_asked.clear()
        fates.next = [AppendFate.ANSWER_LOST]
        future = parts.ledger.propose(AllocateProducerIds(count=10))
        await fates.is_asked.wait()
        ledger.core.expire(ended)
        async with asyncio.timeout(SECONDS_MAX):
            outcome = await future
        assert isinstance(outcome, ProducerIdsAllocated)
        assert await first_id(parts) == outcome.producer_id_first + 10


async def test_a_delayed_append_of_an_ended_session_never_arrives() -> None:
    fates = Fates()
    ledger = MemoryLedger(fate_of_append=fates)
    async with running_parts(ledger) as parts:
        ended = parts.ledger.session
        fates.is_asked.clear()
        fates.next = [AppendFate.DELAYED]
        future = parts.ledger.propose(AllocateProducerIds(count=10))
        await fates.is_asked.wait()
        ledger.core.expire(ended)
        with pytest.raises(OutcomeUnknown):
            await future
        ledger.core.deliver_delayed()
        assert await first_id(parts) == 0


async def test_a_closed_writer_has_ended_its_session() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts:
        session = parts.ledger.session
        await parts.ledger.close()
        assert session not in parts.ledger.state.sessions
        assert await ledger.is_session_ended("a", session)


async def test_a_session_that_ends_before_its_first_entry_leaves_nobody_waiting() -> None:
    ledger = MemoryLedger()
    first: list[SessionId] = []

    async def expire_the_first(session: SessionId, _entries: Sequence[LedgerEntry]) -> AppendFate:
        if not first:
            first.append(session)
            ledger.core.expire(session)
        return AppendFate.APPLIED

    ledger.fate_of_append = expire_the_first
    async with running_parts(ledger) as parts:
        assert parts.ledger.session > first[0]
        assert list(parts.ledger.apply_loop.abandon(first[0])) == []


class SlowStart:
    """Holds up appends while it is closed, and tells when one waits."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.waits = asyncio.Event()

    async def __call__(self, _session: SessionId, _entries: Sequence[LedgerEntry]) -> AppendFate:
        if not self.is_open.is_set():
            self.waits.set()
            await self.is_open.wait()
        return AppendFate.APPLIED


async def test_s9_a_session_is_live_once_its_start_is_applied() -> None:
    slow = SlowStart()
    ledger = MemoryLedger(fate_of_append=slow)
    async with running_parts(ledger) as parts, asyncio.timeout(SECONDS_MAX):
        ended = parts.ledger.session
        assert await parts.ledger.until_live() == ended
        slow.is_open.clear()
        ledger.core.expire(ended)
        undecided = [parts.ledger.propose(ReportTime())]
        await slow.waits.wait()  # the append that will be fenced
        slow.waits.clear()
        slow.is_open.set()
        slow.is_open.clear()
        await slow.waits.wait()  # the new session's start
        assert parts.ledger.session not in parts.ledger.state.sessions
        waiting = asyncio.ensure_future(parts.ledger.until_live())
        await asyncio.sleep(0)
        assert not waiting.done()
        was_confirmed = parts.ledger.is_confirmed
        assert parts.ledger.confirmed_s < 0, "what is seen may be as old as the session before (S4)"
        slow.is_open.set()
        assert await waiting in parts.ledger.state.sessions
        assert (was_confirmed, parts.ledger.is_confirmed) == (False, True)
        for told in await asyncio.gather(*undecided, return_exceptions=True):
            assert isinstance(told, OutcomeUnknown)


async def test_a_session_that_was_lost_before_the_end_leaves_none_behind() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts, asyncio.timeout(SECONDS_MAX):
        lost = parts.ledger.session
        ledger.core.expire(lost)
        await parts.ledger.close()
        assert ledger.core.live_names() == []
        assert not parts.ledger.state.sessions
        assert lost in parts.ledger.state.sessions_ended


async def test_a_lost_session_that_another_agent_has_ended_leaves_none_behind() -> None:
    ledger = MemoryLedger()
    async with (
        running_parts(ledger) as parts,
        running_parts(MemoryLedger(ledger.core), start("b", node=2)) as other,
        asyncio.timeout(SECONDS_MAX),
    ):
        ledger.core.expire(parts.ledger.session)
        await other.ledger.propose(EndSession(session=parts.ledger.session))
        await parts.ledger.barrier()
        await parts.ledger.close()
        assert ledger.core.live_names() == ["b"]
        assert list(parts.ledger.state.sessions) == [other.ledger.session]


async def test_a_session_that_is_replaced_while_its_agent_drains_is_draining() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts, asyncio.timeout(SECONDS_MAX):
        first = parts.ledger.session
        await parts.ledger.start_drain()
        assert parts.ledger.state.sessions[first].is_draining
        ledger.core.expire(first)
        with pytest.raises(OutcomeUnknown):
            await parts.ledger.propose(ReportTime())
        second = await parts.ledger.until_live()
        assert second != first
        assert parts.ledger.state.sessions[second].is_draining
        assert await first_id(parts) == 0


async def test_a_session_that_is_lost_as_its_agent_begins_to_drain_is_replaced_by_one_that_drains() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts, asyncio.timeout(SECONDS_MAX):
        ledger.core.expire(parts.ledger.session)
        with pytest.raises(OutcomeUnknown):
            await parts.ledger.start_drain()
        assert parts.ledger.state.sessions[await parts.ledger.until_live()].is_draining
