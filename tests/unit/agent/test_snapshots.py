"""Snapshots: the object, then the pointer, then the trim; a crash in between loses nothing."""

import asyncio

import pytest

from agent.snapshots import Snapshots
from coordinator.commands import ReportTime
from coordinator.follower import Follower
from coordinator.memory_log import MemoryLedger
from coordinator.snapshot import digest
from coordinator.state import ClusterState
from protocol.types import Position
from storage.failing import FailingStore, Fault, FaultKind, Operation
from storage.memory_store import MemoryStore
from storage.object_store import ObjectStore, StoreUnavailable
from storage.refs import SNAPSHOT_PREFIX, snapshot_key
from tests.made_commands import create
from tests.unit.agent.ledger_parts import Parts, running_parts


async def snapshots(parts: Parts, store: ObjectStore) -> Snapshots:
    return Snapshots(
        ledger=parts.ledger,
        store=store,
        metadata=parts.metadata,
        clock=parts.clock,
        metrics=parts.metrics,
        start=await parts.ledger.load(),
        entries_interval=10,
        bytes_interval=1 << 20,
    )


async def keys(store: ObjectStore) -> list[str]:
    return [meta.key async for meta in store.list(SNAPSHOT_PREFIX)]


async def reloaded(ledger: MemoryLedger, store: ObjectStore) -> ClusterState:
    start = await ledger.load()
    follower = Follower(await ledger.identity())
    follower.load(start, None if start.pointer is None else await store.get(start.pointer.object_key))
    return follower.state


async def test_a_snapshot_replaces_the_entries_before_it() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger) as parts:
        await parts.writer.submit(create())
        pointer = await (await snapshots(parts, store)).take()
        assert pointer.object_key == snapshot_key(parts.metadata.state.position)
        start = await ledger.load()
        assert (start.pointer, list(start.records)) == (pointer, [])
        await parts.writer.submit(create("later", topic_id=bytes(16)))  # type: ignore[arg-type]
        assert digest(await reloaded(ledger, store)) == digest(parts.metadata.state)


async def test_the_next_snapshot_removes_the_one_before() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger) as parts:
        taking = await snapshots(parts, store)
        await taking.take()
        await parts.writer.submit(ReportTime())
        second = await taking.take()
        assert await keys(store) == [second.object_key]
        assert (await taking.take()).object_key == second.object_key
        assert await keys(store) == [second.object_key]


@pytest.mark.parametrize("kind", [FaultKind.BEFORE, FaultKind.AFTER])
async def test_a_put_that_fails_leaves_ledger_and_pointer_as_they_were(kind: FaultKind) -> None:
    ledger, store = MemoryLedger(), FailingStore(MemoryStore())
    async with running_parts(ledger) as parts:
        taking = await snapshots(parts, store)
        store.script(Fault(kind=kind, operation=Operation.PUT))
        with pytest.raises(StoreUnavailable):
            await taking.take()
        assert (await ledger.load()).pointer is None
        assert digest(await reloaded(ledger, store)) == digest(parts.metadata.state)
        pointer = await taking.take()
        assert (await ledger.load()).pointer == pointer


async def test_a_pointer_that_another_agent_moved_is_left_alone() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger) as parts:
        slow = await snapshots(parts, store)
        other = await (await snapshots(parts, store)).take()
        await parts.writer.submit(ReportTime())
        await slow.take()
        assert (await ledger.load()).pointer == other
        await slow.take()
        assert (await ledger.load()).pointer != other


async def test_what_a_crash_left_before_the_pointer_moved_goes_with_the_next_snapshot() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger) as parts:
        await store.put(snapshot_key(parts.metadata.state.position), [b"nobody refers to this"])
        await parts.writer.submit(ReportTime())
        pointer = await (await snapshots(parts, store)).take()
        assert await keys(store) == [pointer.object_key]


async def test_a_newer_one_stays_because_another_agent_may_be_about_to_point_at_it() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger) as parts:
        newer = snapshot_key(Position(parts.metadata.state.position + 1))
        await store.put(newer, [b"on its way"])
        pointer = await (await snapshots(parts, store)).take()
        assert await keys(store) == [pointer.object_key, newer]


async def test_entries_of_earlier_lives_count_too() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    for _ in range(4):
        async with running_parts(ledger) as parts:
            await parts.writer.submit(ReportTime())
            ledger.core.expire(parts.writer.session)
    async with running_parts(ledger) as parts:
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task((await snapshots(parts, store)).run())
            while not await keys(store):
                await parts.writer.submit(ReportTime())
            run.cancel()
        assert parts.metadata.entries_applied_count < 10
