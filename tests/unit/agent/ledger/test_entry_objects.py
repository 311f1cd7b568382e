"""Safety rule S6, third case: what a live session put for an entry that did not come, and when it may delete that."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from agent.ledger.entry_objects import UncommittedObjects
from coordinator.commands.commands import CommitTable, DeleteTopic, Done, NewObject, Rejected, TableCommit
from coordinator.ledger.memory import MemoryLedger
from coordinator.ledger.port import LedgerUnavailable, OutcomeUnknown
from protocol.limits import LEDGER_SESSION_SECONDS
from protocol.types import ObjectNumber
from storage.gc_plan import EntryFate
from storage.memory_store import MemoryStore
from storage.object_store import StoreUnavailable
from storage.refs import METADATA_SUFFIX, table_metadata_key
from tests.support.agent.ledger_parts import Parts, always_ours, running_parts, uncommitted_of
from tests.support.commands.commands import TOPIC, create


class Made:
    """An agent with a topic, and the entry for which it puts a table's first metadata."""

    def __init__(self, parts: Parts, store: MemoryStore) -> None:
        self.parts, self.store = parts, store
        self.session = parts.ledger.session
        self.key = table_metadata_key("t", TOPIC, self.session, ObjectNumber(1), METADATA_SUFFIX)

    def entry(self, replaces: str = "") -> CommitTable:
        metadata = NewObject(key=self.key, object_bytes=2)
        table = TableCommit(replaces=replaces, metadata=metadata, added=(), data_files=(), released=())
        return CommitTable(topic_id=TOPIC, object_session=self.session, table=table)

    async def keys(self) -> list[str]:
        return [meta.key async for meta in self.store.list("lake/")]

    def count(self, outcome: str) -> float:
        return float(self.parts.metrics.uncommitted_objects.labels(outcome)._value.get())


@pytest.fixture
async def made() -> AsyncIterator[Made]:
    store, ledger = MemoryStore(), MemoryLedger()
    async with running_parts(ledger, store=store) as parts:
        await parts.ledger.propose(create())
        yield Made(parts, store)


async def test_s6_an_object_whose_entry_came_stays(made: Made) -> None:
    async with uncommitted_of(made.parts, made.store).of_entry(made.session) as objects:
        await objects.store.put(made.key, [b"{}"])
        assert await objects.propose(made.entry()) == Done()
    assert await made.keys() == [made.key]
    assert made.count("deleted") == made.count("left") == 0


async def test_s6_an_object_whose_entry_was_seen_rejected_is_deleted(made: Made) -> None:
    async with uncommitted_of(made.parts, made.store).of_entry(made.session) as objects:
        await objects.store.put(made.key, [b"{}"])
        assert isinstance(await objects.propose(made.entry(replaces="another")), Rejected)
    assert await made.keys() == []
    assert made.count("deleted") == 1


async def test_s6_an_object_that_no_entry_was_proposed_for_is_deleted(made: Made) -> None:
    async def fail() -> None:
        async with uncommitted_of(made.parts, made.store).of_entry(made.session) as objects:
            await objects.store.put(made.key, [b"{}"])
            raise ValueError("the second put")

    with pytest.raises(ValueError, match="the second put"):
        await fail()
    assert await made.keys() == []


async def test_s6_an_append_of_unknown_outcome_keeps_its_object(made: Made) -> None:
    """The session ended before its entry was seen applied: it may be there, or come."""
    ledger = made.parts.backend
    assert isinstance(ledger, MemoryLedger)

    async def lose_session() -> None:
        async with uncommitted_of(made.parts, made.store).of_entry(made.session) as objects:
            await objects.store.put(made.key, [b"{}"])
            ledger.core.expire(made.session)
            await objects.propose(made.entry())

    with pytest.raises(OutcomeUnknown):
        await lose_session()
    assert await made.keys() == [made.key]
    assert made.count("left") == 1


async def test_s6_unknown_without_a_trace_in_the_state_keeps_it_too(made: Made) -> None:
    uncommitted = uncommitted_of(made.parts, made.store)
    await made.store.put(made.key, [b"{}"])
    await uncommitted.settle(made.session, EntryFate.UNKNOWN, [made.key])
    assert await made.keys() == [made.key]
    assert made.count("left") == 1


