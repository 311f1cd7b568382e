"""S9: a ledger that is closed to everybody, then another incarnation on it, as every backend does it."""

import pytest

from coordinator.ledger.port import (
    Fenced,
    Head,
    Ledger,
    LedgerCorrupt,
    LedgerIdentity,
    SessionHeld,
    Trimmed,
    position_first,
)
from protocol.types import SessionId
from tests.support.ledger.backends import Backend
from tests.support.ledger.operations import START, append_singly, entries, numbers, pointer_at, revisions, take

IDENTITY = LedgerIdentity(cluster_id="recovered", incarnation=3, bucket_id="its bucket")
FIRST = position_first(3)
POINTER = pointer_at(FIRST, appends_count=0)


async def used(ledger: Ledger) -> SessionId:
    """A ledger with entries, a snapshot, trimmed ones, and a session that is over."""
    session = await ledger.open_session("a")
    positions = await append_singly(ledger, session, 3)
    assert await ledger.set_snapshot(None, pointer_at(positions[1], appends_count=2))
    await ledger.trim(positions[1])
    await ledger.close_session(session)
    return session


async def restart(ledger: Ledger) -> None:
    await ledger.fence()
    await ledger.restart(IDENTITY, POINTER)


async def test_the_next_incarnation_begins_empty_above_all_positions_of_the_last(ledger: Ledger) -> None:
    session = await used(ledger)
    await restart(ledger)
    assert await ledger.identity() == IDENTITY
    assert await ledger.head() == Head(position=FIRST, appends_count=0)
    start = await ledger.load()
    assert (start.pointer, start.head.appends_count, list(start.records)) == (POINTER, 0, [])
    assert await ledger.is_session_ended("a", session)
    successor = await ledger.open_session("a")
    position = await ledger.append(successor, entries(b"x"))
    assert session < FIRST < successor < position < position_first(4)
    assert await ledger.head() == Head(position=position, appends_count=1)
    assert revisions((await ledger.load()).records) == [(position, [0])]
    assert revisions(await take(ledger, FIRST, 1)) == [(position, [0])]


async def test_the_next_incarnation_has_the_bucket_that_it_was_begun_with(ledger: Ledger) -> None:
    await ledger.claim_bucket("another")
    await restart(ledger)
    assert await ledger.identity() == IDENTITY
    assert await ledger.claim_bucket("a third") == IDENTITY


async def test_a_fenced_ledger_takes_no_bucket_but_tells_the_one_that_it_has(backend: Backend) -> None:
    with_bucket = await backend.another()
    await backend.ledger.fence()
    with pytest.raises(LedgerCorrupt, match="being recovered"):
        await with_bucket.claim_bucket("one")
    assert (await with_bucket.identity()).bucket_id == ""


async def test_an_empty_ledger_can_be_restarted(ledger: Ledger) -> None:
    await restart(ledger)
    assert (await ledger.load()).pointer == POINTER


async def test_a_reader_of_the_last_incarnation_is_told(ledger: Ledger) -> None:
    await used(ledger)
    before = (await ledger.head()).position
    await restart(ledger)
    for after in (START, before):
        with pytest.raises(Trimmed):
            await take(ledger, after, 1)


async def test_nothing_is_fenced_while_an_agent_lives(ledger: Ledger) -> None:
    session = await ledger.open_session("a")
    position = await ledger.append(session, entries(b"x"))
    with pytest.raises(SessionHeld, match="'a'"):
        await ledger.fence()
    with pytest.raises(LedgerCorrupt, match="not fenced"):
        await ledger.restart(IDENTITY, POINTER)
    assert (await ledger.identity()).incarnation == 1
    assert revisions((await ledger.load()).records) == [(position, [0])]
    await ledger.append(session, entries(b"y", first=1))


async def test_without_a_fence_nothing_is_dropped(ledger: Ledger) -> None:
    await used(ledger)
    before = await ledger.load()
    with pytest.raises(LedgerCorrupt, match="not fenced"):
        await ledger.restart(IDENTITY, POINTER)
    assert await ledger.load() == before


async def test_nothing_is_written_to_a_fenced_ledger_by_whoever_had_it_open(backend: Backend) -> None:
    ledger, agent = backend.ledger, await backend.another()
    session = await agent.open_session("a")
    position = await agent.append(session, entries(b"x"))
    await backend.end(session)
    before = await ledger.load()
    await ledger.fence()
    await ledger.fence()
    for held in (agent, ledger, await backend.another()):
        with pytest.raises((LedgerCorrupt, Fenced)):
            await held.append(session, entries(b"y", first=1))
        with pytest.raises(LedgerCorrupt, match="being recovered"):
            await held.open_session("b")
        with pytest.raises(LedgerCorrupt, match="being recovered"):
            await held.set_snapshot(None, pointer_at(position, appends_count=1))
        assert await held.load() == before
        assert await held.head() == before.head
        assert (await held.identity()).incarnation == 1
        assert await held.live_names() == []


async def test_a_restart_ends_the_fence(backend: Backend) -> None:
    agent = await backend.another()
    await restart(await backend.another())  # another than the one that goes on: a recovery may take several runs
    after = await backend.another()
    await after.append(await after.open_session("a"), entries(b"x"))
    if agent is not after:
        with pytest.raises(LedgerCorrupt, match="recovered"):
            await agent.open_session("b")


async def test_a_repeat_changes_nothing_more(ledger: Ledger) -> None:
    await used(ledger)
    await restart(ledger)
    await ledger.append(await ledger.open_session("a"), entries(b"x"))
    await ledger.restart(IDENTITY, POINTER)
    assert (await ledger.head()).appends_count == 1


async def test_the_new_incarnation_takes_snapshots_and_is_trimmed(ledger: Ledger) -> None:
    await used(ledger)
    await restart(ledger)
    await ledger.trim(FIRST)
    positions = await append_singly(ledger, await ledger.open_session("a"), 3)
    assert await ledger.set_snapshot(POINTER, pointer_at(positions[1], appends_count=2))
    await ledger.trim(positions[1])
    with pytest.raises(Trimmed):
        await take(ledger, FIRST, 1)
    assert numbers(await take(ledger, positions[1], 1)) == [2]
