"""What the ledger in memory lets a test do to it. What it shares with the others: tests/contract/test_ledger.py."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import pytest

from coordinator.ledger.memory import AppendFate, MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import (
    Fenced,
    LedgerCorrupt,
    LedgerEntry,
    LedgerIdentity,
    LedgerUnavailable,
    SessionHeld,
    SnapshotPointer,
    position_first,
)
from protocol.types import Position, SessionId

GROUP = [LedgerEntry(number=0, payload=b"x")]
NEXT = [LedgerEntry(number=1, payload=b"y")]


def delaying(core: MemoryLedgerCore, fates: list[AppendFate]) -> MemoryLedger:
    async def next_fate(_session: SessionId, _entries: Sequence[LedgerEntry]) -> AppendFate:
        return fates.pop(0) if fates else AppendFate.APPLIED

    return MemoryLedger(core, fate_of_append=next_fate)


def payloads(core: MemoryLedgerCore) -> list[bytes]:
    return [row.payload for row in core.load().records]


async def test_agents_that_share_a_core_share_one_log() -> None:
    core = MemoryLedgerCore()
    one, two = MemoryLedger(core), MemoryLedger(core)
    first = await one.open_session("a")
    with pytest.raises(SessionHeld):
        await two.open_session("a")
    second = await two.open_session("b")
    await one.append(first, GROUP)
    await two.append(second, GROUP)
    assert [row.session for row in (await one.load()).records] == [first, second]


async def test_an_expired_session_is_fenced_and_its_name_is_free() -> None:
    core = MemoryLedgerCore()
    ledger = MemoryLedger(core)
    session = await ledger.open_session("a")
    core.expire(session)
    with pytest.raises(Fenced):
        await ledger.append(session, GROUP)
    assert await ledger.open_session("a") > session


async def test_a_delayed_append_arrives_when_it_is_delivered() -> None:
    core = MemoryLedgerCore()
    ledger = delaying(core, [AppendFate.DELAYED])
    session = await ledger.open_session("a")
    with pytest.raises(LedgerUnavailable):
        await ledger.append(session, GROUP)
    assert payloads(core) == []
    core.deliver_delayed()
    assert payloads(core) == [b"x"]
    assert await ledger.append(session, GROUP) == core.head.position
    assert core.head.appends_count == 1


async def test_a_delayed_append_that_was_repeated_meanwhile_changes_nothing() -> None:
    core = MemoryLedgerCore()
    ledger = delaying(core, [AppendFate.DELAYED])
    session = await ledger.open_session("a")
    with pytest.raises(LedgerUnavailable):
        await ledger.append(session, GROUP)
    await ledger.append(session, GROUP)
    await ledger.append(session, NEXT)
    core.deliver_delayed()
    assert payloads(core) == [b"x", b"y"]


async def test_a_delayed_append_whose_repeat_was_trimmed_meanwhile_comes_in_again() -> None:
    core = MemoryLedgerCore()
    ledger = delaying(core, [AppendFate.DELAYED])
    session = await ledger.open_session("a")
    with pytest.raises(LedgerUnavailable):
        await ledger.append(session, GROUP)
    first = await ledger.append(session, GROUP)
    second = await ledger.append(session, NEXT)
    pointer = SnapshotPointer(position=first, object_key="k", appends_count=1, digest=b"d")
    assert await ledger.set_snapshot(None, pointer)
    await ledger.trim(first)
    core.deliver_delayed()
    start = await ledger.load()
    assert [(row.position, row.number) for row in start.records] == [(second, 1), (start.head.position, 0)]
    assert start.head.appends_count == 3
    await ledger.append(session, [LedgerEntry(number=2, payload=b"z")])


async def test_a_delayed_append_of_a_dead_session_changes_nothing() -> None:
    core = MemoryLedgerCore()
    ledger = delaying(core, [AppendFate.DELAYED])
    session = await ledger.open_session("a")
    with pytest.raises(LedgerUnavailable):
        await ledger.append(session, GROUP)
    core.expire(session)
    core.deliver_delayed()
    assert payloads(core) == []


async def test_a_slow_append_is_applied_when_its_hook_returns() -> None:
    core = MemoryLedgerCore()
    may_go_on = asyncio.Event()

    async def wait(_session: SessionId, _entries: Sequence[LedgerEntry]) -> AppendFate:
        await may_go_on.wait()
        return AppendFate.APPLIED

    ledger = MemoryLedger(core, fate_of_append=wait)
    session = await ledger.open_session("a")
    async with asyncio.TaskGroup() as group:
        appending = group.create_task(ledger.append(session, GROUP))
        await asyncio.sleep(0)
        assert payloads(core) == []
        may_go_on.set()
    assert appending.result() == core.head.position


async def test_an_agent_that_is_cut_off_can_do_nothing_and_recovers() -> None:
    core = MemoryLedgerCore()
    cut_off, other = MemoryLedger(core), MemoryLedger(core)
    session = await other.open_session("a")
    tail = cut_off.tail(Position(0))
    async with aclosing(tail):
        cut_off.is_reachable = False
        with pytest.raises(LedgerUnavailable, match="reached"):
            await anext(tail)
    for call in (cut_off.load, cut_off.head, cut_off.identity):
        with pytest.raises(LedgerUnavailable, match="reached"):
            await call()
    await other.append(session, GROUP)
    cut_off.is_reachable = True
    assert (await cut_off.load()).head == core.head
    assert cut_off.is_reachable


async def test_a_tail_that_waits_is_told_when_its_agent_is_cut_off() -> None:
    ledger = MemoryLedger()

    async def wait() -> None:
        with pytest.raises(LedgerUnavailable):
            await anext(ledger.tail(Position(0)))

    async with asyncio.TaskGroup() as group:
        group.create_task(wait())
        await asyncio.sleep(0)
        ledger.is_reachable = False


async def test_s9_whoever_had_it_open_is_told_of_another_incarnation() -> None:
    core = MemoryLedgerCore()
    first, second = MemoryLedger(core), MemoryLedger(core)
    pointer = SnapshotPointer(position=position_first(2), object_key="k", appends_count=0, digest=b"d")
    with pytest.raises(LedgerCorrupt, match="not fenced"):
        await first.restart(LedgerIdentity(cluster_id="memory", incarnation=2), pointer)
    await first.fence()
    await first.restart(LedgerIdentity(cluster_id="memory", incarnation=2), pointer)
    assert (await first.head()).position == position_first(2)
    with pytest.raises(LedgerCorrupt, match="incarnation 1, and now it is that of memory, incarnation 2"):
        await second.open_session("a")
