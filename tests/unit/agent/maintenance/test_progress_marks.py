"""The bucket knows how far the ledger had come (safety rule S9)."""

import pytest

from agent.maintenance.progress_marks import ProgressMarks, leave_mark
from coordinator.commands.commands import ReportTime
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from protocol.types import Position
from storage.decorators.failing import FailingStore, FaultKind, InjectedFault, StoreOperation
from storage.memory_store import MemoryStore
from storage.object_store import ObjectStore
from storage.refs import REACHED_PREFIX, reached_key
from tests.support.agent.ledger_parts import Parts, running_parts
from tests.support.commands.commands import start


def marks(parts: Parts, store: ObjectStore) -> ProgressMarks:
    return ProgressMarks(store=store, ledger=parts.ledger, maintenance_leader=parts.maintenance_leader)


async def keys(store: ObjectStore) -> list[str]:
    return [meta.key async for meta in store.list(REACHED_PREFIX)]


async def test_there_is_one_mark_and_it_says_where_the_ledger_is() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await store.put(reached_key(Position(0)), [b"of an earlier life"])
        marking = marks(parts, store)
        for _ in range(3):
            await parts.ledger.propose(ReportTime())
            await marking.mark()
            assert await keys(store) == [reached_key(parts.ledger.state.position)]
        await marking.mark()
        assert await keys(store) == [reached_key(parts.ledger.state.position)]


async def test_a_mark_of_another_agent_that_is_further_stays() -> None:
    core, store = MemoryLedgerCore(), MemoryStore()
    async with (
        running_parts(MemoryLedger(core), store=store) as parts,
        running_parts(MemoryLedger(core), start("b", node=2), store=store) as others,
    ):
        await others.ledger.propose(ReportTime())
        await marks(others, store).mark()
        further = reached_key(others.ledger.state.position)
        parts.ledger.state.position = Position(others.ledger.state.position - 1)
        await marks(parts, store).mark()
        assert await keys(store) == [reached_key(parts.ledger.state.position), further]


async def test_a_mark_that_cannot_be_deleted_holds_up_no_newer_one(caplog: pytest.LogCaptureFixture) -> None:
    store = FailingStore(MemoryStore())
    async with running_parts(store=store) as parts:
        marking = marks(parts, store)
        store.undeletable.add(reached_key(parts.ledger.state.position))
        for _ in range(3):
            await marking.mark()
            await parts.ledger.propose(ReportTime())
        await marking.mark()
        assert len(await keys(store)) == 2
        assert reached_key(parts.ledger.state.position) in await keys(store)
    assert len([record for record in caplog.records if "did not delete" in record.message]) == 1


async def test_who_ends_because_of_its_ledger_tells_the_bucket_how_far_it_was_unless_that_is_away_too() -> None:
    store = FailingStore(MemoryStore())
    async with running_parts(store=store) as parts:
        store.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.PUT))
        await leave_mark(store, parts.ledger.state, parts.clock)
        assert [meta.key async for meta in store.list(REACHED_PREFIX)] == []
        await leave_mark(store, parts.ledger.state, parts.clock)
        assert [meta.key async for meta in store.list(REACHED_PREFIX)] == [reached_key(parts.ledger.state.position)]