async def test_a_cancelled_entry_keeps_its_object(made: Made) -> None:
    async with asyncio.timeout(10):
        with suppress(asyncio.CancelledError):
            async with uncommitted_of(made.parts, made.store).of_entry(made.session) as objects:
                await objects.store.put(made.key, [b"{}"])
                raise asyncio.CancelledError
    assert await made.keys() == [made.key]


async def test_what_the_state_knows_is_the_states(made: Made) -> None:
    """An entry may be rejected because an earlier one brought its object in."""
    uncommitted = uncommitted_of(made.parts, made.store)
    await made.store.put(made.key, [b"{}"])
    await made.parts.ledger.propose(made.entry())
    await uncommitted.settle(made.session, EntryFate.REJECTED, [made.key])
    await made.parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
    assert made.key in made.parts.ledger.state.released
    await uncommitted.settle(made.session, EntryFate.REJECTED, [made.key])
    assert await made.keys() == [made.key]


@pytest.mark.parametrize("ours", [False, LedgerUnavailable("away"), StoreUnavailable("away")])
async def test_s9_nothing_is_deleted_where_the_bucket_may_be_anothers(made: Made, ours: bool | Exception) -> None:
    async def is_ours() -> bool:
        if isinstance(ours, Exception):
            raise ours
        return ours

    uncommitted = UncommittedObjects(
        store=made.store,
        ledger=made.parts.ledger,
        is_bucket_ours=is_ours,
        metrics=made.parts.metrics,
    )
    await made.store.put(made.key, [b"{}"])
    await uncommitted.settle(made.session, EntryFate.REJECTED, [made.key])
    assert await made.keys() == [made.key]
    assert made.count("left") == 1


async def test_s9_a_session_that_may_be_over_deletes_nothing(made: Made) -> None:
    uncommitted = UncommittedObjects(
        store=made.store,
        ledger=made.parts.ledger,
        is_bucket_ours=always_ours,
        metrics=made.parts.metrics,
    )
    await made.store.put(made.key, [b"{}"])
    made.parts.clock.seconds += 3_600
    await uncommitted.settle(made.session, EntryFate.REJECTED, [made.key])
    assert await made.keys() == [made.key]


async def test_s9_a_session_that_is_cut_off_while_the_bucket_is_asked_deletes_nothing(made: Made) -> None:
    """A recovery waits for a lease's time, and may commit the object then."""

    async def is_ours() -> bool:
        made.parts.clock.seconds += LEDGER_SESSION_SECONDS  # its requests were sent again and again
        return True

    await made.store.put(made.key, [b"{}"])
    await uncommitted_of(made.parts, made.store, is_ours).settle(made.session, EntryFate.REJECTED, [made.key])
    assert await made.keys() == [made.key]
    assert (made.count("deleted"), made.count("left")) == (0, 1)


async def test_s9_a_session_that_is_replaced_while_the_bucket_is_asked_deletes_nothing(made: Made) -> None:
    ledger = made.parts.backend
    assert isinstance(ledger, MemoryLedger)

    async def is_ours() -> bool:
        ledger.core.expire(made.session)
        with suppress(OutcomeUnknown):
            await made.parts.ledger.propose(create(name="another"))
        await made.parts.ledger.until_live()
        assert made.parts.ledger.session != made.session
        assert made.parts.ledger.is_confirmed
        return True

    await made.store.put(made.key, [b"{}"])
    await uncommitted_of(made.parts, made.store, is_ours).settle(made.session, EntryFate.UNPROPOSED, [made.key])
    assert await made.keys() == [made.key]
    assert made.count("left") == 1


async def test_what_comes_into_the_state_while_the_bucket_is_asked_is_the_states(made: Made) -> None:
    async def is_ours() -> bool:
        await made.parts.ledger.propose(made.entry())
        return True

    await made.store.put(made.key, [b"{}"])
    await uncommitted_of(made.parts, made.store, is_ours).settle(made.session, EntryFate.REJECTED, [made.key])
    assert await made.keys() == [made.key]
